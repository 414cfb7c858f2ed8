"""The metadata of the distribution is complete, and names nothing that does not exist."""

from __future__ import annotations

import sys

import pytest
from support.paths import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_nothing_is_left_out() -> None:
    for field in ("name", "version", "description", "readme", "license", "requires-python", "keywords", "classifiers"):
        assert PROJECT[field], field
    assert "urls" not in PROJECT, "there is no public address of this project yet"


@pytest.mark.parametrize("field", ["keywords", "classifiers"])
def test_lists_are_sorted_and_without_doubles(field: str) -> None:
    values = PROJECT[field]
    assert len({value.lower() for value in values}) == len(values)
    if field == "keywords":
        assert values == sorted(values, key=str.lower)


def test_the_classifiers_are_known() -> None:
    known = pytest.importorskip("trove_classifiers").classifiers
    assert set(PROJECT["classifiers"]) <= known
    assert not any(each.startswith("License ::") for each in PROJECT["classifiers"]), "the expression says it"


def test_the_oldest_python_is_among_the_classifiers() -> None:
    versions = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if "Python :: 3." in each]
    assert f">={versions[0]}" == PROJECT["requires-python"]
