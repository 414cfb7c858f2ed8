"""What may be printed of a text that may hold anything: nothing that steers a terminal, or a page on GitHub."""

from __future__ import annotations

import json
import re
from typing import Final

# Letters that GitHub gives a meaning outside code. An underscore within a word has none, and a mention or the number of
# an issue is told in the finished page: a comment inside it, which nobody sees, is what stops that.
_LIVE: Final = re.compile(
    r"""(?<!\w)_+ | _+(?!\w)  # emphasis
    | [*~\\$]  # emphasis, lines through, formulas
    | \](?=[(\[])  # links
    | (?m:^)(?:(?:[-+]|\#+)(?=\s)|>|\[(?=[^\]\n]*\]:))  # lists, headings, quotations, what a link refers to
    | [&<]  # entities, tags
    | @ | \#(?=\d)  # mentions""",
    re.VERBOSE | re.ASCII,
)
_SPELLED: Final = {"&": "&amp;", "<": "&lt;"}
_MENTIONED: Final = "<!-- -->"


def printable(text: str) -> str:
    """`text` with a � for each letter that would steer a terminal: control characters, marks of direction."""
    if text.replace("\n", "").isprintable():  # as almost all are
        return text
    return "".join(letter if letter.isprintable() or letter == "\n" else "�" for letter in text)


def escaped(text: str) -> str:
    """The text of a JSON document with those letters in JSON's own spelling, as which nothing of it is lost."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text)


def markdown(text: str) -> str:
    """`text` as a cell or a line of GitHub's Markdown, in which it has no meaning but for `code`."""
    parts = text.split("`")
    if "``" in text or len(parts) % 2 == 0:  # no code: a backtick is without its partner
        return "\\`".join(map(_plain, parts))
    return "`".join(part.replace("|", "\\|") if place % 2 else _plain(part) for place, part in enumerate(parts))


def code(name: str) -> str:
    """A name as code of GitHub's Markdown, in which it has no meaning; a backtick would end it."""
    return f"`{' '.join(name.split()).replace('`', chr(39))}`"


def _plain(text: str) -> str:
    return _LIVE.sub(_spelled, text).replace("|", "\\|")


def _spelled(found: re.Match[str]) -> str:
    live = found[0]
    if live == "@" or (live == "#" and found.string[found.end()].isdigit()):
        return f"{live}{_MENTIONED}"
    return _SPELLED.get(live) or "".join(f"\\{letter}" for letter in live)
