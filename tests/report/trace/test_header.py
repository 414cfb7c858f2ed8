"""report.trace.header: one line for each thing, with its label in front."""

from __future__ import annotations

import msgspec
import pytest
from support import pages

from mlpfusion.records.trace import CallAlternative, Reading
from mlpfusion.report.trace.header import header

eager = pages.eager  # a fixture


def test_texts_begin_at_one_place(eager: Reading) -> None:
    lines = header(eager, github=False).splitlines()
    assert [line[:12].strip() for line in lines] == [
        "trace",
        "device",
        "call",
        "figures",
        "MLP",
        "time",
        "idle",
        "queue",
        "host",
        "device",
        "occupied",
        "launches",
    ]
    assert all(line[11] == " " and line[12] != " " for line in lines)


def test_markdown_is_a_list(eager: Reading) -> None:
    lines = header(eager, github=True).splitlines()
    assert all(line.startswith("- **") and "**: " in line for line in lines)


@pytest.mark.parametrize("number", [1, 3, 4, 9])
def test_what_else_could_delimit_a_call_is_counted(eager: Reading, number: int) -> None:
    others = tuple(CallAlternative(name=f"phase_{at}", count=at + 1, share=0.5) for at in range(number))
    call = msgspec.structs.replace(eager.call, others=others)
    (line,) = (
        line
        for line in header(msgspec.structs.replace(eager, call=call), github=False).splitlines()
        if line.startswith("others")
    )
    assert line.count("'phase_") == min(number, 3)
    assert (f"and {number - 3} more" in line) == (number > 3)
    assert "--call NAME" in line
