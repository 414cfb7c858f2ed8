"""bench/validate.py: what its file holds, what it judges again, and what its tables say is missing."""

from __future__ import annotations

import json

import msgspec
import pytest
from support.bench import bench
from support.paths import RESULTS

from mlpfusion.device import Device, detect
from mlpfusion.records.validation import Judged

RECORDED = RESULTS / "h200-validate.json"
validate = bench("validate")


@pytest.fixture
def kept(tmp_path):
    """The recorded run, to be gone on with."""
    path = tmp_path / RECORDED.name
    path.write_bytes(RECORDED.read_bytes())
    here = msgspec.convert(json.loads(path.read_text(encoding="utf-8"))["device"], Device)
    return validate.Set(path, here, seed=1)


def test_slow_targets_come_last_and_every_backend_is_one():
    names = [each.name for each in validate.targets()]
    assert tuple(names[-len(validate.SLOW) :]) == validate.SLOW
    assert len(names) == len(set(names))


@pytest.mark.full
def test_what_another_version_judged_is_judged_again_and_kept_until_then(kept):
    kept.here = detect("cpu")  # where it goes on
    name, found = next(iter(kept.document["judged"].items()))
    kept.by["judged"][name] = "another"
    assert kept.lacks("judged", name)
    assert kept.lacks("judged", "of no such name")
    kept.keep("judged", name, msgspec.convert(found, Judged, strict=False))
    assert not kept.lacks("judged", name)
    again = validate.Set(kept.path, kept.here, seed=2)
    assert not again.lacks("judged", name)
    assert again.document["judged"].keys() == kept.document["judged"].keys()
    kept.by["judged"].clear()  # a file of before there was such a record
    assert kept.lacks("judged", name)


def test_the_tables_say_what_is_missing_and_what_is_older(kept):
    names = list(kept.document["judged"])
    for name in names:
        kept.by["judged"][name] = kept.code
    del kept.document["judged"][names[0]]
    kept.by["judged"][names[1]] = "another"
    said = "\n".join(kept.standing())
    assert names[0] in said
    assert f"Of these controls, judged by other versions of mlpfusion, PyTorch or Triton: {names[1]}." in said
    assert said in kept.tables().replace("\n\n", "\n")


def test_the_recorded_tables_are_those_of_the_recorded_file(kept):
    """But for what is said of other versions: this one may be another."""
    recorded = RECORDED.with_suffix(".md").read_text(encoding="utf-8")
    assert kept.tables().partition("## Controls")[2] == recorded.partition("## Controls")[2]
