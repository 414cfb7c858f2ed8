"""Finds the line of every key and list item in a TOML text that is known to be valid."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

Place = tuple[str | int, ...]

_TOKEN: Final = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|'
    r"'''.*?'{3,5}|"
    r'"(?:\\.|[^"\\\n])*"|'
    r"'[^'\n]*'|"
    r"#[^\n]*|\n|[^\S\n]+|[\[\]{},=.]|"
    r"[^\s\[\]{},=.\"'#]+",
    re.DOTALL,
)


class _Token(NamedTuple):
    text: str
    line: int


def places(text: str) -> Mapping[Place, int]:
    """The line, from 1 on, of each key and item by its path: `("also", 0, "models", 2)`."""
    return _Scan(text).run()


class _Scan:
    """One pass over the tokens of a text."""

    def __init__(self, text: str) -> None:
        self._tokens: list[_Token] = []
        line = 1
        for match in _TOKEN.finditer(text):
            word = match[0]
            if word == "\n" or not (word.isspace() or word.startswith("#")):
                self._tokens.append(_Token(word, line))
            line += word.count("\n")
        self._at = 0
        self._found: dict[Place, int] = {}
        self._tables: dict[Place, int] = {}

    def run(self) -> Mapping[Place, int]:
        table: Place = ()
        while self._at < len(self._tokens):
            if self._word() == "\n":
                self._at += 1
            elif self._word() == "[":
                table = self._header()
            else:
                self._pair(table)
        return self._found

    def _word(self) -> str:
        return self._tokens[self._at].text if self._at < len(self._tokens) else "\n"

    def _mark(self, place: Place) -> None:
        at = self._tokens[min(self._at, len(self._tokens) - 1)]
        self._found.setdefault(place, at.line)

    def _header(self) -> Place:
        array = self._tokens[self._at + 1].text == "["
        self._at += 1 + array
        start = self._at
        path = self._resolved(self._key(until="]"))
        if array:
            number = self._tables.get(path, -1) + 1
            self._tables[path] = number
        self._at, end = start, self._at + 1 + array
        self._mark(path)
        if array:
            path = (*path, number)
            self._mark(path)
        self._at = end
        return path

    def _resolved(self, path: Place) -> Place:
        """The path with the number of the array's last table after each array of tables but the last part."""
        found: Place = ()
        for place, part in enumerate(path):
            found = (*found, part)
            if found in self._tables and place < len(path) - 1:
                found = (*found, self._tables[found])
        return found

    def _key(self, until: str) -> Place:
        parts: list[str] = []
        while self._word() != until:
            if self._word() != ".":
                parts.append(_plain(self._word()))
            self._at += 1
        return tuple(parts)

    def _pair(self, table: Place) -> None:
        start = self._at
        path = (*table, *self._key(until="="))
        end, self._at = self._at + 1, start
        self._mark(path)
        self._at = end
        self._value(path)

    def _value(self, path: Place) -> None:
        if self._word() == "[":
            self._list(path)
        elif self._word() == "{":
            self._at += 1
            while self._word() != "}":
                if self._word() in (",", "\n"):
                    self._at += 1
                else:
                    self._pair(path)
            self._at += 1
        else:
            while self._word() not in (",", "]", "}", "\n"):
                self._at += 1

    def _list(self, path: Place) -> None:
        self._at += 1
        number = 0
        while self._word() != "]":
            if self._word() in (",", "\n"):
                self._at += 1
                continue
            self._mark((*path, number))
            self._value((*path, number))
            number += 1
        self._at += 1


def _plain(key: str) -> str:
    return key[1:-1] if key[:1] in ("'", '"') else key
