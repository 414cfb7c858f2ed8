"""A proof as text, Markdown, CSV and JSON: verdict, errors by part, time with the MLPs' share, kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from msgspec.structs import replace
from support.paths import RESULTS

from mlpfusion.errors import UsageError
from mlpfusion.records.proof import LeftAlone, Proof
from mlpfusion.report.grid import FORMATS
from mlpfusion.report.proof import render

if TYPE_CHECKING:
    from pathlib import Path

RECORDED = sorted(RESULTS.glob("h200-prove-*.json"))
each_recorded = pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)


def load(path: Path) -> Proof:
    return msgspec.json.decode(path.read_bytes(), type=Proof)


@pytest.fixture
def proof() -> Proof:
    return load(RESULTS / "h200-prove-gemma-2b-fused.json")


@each_recorded
def test_json_is_the_proof_itself(path: Path) -> None:
    assert msgspec.json.decode(render(load(path), "json"), type=Proof) == load(path)


@each_recorded
@pytest.mark.parametrize("fmt", ["text", "github"])
def test_a_recorded_proof_says_its_verdict_and_every_part_it_has(path: Path, fmt: str) -> None:
    found = load(path)
    text = render(found, fmt)
    assert ("holds: " in text) == found.holds
    assert ("Time of the whole model" in text) == (found.speed is not None)
    assert all(f"no {part}: " in text for part in found.reasons)
    assert found.policy in text
    word = "to" if found.how == "swap" else "by"
    assert f"{len(found.swapped)} gated MLPs {word} {found.backend}" in text


def test_the_verdict_names_what_was_not_judged(proof: Proof) -> None:
    assert "; not judged" not in render(proof)
    lacking = replace(proof, logits=replace(proof.logits, accuracy=None), gradients=None, layers=proof.layers[:1])
    said = f"; not judged: logits, gradients, {', '.join(each.name for each in proof.swapped[1:3])}"
    assert f"holds: 1 part judged, none beyond its limit{said}" in render(lacking)


@pytest.mark.parametrize("fmt", ["text", "github"])
def test_what_breaks_the_policy_takes_the_place_of_the_verdict(proof: Proof, fmt: str) -> None:
    text = render(replace(proof, failures=("the logits are off", "layer 3 is off")), fmt)
    assert "holds: " not in text
    mark = "- " if fmt == "github" else ""
    assert f"{mark}fails: the logits are off\n{mark}fails: layer 3 is off" in text


def test_the_layer_nearest_its_limit_is_marked_and_no_other(proof: Proof) -> None:
    assert len(proof.layers) > 1
    worst = max(proof.layers, key=lambda each: each.accuracy.ratio / each.accuracy.limit)
    marked = [line for line in render(proof).splitlines() if "(worst)" in line]
    assert [line.split()[0] for line in marked] == [worst.name]


def test_an_error_that_is_no_number_is_said_in_words(proof: Proof) -> None:
    first = proof.layers[0]
    broken = replace(first, accuracy=replace(first.accuracy, max_error=None))
    unearned = replace(first, accuracy=replace(first.accuracy, eager_max_error=0.0, max_error=0.1))
    assert "nan or inf" in render(replace(proof, layers=(broken,)))
    assert "no error before" in render(replace(proof, layers=(unearned,)))


def test_what_was_left_as_it_was_is_listed(proof: Proof) -> None:
    left = LeftAlone(name="model.mlp", kind="Odd", reason="its forward is its own")
    text = render(replace(proof, refused=(left,)))
    assert "model.mlp (Odd) was left as it was: its forward is its own" in text


def test_a_format_that_is_none(proof: Proof) -> None:
    with pytest.raises(UsageError, match=f"unknown format 'html'; valid: {', '.join(FORMATS)}"):
        render(proof, "html")
