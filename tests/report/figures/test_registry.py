"""The figures by name: what each takes, and what holds of every one of them, whatever the files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from support.figures_made import HOSTILE, RECORDED, check, figure, of
from support.paths import RESULTS
from support.profiles_made import COMPILE, EAGER, HUB, LIGER, TRITON, profile

from mlpfusion.errors import UsageError
from mlpfusion.report.figures import registry
from mlpfusion.storage import results

if TYPE_CHECKING:
    from mlpfusion.records.profile import Profile

OTHERS = {"clock": "graph_us", "baseline": "compile", "value": "tflops"}


def test_every_figure_is_tried() -> None:
    assert tuple(RECORDED) == registry.NAMES


def test_a_figure_that_is_none_is_refused_with_those_that_are() -> None:
    with pytest.raises(UsageError, match="unknown figure 'pie'; valid: ratios, tokens, roofline, bytes, lanes, flow"):
        of("pie", profile())


@pytest.mark.parametrize("option", OTHERS)
@pytest.mark.parametrize("name", registry.NAMES)
def test_an_option_of_another_figure_is_refused(name: str, option: str) -> None:
    if option in registry.FIGURES[name].takes:
        return
    with pytest.raises(UsageError, match=f"figure '{name}' takes no --{option}; valid for it: .*--width"):
        of(name, profile(), **{option: OTHERS[option]})


@pytest.mark.parametrize("width", [84, 178])
@pytest.mark.parametrize("name", registry.NAMES)
def test_it_is_made_of_what_was_recorded(name: str, width: int) -> None:
    made = figure(name, *RECORDED[name], width=width)
    check(made)
    assert made.name == name
    assert made == figure(name, *RECORDED[name], width=width)


@pytest.mark.parametrize(
    "records",
    [(), (profile(LIGER, HUB),), (profile(TRITON),), (results.load_any(RESULTS / "predict.json"),)],
    ids=["nothing", "failed", "emulated", "another kind"],
)
@pytest.mark.parametrize("name", registry.NAMES)
def test_without_what_it_needs_it_is_one_line(name: str, records: tuple[Any, ...]) -> None:
    with pytest.raises(UsageError, match=f"figure '{name}' needs ") as raised:
        of(name, *records)
    assert "\n" not in str(raised.value)
    if name != "compare":
        rows = (
            "the files hold no measured rows",
            "file-1.json has liger unavailable, hub failed",
            "file-1.json has triton ok",
        )
        assert any(said in str(raised.value) for said in rows)


def renamed(found: Profile, names: tuple[str, ...]) -> Profile:
    """The profile with other names of its backends, kernels, card and versions."""
    rows = tuple(
        msgspec.structs.replace(row, backend=row.backend if row.backend == "eager" else f"{name}{place}", reason=name)
        for place, (row, name) in enumerate(zip(found.rows, names * 3, strict=False))
    )
    device = msgspec.structs.replace(found.device, name=f"NVIDIA H200 {names[0]}")
    environment = msgspec.structs.replace(found.environment, torch=names[1], driver=names[2])
    return msgspec.structs.replace(found, rows=rows, device=device, environment=environment, created=names[3])


@pytest.mark.parametrize("name", [name for name in registry.NAMES if name != "compare"])
def test_names_of_files_are_data_everywhere(name: str) -> None:
    files = [renamed(results.load(RESULTS / "h200-profile.json"), HOSTILE)]
    if name == "tokens":
        folder = RESULTS / "h200-choose-gemma-2b"
        files = [renamed(results.load(folder / f"inference-{count}.json"), HOSTILE) for count in (1, 256)]
    made = of(name, *files)
    check(made)
    assert len(made.caption) < 1500
    assert all(note.isprintable() and len(note) < 300 for note in made.notes)


@pytest.mark.parametrize("name", registry.NAMES)
def test_a_profile_of_two_rows_is_drawn_or_refused(name: str) -> None:
    """Whatever is missing of a row: no figure ends in a traceback."""
    for field in ("clocks", "traffic", "accuracy", "pre_ops", "kernels", "launches", "bound", "tokens", "memory"):
        plain = () if field == "kernels" else None
        rows = [msgspec.structs.replace(row, **{field: plain}) for row in (EAGER, COMPILE)]
        if field == "kernels":
            rows = [msgspec.structs.replace(row, launches=None) for row in rows]
        try:
            check(of(name, profile(*rows)))
        except UsageError as error:
            assert str(error).startswith(f"figure '{name}' needs ")  # noqa: PT017
