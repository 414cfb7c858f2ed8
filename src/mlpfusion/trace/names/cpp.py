"""Splits a kernel's name as C++ spells it into its scope, its function, and its template's arguments."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

ANONYMOUS: Final = "(anonymous namespace)"
# How compilers write a namespace without a name.
_NAMELESS: Final = frozenset({ANONYMOUS, "<unnamed>", "_GLOBAL__N_1", "{anonymous}"})
_OPENS: Final = {"<": ">", "(": ")", "{": "}", "[": "]"}
_CLOSES: Final = frozenset(_OPENS.values())


class Cpp(NamedTuple):
    """A C++ function: its namespaces and classes, its own name, its template's arguments, what it takes.

    `scope` has the names alone; a namespace without a name is `ANONYMOUS`. `outer` are the arguments of the templates
    around the function, as in `Gemm<float>::kernel`.
    """

    scope: tuple[str, ...]
    function: str
    arguments: tuple[str, ...]
    outer: tuple[str, ...] = ()
    parameters: str = ""

    @property
    def named_scope(self) -> tuple[str, ...]:
        """The namespaces that have a name."""
        return tuple(name for name in self.scope if name != ANONYMOUS)

    @property
    def qualified(self) -> str:
        """The function with its named scope and no arguments."""
        return "::".join((*self.named_scope, self.function))


@lru_cache(maxsize=2048)
def split(name: str) -> Cpp:
    """The parts of a name, in time that grows with its length alone; a name that is no C++ is its own function.

    The return type goes, `std::enable_if<…>::type` included, and so does what stands behind the parameters.
    """
    if name.startswith("std::enable_if"):  # tools print its condition with brackets that do not match
        name = name[name.find(">::type ") + len(">::type ") :] if ">::type " in name else name
    begin, stop = 0, len(name)
    colons: list[int] = []
    for at, letter in _outside(name):
        if letter == " ":
            takes = name[at + 1 : at + 2] in ("(", "…") and not _is_namespace(name, at + 1)  # "Memset (Device)"
            if name[begin:at] and not takes:
                begin, colons = at + 1, []
        elif letter == ":" and name.startswith("::", at):
            colons.append(at)
        elif letter == "(" and not _is_namespace(name, at) and at > begin:
            stop = at
            break
    pieces = [name[start:end] for start, end in zip([begin, *(at + 2 for at in colons)], [*colons, stop], strict=True)]
    bare = [_template(piece.strip()) for piece in pieces if piece.strip()]
    if not bare:
        return Cpp((), name, ())
    *around, (function, arguments) = bare
    scope = tuple(ANONYMOUS if text in _NAMELESS else text for text, _ in around)
    outer = tuple(argument for _, inner in around for argument in inner)
    return Cpp(scope, function, arguments, outer, name[stop:])


def _outside(text: str) -> list[tuple[int, str]]:
    """The letters outside all brackets, an opening one included, with their places."""
    found: list[tuple[int, str]] = []
    waiting: list[str] = []
    for at, letter in enumerate(text):
        if not waiting:
            found.append((at, letter))
        if letter in _OPENS:
            waiting.append(_OPENS[letter])
        elif letter in _CLOSES and waiting:
            _close(waiting, letter)
    return found


def _close(waiting: list[str], letter: str) -> None:
    """Close the innermost bracket; a `>` inside parentheses is a comparison, and a `)` ends those before it."""
    if waiting[-1] == letter:
        waiting.pop()
    elif letter != ">" and letter in waiting:
        while waiting.pop() != letter:
            pass


def _is_namespace(name: str, at: int) -> bool:
    return name.startswith(ANONYMOUS, at)


def _template(piece: str) -> tuple[str, tuple[str, ...]]:
    """A piece of a qualified name without its template's arguments, and those."""
    if piece in _NAMELESS or piece.startswith(("(", "{", "<")):
        return piece, ()
    opens = piece.find("<")
    if opens <= 0:
        return piece, ()
    return piece[:opens].strip(), arguments_of(piece[opens + 1 : piece.rfind(">") if ">" in piece[opens:] else None])


def arguments_of(text: str) -> tuple[str, ...]:
    """The arguments of a list without its brackets: `int, std::array<char*, 2>` are two."""
    found, start = [], 0
    for at, letter in _outside(text):
        if letter == ",":
            found.append(text[start:at].strip())
            start = at + 1
    found.append(text[start:].strip())
    return tuple(argument for argument in found if argument)
