"""Names a row: its word with the reason, the tokens that it ran, and the head of its part of a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlpfusion.records.profile import Row


def verdict(row: Row) -> tuple[str, str | None]:
    """The word for a row (ok, emulated, unavailable or failed) and the reason that goes with it."""
    if row.status != "ok":
        return row.status, row.reason or "no reason was recorded"
    if row.emulated:
        return "emulated", row.reason or "computed by Triton's interpreter: right, but not timed"
    return "ok", row.reason


def tokens_of(row: Row) -> str:
    """`16 tokens`: how many a row's call had."""
    return "an unknown number of tokens" if row.tokens is None else f"{row.tokens} tokens"


def status(row: Row) -> str:
    """A row's word; that of an emulated row says how many tokens ran."""
    word, _ = verdict(row)
    return f"{word}, {tokens_of(row)}" if row.emulated else word


def heading(row: Row) -> str:
    """Heads a row's own part of a page: its backend and, if it was emulated, how many tokens ran."""
    return f"{row.backend} ({tokens_of(row)})" if row.emulated else row.backend
