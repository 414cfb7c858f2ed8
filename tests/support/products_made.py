"""Measured products as a card whose times a formula gives would have them, and the package that brings such tables."""

from __future__ import annotations

import json
import sys
import types
from typing import TYPE_CHECKING, Any

import numpy as np

from mlpfusion.device import Peaks
from mlpfusion.stages.predict.products import roofline_us
from mlpfusion.stages.predict.scaled import LAUNCH_US
from mlpfusion.stages.predict.table import Table

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

A100 = "NVIDIA A100-SXM4-80GB"
PEAKS = Peaks(flops_16bit=312e12, bandwidth=2.039e12, source="a datasheet")
ROWS = (1, 2, 4, 8, 16, 17, 32, 64, 128, 129, 256, 512, 1024, 2048, 4096, 8192)
SIDES = (512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384)


def true_us(m: int, n: int, k: int) -> float:
    """A smooth card: launch, and a share of the roofline that grows with the size of the product."""
    limit = float(roofline_us(np.array([[m, n, k]], dtype=float), PEAKS)[0])
    share = 0.8 - 0.3 / (1 + limit / 20) + 0.05 * np.sin(np.log(n)) * np.cos(np.log(k))
    return LAUNCH_US + limit / float(share)


def made(rows: tuple[int, ...] = ROWS, sides: tuple[int, ...] = SIDES, spread: float = 0.03) -> Table:
    """The table of that card."""
    shapes = np.array([(m, n, k) for m in rows for n in sides for k in sides])
    return Table(A100, "a made table", shapes, np.array([true_us(*shape) for shape in shapes.tolist()]), spread)


class Package:
    """A stand-in for the installed package: files of rows, and a reader of them in place of pyarrow's."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, version: str = "0.12.0") -> None:
        self.folder, self.version, self.reads = folder, version, 0
        self.listed: list[Any] = []
        monkeypatch.setenv("MLPFUSION_CACHE_DIR", str(folder / "cache"))
        arrow, parquet = types.ModuleType("pyarrow"), types.ModuleType("pyarrow.parquet")
        arrow.ArrowException = type("ArrowException", (Exception,), {})  # type: ignore[attr-defined]
        arrow.parquet = parquet  # type: ignore[attr-defined]
        parquet.read_table = self._read_table  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "pyarrow", arrow)
        monkeypatch.setitem(sys.modules, "pyarrow.parquet", parquet)
        monkeypatch.setattr("importlib.metadata.distribution", self._distribution)
        monkeypatch.setattr("importlib.metadata.version", lambda name: self.version)

    def add(self, name: str, rows: list[dict[str, Any]]) -> Path:
        """A file of the package with these rows."""
        path = self.folder / name / "gemm_perf.parquet"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(rows), "utf-8")
        self.listed.append(types.SimpleNamespace(name=path.name, size=path.stat().st_size, path=path))
        return path

    def _distribution(self, name: str) -> Any:
        return types.SimpleNamespace(version=self.version, files=self.listed, locate_file=lambda each: each.path)

    def _read_table(self, path: Path, columns: list[str], filters: list[tuple[str, str, str]]) -> Any:
        self.reads += 1
        rows = json.loads(path.read_text("utf-8"))
        kept = [row for row in rows if all(row[name] == value for name, _, value in filters)]
        return {name: _Column([row[name] for row in kept]) for name in columns}


class _Column:
    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def to_numpy(self) -> Any:
        return np.array(self._values)


def rows_of(table: Table, device: str = A100, dtype: str = "bfloat16") -> list[dict[str, Any]]:
    """A table as rows of the package, whose times are milliseconds."""
    return [
        {"device": device, "gemm_dtype": dtype, "m": m, "n": n, "k": k, "latency": us / 1e3}
        for (m, n, k), us in zip(table.shapes.tolist(), table.us.tolist(), strict=True)
    ]
