"""Learns what machines a cluster has: their devices and versions, those that come late as well."""

from __future__ import annotations

import collections
import time
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from mlpfusion.environment import conditions
from mlpfusion.errors import MlpfusionError
from mlpfusion.stages.sweep import plan
from mlpfusion.stages.sweep.cluster import errand
from mlpfusion.stages.sweep.cluster.node import Described
from mlpfusion.stages.sweep.cluster.pool import LostError, UnplacedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mlpfusion.device import Device
    from mlpfusion.records.choice import Conditions
    from mlpfusion.stages.sweep.cluster.pool import Handle, Machine, Pool

PATIENCE_S: Final = 30.0  # for machines to say what they are, and for a kind of GPU to be there
LOOK_S: Final = 3.0  # between two looks at what machines are there
POLL_S: Final = 1.0


class Node(NamedTuple):
    """A machine that has answered: what it is, and whether our packages must be brought along."""

    machine: Machine
    device: Device
    holds: Conditions
    packages: bool


class Census:
    """The machines of a cluster that have been asked, and those that have answered."""

    def __init__(self, pool: Pool, backends: Sequence[str], tell: Callable[[str], None]) -> None:
        self.pool, self._backends, self._tell = pool, tuple(backends), tell
        self.asked: dict[Handle, tuple[Machine, bool]] = {}
        self.nodes: dict[str, Node] = {}
        self._out: set[str] = set()
        self._looked = -LOOK_S

    def look(self) -> None:
        """Ask machines that are new what they are, and forget those that are gone; not at each call."""
        now = time.monotonic()
        if now - self._looked < LOOK_S:
            return
        self._looked = now
        there = {each.id: each for each in self.pool.machines()}
        self.nodes = {name: each for name, each in self.nodes.items() if name in there}
        known = {*self.nodes, *self._out, *(machine.id for machine, _ in self.asked.values())}
        for name, machine in there.items():
            if name not in known:
                self._ask(machine, packages=False)

    def hear(self, handle: Handle) -> None:
        """Take the answer of a machine; one that cannot be used is told, and left out."""
        machine, packages = self.asked.pop(handle)
        try:
            said, value = self.pool.result(handle)
        except (LostError, UnplacedError):
            return  # asked again if it is seen again
        except MlpfusionError as error:
            self._leave_out(machine, str(error))
            return
        if said == "done":
            found = msgspec.json.decode(value, type=Described)
            self.nodes[machine.id] = Node(machine, found.device, found.holds, packages)
        elif said == "absent" and not packages:
            self._ask(machine, packages=True)
        else:
            self._leave_out(machine, f"mlpfusion {value} there, {errand.version()} here")

    def forget(self, node: Node) -> None:
        """Ask a machine anew, if it is still there: a task on it did not begin."""
        self.nodes.pop(node.machine.id, None)

    def take(self, kinds: Sequence[str] | None) -> list[Node]:
        """Those that have answered once all have and each kind of GPU asked for is there, or PATIENCE_S have passed.

        A cluster whose GPUs are all busy is waited for; it is said after that time what there is.
        """
        began, said = time.monotonic(), False
        while True:
            self.look()
            for handle in self.pool.ended(self.asked, POLL_S) if self.asked else _nothing():
                self.hear(handle)
            missing = [] if kinds is None else [each for each in kinds if not self._has(each)]
            if not self.asked and self.nodes and not missing:
                break
            if time.monotonic() - began < PATIENCE_S:
                continue
            if not said:
                wanted = f"no {' and no '.join(missing)}" if missing else "not every GPU"
                self._tell(f"{wanted} answered within {PATIENCE_S:g} s; there is {self.there()}")
                said = True
            if self.nodes or not self.asked:
                break
        return list(self.nodes.values())

    def there(self) -> str:
        """What GPUs the cluster has, in words."""
        count: collections.Counter[str] = collections.Counter()
        for each in self.nodes.values():
            count[plan.kind_of(each.device)] += each.machine.gpus
        for machine, _ in self.asked.values():
            count[f"{machine.kind or 'GPU'} (busy, or slow to answer)"] += machine.gpus
        return ", ".join(f"{number} x {name}" for name, number in count.items()) or "no GPU"

    def _has(self, kind: str) -> bool:
        return any(plan.is_kind(kind, each.device) for each in self.nodes.values())

    def _ask(self, machine: Machine, *, packages: bool) -> None:
        handle = self.pool.start(machine, "describe", list(self._backends), packages=packages)
        self.asked[handle] = machine, packages

    def _leave_out(self, machine: Machine, reason: str) -> None:
        self._out.add(machine.id)
        self._tell(f"a node with {machine.gpus} x {machine.kind or 'GPU'} is left out: {reason}")


def _nothing() -> Sequence[Handle]:
    time.sleep(POLL_S)
    return ()


# ---- versions --------------------------------------------------------------------------------------------------------


def reference(nodes: Sequence[Node], earlier: Sequence[Conditions] = ()) -> Conditions:
    """What most nodes have, or, so that a study goes on, what one of them has and an earlier run had."""
    for then in earlier:
        for each in nodes:
            if not differences(then, each.holds):
                return each.holds
    count = collections.Counter(str(each.holds.versions) for each in nodes)
    return max(nodes, key=lambda each: count[str(each.holds.versions)]).holds


def differences(there: Conditions, here: Conditions) -> list[str]:
    """What differs in versions, one phrase each; of what card is another matter."""
    return conditions.differences(replace(there, device=here.device, capability=here.capability), here)
