"""Qualifies a backend, races them all, or traces a script, in a process: `python -m mlpfusion.stages.profile.worker`.

It reads a task from the file named first and writes its answer to the file named second. What it prints is a log.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mlpfusion import backend as registry
from mlpfusion.environment import provenance
from mlpfusion.errors import BackendUnavailableError, MeasurementError, MlpfusionError, first_line
from mlpfusion.records.profile import Setup
from mlpfusion.storage import private
from mlpfusion.workers import lifetime, tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from mlpfusion.device import Device
    from mlpfusion.measure.clocks import Contender
    from mlpfusion.records.traffic import Ledger
    from mlpfusion.reference import Case
    from mlpfusion.spec import MLPSpec

TRACE_WARMUPS: Final = 3


def main() -> None:
    """Do the task that the command line names."""
    lifetime.obey()
    parent = os.environ.pop(lifetime.PARENT, None)
    lifetime.die_with_parent(None if parent is None else int(parent))
    work(Path(sys.argv[1]), Path(sys.argv[2]))


def work(task_path: Path, answer_path: Path) -> None:
    """Do one task; the process ends with code 0 whenever an answer was written."""
    task = tasks.decode_task(task_path.read_bytes())
    answer = _answer(task)
    partial = answer_path.with_suffix(".partial")
    partial.write_bytes(tasks.encode(answer))
    partial.replace(answer_path)
    sys.stdout.flush()
    sys.stderr.flush()
    if isinstance(task, tasks.Count):
        return  # a profiler around this process collects when it ends by itself
    os._exit(0)  # a thread that a backend left behind must not keep the process


def _answer(task: tasks.Task) -> tasks.Answer:
    try:
        if isinstance(task, tasks.Trace):
            from mlpfusion.measure import script

            return script.trace(task)
        if isinstance(task, tasks.Ceilings):
            from mlpfusion.traffic.recording import ceilings

            return ceilings.record(task)
        if isinstance(task, tasks.Count):
            return count(task)
        if isinstance(task, tasks.Schedule):
            return schedule(task)
        return qualify(task) if isinstance(task, tasks.Qualify) else race(task)
    except BackendUnavailableError as error:
        return tasks.Broken(kind="unavailable", reason=error.reason)
    except MlpfusionError as error:
        return tasks.Broken(kind="failed", reason=str(error))
    except Exception as error:  # a backend may raise anything; its row says what
        import traceback

        traceback.print_exc()
        return tasks.Broken(kind="failed", reason=f"{type(error).__name__}: {private.text(first_line(error))}")


def qualify(task: tasks.Qualify) -> tasks.Qualified:
    """Bind, compile, judge against fp64, and record memory and a trace of one backend."""
    import torch

    from mlpfusion import reference
    from mlpfusion.device import detect
    from mlpfusion.measure import memory

    before = frozenset(sys.modules)
    here = detect(task.device)
    made = registry.load(task.backend)
    reason = _reason(made, task.workload.spec, here)
    if reason is not None:
        emulatable = not here.interpreted and here.kind == "cpu" and _runs_interpreted(made, task, here)
        return tasks.Qualified(unsupported=reason, emulatable=emulatable)
    _prepare(here, emulate=task.emulate)
    case = reference.make_case(task.workload, torch.device(task.device), seed=task.seed, tokens=task.tokens)
    given = [tensor.detach().clone() for tensor in (case.x, *case.mlp.parameters())]
    eager = reference.step(_eager(case), case)()
    references = reference.oracle(case)
    started = time.perf_counter()
    call = made.bind(case.mlp)
    bound = time.perf_counter()
    step = reference.step(call, case)
    outputs = step()
    _synchronize(here)
    first = time.perf_counter()
    accuracy = reference.judge(outputs, eager, references)
    del outputs
    setup = Setup(bind_s=bound - started, first_call_s=first - bound)
    # The ledger has calls of its own, and the first ones: a CUDA graph is captured in the second call of all.
    ledger, no_ledger = _ledger(step, case, lambda: reference.step(made.bind(case.mlp), case))
    behind = provenance.ran(task.backend, made, before)
    if task.emulate:
        return tasks.Qualified(accuracy=accuracy, ledger=ledger, no_ledger=no_ledger, distributions=behind)
    for _ in range(TRACE_WARMUPS):
        step()
    notes = tuple(filter(None, (getattr(made, "origin", None),)))
    _trace(step, task, here)
    used = memory.measure(call, step, case, here)
    # Checks the last call as well as the first, and that inputs and weights are unmodified.
    accuracy = max(accuracy, reference.judge(step(), eager, references), key=lambda one: one.ratio / one.limit)
    changed = [not torch.equal(a, b) for a, b in zip((case.x, *case.mlp.parameters()), given, strict=True)]
    if any(changed):
        raise MeasurementError("it changes its input" if changed[0] else "it changes the weights")
    return tasks.Qualified(
        setup=setup,
        accuracy=accuracy,
        memory=used,
        ledger=ledger,
        no_ledger=no_ledger,
        fell_back=_fell_back(made),
        replays_graphs=getattr(made, "replays_graphs", False) is True,
        traced=True,
        notes=notes,
        distributions=behind,
    )


def _prepare(here: Device, *, emulate: bool) -> None:
    if emulate:
        from mlpfusion.measure.interpreter import list_builtins_once, round_to_nearest_even

        list_builtins_once()
        round_to_nearest_even()  # compiled Triton rounds to nearest; the interpreter alone would truncate bfloat16
    if here.kind == "cpu":
        from torch._inductor import config

        config.cpp.enable_kernel_profile = True  # makes each cpp_fused_* kernel an event of the trace


def race(task: tasks.Race) -> tasks.Raced:
    """Bind every backend on one and the same case and sample them in interleaved rounds."""
    import torch

    from mlpfusion import reference
    from mlpfusion.device import detect
    from mlpfusion.measure import clocks, host_load, turns
    from mlpfusion.measure.sensors import Sensors
    from mlpfusion.traffic.recording.generated_code import graphs_compiled

    here = detect(task.device)
    if task.traces is not None:
        _prepare(here, emulate=False)
    progress = os.open(task.progress, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def at(name: str) -> None:
        os.ftruncate(progress, 0)
        os.pwrite(progress, name.encode(), 0)

    contenders = []
    for name in task.backends:
        at(name)
        # A case of its own for each: a backend may move its weights, and the seed makes all of them equal.
        case = reference.make_case(task.workload, torch.device(task.device), seed=task.seed)
        step = reference.step(registry.load(name).bind(case.mlp), case)
        for _ in range(TRACE_WARMUPS):
            step()
        _synchronize(here)
        contenders.append(_contender(name, step, here))
    invalid: dict[str, str] = {}
    compiled = graphs_compiled()

    sensors, calls = Sensors(here), 0

    def after(name: str) -> None:
        nonlocal compiled, calls
        calls += 1
        if calls % len(contenders) == 0:  # after the warm-up, which comes before the race, and after each round
            sensors.read()
        now = graphs_compiled()
        if now != compiled:
            invalid[name] = f"recompiled inside the measured window ({now - compiled} graphs)"
            compiled = now

    begun = None

    @contextlib.contextmanager
    def turn() -> Iterator[None]:
        nonlocal begun
        with turns.taken():
            begun = host_load.read()  # no clock runs while it waits
            yield

    samples = clocks.race(contenders, here, rounds=task.rounds, seed=task.seed, before=at, after=after, turn=turn)
    others = host_load.share(begun, host_load.read())
    no_graph = {c.name: c.no_graph_reason for c in contenders if c.no_graph_reason is not None}
    untraced = _traced(task, contenders, here, at) if task.traces is not None else {}
    return tasks.Raced(
        samples=tuple(samples),
        no_graph=no_graph,
        invalid=invalid,
        neighbours=others,
        untraced=untraced,
        readings=sensors.readings(),
        throttled=sensors.throttled(),
        unread=sensors.reasons,
    )


def _traced(
    task: tasks.Race, contenders: Sequence[Contender], here: Device, at: Callable[[str], None]
) -> dict[str, str]:
    """Trace every backend, each into the file of its place in the race; returns why one could not be."""
    from mlpfusion.measure import clocks, tracer

    flush = clocks.L2Flush(here) if here.kind == "cuda" else None
    failed = {}
    for place, contender in enumerate(contenders):
        at(contender.name)
        path = Path(f"{task.traces}", f"{place}.trace.json")
        try:
            tracer.record(contender.call, path, calls=task.calls, warmups=TRACE_WARMUPS, flush=flush)
        except MeasurementError as error:
            failed[contender.name] = str(error)
    return failed


def count(task: tasks.Count) -> tasks.Done:
    """Call every backend once, each from a cold L2, where a profiler around this process counts."""
    import torch

    from mlpfusion import reference
    from mlpfusion.device import detect
    from mlpfusion.measure import clocks

    here = detect(task.device)
    flush = clocks.L2Flush(here)
    for name in task.backends:
        case = reference.make_case(task.workload, torch.device(task.device), seed=task.seed)
        step = reference.step(registry.load(name).bind(case.mlp), case)
        for _ in range(TRACE_WARMUPS):
            step()
        flush()
        _synchronize(here)
        torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
        # A `_sleep` kernel separates the backends in the profiler's log.
        torch.cuda._sleep(1)  # type: ignore[no-untyped-call]
        held = step()
        _synchronize(here)
        torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]
        del held
    return tasks.Done()


def schedule(task: tasks.Schedule) -> tasks.Scheduled:
    """Compile one backend with empty caches, and keep what Inductor's scheduler says beside the ledger of that code."""
    import torch

    from mlpfusion import reference
    from mlpfusion.device import detect
    from mlpfusion.traffic.recording import scheduler

    here = detect(task.device)
    _prepare(here, emulate=False)
    case = reference.make_case(task.workload, torch.device(task.device), seed=task.seed)
    with scheduler.watched(task.folder) as graphs:
        step = reference.step(registry.load(task.backend).bind(case.mlp), case)
        step()
        _synchronize(here)
        ledger, no_ledger = _ledger(step, case)
        found = tuple(scheduler.account(graph) for graph in graphs)
    return tasks.Scheduled(graphs=found, ledger=ledger, no_ledger=no_ledger)


def _contender(name: str, step: Callable[[], object], here: Device) -> Contender:
    from mlpfusion.measure import clocks

    if here.kind == "cpu":
        return clocks.Contender(name, step, None, "CUDA graphs need a GPU")
    return clocks.capture(name, step)


def _eager(case: Case) -> Callable[[Tensor], Tensor]:
    from mlpfusion.backends.eager import forward_of

    return forward_of(case.mlp)


def _reason(made: registry.Backend, spec: MLPSpec, here: Device) -> str | None:
    """The backend's own reason, which a third-party class may get wrong."""
    reason: object = made.unsupported(spec, here)
    if reason is not None and not (isinstance(reason, str) and reason):
        raise MeasurementError(f"its `unsupported` returned {reason!r}; it must return None or the reason as text")
    return reason


def _runs_interpreted(made: registry.Backend, task: tasks.Qualify, here: Device) -> bool:
    import msgspec

    return _reason(made, task.workload.spec, msgspec.structs.replace(here, interpreted=True)) is None


def _ledger(
    step: Callable[[], object], case: Case, anew: Callable[[], Callable[[], object]] | None = None
) -> tuple[Ledger | None, str | None]:
    """The ledger of a call, or why there is none: without it everything else about a backend is still measured.

    Replays of a graph that the first call captured show nothing; then `anew` makes a step whose first call is observed.
    """
    from mlpfusion.traffic.recording import collect

    try:
        found = collect.collect(step, collect.names(case))
        if anew is not None and not found.captured and _holds_a_graph():
            found = collect.collect_first(anew(), collect.names(case)) or found
        return found, None
    except Exception as error:  # a call may fail while observed; the log shows where
        import traceback

        traceback.print_exc()
        return None, f"its launches could not be watched: {type(error).__name__}: {private.text(first_line(error))}"


def _holds_a_graph() -> bool:
    """Whether there is a CUDA graph in this process."""
    import gc

    import torch

    return any(issubclass(type(one), torch.cuda.CUDAGraph) for one in gc.get_objects())


def _trace(step: Callable[[], object], task: tasks.Qualify, here: Device) -> None:
    from mlpfusion.measure import clocks, tracer

    flush = clocks.L2Flush(here) if here.kind == "cuda" else None
    tracer.record(step, Path(task.trace), calls=task.calls, warmups=TRACE_WARMUPS, flush=flush)


def _synchronize(here: Device) -> None:
    import torch

    if here.kind == "cuda":
        torch.cuda.synchronize()


def _fell_back(made: registry.Backend) -> str | None:
    """How a backend that torch.compile makes turned out to run eagerly in this process, or None."""
    from mlpfusion.traffic.recording.generated_code import graphs_compiled

    if getattr(made, "compiles", False) and not graphs_compiled():
        return "torch.compile compiled nothing: it fell back to eager"
    return None


if __name__ == "__main__":
    main()
