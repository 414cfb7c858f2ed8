"""heads: a file that is newer names the version to upgrade to, and one that is damaged is one line, for every kind."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from mlpfusion_kernels.gate_up import tuned
from support.paths import RESULTS

from mlpfusion.cli import main
from mlpfusion.errors import UsageError
from mlpfusion.records import choice, profile
from mlpfusion.storage import results

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CHOSEN = RESULTS / "h200-choose-gemma-2b"
READERS: dict[str, tuple[Path, Callable[[Path], Any], int]] = {
    "profile": (RESULTS / "h200-article.json", results.load, profile.SCHEMA),
    "choice": (CHOSEN / "choice.json", results.load_choice, choice.SCHEMA),
    "plan": (CHOSEN / "plan.json", results.load_plan, choice.SCHEMA),
}


def changed(tmp_path: Path, source: Path, **top: Any) -> Path:
    document = {**json.loads(source.read_text(encoding="utf-8")), **top}
    path = tmp_path / "file.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


@pytest.fixture(params=READERS)
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Callable[[Path], Any], int]:
    source, load, newest = READERS[request.param]
    if not source.exists():  # a plan is the choice's first fields; make one of the same kind
        source = tmp_path / "plan.json"
        source.write_text(json.dumps({"schema": 1, "kind": "choice plan"}), encoding="utf-8")
    return source, load, newest


@pytest.mark.parametrize("newer", [1, 2, 17, 10**9, 2**63, 10**30])
@pytest.mark.parametrize(
    ("version", "wanted"),
    [
        ("0.2.0", "mlpfusion 0.2.0"),
        ("1.10.3rc1", "mlpfusion 1.10.3rc1"),
        ("2.0.dev3+g12ab", "mlpfusion 2.0.dev3+g12ab"),
        (None, "a newer mlpfusion"),
        ("1; rm -rf ~", "a newer mlpfusion"),
        (7, "a newer mlpfusion"),
        ("9" * 5000, "a newer mlpfusion"),
    ],
)
def test_a_newer_file_names_the_version_to_upgrade_to(
    tmp_path: Path, kind: tuple[Path, Callable[[Path], Any], int], newer: int, version: Any, wanted: str
) -> None:
    source, load, newest = kind
    with pytest.raises(UsageError) as caught:
        load(changed(tmp_path, source, schema=newest + newer, mlpfusion=version))
    text = str(caught.value)
    named = wanted.startswith("mlpfusion ")
    upgrade = f"'mlpfusion>={version.split('+')[0]}'" if named else "mlpfusion"
    assert f"was written by {wanted} with schema " in text
    assert text.endswith(f"; this one reads up to {newest}: pip install -U {upgrade}")
    assert len(text) < 400
    assert "\n" not in text


@pytest.mark.parametrize(
    "schema", [0, -1, 1.0, 1.5, "1", "", True, False, [], [1], {}, {"a": 1}, "x" * 9999, -(10**40)]
)
def test_a_damaged_schema_is_one_line(
    tmp_path: Path, kind: tuple[Path, Callable[[Path], Any], int], schema: Any
) -> None:
    source, load, newest = kind
    with pytest.raises(UsageError, match=rf"is damaged: its schema is .*; valid: 1 to {newest}$") as caught:
        load(changed(tmp_path, source, schema=schema))
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("top", [{"schema": None}, {"kind": None}, {"kind": 3}, {"kind": ["profile"]}])
def test_a_file_without_a_head_is_none_of_ours(
    tmp_path: Path, kind: tuple[Path, Callable[[Path], Any], int], top: dict[str, Any]
) -> None:
    source, load, _ = kind
    with pytest.raises(UsageError, match=r"is not a (result )?file of mlpfusion: no schema number and kind at its top"):
        load(changed(tmp_path, source, **top))


@pytest.mark.parametrize("args", [["table"], ["predict"], ["diff"]])
@pytest.mark.parametrize(
    ("schema", "wanted"), [(3, "pip install -U 'mlpfusion>=0.9.1'"), ("2", "is damaged: its schema is '2'")]
)
def test_every_verb_that_reads_a_result_says_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, args: list[str], schema: Any, wanted: str
) -> None:
    path = str(changed(tmp_path, READERS["profile"][0], schema=schema, mlpfusion="0.9.1"))
    code = main.main([*args, *([f"{path}:eager", f"{path}:triton"] if args == ["diff"] else [path])])
    out, err = capsys.readouterr()
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert wanted in err


@pytest.mark.parametrize("schema", [2, 10**30])
def test_newer_tuned_configurations_say_so(schema: int) -> None:
    document = {"kind": tuned.KIND, "schema": schema, "entries": []}
    with pytest.raises(ValueError, match=r"its schema is \d+ and these kernels read up to 1"):
        tuned.parse(json.dumps(document).encode())
