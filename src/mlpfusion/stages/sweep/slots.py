"""Finds the places where cells can be measured on this host: a GPU or MIG slice each, with a share of the CPUs.

`python -m mlpfusion.stages.sweep.slots` says in JSON which device its process has.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from mlpfusion import device as devices
from mlpfusion.device import Device
from mlpfusion.environment import nvml
from mlpfusion.errors import MeasurementError, MlpfusionError
from mlpfusion.storage import private

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
_START_S: Final = 300.0  # as of a worker's start: importing PyTorch takes a minute on a machine that is busy or cold


class Slot(NamedTuple):
    """A place for one worker: how CUDA is told which card is its own, None on a CPU; its CPUs; the device."""

    selector: str | None
    cpus: frozenset[int]
    device: Device

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a worker here."""
        return {**os.environ, **({} if self.selector is None else {VISIBLE: self.selector})}


def found(kind: str | None = None) -> tuple[Slot, ...]:
    """A slot for each GPU that is visible, or one for the CPU; of one kind of device if one is named.

    Raises:
        UsageError: `kind` is no device kind, or "cuda" where torch sees no GPU.
        MlpfusionError: no GPU answers.
    """
    cpus = _cpus()
    if not _has_gpus(kind):
        return (Slot(None, cpus, replace(devices.detect("cpu"), interpreted=False)),)
    selectors = _selectors()
    parts = _divided(cpus, len(selectors))
    described = _described(selectors)
    answered = [Slot(name, part, each) for name, part, each in zip(selectors, parts, described, strict=True) if each]
    if not answered:
        raise MlpfusionError(
            f"none of {len(selectors)} GPUs answers; does `python -m torch.utils.collect_env` see one?"
        )
    return tuple(answered)


def _has_gpus(kind: str | None) -> bool:
    import torch

    if kind is not None and kind not in devices.DEVICE_KINDS:
        devices.detect(kind)  # refuses it
    if kind == "cpu" or not torch.cuda.is_available():
        if kind == "cuda":
            devices.detect(kind)
        return False
    return True


def _selectors(environment: Mapping[str, str] = os.environ) -> list[str]:
    """What CUDA is told to see each card alone: what it is told now, else the cards' names, else their numbers."""
    if VISIBLE in environment:
        names = [name.strip() for name in environment[VISIBLE].split(",")]
        return list(dict.fromkeys(name for name in names if name))
    try:
        return list(nvml.uuids())
    except MeasurementError:
        import torch

        return [str(number) for number in range(torch.cuda.device_count())]


def _cpus() -> frozenset[int]:
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def _divided(cpus: frozenset[int], count: int) -> list[frozenset[int]]:
    """`count` sets of neighbouring CPUs of nearly one size; all have all where there are fewer than workers."""
    if len(cpus) < count:
        return [cpus] * count
    each = sorted(cpus)
    ends = [len(each) * number // count for number in range(count + 1)]
    return [frozenset(each[first:last]) for first, last in itertools.pairwise(ends)]


def _described(selectors: Sequence[str]) -> list[Device | None]:
    """The device that a process with each selector has, asked all at once; None where it has none."""
    command = [sys.executable, "-m", "mlpfusion.stages.sweep.slots"]
    asked = [
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            env={**os.environ, VISIBLE: name},
        )
        for name in selectors
    ]
    try:
        return [_answer(each) for each in asked]
    finally:
        for each in asked:
            each.kill()
            each.wait()


def _answer(asked: subprocess.Popen[bytes]) -> Device | None:
    try:
        printed, _ = asked.communicate(timeout=_START_S)
        return msgspec.json.decode(printed, type=Device)
    except (subprocess.TimeoutExpired, msgspec.DecodeError):
        return None


def main() -> int:
    """Print the device of this process."""
    try:
        here = replace(devices.detect("cuda"), interpreted=False)
    except (MlpfusionError, RuntimeError) as error:
        sys.stderr.write(f"{private.text(str(error))}\n")
        return 1
    sys.stdout.write(msgspec.json.encode(here).decode() + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
