"""bench/validate.py: what its file holds, what it judges again, and what its tables say is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from support.bench import bench
from support.paths import RESULTS

import mlpfusion
from mlpfusion.device import Device, detect
from mlpfusion.records.validation import Judged

RECORDED = RESULTS / "h200-validate.json.gz"
validate, asked = bench("validate"), bench("asked")


@pytest.fixture
def kept(tmp_path):
    """The recorded run, to be gone on with."""
    path = tmp_path / RECORDED.name
    path.write_bytes(RECORDED.read_bytes())
    here = msgspec.convert(validate.recorded(path)["device"], Device)
    return validate.Set(path, here, seed=1)


def test_slow_targets_come_last_and_every_backend_is_one():
    names = [each.name for each in validate.targets()]
    assert names[-len(validate.SLOW) :] == [each.name for each in validate.SLOW]
    assert len(names) == len(set(names))


def test_what_a_target_is_judged_by_is_asked():
    for target in validate.targets():
        found = validate.asked(target, rounds=7)
        for field in ("dtypes", "shapes", "only", "against"):
            assert getattr(found, field) == getattr(target, field)
        assert found.rounds == 7


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
    recorded = (RESULTS / kept.page.name).read_text(encoding="utf-8")
    assert kept.tables().partition("## Controls")[2] == recorded.partition("## Controls")[2]


def test_the_parts_of_all_controls_are_joined_to_the_whole(kept, tmp_path):
    names = list(kept.document["judged"])[:10]
    whole = validate.Set(tmp_path / "whole" / kept.path.name, kept.here, seed=1)
    for part in range(1, 4):
        one = validate.Set(tmp_path / f"{part}" / kept.path.name, kept.here, seed=part)
        one.document |= {fact: kept.document[fact] for fact in ("seed", "device", "environment")}
        one.document["environment"] |= {"distributions": {f"lib{part}": f"{part}.0"}}
        for name in names[asked.share(f"{part}/3")]:
            one.document["judged"][name] = kept.document["judged"][name]
            one.by["judged"][name] = one.code
        one.document["judged"]["old"], one.by["judged"]["old"] = {}, "another"
        one.save()
        whole.join(one.path)
    whole.save()
    again = validate.Set(whole.path, kept.here, seed=9).document
    assert sorted(again["judged"]) == sorted(names)
    assert again["environment"]["distributions"] == {"lib1": "1.0", "lib2": "2.0", "lib3": "3.0"}


@pytest.mark.full  # a process that imports the libraries of every backend
def test_what_is_judged_again_is_what_another_validator_or_backend_judged():
    """All that is loaded to judge the backends is in the digest, and nothing that only prints or plans is."""
    text = (
        "import sys, mlpfusion.stages.validate.judge.examine, mlpfusion.stages.validate.worker.main\n"
        "from mlpfusion import backend\n"
        "[backend.load(name) for name in backend.names()]\n"
        "print(*(m.__file__ for n, m in sys.modules.items() if n.startswith('mlpfusion.') and m.__file__), sep='\\n')"
    )
    loaded = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout.split("\n")
    found = {str(path) for path in validate.sources()}
    assert {path for path in loaded if path and not path.endswith("__init__.py")} <= found
    root = Path(mlpfusion.__file__).parent
    floors = {Path(path).relative_to(root).parts[0] for path in found}
    assert {"stages", "backends", "measure"} <= floors
    assert not {"report", "cli", "trace", "traffic"} & floors
    assert {path.parts[1] for path in (Path(one).relative_to(root) for one in found) if path.parts[0] == "stages"} == {
        "validate"
    }
