"""The two rings of the suite: which tests `make test` leaves to `make test-rest`, and both are `make test-all`.

A test of the second ring has the marker `full`: what these rules leave out, and single tests that take some five
seconds of a core or more and are not the only ones of what they test.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import is_hypothesis_test, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

FULL = pytest.mark.full
# Of what these try the first ring tries a part: fewer examples, or fewer shapes and dtypes.
SAMPLED = pytest.mark.sampled
# How `make test` selects the first ring, and `make test-rest` what it leaves.
FIRST = "not full"
REST = "full or sampled"
# How many of a property's hundred examples the first ring tries.
PERCENT = 20
# Parameters of a fixture that takes long: whatever uses it is the second ring's.
LONG = [pytest.param(None, id="long", marks=FULL)]


def first_of_each(values: Iterable[Any], key: Callable[[Any], Hashable]) -> list[Any]:
    """Values, or plain tuples of several, to parametrise by; the first ring has the first of each key, of None none."""
    found: list[Any] = []
    seen: set[Hashable] = {None}
    for value in values:
        row = value if type(value) is tuple else (value,)
        found.append(pytest.param(*row, marks=FULL) if key(value) in seen else value)
        seen.add(key(value))
    return found


def only_first(values: Iterable[Any]) -> list[Any]:
    """Values to parametrise by where each takes seconds; the first ring has one."""
    return first_of_each(values, lambda _: "one")


def is_first() -> bool:
    """Whether the first ring runs, and no more."""
    return settings().max_examples == PERCENT


def examples(number: int) -> int:
    """How many examples of a property, or damaged files of one kind, this run tries where all rings try `number`."""
    return -(-number * settings().max_examples // 100)


def is_sampled(item: pytest.Item) -> bool:
    """Whether the first ring tries a part of what a test tries: a property, damaged files, or what judges targets."""
    function: Any = getattr(item, "function", None)
    return (
        is_hypothesis_test(function)
        or examples.__name__ in getattr(getattr(function, "__code__", None), "co_names", ())
        or "bench" in getattr(item, "fixturenames", ())
    )


# Each takes another number of examples than that of the ring that runs.
_PROFILES = {"register_profile", "load_profile", "get_profile", "--hypothesis-profile"}


def numbered_by_hand(source: str) -> list[int]:
    """The lines of a test file that set a number of examples, in any way, but by `max_examples=rings.examples(...)`."""
    nodes = list(ast.walk(ast.parse(source)))
    ours = {name for node in nodes for name in _names_of_examples(node)}
    lines = []
    for node in nodes:
        if isinstance(node, ast.keyword) and node.arg == "max_examples":
            wrong = not (isinstance(node.value, ast.Call) and ast.unparse(node.value.func) in ours)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            wrong = node.value == "max_examples" or node.value.partition("=")[0] in _PROFILES
        elif isinstance(node, ast.Attribute):
            wrong = node.attr in _PROFILES or (node.attr == "max_examples" and isinstance(node.ctx, ast.Store))
        else:
            wrong = False
        if wrong:
            lines.append(node.lineno)  # type: ignore[attr-defined]
    return sorted(lines)


def _names_of_examples(node: ast.AST) -> list[str]:
    """How `examples` is called after this import."""
    if isinstance(node, ast.ImportFrom) and node.module in {"support", "support.rings"}:
        wanted, after = ("rings", ".examples") if node.module == "support" else ("examples", "")
        return [(each.asname or each.name) + after for each in node.names if each.name == wanted]
    if isinstance(node, ast.Import):
        return [(each.asname or each.name) + ".examples" for each in node.names if each.name == "support.rings"]
    return []


def covering(cases: Sequence[frozenset[Hashable]]) -> list[int]:
    """Where in `cases` those stand that have all that any has; the next is always the one with most of the rest."""
    found, rest = [], set().union(*cases)
    while rest:
        best = max(range(len(cases)), key=lambda place: len(cases[place] & rest))
        found.append(best)
        rest -= cases[best]
    return found


def beyond(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """What the first ring leaves out of tests that have several `parametrize`: it has each row of each of them once.

    All combinations of independent arguments are the second ring's.
    """
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if "full" not in item.keywords and getattr(item, "callspec", None) is not None:
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left: list[pytest.Item] = []
    for cases in tests.values():
        rows = [_rows(item) for item in cases]
        if len(rows[0]) > 1:
            kept = set(covering(rows))
            left += [item for place, item in enumerate(cases) if place not in kept]
    return left


def _rows(item: Any) -> frozenset[Hashable]:
    """The row of each `parametrize`, and the value of each parametrised fixture, that a test is run with.

    A value is known by its identity, which all tests made of one row share: it need not be comparable.
    """
    values = dict(item.callspec.params)
    found: set[Hashable] = set()
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0] if mark.args else mark.kwargs["argnames"]
        names = tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else tuple(names)
        found.add((names, tuple(id(values.pop(name, None)) for name in names)))
    return frozenset(found | {(name, id(value)) for name, value in values.items()})
