"""The words of captions and labels."""

from __future__ import annotations

import msgspec
import pytest
from support.comparisons_made import raced, with_spec
from support.figures_made import HOSTILE
from support.paths import RESULTS
from support.profiles_made import profile

from mlpfusion.report.figures.reading import shapes, timed, words
from mlpfusion.spec import Workload
from mlpfusion.storage.gathered import Gathered, gather


def of(*records) -> tuple[shapes.Shape, ...]:
    return shapes.of([Gathered(f"d{number}/f.json", record, "") for number, record in enumerate(records)])


def tokens(count: int):
    return profile(workload=Workload(spec=profile().workload.spec, batch=1, seq=count))


@pytest.mark.parametrize(
    ("records", "wanted"),
    [
        ([profile()], ("",)),
        ([tokens(1), tokens(16)], ("1 tok", "16 tok")),
        (
            [profile(), with_spec(profile(), dtype="float16")],
            ("768×3072 gelu_tanh bfloat16", "768×3072 gelu_tanh float16"),
        ),
        ([profile(), profile()], ("d0/f.json", "d1/f.json")),
        ([tokens(1), tokens(1), tokens(2)], ("1 tok d0/f.json", "1 tok d1/f.json", "2 tok d2/f.json")),
    ],
    ids=["one", "tokens", "dtypes", "files", "both"],
)
def test_a_label_has_what_tells_a_shape_from_the_others(records, wanted: tuple[str, ...]) -> None:
    assert words.labels(of(*records), 178) == wanted


def test_no_two_labels_are_alike_even_of_one_file() -> None:
    found = of(profile())
    assert words.labels([*found, *found, *found], 178) == ("f.json", "f.json (2)", "f.json (3)")


def test_a_caption_says_what_where_with_what_and_how_often() -> None:
    every = shapes.of(gather([str(RESULTS / "h200-profile.json")]))
    said = words.measured(every, [each.clock for each in timed.pick(every, "event_us")[1]])
    assert said == (
        "768×3072 gelu_tanh bfloat16; 8192 tokens; inference. NVIDIA H200; torch 2.11.0+cu130, triton 3.6.0, driver "
        "580.159.04; 2026-11-29. 60 rounds in 1 process; L2 cold. Source: h200-profile.json."
    )
    five = of(raced({"triton": 0.9}))
    assert "300 rounds in 5 processes; L2 cold." in words.measured(
        five, [each.clock for each in timed.pick(five, "graph_us")[1]]
    )


@pytest.mark.parametrize("name", HOSTILE)
def test_names_of_files_are_one_short_line(name: str) -> None:
    found = profile(device=msgspec.structs.replace(profile().device, name=name), created=name)
    said = words.measured(shapes.of([Gathered(f"x/{name.replace('/', '')}", found, "")]))
    assert said.isprintable()
    assert len(said) < 600


def test_many_values_are_counted() -> None:
    assert words.listed(range(6)) == "0, 1, 2, 3, 4, 5"
    assert words.listed(range(9)) == "0, 1, 2, 3, 4 and 4 more"
