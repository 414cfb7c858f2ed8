"""bench/article.py: the ladder runs on a CPU, and each claim is judged by what was measured."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from support import timeline
from support.bench import bench
from support.paths import DATA, RESULTS, ROOT

from mlpfusion.device import Device
from mlpfusion.records.clocks import Clock
from mlpfusion.trace.analysis.summary import read

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

VERDICTS = {"holds", "does not hold here", "cannot be seen here"}


@pytest.fixture(scope="module")
def article() -> ModuleType:
    return bench("article")


def clock(median: float) -> Clock:
    return Clock(n=40, median=median, p20=median * 0.99, p80=median * 1.01, l2="cold")


@pytest.fixture(scope="module")
def recorded() -> Any:
    """A ladder whose MLP rungs are traces recorded on an H200; nothing else of it ran."""
    rungs = bench("article_rungs")
    found = []
    for name in rungs.BACKENDS:
        reading = read(DATA / f"h200_{name}.json.gz")
        found.append(rungs.Rung(name=f"mlp.{name}", reading=reading, clocks={"event_us": clock(200.0)}))
    others = ("small", "large", "linear", "batched")
    ways = ("eager", "compile", "cold", "cudagraphs")
    found += [rungs.Rung(name=f"{one}.{way}", reason="left out") for one in others for way in ways]
    found.append(rungs.Rung(name="mlp.dynamic", reason="left out"))
    return rungs.Ladder(
        device=Device(kind="cuda", name="NVIDIA H200"),
        versions={},
        sizes=rungs.TUTORIAL,
        rungs=tuple(found),
        compilations=rungs.Compilations(batches=(32, 48, 16), graphs=(1, 2, 2), liger=(1, 1, 1)),
    )


def verdicts(article: ModuleType, ladder: Any) -> dict[str, Any]:
    facts = article.Facts(ladder)
    return {claim.id: article.judge(claim, facts) for claim in article.CLAIMS}


def test_claims_on_the_recorded_mlps(article: ModuleType, recorded: Any) -> None:
    found = verdicts(article, recorded)
    said = {name: one.verdict for name, one in found.items() if one.verdict != "cannot be seen here"}
    assert said == {
        "buffer-request": "holds",
        "five-kernels": "holds",
        "three-queries": "does not hold here",  # cuBLAS's Hopper kernels ask nothing
        "views-launch-nothing": "holds",
        "only-mm-launches": "holds",
        "gate-and-up-share": "holds",
        "down-is-faster": "holds",
        "four-kernels": "holds",
        "chain-is-gone": "holds",
        "same-gemms": "holds",
        "one-fused": "holds",
        "fused-name": "holds",
        "intermediate": "holds",
        "one-round-trip-less": "holds",
        "fused-is-faster": "holds",
        "compiled-is-faster": "does not hold here",  # the clocks of this test are equal
        "compile-pays-pre-ops": "holds",
        "liger-four": "holds",
        "hub-four": "holds",
        "liger-same-gemms": "holds",
        "liger-no-pre-ops": "holds",
        "inductor-as-fast": "holds",
        "each-shape-recompiles": "does not hold here",
        "liger-does-not": "holds",
    }
    assert found["intermediate"].figures.startswith("50.3 MB")
    assert found["each-shape-recompiles"].figures.startswith("2 graphs for 3 batches")
    assert found["settings-from-columns"].figures == "the trace does not say the grid"
    assert found["one-addmm"].figures == "large.compile did not run: left out"


def test_a_verdict_follows_what_was_measured(article: ModuleType, recorded: Any) -> None:
    replaced = []
    for rung in recorded.rungs:
        reading = rung.reading
        if rung.name == "mlp.compile":  # as if it had fallen back to eager
            reading = next(one.reading for one in recorded.rungs if one.name == "mlp.eager")
        replaced.append(msgspec.structs.replace(rung, reading=reading))
    found = verdicts(article, msgspec.structs.replace(recorded, rungs=tuple(replaced)))
    for name in ("four-kernels", "chain-is-gone", "one-fused", "one-round-trip-less"):
        assert found[name].verdict == "does not hold here", name
    assert found["fused-name"].figures == "mlp.compile has 0 kernels for act·mul"
    every = msgspec.structs.replace(recorded.compilations, graphs=(1, 2, 3), liger=(1, 2, 2))
    found = verdicts(article, msgspec.structs.replace(recorded, compilations=every))
    assert found["each-shape-recompiles"].verdict == "holds"
    assert found["liger-does-not"].verdict == "does not hold here"


# ---- matmul + add, on traces made for it: what eager and compiled runs launched in the article -----------------------

AMPERE = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_nn"
ADD = timeline.MUL.replace("Mul", "Add")
COPY = "Memcpy DtoD (Device -> Device)"
QUERY = "cudaOccupancyMaxActiveBlocksPerMultiprocessor"


def eager_step(line: Any, start: float, gemm_us: float) -> None:
    line.call(start, 90).op("aten::matmul", start + 5, 30).op("aten::mm", start + 10, 20)
    line.api(QUERY, start + 12, 2).launch(AMPERE, start + 16, start + 40, gemm_us)
    line.op("aten::add", start + 40, 20).launch(ADD, start + 45, start + 60 + gemm_us, 4)


def compiled_step(line: Any, start: float, gemm_us: float) -> None:
    line.call(start, 180).op("TorchDynamo Cache Lookup", start + 5, 15)
    line.op("Torch-Compiled Region: 0/0", start + 25, 100)
    line.op("AOTDispatcher Runtime Wrapper Prologue", start + 30, 5)
    line.add("user_annotation", "## Call CompiledFxGraph fabc ##", start + 40, 80)
    line.op("aten::addmm", start + 50, 60)
    line.launch(COPY, start + 60, start + 70, 30, api="cudaMemcpyAsync").launch(
        AMPERE, start + 90, start + 105, gemm_us
    )


def made(folder: Path, name: str, step: Any, first: float = 1.0, host_us: float = 50.0) -> Any:
    line = timeline.Timeline()
    for index in range(20):
        step(line, 2000.0 * index, 20.0 + index % 3)
    line.entries[0]["dur"] *= first
    rungs = bench("article_rungs")
    reading = read(line.write(folder, f"{name}.json"))
    feet = [(AMPERE, 238, 98304), (ADD, 32, 0)]
    footprints = tuple(
        rungs.Footprint(kernel=k, registers=r, shared_bytes=s, grid=(64,), block=(256,)) for k, r, s in feet
    )
    return rungs.Rung(name=name, reading=reading, footprints=footprints, clocks={"host_us": clock(host_us)})


def test_claims_on_matmul_and_add(article: ModuleType, recorded: Any, tmp_path: Path) -> None:
    given = {
        "small.cold": made(tmp_path, "small.cold", eager_step, first=4.0),
        "small.eager": made(tmp_path, "small.eager", eager_step),
        "small.compile": made(tmp_path, "small.compile", compiled_step, host_us=100.0),
        "large.eager": made(tmp_path, "large.eager", eager_step, host_us=10.0),
        "large.compile": made(tmp_path, "large.compile", compiled_step, host_us=20.0),
    }
    rungs = tuple(given.get(rung.name, rung) for rung in recorded.rungs)
    found = verdicts(article, msgspec.structs.replace(recorded, rungs=rungs))
    said = {one.id: found[one.id].verdict for one in article.article_matmul.CLAIMS}
    assert said == {
        "overhead-bound-small": "holds",
        "gpu-idle-small": "does not hold here",  # 24 of some 90 µs
        "compute-bound-large": "holds",
        "cold-first-step": "holds",
        "warm-steps-alike": "holds",
        "buffer-request": "holds",  # in the recorded traces
        "matmul-is-mm": "holds",
        "matmul-is-bmm": "cannot be seen here",
        "query-before-gemm": "holds",
        "no-query-before-add": "holds",
        "footprint": "holds",
        "kernel-times-vary": "holds",
        "one-addmm": "holds",
        "copy-and-gemm": "holds",
        "same-gemm": "holds",
        "launches-stay": "holds",
        "bias-costs": "does not hold here",  # equal here
        "no-traffic-saved": "does not hold here",
        "cpu-rises-small": "holds",
        "cpu-rises-large": "holds",
        "a-mode-helps": "cannot be seen here",
        "lookup-each-call": "holds",
        "prologue-without-grad": "holds",
        "one-region": "holds",
    }
    assert found["copy-and-gemm"].figures.startswith(f"copies: {COPY} 30.0")
    assert "0.50x (in the traces 0.50x" in found["cpu-rises-large"].figures


def test_claims_are_named_once_and_say_something(article: ModuleType) -> None:
    names = [claim.id for claim in article.CLAIMS]
    assert len(set(names)) == len(names)
    assert all(claim.says and claim.clock for claim in article.CLAIMS)


@pytest.mark.full  # it compiles every rung
def test_the_ladder_on_a_cpu(tmp_path: Path) -> None:
    out = tmp_path / "article.json"
    command = [sys.executable, "bench/article.py", "--device", "cpu", "--rounds", "20", "--out", str(out)]
    done = subprocess.run(
        [*command, "--traces", str(tmp_path / "traces")],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(out.read_text())
    found = {one["id"]: one for one in document["claims"]}
    assert {one["verdict"] for one in found.values()} == VERDICTS
    for name in ("matmul-is-mm", "matmul-is-bmm", "one-addmm", "t-launches-nothing", "t-is-gone", "chain-is-gone"):
        assert found[name]["verdict"] == "holds", found[name]
    assert found["each-shape-recompiles"]["verdict"] == "does not hold here"
    assert found["five-kernels"]["verdict"] == "cannot be seen here"
    assert found["five-kernels"]["figures"] == "needs a GPU; this run is on the CPU"
    table = out.with_suffix(".md").read_text()
    assert all(one["says"] in table for one in found.values())
    assert str(tmp_path) not in out.read_text() + table
    reading = read(tmp_path / "traces" / "mlp.eager.trace.json.gz")
    assert reading.call.count == 20


def test_the_committed_claims_are_what_the_committed_code_says(article: ModuleType) -> None:
    """The recorded ladder, judged again: a changed claim must be judged, and its page written, anew."""
    path = RESULTS / "h200-ladder.json"
    ladder, _ = article.recorded(path)
    facts = article.Facts(ladder)
    judged = tuple(article.judge(claim, facts) for claim in article.CLAIMS)
    stored = msgspec.json.decode(path.read_bytes())["claims"]
    assert list(msgspec.to_builtins(judged)) == stored
    assert path.with_suffix(".md").read_text(encoding="utf-8") == article.markdown(ladder, judged)
