"""Renders what kernel names mean as text, Markdown, CSV or JSON: a sentence, and a table of tokens."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

from mlpfusion.report.grid import FORMATS, csv_text, tabulated
from mlpfusion.spec import one_of
from mlpfusion.storage.letters import code, escaped, markdown, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.profile import Explanation


def render(explanations: Sequence[Explanation], fmt: str = "text") -> str:
    """Explanations in one of `grid.FORMATS`; ends with a newline.

    Raises:
        UsageError: no such format.
    """
    one_of("format", fmt, FORMATS)
    if fmt == "json":
        document = {"schema": 1, "kind": "explanations", "names": msgspec.to_builtins(explanations)}
        return escaped(json.dumps(document, indent=1, ensure_ascii=False)) + "\n"
    if fmt == "csv":
        return csv_text(
            [
                {"name": one.name, "token": token.text, "meaning": token.meaning, "certainty": token.certainty}
                for one in explanations
                for token in one.tokens
            ]
        )
    return printable("\n\n".join(_page(one, github=fmt == "github") for one in explanations) + "\n")


def _page(one: Explanation, *, github: bool) -> str:
    lines = [f"**{code(one.name)}**" if github else one.name]
    if one.demangled is not None and one.demangled != one.name:
        lines.append(code(one.demangled) if github else one.demangled)
    lines.append(markdown(one.sentence) if github else one.sentence)
    if one.tokens:
        cells = [[token.text, token.meaning, token.certainty] for token in one.tokens]
        lines.append(tabulated(cells, ["token", "meaning", "certainty"], [False] * 3, github=github))
    return ("\n\n" if github else "\n").join(lines)
