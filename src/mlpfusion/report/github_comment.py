"""Fits pages into one comment on GitHub, which takes 65,536 characters, and says what is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

LIMIT: Final = 65_536
_BETWEEN: Final = "\n\n\n"
_LINE: Final = 2_000  # characters of a line: a sentence and a command have some hundred
_LEAST: Final = 400  # of a page: its title, and why
_NOTE: Final = 100  # for what a page, or the end, says of what is left out


def fitting(pages: Sequence[str], limit: int = LIMIT) -> str:
    """The pages as one text of at most `limit` characters.

    Where they are longer, the longest lose whole lines from their ends. Pages that would be almost empty are counted.
    """
    whole = _BETWEEN.join(pages)
    if len(whole) <= limit:
        return whole
    room = limit - _NOTE
    shown = pages[: max(1, room // (_LEAST + len(_BETWEEN)))]
    lines = ["\n".join(cut(line, _LINE) for line in page.split("\n")) for page in shown]
    shares = _shares([len(page) for page in lines], room - len(_BETWEEN) * len(lines))
    parts = [_shortened(page, share) for page, share in zip(lines, shares, strict=True)]
    if len(shown) < len(pages):
        parts.append(f"and {len(pages) - len(shown)} more, left out: a comment has {limit:,} characters")
    return _BETWEEN.join(parts)


def cut(text: str, longest: int) -> str:
    """`text`, or its beginning and its end with how much is left out between them, in at most `longest` characters."""
    if len(text) <= longest:
        return text
    kept = longest - len(f" … ({len(text)} characters left out) … ")
    first = kept - kept // 3
    return f"{text[:first]} … ({len(text) - kept} characters left out) … {text[len(text) - kept // 3 :]}"


def _shares(lengths: list[int], room: int) -> list[int]:
    """Of `room`, what each page gets: all that it needs, or as much as any other that needs more."""
    shares = [0] * len(lengths)
    by_length = sorted(range(len(lengths)), key=lambda index: lengths[index])
    for place, index in enumerate(by_length):
        shares[index] = min(lengths[index], room // (len(lengths) - place))
        room -= shares[index]
    return shares


def _shortened(page: str, room: int) -> str:
    """A page without its last lines, if it is longer than `room` characters."""
    if len(page) <= room:
        return page
    kept, used = [], 0
    lines = page.split("\n")
    for line in lines:
        used += len(line) + 1
        if used > room - _NOTE:
            break
        kept.append(line)
    if not kept:
        kept = [cut(lines[0], room - _NOTE)]
    return "\n".join([*kept, f"… {len(lines) - len(kept)} lines left out: a comment on GitHub has room for no more"])
