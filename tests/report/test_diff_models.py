"""report.diff of two whole models: by role and name, both devices first, and less than 80 lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from support.paths import DATA

from mlpfusion.report.diff import render
from mlpfusion.trace.analysis.summary import read
from mlpfusion.trace.diff.calls import diff

if TYPE_CHECKING:
    from mlpfusion.records.trace import Reading

replace = msgspec.structs.replace


def model(name: str, layers: int, gpu: str | None, other: int = 0) -> Reading:
    """A model whose layers are the kernels of a recorded MLP, with others of many names between them."""
    one = read(DATA / f"{name}.json.gz")
    kernels = []
    for layer in range(layers):
        kernels += [replace(kernel) for kernel in one.analysis.kernels]
        loose = replace(one.analysis.kernels[-1], role="other", name=f"{name}_{layer % max(other, 1)}_kernel")
        kernels += [loose] * (other > 0)
    return replace(one, gpu=gpu, analysis=replace(one.analysis, kernels=tuple(kernels)), kernel_spread=())


@pytest.mark.parametrize("layers", [10, 32])
@pytest.mark.parametrize("other", [0, 5, 60])
def test_two_models_are_less_than_80_lines(layers: int, other: int) -> None:
    a, b = model("h200_eager", layers, "NVIDIA H200", other), model("h200_compile", layers, "NVIDIA A100", other)
    text = render(diff(a, b, labels=("before.json", "after.json")))
    lines = text.splitlines()
    assert lines[:3] == ["devices  a NVIDIA H200, b NVIDIA A100", "a  before.json", "b  after.json"]
    assert len(lines) < 80
    assert max(map(len, lines)) <= 200
    (row,) = (line for line in lines if line.split()[:1] == [f"{layers}x"] and " up_gemm " in line)
    sums = [sum(one.time_us or 0 for one in side.analysis.kernels if one.role == "up_gemm") for side in (a, b)]
    assert [float(word) for word in row.split()[-3:-1]] == pytest.approx(sums, rel=0.01)
    assert float(row.split()[-1]) == pytest.approx(sums[1] - sums[0], abs=0.1)
    (roles,) = (at for at, line in enumerate(lines) if line.startswith("roles: "))
    assert f"up_gemm {layers} and {layers}" in " ".join(lines[roles : roles + 3])


def test_what_is_left_out_is_counted_and_everything_is_there_on_request() -> None:
    a, b = model("h200_eager", 60, None, 60), model("h200_compile", 60, None, 60)
    found = diff(a, b)
    lines = render(found).splitlines()
    (more,) = (line for line in lines if "more rows; --all shows every kernel" in line)
    table = lines[lines.index(next(line for line in lines if line.startswith("Kernels by role"))) + 3 :]
    rows = table[: table.index(more) + 1]
    assert len(rows) == 21
    assert sum(int(line.split()[0].removesuffix("x")) for line in rows) == len(found.kernels)
    whole = sum(one.time_us or 0 for one in b.analysis.kernels) - sum(one.time_us or 0 for one in a.analysis.kernels)
    assert sum(float(line.split()[-1]) for line in rows) == pytest.approx(whole, abs=2)
    everything = render(found, everything=True).splitlines()
    assert sum(line.split()[0] in ("same", "gone", "new", "changed") for line in everything if line) == len(
        found.kernels
    )
    assert "devices  a not known, b not known" in everything


def test_few_kernels_stay_in_their_order() -> None:
    text = render(diff(read(DATA / "h200_eager.json.gz"), read(DATA / "h200_compile.json.gz")))
    assert "\nKernels\n" in text
    assert "roles: " not in text
