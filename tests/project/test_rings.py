"""The first ring of the suite has each case of each argument, and what is exhaustive is left to the second."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import rings
from support.paths import TESTS

SUITE = """
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import rings

@pytest.fixture(params=["x", "y", "z"])
def way(request):
    return request.param

@pytest.mark.parametrize("b", [1, 2, 3])
@pytest.mark.parametrize(("a", "c"), [(1, 1), (1, 2)])
def test_combinations(a, b, c): ...

@pytest.mark.parametrize("a", [1, 2])
def test_a_fixture(a, way): ...

@pytest.mark.parametrize("a", range(5))
def test_one_list(a): ...

@pytest.mark.parametrize("a", [pytest.param(1, marks=pytest.mark.full), 2])
@pytest.mark.parametrize("b", [[], {}])
def test_marked(a, b): ...

def test_plain(): ...

@pytest.mark.full
def test_long(): ...

@pytest.fixture
def bench(): ...

def test_targets(bench): ...

@given(st.integers())
def test_property(number): ...

def test_damage():
    rings.examples(25)
"""
FIRST = [
    *("test_combinations[1-1-1]", "test_combinations[1-2-2]", "test_combinations[1-1-3]"),
    *("test_a_fixture[x-1]", "test_a_fixture[y-2]", "test_a_fixture[z-1]"),
    *(f"test_one_list[{a}]" for a in range(5)),
    *("test_marked[b0-2]", "test_marked[b1-2]", "test_plain"),
]
SAMPLED = ["test_targets", "test_property", "test_damage"]


def collected(folder: Path, *arguments: str) -> set[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(
        [*command, "-c", str(folder / "pytest.ini"), str(folder)], capture_output=True, text=True, check=True
    )
    return {line.rpartition("::")[2] for line in done.stdout.splitlines() if "::" in line}


@pytest.mark.full
def test_which_tests_are_in_the_first_ring(tmp_path: Path) -> None:
    (tmp_path / "test_them.py").write_text(SUITE)
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text(encoding="utf-8"))
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {TESTS}\nmarkers =\n  full\n  sampled\n")
    every = collected(tmp_path)
    assert len(every) == 6 + 6 + 5 + 4 + 2 + 3
    first = collected(tmp_path, "-m", "not full")
    assert first == {*FIRST, *SAMPLED}
    assert collected(tmp_path, "-m", "full") == every - first
    assert collected(tmp_path, "-m", rings.REST) == every - set(FIRST)


CASES = st.lists(st.frozensets(st.integers(0, 12), max_size=4), min_size=1, max_size=20)


@given(CASES)
def test_a_covering_has_everything_and_nothing_for_nothing(cases: list[frozenset[int]]) -> None:
    seen: set[int] = set()
    for place in rings.covering(cases):
        assert cases[place] - seen
        seen |= cases[place]
    assert seen == set().union(*cases)


@given(st.lists(st.one_of(st.none(), st.integers(0, 5))))
def test_the_first_of_each_stays(values: list[int | None]) -> None:
    found = rings.first_of_each(values, lambda value: value)
    stay = [case for case in found if isinstance(case, int)]
    assert stay == list(dict.fromkeys(value for value in values if value is not None))
    assert [case if isinstance(case, int) else case.values[0] for case in found] == values
    rows = rings.first_of_each([(value, "more") for value in values], lambda row: row[0])
    assert [row if type(row) is tuple else row.values for row in rows] == [(value, "more") for value in values]


def test_the_marker_is_the_one_that_make_asks_for() -> None:
    recipe = (TESTS.parent / "Makefile").read_text(encoding="utf-8")
    assert f'test: RING := -m "{rings.FIRST}"\ntest-rest: RING := -m "{rings.REST}"\ntest test-rest test-all:' in recipe


def test_every_number_of_examples_is_the_rings() -> None:
    found = [
        f"{path.relative_to(TESTS)}:{line}: write max_examples=rings.examples(...)"
        for path in sorted(TESTS.rglob("*.py"))
        if path not in {TESTS / "conftest.py", Path(rings.__file__)}  # they make what a ring tries
        if re.search("examples|(register|load|get)_profile|hypothesis-profile", text := path.read_text("utf-8"))
        for line in rings.numbered_by_hand(text)
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "@settings(max_examples=25)",
        "@settings(deadline=None, max_examples=N)",
        "@hypothesis.settings(max_examples=25)",
        "@few(max_examples=int(25))",
        "@settings(max_examples=rings.examples(25) * 4)",
        "@settings(max_examples=max(50, rings.examples(25)))",
        "@settings(max_examples=rings.PERCENT)",
        "@settings(max_examples=other.examples(25))",
        "@settings(max_examples=examples(25))",
        "@settings(**{'max_examples': 25})",
        "@settings(**dict(max_examples=25))",
        "@functools.partial(settings, max_examples=25)()",
        "@settings(settings.get_profile('default'))",
        "@settings(get('default')) if (get := settings.get_profile) else None",
    ],
)
def test_a_number_of_examples_by_hand_is_found(line: str) -> None:
    source = f"from support import rings\n\n{line}\n@given(st.integers())\ndef test_it(n): ...\n"
    assert rings.numbered_by_hand(source) == [3]


@pytest.mark.parametrize(
    "line",
    [
        "Machine.TestCase.settings.max_examples = 25",
        "setattr(chosen, 'max_examples', 25)",
        "settings.load_profile('default')",
        "settings.register_profile('mine', deadline=None)",
        "pytest.main(['--hypothesis-profile', 'ci'])",
        "pytest.main(['--hypothesis-profile=ci'])",
    ],
)
def test_so_is_one_that_is_set_without_a_decorator(line: str) -> None:
    assert rings.numbered_by_hand(line) == [1]


@pytest.mark.parametrize(
    ("imported", "called"),
    [
        ("from support import rings", "rings.examples"),
        ("from support import named, rings as r", "r.examples"),
        ("from support.rings import LONG, examples", "examples"),
        ("from support.rings import examples as some", "some"),
        ("import support.rings", "support.rings.examples"),
        ("import support.rings as r", "r.examples"),
    ],
)
def test_a_number_of_the_rings_is_none_by_hand(imported: str, called: str) -> None:
    source = f"{imported}\n@settings(deadline=None, max_examples={called}(25))\ndef test_it(n): ...\n"
    assert rings.numbered_by_hand(source) == []
    assert rings.numbered_by_hand(source.partition("\n")[2]) == [1]


@pytest.mark.full
def test_the_first_ring_tries_fewer_examples(tmp_path: Path) -> None:
    (tmp_path / "test_them.py").write_text(
        "from hypothesis import given, strategies as st\nseen = []\n"
        "@given(st.integers())\ndef test_it(n): seen.append(n)\n"
        "def test_count():\n    print('tried', len(seen))\n"
    )
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text(encoding="utf-8"))
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {TESTS}\nmarkers = full\n")
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "-p", "no:randomly"]
    command += ["-c", str(tmp_path / "pytest.ini"), str(tmp_path)]
    tried = []
    for ring in (["-m", rings.FIRST], []):
        done = subprocess.run([*command, *ring], capture_output=True, text=True, check=True, cwd=tmp_path)
        tried.append(int(done.stdout.rpartition("tried ")[2].split()[0].rstrip(".")))
    assert tried == [rings.PERCENT, 100]
