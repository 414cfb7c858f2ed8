"""What is traced for a card's ceilings: copies and products of the sizes that were asked for, so many calls of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlpfusion.trace.analysis.kernels import analyse
from mlpfusion.trace.read import kineto
from mlpfusion.traffic.recording import ceilings
from mlpfusion.workers import tasks

if TYPE_CHECKING:
    from pathlib import Path


def asked(folder: Path, **changes: object) -> tasks.Ceilings:
    given = {"dtype": "float32", "device": "cpu", "copies": (), "products": (), "folder": str(folder), "calls": 3}
    return tasks.Ceilings(**{**given, **changes})


def test_every_size_has_a_trace_of_its_calls(tmp_path: Path) -> None:
    done = ceilings.record(asked(tmp_path, copies=(2**12, 2**14), products=((8, 16, 32),)))
    assert done == tasks.Done()
    names = {path.name: path for path in tmp_path.iterdir()}
    assert set(names) == {f"copy-{2**12}.trace.json", f"copy-{2**14}.trace.json", "product-8x16x32.trace.json"}
    for name, path in names.items():
        found = analyse(kineto.read(path), device="cpu")
        assert found.calls == 3
        assert [kernel.name for kernel in found.kernels] == ["aten::neg" if name.startswith("copy") else "aten::mm"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_copy_reads_half_of_its_bytes_and_writes_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    seen = []
    monkeypatch.setattr(ceilings.tracer, "record", lambda call, path, **_: seen.append(call))
    ceilings.record(asked(tmp_path, dtype=dtype, copies=(2**12,), products=((8, 16, 32),)))
    copy, product = seen
    assert copy.args[0].nbytes + copy.keywords["out"].nbytes == 2**12
    assert [tuple(each.shape) for each in (*product.args, product.keywords["out"])] == [(8, 32), (32, 16), (8, 16)]
