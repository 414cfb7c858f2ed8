"""One call on host and device: the recorded parts, one after the other."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from support.figures_made import figure, of
from support.paths import RESULTS
from support.profiles_made import EAGER, TRITON, profile

from mlpfusion.storage import results


def test_the_parts_of_the_host_and_the_kernels_add_up() -> None:
    made = figure("lanes", "h200-profile.json")
    for row in results.load(RESULTS / "h200-profile.json").rows:
        mine = [each for each in made.rows if each[0] == row.backend]
        host, device = ([each[4:6] for each in mine if each[2] == lane] for lane in ("host", "device"))
        assert row.pre_ops is not None
        assert device[0][0] == row.pre_ops.time_to_first_launch
        assert device[-1][1] - device[0][0] == pytest.approx(sum(kernel.time_us for kernel in row.kernels))  # type: ignore[misc]
        for lane in (host, device):
            assert all(one[1] == pytest.approx(other[0]) for one, other in pairwise(lane))


def test_it_says_that_they_are_medians() -> None:
    made = figure("lanes", "h200-profile.json")
    assert {row[6] for row in made.rows} == {"recorded medians"}
    assert "From recorded medians: parts of one cause are drawn together" in made.caption
    assert "0.63 to 1.9 times those without it" in made.caption


def test_each_piece_has_a_sign_of_the_legend() -> None:
    made = figure("lanes", "h200-profile.json")
    signs = {each["what"][0] for each in made.spec["data"]["values"]}
    assert len(signs) == len({each["what"] for each in made.spec["data"]["values"]})
    assert {each["sign"] for each in made.spec["data"]["values"]} <= {*signs, ""}


def test_what_has_no_times_is_named() -> None:
    plain = msgspec.structs.replace(EAGER, backend="compile", pre_ops=None)
    made = of("lanes", profile(EAGER, plain, TRITON))
    assert {row[0] for row in made.rows} == {"eager"}
    assert made.notes == (
        "compile: no parts of the host's time or no times of kernels",
        "triton: emulated: 8 tokens, no times",
    )
