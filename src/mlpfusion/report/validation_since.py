"""Renders what changed since an earlier validation: each target whose verdict or faults are others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlpfusion.storage.letters import markdown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlpfusion.records.validation import Changed, Checked, Since


def page(found: Since, *, github: bool = False) -> str:
    """What is new, mended and no longer judged, by target; then in what else the two files differ."""
    lines = [line for each in found.targets for line in _lines(each)]
    if found.made_with:
        lines.append(f"other conditions: {'; '.join(found.made_with)}")
    same = sum(not list(_lines(each)) for each in found.targets)
    if same or not lines:
        lines.append(f"{same} of {len(found.targets)} targets have the faults that they had, and no others")
    if github:
        return "\n".join([f"**Since {markdown(found.created)}**", "", *(f"- {markdown(line)}" for line in lines)])
    return "\n".join([f"SINCE {found.created}", *lines])


def _lines(one: Changed) -> Iterator[str]:
    then, now = one.words
    if then != now:
        yield f"{one.target}: it was {then}, and is {now}"
    for what, checks in (("new", one.new), ("mended", one.mended), ("not judged now", one.not_judged)):
        for check in checks:
            yield f"{one.target}: {what}: {_said(check)}"


def _said(check: Checked) -> str:
    where = f" [{check.dtype}]" if check.dtype else ""
    return f"{check.name}{where}: {check.sentence}"
