"""Files with targets, and one pair of workers for all tests of a file."""

from __future__ import annotations

import contextlib
import textwrap
from typing import TYPE_CHECKING, Any

import pytest

from mlpfusion.stages.validate.judge import examine
from mlpfusion.stages.validate.judge.exam import Asked
from mlpfusion.stages.validate.progress import silent
from support import forked, rings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mlpfusion.records.validation import Verdict

OWN = examine.Bench  # whatever stands in its place when another bench is made
HEAD = "import os\nimport sys\nimport torch\nimport torch.nn.functional as F\nfrom torch import nn\n\n\n"


def written(folder: Path, text: str, name: str = "mine.py") -> str:
    """The path of a file with this text, below the usual imports."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEAD + textwrap.dedent(text), encoding="utf-8")
    return str(path)


@contextlib.contextmanager
def one_bench() -> Iterator[examine.Bench]:
    """Workers, which are forks, that whole validations get too instead of starting some of their own."""
    with forked.workers(), OWN("cpu") as made, pytest.MonkeyPatch.context() as patch:
        patch.setattr(examine, "Bench", lambda device: contextlib.nullcontext(made))
        yield made


@pytest.fixture(scope="module")
def bench() -> Iterator[examine.Bench]:
    with one_bench() as made:
        yield made


def verdict_of(
    bench: examine.Bench, target: str, activation: str | None = "gelu_tanh", *, seed: int | None = None, **asked: Any
) -> Verdict:
    """The verdict on a target for which `asked`, the fields of `exam.Asked`, is asked; operands of any seed.

    The first ring judges one shape of each kind unless `quick` is given.
    """
    asked.setdefault("quick", rings.is_first())
    return examine.examine(
        bench,
        examine.Order(target, activation),  # type: ignore[arg-type]
        Asked(**asked),
        seed=examine.new_seed() if seed is None else seed,
        sources=lambda name, text: None,
        tell=silent,
    )
