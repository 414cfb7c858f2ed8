"""Measures a model with and without a swap: time, memory, and the kernels of a trace."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mlpfusion import backend as registry
from mlpfusion import stats
from mlpfusion.errors import MlpfusionError
from mlpfusion.measure import clocks, tracer
from mlpfusion.measure.memory import peak_bytes
from mlpfusion.records.proof import KernelCount, Peaks, Speed
from mlpfusion.storage import files
from mlpfusion.trace.analysis.summary import read

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlpfusion.device import Device
    from mlpfusion.records.clocks import Ratio
    from mlpfusion.stages.prove.change import Change

NOT_ASKED: Final = "not requested"
_TRACED: Final = 3
_ORIGINAL, _SWAPPED, _WITHOUT = "original", "swapped", "without"


class NotMeasuredError(MlpfusionError):
    """Why there is no such figure here."""


def emulated(change: Change, device: Device) -> bool:
    """Whether the backend runs here only because Triton's interpreter does its kernels."""
    here = msgspec.structs.replace(device, interpreted=False)
    return device.interpreted and made(change).unsupported(change.swapped[0].spec, here) is not None


def made(change: Change) -> registry.Backend:
    """The backend of a change."""
    backend = change.backend
    return registry.load(backend) if isinstance(backend, str) else backend


def speed(
    change: Change, call: Callable[[], object], device: Device, *, rounds: int, seed: int, is_emulated: bool
) -> Speed:
    """`call` timed as the model was, swapped, and with MLPs that return their input, interleaved in random order.

    Raises:
        NotMeasuredError: no rounds are wanted, or the backend is emulated.
    """
    if is_emulated:
        raise NotMeasuredError("Triton's interpreter computes but cannot be timed")
    if rounds == 0:
        raise NotMeasuredError(NOT_ASKED)
    states: dict[str, Callable[[], contextlib.AbstractContextManager[object]]] = {
        _ORIGINAL: change.paused,
        _SWAPPED: contextlib.nullcontext,
        _WITHOUT: change.skipped,
    }
    with contextlib.ExitStack() as stack:

        def enter(name: str) -> None:
            stack.enter_context(states[name]())

        samples = clocks.race(
            [clocks.Contender(name, call, None, NOT_ASKED) for name in states],
            device,
            rounds=rounds,
            seed=seed,
            before=enter,
            after=lambda name: stack.close(),
        )
    clock: Any = "event_us" if device.kind == "cuda" else "wall_us"
    series = {each.backend: each for each in samples if each.clock == clock}
    original, swapped, without = (stats.summarise(series[name], series[_ORIGINAL]) for name in states)
    return Speed(
        clock=clock,
        original=original,
        swapped=swapped,
        without=without,
        ratio=swapped.ratio_to_eager,
        share=_rest(without.ratio_to_eager),
    )


def memory(change: Change, call: Callable[[], object], device: Device) -> Peaks:
    """Peak memory of one call without and with the swap.

    Raises:
        NotMeasuredError: on the CPU.
    """
    if device.kind != "cuda":
        raise NotMeasuredError("PyTorch's CPU allocator keeps no peak")
    with change.paused():
        call()
        before = peak_bytes(call)
    call()
    return Peaks(original=before, swapped=peak_bytes(call))


def kernels(change: Change, call: Callable[[], object], is_emulated: bool) -> tuple[KernelCount, ...]:
    """Kernels of one traced call without and with the swap, those whose number differs first.

    Raises:
        NotMeasuredError: the backend is emulated, or the trace cannot be used.
    """
    if is_emulated:
        raise NotMeasuredError("Triton's interpreter runs no kernels")
    try:
        with change.paused():
            before = _traced(call)
        after = _traced(call)
    except MlpfusionError as error:
        raise NotMeasuredError(f"the trace cannot be used: {error}") from error
    return tuple(
        KernelCount(name=name, original=before[name], swapped=after[name])
        for name in sorted(before | after, key=lambda name: (before[name] == after[name], name))
    )


def _traced(call: Callable[[], object]) -> Counter[str]:
    with files.scratch() as folder:
        path = folder / "trace.json"
        tracer.record_scheduled(call, path, calls=_TRACED, warmups=1)
        return Counter(kernel.name for kernel in read(path, call=tracer.CALL).analysis.kernels)


def _rest(ratio: Ratio | None) -> Ratio | None:
    """1 - ratio, its interval turned round."""
    if ratio is None:
        return None
    return msgspec.structs.replace(ratio, median=1 - ratio.median, low=1 - ratio.high, high=1 - ratio.low)
