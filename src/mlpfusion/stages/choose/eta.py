"""Estimates the remaining time of a run of several profiles."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mlpfusion import units

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mlpfusion.spec import Workload
    from mlpfusion.stages.profile.run import Progress


class TimeLeft:
    """Adds to each event how many steps are done and, from the time they took, how long the others take.

    A step is a backend to qualify or a race; `new` has for each workload that is to be profiled the backends that are
    to be qualified, and a finished workload is not in it.
    """

    def __init__(
        self,
        new: Mapping[Workload, frozenset[str]],
        tell: Callable[[Progress], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._new = new
        self._total = sum(len(names) + 1 for names in new.values())
        self._done = 0
        self._tell, self._now, self._started = tell, now, now()

    def watch(self, work: Workload) -> Callable[[Progress], None]:
        """A listener for the events of one workload's profile."""
        new = self._new.get(work, frozenset())

        def heard(event: Progress) -> None:
            qualified = event.stage == "qualify" and event.backend in new and event.text != "…"
            if qualified or (event.stage == "race" and event.text == "done"):
                self._done += 1
            self._tell(event._replace(text=f"{event.text} [{work.mode}, {work.tokens} tokens; {self._left()}]"))

        return heard

    def _left(self) -> str:
        said = f"{self._done} of {self._total} steps"
        if not self._done or self._done == self._total:
            return said
        seconds = (self._now() - self._started) / self._done * (self._total - self._done)
        return f"{said}, about {units.duration(seconds)} left"
