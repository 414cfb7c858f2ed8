"""bench/swap_call.py: both modules are swapped and timed, and an empty function costs nothing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from support.bench import bench

from mlpfusion.models.swap import swap

if TYPE_CHECKING:
    from types import ModuleType


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return bench("swap_call")


def test_each_module_has_a_figure(script: ModuleType, capsys: Any) -> None:
    script.main(["--rounds", "2"])
    lines = capsys.readouterr().out.splitlines()
    assert [line[:28].strip() for line in lines] == ["plain", "with a buffer and a config"]
    assert all(re.search(r"-?\d+\.\d\d CPU µs a call \[p20 .* n = 2$", line) for line in lines)


def test_what_is_called_is_what_finds_a_change(script: ModuleType) -> None:
    module = script.Watched().eval()
    with swap(module, "eager"):
        check = script.checks(module)
        assert check() is None
        module.factor.fill_(2.0)
        assert "factor was changed" in check()
        module.factor.fill_(1.0)
