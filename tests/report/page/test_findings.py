"""What follows from rows beyond their times."""

from __future__ import annotations

from msgspec.structs import replace
from support import profiles_made as made
from support.reported import source

from mlpfusion.report.page import cases
from mlpfusion.report.page.findings import findings
from mlpfusion.spec import MLPSpec, Workload


def of(*profiles):
    return findings(cases.cases([source(each, f"{number}.json") for number, each in enumerate(profiles)]))


def test_what_the_host_bounds_is_found() -> None:
    slow = replace(made.EAGER, bound=replace(made.EAGER.bound, by="cpu", margin=3.0))
    assert any(each.startswith("bound by the host") and each.endswith("eager 3.00x") for each in of(made.profile(slow)))
    assert not any(each.startswith("bound by the host") for each in of(made.profile(made.EAGER)))


def test_copies_and_waits_are_found() -> None:
    busy = replace(made.EAGER, launches=replace(made.EAGER.launches, memcpys=3, syncs=1))
    found = of(made.profile(busy))
    assert "memcpys of one call: eager 3" in found
    assert "synchronises inside a call: eager" in found


def test_notes_of_several_cases_are_said_once_with_their_tokens() -> None:
    work = Workload(spec=MLPSpec(hidden_size=768, intermediate_size=3072), batch=1, seq=7)
    found = of(made.profile(made.COMPILE), made.profile(made.COMPILE, workload=work), made.profile(made.EAGER))
    note = [each for each in found if each.startswith("compile: asked for nothing special")]
    assert note == ["compile: asked for nothing special (7 tokens, 8192 tokens)"]
