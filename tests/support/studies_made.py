"""Makes study files whose cells are small, and what tests ask of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlpfusion.stages.sweep import study

if TYPE_CHECKING:
    from pathlib import Path

TINY = '{ name = "tiny", hidden_size = 64, intermediate_size = 32, activation = "silu", dtype = "float32" }'
SMALL = f"""models = [{TINY}]
tokens = [1, 4]
backends = ["eager"]
rounds = 5
"""


def written(folder: Path, text: str = SMALL, name: str = "small") -> Path:
    """A study file with this text."""
    path = folder / f"{name}.toml"
    path.write_text(text, encoding="utf-8")
    return path


def read(folder: Path, text: str = SMALL, name: str = "small") -> study.Definition:
    """The study of this text."""
    return study.read(written(folder, text, name))
