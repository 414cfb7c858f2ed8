"""Stands in for a Ray cluster: machines that say what they are, and answer, fail or are lost with a cell."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from mlpfusion.records.choice import Conditions
from mlpfusion.stages.sweep.cluster import errand
from mlpfusion.stages.sweep.cluster.node import Described
from mlpfusion.stages.sweep.cluster.pool import Machine
from support.choices_made import HERE
from support.studies_made import result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mlpfusion.device import Device

VERSIONS = {"torch": "2.13.0", "mlpfusion": errand.version()}


class FakePool:
    """A cluster whose tasks end at once; `machines` may change, and `busy` ones never answer.

    `does` is called with a machine's id and the tokens of a cell; what it raises is how that ends.
    """

    def __init__(self, *names: str, gpus: int = 1) -> None:
        self.there = {name: Machine(name, gpus, None) for name in names}
        self.devices: dict[str, Device] = {}
        self.versions: dict[str, dict[str, str | None]] = {}
        self.answers: dict[str, errand.Answer | Exception] = {}
        self.busy: set[str] = set()
        self.bare: set[str] = set()
        self.measured: list[tuple[str, int]] = []
        self.does: Callable[[str, int], None] = lambda name, tokens: None
        self._tasks: dict[int, tuple[Machine, str, tuple[Any, ...], bool]] = {}
        self._next = itertools.count()

    def machines(self) -> list[Machine]:
        return list(self.there.values())

    def start(self, machine: Machine, name: str, *arguments: Any, packages: bool) -> int:
        handle = next(self._next)
        self._tasks[handle] = machine, name, arguments, packages
        return handle

    def ended(self, handles: Iterable[int], seconds: float) -> list[int]:
        return [each for each in handles if self._tasks[each][0].id not in self.busy]

    def result(self, handle: int) -> errand.Answer:
        machine, name, arguments, packages = self._tasks.pop(handle)
        if machine.id in self.bare and not packages:
            return "absent", None
        if name == "measure":
            return "done", self._measure(machine.id, *arguments)
        answer = self.answers.get(machine.id)
        if isinstance(answer, Exception):
            raise answer
        return answer or ("done", self._describe(machine.id))

    def _describe(self, name: str) -> bytes:
        device = self.devices.get(name, HERE)
        versions = self.versions.get(name, VERSIONS)
        holds = Conditions(device=device.name, capability=device.capability, versions=versions)
        return msgspec.json.encode(Described(device=device, holds=holds))

    def _measure(self, name: str, asked: bytes) -> tuple[str | None, bytes]:
        order = msgspec.json.decode(asked)
        tokens = order["workload"]["seq"]
        self.measured.append((name, tokens))
        self.does(name, tokens)
        found = msgspec.to_builtins(result())
        found |= {"workload": order["workload"], "host_clocks": order["host_clocks"]}
        return None, msgspec.json.encode(found)


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock, which a look at it moves on by a second and a sleep by its time; its first value is the time now."""
    now = [1000.0]

    def read() -> float:
        now[0] += 1.0
        return now[0]

    def sleep(length: float) -> None:
        now[0] += length

    monkeypatch.setattr(time, "monotonic", read)
    monkeypatch.setattr(time, "sleep", sleep)
    return now
