"""Measured rows of files of every kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from support import studies_made
from support.paths import RESULTS
from support.profiles_made import profile

from mlpfusion.errors import UsageError
from mlpfusion.records.bench import Bench, Profiles
from mlpfusion.report.figures.reading import shapes
from mlpfusion.storage.gathered import Gathered, gather

if TYPE_CHECKING:
    from pathlib import Path


def of(*names: str) -> tuple[shapes.Shape, ...]:
    return shapes.of(gather([str(RESULTS / name) for name in names]))


@pytest.mark.parametrize(
    ("name", "count", "model"),
    [
        ("h200-profile.json", 1, None),
        ("h200-choose-article", 5, "article"),
        ("h200-choose-article/choice.json", 5, "article"),
        ("h200-traffic.json", 2, "article"),
        ("h200-grid.json", 59, "article"),
        ("h200-fused.json", 14, None),
        ("h200-validate.json.gz", 0, None),
        ("h200-prove-gemma-2b-fused.json", 0, None),
    ],
)
def test_each_kind_has_its_shapes(name: str, count: int, model: str | None) -> None:
    found = of(name)
    assert len(found) == count
    assert model in [shape.model for shape in found] or not found
    assert all(shape.rows for shape in found)


def test_a_study_has_its_cells_by_the_names_of_its_models(tmp_path: Path) -> None:
    studies_made.recorded(tmp_path / "decode")
    found = shapes.of(gather([str(tmp_path / "decode")]))
    assert [(shape.model, shape.workload.tokens) for shape in found] == [
        ("gemma-2b", tokens) for tokens in (1, 16, 256, 2048, 8192)
    ]


def test_they_are_in_the_order_of_tokens() -> None:
    assert [shape.workload.tokens for shape in of("h200-choose-gemma-2b")] == [1, 16, 256, 2048, 8192]


def test_a_choice_without_its_rows_has_their_times_but_no_samples() -> None:
    for alone, whole in zip(of("h200-choose-article/choice.json"), of("h200-choose-article"), strict=True):
        times = {row.backend: row.clocks.event_us for row in alone.rows if row.clocks}
        for row in whole.rows:
            if row.backend in times:
                assert times[row.backend].median == row.clocks.event_us.median  # type: ignore[union-attr]
                assert times[row.backend].samples == ()  # type: ignore[union-attr]


def test_several_profiles_of_one_file_have_its_names() -> None:
    found = Profiles(schema=1, kind="traffic", profiles={"<b>": profile()})
    assert shapes.of([Gathered("f.json", found, "")])[0].model == "<b>"


@pytest.mark.parametrize(
    "damage",
    [
        {"rows": 3},
        {"rows": [{"workload": {}}]},
        {"device": {"kind": "tpu"}},
        {
            "rows": [
                {"workload": {"spec": {"hidden_size": 0, "intermediate_size": 1}, "batch": 1, "seq": 1}, "peers": []}
            ]
        },
    ],
    ids=str,
)
def test_a_damaged_grid_is_one_line(damage: dict[str, object]) -> None:
    (file,) = gather([str(RESULTS / "h200-grid.json")])
    assert isinstance(file.record, Bench)
    wrong = msgspec.structs.replace(file.record, content={**file.record.content, **damage})
    with pytest.raises(UsageError, match=r"'g\.json' is a damaged grid: "):
        shapes.of([Gathered("g.json", wrong, "")])


def with_samples(values: list[object]) -> Gathered:
    (file,) = gather([str(RESULTS / "h200-grid.json")])
    assert isinstance(file.record, Bench)
    row = file.record.content["rows"][0]
    peers = [{**row["peers"][0], "samples": {"graph_us": values}}]
    content = {**file.record.content, "rows": [{**row, "peers": peers}]}
    return Gathered("g.json", msgspec.structs.replace(file.record, content=content), "")


@pytest.mark.parametrize("values", [["NaN"], [-1.0, 2.0], [0.0, 0.0], [1e300]], ids=str)
def test_samples_that_are_no_times_are_refused(values: list[object]) -> None:
    with pytest.raises(UsageError, match=r"'g\.json' is a damaged grid: "):
        shapes.of([with_samples(values)])


@pytest.mark.parametrize("values", [[], [None, None]], ids=str)
def test_a_clock_without_samples_is_none(values: list[object]) -> None:
    (found,) = shapes.of([with_samples(values)])
    assert found.rows[0].clocks is not None
    assert found.rows[0].clocks.graph_us is None


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_share_has_its_name_in_every_dtype(dtype: str) -> None:
    (file,) = gather([str(RESULTS / "h200-grid-first.json")])
    assert isinstance(file.record, Bench)
    named = {shape.workload: shape.model for shape in shapes.of([file])}
    rows = [*file.record.content["rows"]]
    other = [
        {**row, "workload": {**row["workload"], "spec": {**row["workload"]["spec"], "dtype": dtype}}} for row in rows
    ]
    found = shapes.of(
        [Gathered("g.json", msgspec.structs.replace(file.record, content={**file.record.content, "rows": other}), "")]
    )
    for shape in found:
        as_recorded = msgspec.structs.replace(shape.workload.spec, dtype="bfloat16")
        assert shape.model == named[msgspec.structs.replace(shape.workload, spec=as_recorded)] is not None
