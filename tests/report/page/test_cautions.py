"""What must not be read into the numbers."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support import profiles_made as made
from support.reported import source

from mlpfusion.device import Device
from mlpfusion.records.environment import Card, Process
from mlpfusion.report.page import cases
from mlpfusion.report.page.cautions import cautions

ROWS = (made.timed("eager", 100.0, load=0.0), made.timed("fast", 80.0, load=0.0))
QUIET = made.profile(
    *ROWS,
    processes=tuple(Process(started="now", throttle_reasons=()) for _ in range(5)),
    environment=replace(made.profile().environment, card=Card(locked_clocks=True)),
)


def said(*profiles, old=()):
    return cautions(cases.cases([source(each, f"{number}.json") for number, each in enumerate(profiles)]), old)


def test_a_quiet_run_of_five_processes_has_none() -> None:
    assert said(QUIET) == ()


def process(**changes):
    return (Process(started="now", **{"throttle_reasons": (), **changes}),) * 5


FEW = replace(
    made.EAGER, backend="few", clocks=made.Clocks(wall_us=made.clock(3.0, n=3, p20=None, p80=None), neighbours=0.0)
)
CHANGES = {
    "All rounds of a case are of one process": {"processes": process()[:1]},
    "How many processes raced is not recorded": {"processes": ()},
    "The card was held back during the race: sw_power_cap": {"processes": process(throttle_reasons=("sw_power_cap",))},
    "Whether the card was throttled was not read": {"processes": process(throttle_reasons=None)},
    "The card's clocks were not locked": {"environment": made.profile().environment},
    "Measured on a CPU": {"device": Device(kind="cpu", name="a CPU")},
    "The run ended early": {"complete": False},
    "Emulated by Triton's interpreter": {"rows": (*ROWS, made.TRITON)},
    "No row of these files is both measured and right": {"rows": (made.HUB,)},
    "Background load was 30% of the CPU": {"rows": (made.timed("eager", 100.0, load=0.3),)},
    "Whether the host was shared is not known": {"rows": (made.timed("eager", 100.0),)},
    "Other kernels ran in some process than the row says: fast": {"processes": process(kernels={"fast": ("k",)})},
    "below 20 no spread and no time is shown": {"rows": (*ROWS, FEW)},
}


@pytest.mark.parametrize("sentence", CHANGES)
def test_each_doubt_is_said_where_it_applies(sentence: str) -> None:
    found = said(replace(QUIET, **CHANGES[sentence]))
    assert len([each for each in found if sentence in each]) == 1


def test_devices_and_versions_are_not_mixed_silently() -> None:
    other = replace(
        QUIET, device=replace(QUIET.device, name="another"), environment=replace(QUIET.environment, torch="9")
    )
    found = " ".join(said(QUIET, other))
    assert "Measured on 2 devices" in found
    assert "torch 9 with triton 3.6.0" in found
    assert "No case is in two files" not in found


def test_an_older_schema_and_no_case_at_all_are_said() -> None:
    assert any("Of an older schema" in each and "a.json" in each for each in said(QUIET, old=["a.json"]))
    assert said() == ("No file holds a measured case: there is nothing to rank.",)
