"""The CSV of a proof has a row for each part that was judged, compared or timed, and every number of it."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

import msgspec
import pytest
from msgspec.structs import replace
from support.paths import RESULTS

from mlpfusion.records.proof import Proof
from mlpfusion.report import speedup
from mlpfusion.report.proof import render

if TYPE_CHECKING:
    from pathlib import Path

RECORDED = sorted(RESULTS.glob("h200-prove-*.json"))
each_recorded = pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)


def load(path: Path) -> Proof:
    return msgspec.json.decode(path.read_bytes(), type=Proof)


def lines(proof: Proof, what: str) -> dict[str, dict[str, str]]:
    found = list(csv.DictReader(io.StringIO(render(proof, "csv"))))
    return {line["part"]: line for line in found if line["what"] == what}


@each_recorded
def test_each_layer_that_was_judged_has_its_errors(path: Path) -> None:
    proof = load(path)
    found = lines(proof, "error")
    judged = {"logits": proof.logits.accuracy, "gradients": proof.gradients and proof.gradients.accuracy}
    judged |= {each.name: each.accuracy for each in proof.layers}
    assert list(found) == [name for name, accuracy in judged.items() if accuracy is not None]
    for name, line in found.items():
        accuracy = judged[name]
        assert accuracy is not None
        assert float(line["max_error"]) == accuracy.max_error
        assert float(line["rms_error_without"]) == accuracy.eager_rms_error
        assert float(line["limit"]) == accuracy.limit
        assert line["us"] == line["value"] == ""


@each_recorded
def test_each_time_has_its_clock_and_its_speedup(path: Path) -> None:
    proof = load(path)
    found = lines(proof, "time")
    assert proof.speed is not None
    assert list(found) == ["original", "swapped", "MLPs that do nothing"]
    assert found["original"]["speedup_vs_without"] == "1.0"
    assert {line["clock"] for line in found.values()} == {proof.speed.clock}
    assert float(found["swapped"]["us"]) == proof.speed.swapped.median
    ratio = proof.speed.swapped.ratio_to_eager
    assert ratio is not None
    assert float(found["swapped"]["speedup_vs_without"]) == speedup.of(ratio).median


@each_recorded
def test_kernels_whose_number_changed_and_no_others(path: Path) -> None:
    proof = load(path)
    found = {name: (int(line["value_without"]), int(line["value"])) for name, line in lines(proof, "kernel").items()}
    changed = [each for each in proof.kernels if each.original != each.swapped]
    assert found == {each.name: (each.original, each.swapped) for each in changed}


@each_recorded
def test_what_differs_from_the_model_as_it_was(path: Path) -> None:
    proof = load(path)
    assert proof.gradients is not None
    assert list(lines(proof, "difference")) == ["logits", "gradients", proof.gradients.worst]
    values = lines(proof, "value")
    assert proof.loss is not None
    assert float(values["loss"]["value"]) == proof.loss.swapped
    assert float(values["loss"]["value_without"]) == proof.loss.original
    assert {"top1", "kl_mean", "kl_max", "peak_bytes"} <= values.keys()


@each_recorded
def test_every_line_says_whose_it_is_and_whether_it_holds(path: Path) -> None:
    proof = load(path)
    for made, holds in ((proof, "True"), (replace(proof, failures=("logits: off",)), "False")):
        text = list(csv.DictReader(io.StringIO(render(made, "csv"))))
        assert {(line["backend"], line["holds"], line["how"]) for line in text} == {(proof.backend, holds, proof.how)}


def test_a_proof_of_the_least_still_has_rows() -> None:
    proof = load(RECORDED[0])
    bare = replace(
        proof,
        logits=replace(proof.logits, accuracy=None, top1_fp64=None, top1_fp64_original=None),
        gradients=None,
        loss=None,
        layers=(),
        speed=None,
        memory=None,
        kernels=(),
    )
    found = list(csv.DictReader(io.StringIO(render(bare, "csv"))))
    assert [line["part"] for line in found] == ["logits", "top1", "kl_mean", "kl_max"]
