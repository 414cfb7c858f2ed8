"""A check: in which dtypes it is asked."""

from __future__ import annotations

import types

import pytest

from mlpfusion.spec import DTYPES as DTYPES_ALL
from mlpfusion.stages.validate.judge.checks import registry


@pytest.mark.parametrize(
    ("judged", "taken", "asked"),
    [
        ("each", DTYPES_ALL, DTYPES_ALL),
        ("finest", DTYPES_ALL, ("float32",)),
        ("narrow", DTYPES_ALL, ("bfloat16", "float16")),
        ("narrow", ("float32",), ("float32",)),
        ("16-bit", DTYPES_ALL, ("bfloat16", "float16")),
        ("16-bit", ("float32",), ()),
        ("each", (), ()),
    ],
)
def test_the_dtypes_that_a_check_is_asked_in(judged: str, taken: tuple[str, ...], asked: tuple[str, ...]) -> None:
    exam = types.SimpleNamespace(dtypes=taken, finest="float32" if "float32" in taken else (*taken, "")[0])
    assert registry.ALL[0]._replace(dtypes=judged).asked_in(exam) == asked  # type: ignore[arg-type]
