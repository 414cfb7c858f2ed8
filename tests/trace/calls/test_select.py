"""trace.select: what a wrong name of a call is told."""

from __future__ import annotations

from typing import Any

import pytest
from support.timeline import Timeline

from mlpfusion.errors import UsageError
from mlpfusion.trace.analysis.summary import read


def asked(made: Any, name: str = "nope") -> str:
    with pytest.raises(UsageError) as caught:
        read(made.text().encode(), call=name)
    return str(caught.value)


def steps(*names: str) -> Any:
    made = Timeline()
    for index in range(12):
        made.mlp(1000 * (index + 1), name=f"ProfilerStep#{index}")
    for index, name in enumerate(names):
        made.call(20_000 + index, 1, name)
    return made


def test_steps_are_listed_as_one_name() -> None:
    assert asked(steps()) == "the trace has no annotation named 'nope'; there are 'ProfilerStep' (12)"
    assert asked(steps("mine")).endswith("there are 'mine' (1), 'ProfilerStep' (12)")
    assert read(steps().text().encode(), call="ProfilerStep").call.count == 12


def test_steps_are_listed_however_many_names_there_are() -> None:
    assert asked(steps(*"abcdefg")).endswith("'d' (1), 'e' (1), 'ProfilerStep' (12) and 2 more")
