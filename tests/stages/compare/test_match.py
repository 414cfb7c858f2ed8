"""Which rows of two sides belong together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlpfusion.errors import UsageError
from mlpfusion.spec import MLPSpec
from mlpfusion.stages.compare import match
from mlpfusion.stages.compare.subjects import Group, Source, Subject

if TYPE_CHECKING:
    from pathlib import Path

SPEC = MLPSpec(hidden_size=8, intermediate_size=16)
HALF = MLPSpec(hidden_size=8, intermediate_size=16, dtype="float16")


def group(*names: str, spec: MLPSpec = SPEC, file: str = "a.json") -> Group:
    return Group(
        file, ("profile", spec, 8, "inference"), spec.dtype, {name: Subject(name) for name in names}, spec=spec
    )


def side(*groups: Group, row: str | None = None, name: str = "a.json") -> Source:
    return Source(name, groups, row)


def rows(a: Source, b: Source) -> list[tuple[tuple[str, str], ...]]:
    return [pair.rows for pair in match.pairs(a, b)]


def test_names_in_both() -> None:
    assert rows(side(group("a", "b")), side(group("b", "c"))) == [(("b", "b"),)]


@pytest.mark.parametrize(
    ("first", "second", "expected"), [("a", "b", ("a", "b")), ("a", None, ("a", "a")), (None, "b", ("b", "b"))]
)
def test_names_that_were_given(first: str | None, second: str | None, expected: tuple[str, str]) -> None:
    assert rows(side(group("a", "b"), row=first), side(group("a", "b"), row=second)) == [(expected,)]


def test_the_same_dtype_comes_before_another() -> None:
    found = match.pairs(side(group("a")), side(group("a", spec=HALF), group("a")))
    assert [(pair.candidate.title, pair.relaxed) for pair in found] == [("bfloat16", False)]
    found = match.pairs(side(group("a")), side(group("a", spec=HALF)))
    assert [(pair.candidate.title, pair.relaxed) for pair in found] == [("float16", True)]


@pytest.mark.parametrize(
    ("first", "second", "paired"),
    [
        ("A", "A", "AA"),
        ("A", "B", "AB"),  # refused later, or forced
        ("AB", "BA", "AA BB"),
        ("AB", "B", "BB"),
        ("B", "AB", "BB"),
        ("AB", "BC", "BB"),
    ],
)
def test_of_several_devices_the_same_are_compared(first: str, second: str, paired: str) -> None:
    a, b = (side(*(group("a")._replace(device=device) for device in devices)) for devices in (first, second))
    found = [f"{pair.baseline.device}{pair.candidate.device}" for pair in match.pairs(a, b)]
    assert found == paired.split()


def test_nothing_in_both() -> None:
    with pytest.raises(UsageError, match=r"no row is in both: 'a.json' has a; 'b.json' has b"):
        match.pairs(side(group("a")), side(group("b"), name="b.json"))
    other = Group("b.json", ("validation",), "verdicts", {"a": Subject("a")})
    with pytest.raises(UsageError, match=r"no workload is in both: 'a.json' has bfloat16; 'b.json' has verdicts"):
        match.pairs(side(group("a")), side(other, name="b.json"))


def test_what_is_left_over() -> None:
    a, b = side(group("a", "b")), side(group("b", "c"))
    assert match.left_over(a, b, match.pairs(a, b)) == (("a",), ("c",))
    b = side(group("b", "c"), group("b", spec=HALF))
    assert match.left_over(a, b, match.pairs(a, b))[1] == ("c (bfloat16)", "b (float16)")
    named = side(group("a", "b"), row="b")
    assert match.left_over(named, b, match.pairs(named, b)) == ((), ())


def test_one_file_is_known_by_whatever_name(tmp_path: Path) -> None:
    path, link = tmp_path / "a.json", tmp_path / "link.json"
    path.write_text("{}")
    link.symlink_to(path)
    whole = [Source(str(each), ()) for each in (path, link)]
    for rows in ((None, None), ("x", "x"), ("x", None), (None, "x")):
        a, b = (
            each._replace(name=f"{each.name}:{row}" if row else each.name, row=row)
            for each, row in zip(whole, rows, strict=True)
        )
        with pytest.raises(UsageError, match="are the same; name two files"):
            match.check_sides(a, b)
    match.check_sides(Source(f"{path}:x", (), "x"), Source(f"{link}:y", (), "y"))


def test_a_dtype_without_a_partner_is_not_forced_on_one_that_has_one() -> None:
    def side(name: str, *dtypes: str) -> Source:
        specs = [MLPSpec(hidden_size=8, intermediate_size=16, dtype=dtype) for dtype in dtypes]  # type: ignore[arg-type]
        rows = {"eager": Subject("eager")}
        return Source(name, tuple(Group(f"{name}-{spec.dtype}", ("profile", spec, 1), "", rows) for spec in specs))

    for a, b in (
        (side("a", "bfloat16", "float16"), side("b", "bfloat16")),
        (side("a", "bfloat16"), side("b", "float16", "bfloat16")),
    ):
        (pair,) = match.pairs(a, b)
        assert not pair.relaxed
        assert pair.baseline.key == pair.candidate.key


def test_one_file_in_two_folders_is_one_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.touch()
    (tmp_path / "b.json").symlink_to(path)
    rows = {"eager": Subject("eager")}
    a, b = (
        Source(name, (Group(str(tmp_path / file), (), "", rows),))
        for name, file in (("one", "a.json"), ("two", "b.json"))
    )
    with pytest.raises(UsageError, match="are the same"):
        match.check_sides(a, b)
    match.check_sides(a._replace(row="eager"), b._replace(row="triton"))
