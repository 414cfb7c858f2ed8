"""Measured products are found where they are installed or where a user says; what is wrong with them is one line."""

from __future__ import annotations

import re
from importlib import metadata
from typing import TYPE_CHECKING

import numpy as np
import pytest
from msgspec.structs import replace
from support.paths import RESULTS
from support.products_made import A100, Package, made, rows_of

from mlpfusion.errors import UsageError
from mlpfusion.stages.predict import sources
from mlpfusion.storage import results

if TYPE_CHECKING:
    from pathlib import Path

SMALL = made(rows=(1, 64), sides=(512, 1024))
HEADS = "m,n,k,dtype,us"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    return Package(tmp_path, monkeypatch)


# ---- the installed package -------------------------------------------------------------------------------------------


def test_the_rows_of_a_card_in_16_bits_become_its_table_in_microseconds(package: Package) -> None:
    package.add("a", rows_of(SMALL) + rows_of(SMALL, dtype="fp8") + rows_of(SMALL, device="another card"))
    found = sources.installed(A100)
    assert found is not None
    assert found.shapes.tolist() == SMALL.shapes[np.lexsort(SMALL.shapes.T[::-1])].tolist()
    assert sorted(found.us) == pytest.approx(sorted(SMALL.us))
    assert found.source == "aiconfigurator-core 0.12.0"
    assert sources.installed("no such card") is None
    assert "has no table of no such card" in (sources.missing("no such card") or "")
    assert sources.missing(A100) is None


def test_the_second_time_it_comes_from_the_cache_and_another_version_is_parsed_anew(package: Package) -> None:
    package.add("a", rows_of(SMALL))
    first = sources.installed(A100)
    package.reads = 0
    again = sources.installed(A100)
    assert package.reads == 0
    assert first is not None
    assert again is not None
    assert (again.shapes.tolist(), again.us.tolist(), again.spread) == (
        first.shapes.tolist(),
        first.us.tolist(),
        first.spread,
    )
    package.version = "0.13.0"
    assert sources.installed(A100) is not None
    assert package.reads == 1


@pytest.mark.parametrize("damage", [b"", b"PK no zip", b"PK\x03\x04" + bytes(200)])
def test_a_damaged_cache_is_made_again(package: Package, damage: bytes) -> None:
    package.add("a", rows_of(SMALL))
    sources.installed(A100)
    (kept,) = (package.folder / "cache").glob("*.npz")
    kept.write_bytes(damage)
    package.reads = 0
    assert sources.installed(A100) is not None
    assert package.reads == 1


def test_a_cache_that_cannot_be_written_costs_a_warning_and_no_prediction(
    package: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    package.add("a", rows_of(SMALL))
    (package.folder / "file").write_text("")
    monkeypatch.setenv("MLPFUSION_CACHE_DIR", str(package.folder / "file"))
    with pytest.warns(UserWarning, match="is not kept for the next time"):
        assert sources.installed(A100) is not None


def test_another_layout_is_refused_by_version_and_never_half_read(package: Package) -> None:
    with pytest.raises(UsageError, match=re.escape("aiconfigurator-core 0.12.0 holds no gemm_perf.parquet")):
        sources.installed(A100)
    package.add("a", [{"device": A100, "gemm_dtype": "bfloat16", "M": 1, "N": 1, "K": 1, "latency": 1.0}])
    with pytest.raises(UsageError, match=r"gemm_perf.parquet has another layout or is damaged \('m'\)"):
        sources.installed(A100)


def test_a_file_that_is_no_table_is_refused_in_one_line(package: Package) -> None:
    package.add("a", rows_of(SMALL)).write_text("{", "utf-8")
    with pytest.raises(UsageError, match="has another layout or is damaged") as raised:
        sources.installed(A100)
    assert "\n" not in str(raised.value)


def test_rows_that_cannot_be_are_left_out(package: Package) -> None:
    bad = [{**rows_of(SMALL)[0], **change} for change in ({"m": 0}, {"latency": 0.0}, {"latency": float("nan")})]
    package.add("a", rows_of(SMALL) + bad)
    found = sources.installed(A100)
    assert found is not None
    assert len(found) == len(SMALL)


def test_without_the_package_one_line_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.distribution", absent)
    monkeypatch.setattr("importlib.metadata.version", absent)
    assert sources.installed(A100) is None
    said = sources.missing(A100) or ""
    assert "aiconfigurator-core is not installed (`pip install 'mlpfusion[tables]'`" in said
    assert "\n" not in said


# ---- a user's file ---------------------------------------------------------------------------------------------------


def written(tmp_path: Path, text: str | bytes) -> str:
    path = tmp_path / "mine.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


@pytest.mark.parametrize(
    "text",
    [
        f"{HEADS}\n1,2,3,bfloat16,4.5\n\n8,16,32,float16,1e1\n",
        "\ufeffUS,K, N,M,dtype,note\r\n4.5,3,2,1,bfloat16,x\r\n10,32,16,8,float16,\r\n",
    ],
)
def test_a_csv_in_any_order_of_columns_is_read(tmp_path: Path, text: str) -> None:
    found = sources.own(written(tmp_path, text), A100)
    assert (found.shapes.tolist(), found.us.tolist()) == ([[1, 2, 3], [8, 16, 32]], pytest.approx([4.5, 10.0]))
    assert found.source == "mine.csv"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", r"line 1: the columns are '(.*)'; needed: m,n,k,dtype,us"),
        ("m,n,k,us\n1,2,3,4\n", "line 1: the columns are 'm,n,k,us'"),
        (f"{HEADS}\n", "has no products"),
        (f"{HEADS}\n1,2,3,bfloat16,4\n0,2,3,bfloat16,4\n", "line 3: m '0'; valid: whole numbers from 1 to 2147483647"),
        (f"{HEADS}\n1,-2,3,bfloat16,4\n", "line 2: n '-2'"),
        (f"{HEADS}\n1,2,³,bfloat16,4\n", "line 2: k '³'"),
        (f"{HEADS}\n1,2,{'9' * 5000},bfloat16,4\n", "line 2: k '9999"),
        (f"{HEADS}\n1,2,3,fp8,4\n", "line 2: dtype 'fp8'; valid: bfloat16, float16"),
        (f"{HEADS}\n1,2,3,bfloat16,nan\n", "line 2: us 'nan'; valid: microseconds"),
        (f"{HEADS}\n1,2,3,bfloat16,-1\n", "line 2: us '-1'"),
        (f"{HEADS}\n1,2,3,bfloat16\n", "line 2: us ''"),
        (f'{HEADS}\n1,2,3,bfloat16,"4\n', "line 2"),
        (b"\xff\xfe\x00", "is neither a CSV file nor a result"),
    ],
)
def test_a_wrong_csv_is_refused_with_its_line(tmp_path: Path, text: str | bytes, said: str) -> None:
    with pytest.raises(UsageError, match=said) as raised:
        sources.own(written(tmp_path, text), A100)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 400


def test_a_profile_of_that_card_gives_its_library_products_alone(tmp_path: Path) -> None:
    profile = results.load(RESULTS / "h200-profile.json")
    fused = next(row for row in profile.rows if row.backend == "fused")
    eager = next(row for row in profile.rows if row.backend == "eager")
    path = tmp_path / "result.json"
    results.save(replace(profile, rows=(eager, fused)), path)
    found = sources.own(str(path), "NVIDIA H200")
    assert found.shapes.tolist() == [[8192, 768, 3072], [8192, 3072, 768]]
    assert eager.traffic is not None
    assert fused.traffic is not None
    downs = [step.time_us for row in (eager, fused) for step in row.traffic.steps if step.role == "down_gemm"]  # type: ignore[union-attr]
    assert found.us[0] == pytest.approx(np.exp(np.mean(np.log(np.array(downs, dtype=float)))))
    with pytest.raises(UsageError, match=re.escape("was measured on NVIDIA H200, not on NVIDIA A100-SXM4-80GB")):
        sources.own(str(path), A100)
    results.save(replace(profile, rows=(replace(eager, traffic=None),)), path)
    with pytest.raises(UsageError, match="has no timed matrix products"):
        sources.own(str(path), "NVIDIA H200")
