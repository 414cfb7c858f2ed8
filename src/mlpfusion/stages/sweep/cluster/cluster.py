"""A Ray cluster as the place where a study is measured."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from mlpfusion import backend as registry
from mlpfusion.errors import UsageError
from mlpfusion.stages.sweep.cluster import census, driver, pool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mlpfusion.device import Device
    from mlpfusion.records.choice import Conditions
    from mlpfusion.records.profile import HostClocks
    from mlpfusion.stages.sweep.ledger import Ledger
    from mlpfusion.stages.sweep.study import Definition


class Cluster:
    """The nodes of a cluster that have answered, and those that will."""

    def __init__(self, found: census.Census) -> None:
        self._census = found
        self._reference: Conditions | None = None

    @property
    def devices(self) -> Sequence[Device]:
        """One for each GPU of a node that can be used."""
        nodes = self._census.nodes.values()
        here = self._reference or census.reference(list(nodes))
        same = [each for each in nodes if not census.differences(each.holds, here)]
        return [each.device for each in same for _ in range(each.machine.gpus)]

    def holds(self, backends: Sequence[str], earlier: Sequence[Conditions]) -> Conditions:
        """What most nodes have, or, where one of them has it, what an earlier run had."""
        self._reference = census.reference(list(self._census.nodes.values()), earlier)
        return self._reference

    def run(self, ledger: Ledger, host_clocks: HostClocks, tell: Callable[[str], None]) -> None:
        """Measure all cells that wait."""
        assert self._reference is not None
        driver.run(ledger, self._census, self._reference, host_clocks=host_clocks, tell=tell)


@contextlib.contextmanager
def reached(address: str, study: Definition, tell: Callable[[str], None]) -> Iterator[Cluster]:
    """The cluster at an address once its machines have said what they are.

    Raises:
        UsageError: Ray is not installed, no cluster answers, none of its machines can be used, or a backend of the
            study is in a file here.
    """
    for name in study.settings.backends:
        if registry.of_a_file(name) or name.rpartition(":")[0].endswith(".py"):
            raise UsageError(f"--ray takes no backend of a file, which its nodes do not have: {name!r}")
    with pool.connected(address) as connected:
        found = census.Census(connected, study.settings.backends, tell)
        if not found.take(study.settings.gpus):
            raise UsageError(f"--ray {address!r}: no node can be used; there is {found.there()}")
        yield Cluster(found)
