"""All checks by name: which are valid, and for which kinds of target."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

from mlpfusion.errors import UsageError
from mlpfusion.stages.validate.judge import checks
from mlpfusion.stages.validate.judge.checks import registry
from mlpfusion.stages.validate.judge.checks.check import Check


def test_a_check_must_be_for_a_target_and_a_target_for_a_check() -> None:
    both = {"a.py:f": "act_mul", "b.py:g": "mlp"}
    registry.check_kinds(both, ("elementwise", "mlp-values"))  # type: ignore[arg-type]
    registry.check_kinds(both | {"directory": None}, ("function",))  # type: ignore[arg-type]
    registry.check_kinds({"b.py:g": "mlp", "directory": None}, ("mlp-values", "positions"))
    with pytest.raises(UsageError, match=r"^check 'mlp-values' is for MLPs; a\.py:f is an act·mul$"):
        registry.check_kinds({"a.py:f": "act_mul"}, ("function", "mlp-values"))
    with pytest.raises(UsageError, match=r"^check 'positions' is for act·muls; b\.py:g is an MLP$"):
        registry.check_kinds(both, ("positions",))  # type: ignore[arg-type]


def test_every_check_has_a_name_of_its_own_and_says_what_it_looks_at() -> None:
    names = [check.name for check in registry.ALL]
    assert len(set(names)) == len(names)
    assert all(check.looks_at and check.run.__doc__ for check in registry.ALL)
    assert names[0] == "runs"
    with pytest.raises(UsageError, match="unknown check 'nope'; valid: runs, written"):
        registry.check_names(("nope",))


def test_a_row_beside_its_function_is_carried_out() -> None:
    """No row of any file of checks is left out, and the rows of one list come in their order."""
    for found in pkgutil.walk_packages(checks.__path__, f"{checks.__name__}."):
        if found.name == registry.__name__:
            continue
        for listed in vars(importlib.import_module(found.name)).values():
            if isinstance(listed, tuple) and any(isinstance(row, Check) for row in listed):
                places = [registry.ALL.index(row) for row in listed]
                assert places == sorted(places)
