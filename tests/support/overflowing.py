"""Stands for a library that overflows inside, on every CPU: operators of PyTorch give inf above some gate.

oneDNN's exact GELU does so under AVX-512 for gates above FLT_MAX/2, in float32 and bfloat16. What is simulated is JSON
in MLPFUSION_TEST_OVERFLOW: operators of aten, the largest gate that each gets right, dtypes, and what it gives above.
"""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from support.paths import TESTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest
    from torch import Tensor

VARIABLE = "MLPFUSION_TEST_OVERFLOW"
HALF_OF_FLT_MAX = torch.finfo(torch.float32).max / 2


class Overflow(NamedTuple):
    """`operator` ("gelu", "silu", "gelu_backward", …) gives `value` for gates above `above` in the named dtypes."""

    operator: str
    above: float
    value: float = float("inf")
    dtypes: tuple[str, ...] = ("float32", "bfloat16", "float16")
    form: str = "none"  # of GELU: "none" is the exact one


ONEDNN = Overflow("gelu", HALF_OF_FLT_MAX, dtypes=("float32", "bfloat16"))


def install(overflows: list[Overflow]) -> Any:
    """Put operators that overflow in the place of PyTorch's on the CPU, until what is returned is destroyed."""
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that an operator is replaced
        for each in overflows:
            library.impl(each.operator, _overflowing(each), "CPU")
    return library


def _overflowing(overflow: Overflow) -> Any:
    plain = getattr(torch.ops.aten, overflow.operator)
    # The kernel that writes into a given tensor is another one, and stays as it is.
    into = plain.grad_input if overflow.operator.endswith("backward") else plain.out

    def operator(*tensors: Tensor, **options: Any) -> Tensor:
        gate = tensors[-1]
        target = {("grad_input" if overflow.operator.endswith("backward") else "out"): torch.empty_like(gate)}
        result: Tensor = into(*tensors, **options, **target)
        is_meant = options.get("approximate", "none") == overflow.form
        if str(gate.dtype).removeprefix("torch.") in overflow.dtypes and is_meant:
            result = result.masked_fill(gate.double() > overflow.above, overflow.value)
        return result

    return operator


@contextlib.contextmanager
def overflowing(*overflows: Overflow) -> Iterator[None]:
    """In this process."""
    library = install(list(overflows))
    try:
        yield
    finally:
        library._destroy()


def in_workers(folder: Path, patch: pytest.MonkeyPatch, *overflows: Overflow) -> None:
    """In processes that are started from now on, which find a `sitecustomize` in `folder`."""
    text = (
        f"import sys\nsys.path.append({str(TESTS)!r})\nfrom support import overflowing\noverflowing.from_variable()\n"
    )
    (folder / "sitecustomize.py").write_text(text, encoding="utf-8")
    patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]))
    patch.setenv(VARIABLE, json.dumps([each._asdict() for each in overflows]))


_KEPT: list[Any] = []


def from_variable() -> None:
    """What a new process does."""
    _KEPT.append(install([Overflow(**each) for each in json.loads(os.environ[VARIABLE])]))
