"""Digests of cells, and shards that have every cell once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.studies_made import TINY, read

from mlpfusion.errors import UsageError
from mlpfusion.records.sweep.cells import Settings, Use, Work
from mlpfusion.spec import MLPSpec, Workload
from mlpfusion.stages.sweep import cells

SETTINGS = Settings(backends=("eager", "triton"), rounds=5)
VERSIONS = {"torch": "2.13.0", "triton": None}


def work(tokens=1, mode="inference", **spec):
    made = MLPSpec(**{"hidden_size": 8, "intermediate_size": 16, **spec})
    return Work(of=(Use(model="m"),), workload=Workload(spec=made, batch=1, seq=tokens, mode=mode))


WORKS = st.lists(
    st.builds(work, st.integers(1, 10**6), st.sampled_from(["inference", "training"]), hidden_size=st.integers(1, 999)),
    min_size=1,
    max_size=30,
    unique_by=lambda each: each.workload,
)


@given(WORKS, st.integers(1, 40), st.sampled_from([None, ("h100", "h200")]))
def test_every_cell_falls_to_one_shard(works, parts, gpus):
    settings = replace(SETTINGS, gpus=gpus)
    found = cells.product(works, gpus or ["cpu"])
    shards = [cells.Shard(number, parts) for number in range(1, parts + 1)]
    assert [sum(one.has(settings, each) for one in shards) for each in found] == [1] * len(found)


@given(WORKS, st.integers(1, 9))
def test_machines_of_other_kinds_agree_on_who_measures_what(works, parts):
    one, other = (cells.product(works, [kind]) for kind in ("NVIDIA H200", "NVIDIA A100-SXM4-80GB"))
    for number in range(1, parts + 1):
        part = cells.Shard(number, parts)
        assert [part.has(SETTINGS, each) for each in one] == [part.has(SETTINGS, each) for each in other]


CHANGED = {
    "spec": (SETTINGS, work(activation="relu"), "cpu", VERSIONS),
    "bias": (SETTINGS, work(bias=True), "cpu", VERSIONS),
    "dtype": (SETTINGS, work(dtype="float32"), "cpu", VERSIONS),
    "tokens": (SETTINGS, work(2), "cpu", VERSIONS),
    "mode": (SETTINGS, work(mode="training"), "cpu", VERSIONS),
    "backends": (replace(SETTINGS, backends=("eager",)), work(), "cpu", VERSIONS),
    "rounds": (replace(SETTINGS, rounds=6), work(), "cpu", VERSIONS),
    "processes": (replace(SETTINGS, processes=2), work(), "cpu", VERSIONS),
    "counters": (replace(SETTINGS, counters=True), work(), "cpu", VERSIONS),
    "gpu": (SETTINGS, work(), "NVIDIA H200", VERSIONS),
    "versions": (SETTINGS, work(), "cpu", {**VERSIONS, "triton": "3.7.1"}),
}


def identity(settings, each, gpu, versions):
    return cells.identity(settings, cells.product([each], [gpu])[0], versions)


@pytest.mark.parametrize("what", CHANGED)
def test_an_identity_has_all_that_makes_a_result_another(what):
    assert identity(*CHANGED[what]) != identity(SETTINGS, work(), "cpu", VERSIONS)


def test_an_identity_has_nothing_else():
    other = replace(SETTINGS, backends=("triton", "eager"), time_limit_s=1.0)
    named = replace(work(), of=(Use(model="another", tp=2),))
    swapped = dict(reversed(VERSIONS.items()))
    assert identity(other, named, "cpu", swapped) == identity(SETTINGS, work(), "cpu", VERSIONS)


def test_a_definition_is_the_same_in_another_order_and_another_file(tmp_path):
    def digest(text):
        found = read(tmp_path, text)
        return cells.definition_digest(found.settings, found.work)

    first = digest(f'models = [{TINY}, "article"]\ntokens = [1, 4]\nbackends = ["eager", "triton"]')
    assert first == digest(f'backends = ["triton", "eager"]\ntokens = [4, 1]\nmodels = ["article", {TINY}]\n')
    assert first != digest(f'models = [{TINY}, "article"]\ntokens = [1, 4, 5]\nbackends = ["eager", "triton"]')
    assert first != digest(f'models = [{TINY}, "article"]\ntokens = [1, 4]\nbackends = ["eager"]')


@given(st.text(max_size=300), st.sampled_from(["cpu", "NVIDIA A100-SXM4-80GB"]))
def test_a_file_has_a_name_that_any_system_takes(name, gpu):
    (cell,) = cells.product([replace(work(), of=(Use(model=name),))], [gpu])
    found = cells.file_name(cell, "0123456789abcdef")
    assert found.isascii()
    assert len(found) < 150
    assert not set(found) & set("/\\: \0")
    assert not found.startswith((".", "-"))
    assert found.endswith("0123456789ab.json")


@pytest.mark.parametrize(
    ("text", "environment", "expected"),
    [
        ("1/4", {}, (1, 4)),
        ("4/4", {}, (4, 4)),
        ("auto", {"SLURM_ARRAY_TASK_ID": "0", "SLURM_ARRAY_TASK_COUNT": "8"}, (1, 8)),
        ("auto", {"SLURM_ARRAY_TASK_ID": "8", "SLURM_ARRAY_TASK_COUNT": "8", "SLURM_ARRAY_TASK_MIN": "1"}, (8, 8)),
        (
            "auto",
            {
                "SLURM_ARRAY_TASK_ID": "6",
                "SLURM_ARRAY_TASK_COUNT": "3",
                "SLURM_ARRAY_TASK_MIN": "2",
                "SLURM_ARRAY_TASK_STEP": "2",
            },
            (3, 3),
        ),
        ("auto/5", {"JOB_COMPLETION_INDEX": "0"}, (1, 5)),
        ("auto/5", {"SLURM_ARRAY_TASK_ID": "4"}, (5, 5)),
    ],
)
def test_a_shard_is_named_or_the_schedulers(text, environment, expected):
    assert cells.shard(text, environment) == expected


@pytest.mark.parametrize(
    ("text", "environment", "said"),
    [
        ("", {}, "must be I/N"),
        ("3", {}, "must be I/N"),
        ("1/", {}, "must be I/N"),
        ("1/0", {}, "must be I/N"),
        ("1/-2", {}, "must be I/N"),
        ("1/99999999999", {}, "must be I/N"),
        ("0/4", {}, "I must be an integer from 1 to 4, got '0'"),
        ("5/4", {}, "I must be an integer from 1 to 4, got '5'"),
        ("x/4", {}, "I must be an integer from 1 to 4, got 'x'"),
        ("1/2/3", {}, "must be I/N"),
        ("auto", {}, "neither is set; give I/N"),
        ("auto", {"JOB_COMPLETION_INDEX": "0"}, "not how many there are; give auto/N"),
        ("auto/2", {"JOB_COMPLETION_INDEX": "2"}, "is not among them"),
        ("auto/2", {"JOB_COMPLETION_INDEX": "-1"}, "must be an integer, got '-1'"),
        ("auto", {"SLURM_ARRAY_TASK_ID": "one"}, "must be an integer, got 'one'"),
    ],
)
def test_another_shard_is_refused(text, environment, said):
    with pytest.raises(UsageError, match="--shard") as caught:
        cells.shard(text, environment)
    assert said in str(caught.value)
