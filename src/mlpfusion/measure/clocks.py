"""Samples the clocks of several backends, interleaved in random order, without a profiler."""

from __future__ import annotations

import functools
import gc
import random
import time
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from mlpfusion.backend import not_captured
from mlpfusion.records.clocks import L2, Samples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from mlpfusion.device import Device

WARMUP_CALLS: Final = 5
# After this many calls in a row the queue is as full as it gets: host and device times of the last one are steady.
ROW: Final = 5


class Contender(NamedTuple):
    """One backend in the race: its call and, where a CUDA graph of it could be captured, the replay."""

    name: str
    call: Callable[[], object]
    replay: Callable[[], object] | None
    no_graph_reason: str | None


class L2Flush:
    """Evicts the last-level cache of a GPU by overwriting a buffer four times its size.

    The cache is then full of lines that must be written back before others take their place, as after the layer before
    in a model. With `clean` the buffer is read as well, and what follows has the memory's bus to itself.
    """

    def __init__(self, device: Device, *, clean: bool = False) -> None:
        # 50-60 MB on Hopper, 40 MB on an A100; 128 MiB is certainly larger where the size is unknown.
        self.size_bytes = max(4 * (device.l2_bytes or 0), 128 * 2**20)
        self._buffer = torch.empty(self.size_bytes // 4, dtype=torch.int32, device=f"cuda:{device.index}")
        self._clean = clean

    def __call__(self) -> None:
        """Queue the overwrite on the current stream."""
        self._buffer.zero_()
        if self._clean:
            self._buffer.max()


def capture(name: str, call: Callable[[], object], pool: Any = None) -> Contender:
    """A contender with a CUDA graph of its call, or with the reason why there is none.

    Graphs of one `pool` (from `torch.cuda.graph_pool_handle`) share their memory: a replay overwrites the results of
    the others, which nobody then may read.
    """
    gc.collect()  # an autograd graph that waits for the collector ties new gradients to the stream that it was made on
    side = _warm_up_stream(torch.cuda.current_device())
    graph = torch.cuda.CUDAGraph()
    try:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # PyTorch's recipe: warm up on a side stream before capturing
            for _ in range(3):
                call()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        with _workspaces_of_its_own(), torch.cuda.graph(graph, pool=pool, stream=side):
            held = _detached(call())
        graph.replay()
        torch.cuda.synchronize()
        if pool is not None:
            held = None
    except RuntimeError as failure:
        _after_a_broken_capture()
        return Contender(name, call, None, not_captured(failure))

    def replay() -> object:
        graph.replay()
        return held  # the output's memory belongs to the graph as long as somebody holds it

    return Contender(name, call, replay, None)


@contextmanager
def _workspaces_of_its_own() -> Iterator[None]:
    """Let the graph that is captured have cuBLAS's workspaces in its own memory.

    PyTorch keeps one for each stream, and recorded kernels go on using it. It is freed under them when torch.compile
    records CUDA graphs of its own or, in later versions, another graph of the stream ends (PyTorch's issue 193402).
    That is the likely cause of an "unspecified launch failure" of the graphs that were captured before those of
    compile-cudagraphs, in training on an H200. The graph's pool is nobody else's.
    """
    torch._C._cuda_clearCublasWorkspaces()
    try:
        yield
    finally:
        torch._C._cuda_clearCublasWorkspaces()


def _after_a_broken_capture() -> None:
    """Take back what PyTorch leaves behind: an error for the next call, and a generator that waits for the end.

    Until another capture ends well, no random number can be drawn.
    """
    with suppress(RuntimeError):
        torch.cuda.synchronize()
    with suppress(RuntimeError), torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.zeros(1, device="cuda")


def _detached(held: object) -> object:
    """A call's results without their autograd graph.

    Its nodes remember the capture's stream, and gradients of later calls on another stream would wait for that one.
    """
    if isinstance(held, tuple):
        return tuple(map(_detached, held))
    return held.detach() if isinstance(held, torch.Tensor) else held


@functools.cache
def _warm_up_stream(index: int) -> torch.cuda.Stream:
    """One for all captures on a device: the allocator keeps what was freed on a stream for that stream."""
    return torch.cuda.Stream(index)  # type: ignore[no-untyped-call]


def race(
    contenders: Sequence[Contender],
    device: Device,
    *,
    rounds: int,
    seed: int,
    before: Callable[[str], None],
    after: Callable[[str], None],
    turn: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> list[Samples]:
    """`rounds` samples of every clock of every contender, in a new random order each round.

    First come those clocks that the host's other work disturbs, within `turn`, then rounds of replays, which it does
    not disturb. `before` and `after` get the contender's name around its samples, outside the time.
    On a GPU the wall clock starts with an idle device, the other samples end a row of calls; the L2 is cold for all.
    """
    order = random.Random(seed)
    flush = L2Flush(device) if device.kind == "cuda" else None
    values: dict[tuple[str, str], list[float | None]] = {}

    def take(sample: Callable[[Contender], dict[str, float]]) -> None:
        for _ in range(rounds):
            for contender in order.sample(list(contenders), len(contenders)):
                before(contender.name)
                for clock, value in sample(contender).items():
                    values.setdefault((contender.name, clock), []).append(value)
                after(contender.name)

    with turn():
        for contender in contenders:
            before(contender.name)
            for _ in range(WARMUP_CALLS):
                contender.call()
            _synchronize(flush)
            after(contender.name)
        take(lambda contender: _host_clocks(contender, flush))
    if flush is not None:
        take(lambda contender: _graph_clock(contender, flush))
    cold: L2 = "cold" if flush is not None else "unknown"
    return [
        Samples(backend=name, clock=clock, l2=cold, values=tuple(series)) for (name, clock), series in values.items()
    ]


def race_replays(contenders: Sequence[Contender], device: Device, *, rounds: int, seed: int) -> list[Samples]:
    """`rounds` samples of the graph clock alone, in a new random order each round; all have a replay."""
    order = random.Random(seed)
    flush = L2Flush(device)
    values: dict[str, list[float | None]] = {contender.name: [] for contender in contenders}
    for _ in range(rounds):
        for contender in order.sample(list(contenders), len(contenders)):
            assert contender.replay is not None
            values[contender.name].append(_last_of_a_row(contender.replay, flush)[0])
    return [Samples(backend=name, clock="graph_us", l2="cold", values=tuple(series)) for name, series in values.items()]


def _synchronize(flush: L2Flush | None) -> None:
    if flush is not None:
        torch.cuda.synchronize()


def _host_clocks(contender: Contender, flush: L2Flush | None) -> dict[str, float]:
    """One sample in µs of each clock in which the host's work shows.

    `idle_host_us` is the time until the call returns when the device was idle, `host_us` the same in a row of calls.
    """
    if flush is None:
        start = time.perf_counter_ns()
        held = contender.call()
        wall = (time.perf_counter_ns() - start) / 1e3
        del held
        return {"wall_us": wall, "host_us": wall, "idle_host_us": wall}
    flush()
    torch.cuda.synchronize()
    start = time.perf_counter_ns()
    held = contender.call()
    returned = time.perf_counter_ns()
    torch.cuda.synchronize()
    done = time.perf_counter_ns()
    del held
    found = {"wall_us": (done - start) / 1e3, "idle_host_us": (returned - start) / 1e3}
    found["event_us"], found["host_us"] = _last_of_a_row(contender.call, flush)
    return found


def _graph_clock(contender: Contender, flush: L2Flush) -> dict[str, float]:
    """One sample in µs of the graph clock, of a contender that has one."""
    if contender.replay is None:
        return {}
    return {"graph_us": _last_of_a_row(contender.replay, flush)[0]}


def _last_of_a_row(call: Callable[[], object], flush: L2Flush) -> tuple[float, float]:
    """Device and host time of the last of ROW calls that follow each other without waiting, as in a running model.

    The device queue is then as full as the host cost of this call lets it be: where the device is the slower side, the
    events see the device alone. Each call finds a cold L2; the flush is outside both times.
    """
    host_us = 0.0
    for _ in range(ROW):
        start: torch.cuda.Event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        end: torch.cuda.Event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        flush()
        start.record()
        called = time.perf_counter_ns()
        held = call()  # kept until after the end event: freeing inside the window would be timed
        host_us = (time.perf_counter_ns() - called) / 1e3
        end.record()
        del held
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e3, host_us
