"""The main job on a CPU, with backends that work, are emulated, refuse, err, crash and hang."""

from __future__ import annotations

import gzip
import json
import re

import msgspec
import pytest
import torch
from support import in_this_process, rings

from mlpfusion.device import detect
from mlpfusion.errors import UnknownBackendError, UsageError
from mlpfusion.spec import MLPSpec, Workload
from mlpfusion.stages.profile import run as profile_run
from mlpfusion.storage import results
from mlpfusion.storage.redacted import redacted
from mlpfusion.traffic.recording import generated_code
from mlpfusion.workers import supervise, tasks

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="the run without a GPU")

TINY = Workload(spec=MLPSpec(hidden_size=64, intermediate_size=128), batch=2, seq=16)

GOOD = """
import os
class Good:
    name = "good"
    def unsupported(self, spec, device): return None
    def bind(self, mlp): return mlp.forward
"""
JUDGED = f"""{GOOD}
class Wrong(Good):
    def bind(self, mlp): return lambda x: mlp.forward(x) * 1.1
class Nan(Good):
    def bind(self, mlp): return lambda x: mlp.forward(x) * float("nan")
class Refuses(Good):
    def unsupported(self, spec, device): return "only on Tuesdays"
class OnlyOnce(Good):
    def bind(self, mlp):
        calls = []
        def call(x):
            calls.append(1)
            y = mlp.forward(x)
            return y if len(calls) == 1 else y * 0
        return call
class SpoilsItsInput(Good):
    def bind(self, mlp):
        def call(x):
            y = mlp.forward(x)
            x[0, 0, 0] = 7
            return y
        return call
class SpoilsTheWeights(Good):
    def bind(self, mlp):
        def call(x):
            y = mlp.forward(x)
            mlp.gate_proj.weight[0, 0] = 7
            return y
        return call
class Widens(Good):
    def bind(self, mlp): return lambda x: mlp.forward(x).double()
class NoTensor(Good):
    def bind(self, mlp): return lambda x: [1.0]
class CompilesNothing(Good):
    compiles = True
class ReplaysNothing(Good):
    replays_graphs = True
class NoReason(Good):
    def unsupported(self, spec, device): return False
"""
RACED = f"""{GOOD}
class Recompiles(Good):
    def bind(self, mlp):
        import torch
        calls = []
        def call(x):
            calls.append(1)
            if len(calls) == 45: torch.compile(lambda t: t + 1, backend="eager")(x)
            return mlp.forward(x)
        return call
class CrashesInTheRace(Good):
    def bind(self, mlp):
        calls = []
        def call(x):
            calls.append(1)
            # qualification makes some 30 calls, the race of 60 rounds more than 60
            if len(calls) > 40: os._exit(3)
            return mlp.forward(x)
        return call
"""


@pytest.fixture(scope="module", params=rings.LONG)  # a minute of a core
def result(tmp_path_factory):
    """A run with the threads that a user's would have; third-party backends are qualified in this process."""
    out = tmp_path_factory.mktemp("out")
    path = out.with_name("raced.py")
    path.write_text(RACED)
    names = ["eager", "compile", "triton", "packed", "liger", "hub", "compile-cudagraphs"]
    names += [f"{path}:{name}" for name in re.findall(r"^class (\w+)", RACED, re.MULTILINE)]
    events = []
    in_a_process = supervise.run

    def run(task, **how):
        alone = isinstance(task, tasks.Qualify) and task.backend.startswith(str(path))
        return (in_this_process.run if alone else in_a_process)(task, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OMP_NUM_THREADS", raising=False)
        patch.setattr(supervise, "run", run)
        profile = profile_run.profile(
            TINY, backends=names, device="cpu", out=out, json=out / "copy.json", on_event=events.append
        )
    return profile, out, events


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """The rows of what never gets to the race, by a worker in this process."""
    path = tmp_path_factory.mktemp("judged") / "judged.py"
    path.write_text(JUDGED)
    names = [f"{path}:{name}" for name in re.findall(r"^class (\w+)", JUDGED, re.MULTILINE) if name != "Good"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervise, "run", in_this_process.run)
        patch.setattr(generated_code, "graphs_compiled", lambda: 0)  # what other tests of this process compiled
        return (profile_run.profile(TINY, backends=names, device="cpu"),)


def row(result, name):
    return next(row for row in result[0].rows if row.backend.rpartition(":")[2] == name)


def test_eager_and_compile_are_measured(result):
    eager, compiled = row(result, "eager"), row(result, "compile")
    assert (eager.status, compiled.status) == ("ok", "ok")
    assert sorted(kernel.role for kernel in eager.kernels) == sorted(
        ["gate_gemm", "up_gemm", "activation", "mul", "down_gemm"]
    )
    assert [kernel.role for kernel in compiled.kernels] == ["gate_gemm", "up_gemm", "act_mul", "down_gemm"]
    assert "cpp_fused" in compiled.kernels[2].name
    assert compiled.pre_ops.dynamo_cache_lookup > 0
    assert not eager.pre_ops.dynamo_cache_lookup
    for one in (eager, compiled):
        assert one.clocks.wall_us.n == 60
        assert one.clocks.wall_us.p20 <= one.clocks.wall_us.median <= one.clocks.wall_us.p80
        assert one.clocks.event_us is None
        assert one.accuracy.ratio <= one.accuracy.limit
        assert one.pre_ops.profiler_inflation > 0
        assert one.traffic.minimum_bytes < one.traffic.derived_bytes
    assert eager.clocks.wall_us.ratio_to_eager.median == 1.0
    assert eager.traffic.derived_bytes > compiled.traffic.derived_bytes


@pytest.mark.parametrize("name", ["triton", "packed"])
def test_our_kernels_are_emulated_and_right(result, name):
    emulated = row(result, name)
    assert (emulated.status, emulated.emulated, emulated.tokens) == ("ok", True, 16)
    assert emulated.reason.startswith("emulated")
    # Closer than the limit: an interpreter that truncates bfloat16 would be twice as far away.
    assert emulated.accuracy.rms_error <= 1.2 * emulated.accuracy.eager_rms_error
    assert emulated.clocks.wall_us is None
    assert emulated.kernels == ()


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [
        ("liger", "unavailable", "GPU"),
        ("hub", "unavailable", "GPU"),
        ("compile-cudagraphs", "unavailable", "CUDA graphs need a GPU"),
        ("Good", "ok", None),
        ("Recompiles", "failed", "recompiled inside the measured window (1 graphs)"),
        (
            "CrashesInTheRace",
            "failed",
            "the race failed while this backend ran, as it did not alone: the worker exited with code 3",
        ),
    ],
)
def test_every_backend_has_a_row_with_its_reason(result, name, status, reason):
    found = row(result, name)
    assert found.status == status
    assert (found.reason or "").startswith(reason or "") or reason in found.reason


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [
        ("Wrong", "failed", "numerically wrong: "),
        ("Nan", "failed", "nan or inf"),
        ("Refuses", "unavailable", "only on Tuesdays"),
        ("OnlyOnce", "failed", "numerically wrong: "),
        ("SpoilsItsInput", "failed", "it changes its input"),
        ("SpoilsTheWeights", "failed", "it changes the weights"),
        ("Widens", "failed", "it returns (2, 16, 64) torch.float64 on cpu where eager returns (2, 16, 64) torch.bf"),
        ("NoTensor", "failed", "it returns a list where a tensor is expected"),
        ("CompilesNothing", "failed", "torch.compile compiled nothing: it fell back to eager"),
        ("NoReason", "failed", "its `unsupported` returned False"),
    ],
)
def test_what_fails_alone_has_a_row_with_its_reason(judged, name, status, reason):
    found = row(judged, name)
    assert found.status == status
    assert found.reason.startswith(reason) or reason in found.reason


def test_the_race_went_on_without_the_one_that_crashed(result):
    assert row(result, "CrashesInTheRace").clocks.wall_us is None
    for name in ("eager", "compile", "Good"):
        assert row(result, name).clocks.wall_us is not None


def test_the_files_hold_the_result_and_loadable_traces(result):
    profile, out, _ = result
    assert profile.complete
    assert results.load(out / "copy.json") == results.load(out / results.RESULT_NAME) == redacted(profile)
    assert str(out.parent) not in (out / "copy.json").read_text(encoding="utf-8")
    for one in profile.rows:
        if one.trace_file:
            events = json.loads(gzip.decompress((out / one.trace_file).read_bytes()))["traceEvents"]
            assert [event["name"] for event in events].count("mlpfusion.call") == profile_run.TRACED_CALLS
    assert row(result, "eager").trace_file == "eager.trace.json.gz"


def test_files_of_loose_backends_are_told_apart_and_hold_no_path():
    names = ["./a/b.py:X", "./a-b.py:X", "/home/me/mine.py:Good", "/home/me/mine.py:Wrong", "./ü/b.py:X", "eager"]
    made = [profile_run._file_name(name) for name in names]
    assert len(set(made)) == len(names)
    assert made[-1] == "eager"
    assert all("/" not in one and "home" not in one for one in made)


def test_a_backend_that_should_replay_graphs_and_does_not_has_a_note(judged):
    noted = [
        found.backend.rpartition(":")[2] for found in judged[0].rows if any("no graph" in each for each in found.notes)
    ]
    assert noted == ["ReplaysNothing"]


def test_a_row_that_failed_says_that_it_was_not_raced(judged):
    assert row(judged, "Nan").clocks.reasons["wall_us"] == "not raced: the row failed"


def test_progress_is_told_per_backend(result):
    stages = [(event.stage, event.backend) for event in result[2]]
    assert ("qualify", "eager") in stages
    assert ("race", None) in stages


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"backends": ["eager", "nope"]}, UnknownBackendError, "'nope'; known: eager"),
        ({"backends": ["eager", "eager"]}, UsageError, "'eager' is named twice"),
        ({"backends": []}, UsageError, "no backend was named"),
        ({"rounds": 0}, UsageError, "rounds must be an integer from 1 to 100000, got 0"),
        ({"rounds": 2.5}, UsageError, "rounds must be an integer from 1 to 100000, got 2.5"),
        ({"time_limit_s": -1}, UsageError, "time_limit_s must be a number of seconds from 0.001 to 604800, got -1"),
        ({"backends": "eager"}, UsageError, "sequence of names"),
        ({"json": "/no/such/folder/x.json"}, UsageError, "does not exist"),
        ({"device": "tpu"}, UsageError, "unknown device 'tpu'; valid: cuda, cpu"),
        ({"device": "cuda"}, UsageError, "torch sees no GPU"),
    ],
)
def test_bad_input_writes_nothing(tmp_path, change, error, text):
    with pytest.raises(error, match=text):
        profile_run.profile(TINY, **{"out": tmp_path / "out", "json": tmp_path / "x.json", **change})
    assert list(tmp_path.iterdir()) == []


def test_what_does_not_fit_is_refused_before_it_is_allocated(tmp_path):
    huge = msgspec.structs.replace(TINY, batch=10**8)
    with pytest.raises(UsageError, match=r"batch 100000000 x seq 16 .* needs about .* GB; .* GB free"):
        profile_run.profile(huge, backends=["eager"], out=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_defaults_and_the_list_of_backends():
    small = profile_run.default_workload(detect("cpu"))
    gpu = msgspec.structs.replace(detect("cpu"), kind="cuda")
    assert (small.spec, small.tokens) == (profile_run.default_workload(gpu).spec, 128)
    assert profile_run.default_workload(gpu).tokens == 8192
    found = dict(profile_run.backends(TINY.spec, device="cpu"))
    assert found["eager"] is None
    assert "GPU" in found["liger"]
