"""What races were of: in common, and apart."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.races_made import SPEC, profile, race, source

from mlpfusion.errors import UsageError
from mlpfusion.report.table.shapes import check_sort, in_order, kind_of, shape_of, title, varying
from mlpfusion.stages.tabulate.races import of_sources


def test_what_all_have_is_said_once_and_what_differs_is_a_column() -> None:
    races = [race({}, 16), race({}, 256, mode="training")]
    assert [field.key for field in varying(races)] == ["mode", "tokens"]
    assert title(races) == "gelu_tanh gated MLP 768 × 3072, bfloat16, on NVIDIA H100 80GB HBM3"
    assert title(races[:1]).endswith("bfloat16, inference, 16 tokens, on NVIDIA H100 80GB HBM3")


def test_every_field_that_differs_is_a_column() -> None:
    specs = [
        SPEC,
        replace(SPEC, hidden_size=8),
        replace(SPEC, intermediate_size=8),
        replace(SPEC, activation="silu"),
        replace(SPEC, dtype="float16"),
        replace(SPEC, bias=True),
    ]
    found = [field.key for field in varying([race({}, spec=spec) for spec in specs])]
    assert found == ["activation", "dtype", "bias", "hidden_size", "intermediate_size"]
    assert (
        title([race({}, spec=spec) for spec in specs]) == "gated MLP, inference, 8192 tokens, on NVIDIA H100 80GB HBM3"
    )


def test_the_file_tells_apart_what_nothing_else_does() -> None:
    races = [race({}, name="a.json"), race({}, name="b.json", seed=1)]
    assert [field.key for field in varying(races)] == ["file"]


def test_means_are_over_shapes_of_one_kind() -> None:
    one, other = race({}, 16), race({}, 256)
    assert kind_of(one) == kind_of(other)
    assert shape_of(one) != shape_of(other)
    assert kind_of(one) != kind_of(race({}, 16, mode="training"))


def test_races_in_the_order_of_a_field() -> None:
    races = of_sources([source(profile({}, n), f"{n}.json") for n in (16, 2, 256)])
    assert [each.work.tokens for each in in_order(races, "-tokens")] == [256, 16, 2]
    assert [each.source.name for each in in_order(races, "file")] == ["16.json", "2.json", "256.json"]


def test_sorting_is_by_a_field_or_a_column() -> None:
    assert check_sort("-tokens", ["event_us"])
    assert not check_sort("-event_us", ["event_us"])
    for name in ("speed", "", "-"):
        with pytest.raises(UsageError, match="of --sort; valid: device, "):
            check_sort(name, ["event_us"])
