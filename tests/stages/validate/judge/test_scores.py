"""A result is worse than a plain one where an element is beyond the bound that the plain one keeps."""

from __future__ import annotations

import pytest
import torch
from support import exams_made

from mlpfusion.spec import DTYPES, Dtype
from mlpfusion.stages.validate.channel import Loaded
from mlpfusion.stages.validate.judge import bounds, scores

LOADED = Loaded(kind="act_mul", described="a function")
SHAPE = (8, 256)


def results(of: str, approximate: str, dtype: Dtype, given: dict[str, torch.Tensor]) -> torch.Tensor:
    """y or a gradient by the exact GELU ("none") or the tanh form, computed in fp64 and rounded once."""
    gate, up = (given[name].double().requires_grad_() for name in ("gate", "up"))
    y = torch.nn.functional.gelu(gate, approximate=approximate) * up
    grads = dict(zip(("d:gate", "d:up"), torch.autograd.grad(y, (gate, up), given["dy"].double()), strict=True))
    return {"y": y.detach(), **grads}[of].to(getattr(torch, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("of", ["y", "d:gate", "d:up"])
def test_the_other_gelu_is_worse_although_it_is_near(of: str, dtype: Dtype) -> None:
    exam = exams_made.exam(LOADED)
    given = exam.operands(dtype, SHAPE, "scores")
    right, other = (results(of, form, dtype, given) for form in ("tanh", "none"))
    assert scores.is_worse(exam, given, of, found=other, plain=right, dtype=dtype)
    assert not scores.is_worse(exam, given, of, found=right, plain=right, dtype=dtype)
    assert not scores.is_worse(exam, given, of, found=other, plain=other, dtype=dtype)  # which is for others to say
    assert bounds.is_close(other, right, dtype) is (dtype != "float32")


def test_a_whole_mlp_has_no_bound_by_element() -> None:
    exam = exams_made.exam(Loaded(kind="mlp", described="a function"))
    given = exam.operands("bfloat16", (3,), "scores")
    assert not scores.is_worse(exam, given, "y", found=given["dy"] + 9, plain=given["dy"], dtype="bfloat16")
