"""The figures by name, and what each takes."""

from __future__ import annotations

import pytest
from support.figures_made import of
from support.profiles_made import profile

from mlpfusion.errors import UsageError
from mlpfusion.report.figures import registry


def test_a_figure_that_is_none_is_refused_with_those_that_are() -> None:
    with pytest.raises(UsageError, match="unknown figure 'pie'; valid: ratios"):
        of("pie", profile())


OTHERS = {"clock": "graph_us", "baseline": "compile", "value": "tflops"}


@pytest.mark.parametrize("option", OTHERS)
@pytest.mark.parametrize("name", registry.NAMES)
def test_an_option_of_another_figure_is_refused(name: str, option: str) -> None:
    if option in registry.FIGURES[name].takes:
        return
    with pytest.raises(UsageError, match=f"figure '{name}' takes no --{option}; valid for it: .*--width"):
        of(name, profile(), **{option: OTHERS[option]})


@pytest.mark.parametrize("name", registry.NAMES)
def test_no_file_of_measurements_is_one_line(name: str) -> None:
    with pytest.raises(UsageError, match=f"figure '{name}' needs ") as raised:
        of(name)
    assert "\n" not in str(raised.value)
