"""Findings as text: what was observed, what it means, what to do, with their cost."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from mlpfusion import units
from mlpfusion.report.grid import folded, titled
from mlpfusion.report.trace.header import LABEL
from mlpfusion.storage.letters import markdown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.trace import Finding

_WIDTH: Final = 160  # of the text of a finding
# Findings that concern less than this part of a call are named only.
_SMALL: Final = 0.01


def findings_text(findings: Sequence[Finding], *, github: bool) -> str:
    """The findings, those that concern less than `_SMALL` of a call in one line together."""
    if not findings:
        return ""
    large = [one for one in findings if one.share >= _SMALL]
    small = [one for one in findings if one.share < _SMALL]
    told = [_finding(one, github=github) for one in large]
    if small:
        listed = ", ".join(f"{one.id} ({units.microseconds(one.cost_us)})" for one in small)
        text = f"below {_SMALL:.0%} of a call each: {listed}"
        told.append(f"- {markdown(text)}" if github else folded(text, 2))
    return titled("Findings", "\n".join(told), github=github)


def _finding(one: Finding, *, github: bool) -> str:
    weight = f"{units.microseconds(one.cost_us)} a call, {one.share:.0%}"
    if github:
        texts = (markdown(text) for text in (one.id, weight, one.seen, one.means, one.do))
        return "- **{}** ({}): {}. *Means*: {}. *Do*: {}.".format(*texts)
    labelled = (("observed", one.seen), ("means", one.means), ("do", one.do))
    told = [_wrapped(f"  {label:<{LABEL - 2}}{text}") for label, text in labelled]
    return "\n".join([f"{one.id}: {weight}", *told])


def _wrapped(line: str) -> str:
    """A line of a finding, and where it is long, more that begin below its text."""
    indent = " " * LABEL
    return "\n".join(textwrap.wrap(line, _WIDTH, subsequent_indent=indent, drop_whitespace=True))
