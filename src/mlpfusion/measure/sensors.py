"""Reads a card's clock, power and temperature before a race, between its rounds and after it, never inside a clock."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Final

from mlpfusion.environment import nvml
from mlpfusion.errors import MeasurementError
from mlpfusion.records.environment import Readings

if TYPE_CHECKING:
    from mlpfusion.device import Device

READ: Final = ("sm_clock_mhz", "power_w", "temperature_c")
THROTTLE: Final = "throttle_reasons"


class Sensors:
    """What was read so far; `reasons` says of each sensor that cannot be read why."""

    def __init__(self, device: Device) -> None:
        self.reasons: dict[str, str] = {}
        self._values: dict[str, list[float]] = {}
        self._throttled: dict[str, None] | None = None
        self._card: nvml.Card | None = None
        if device.kind != "cuda":
            self.reasons = dict.fromkeys((*READ, THROTTLE), "a CPU run")
            return
        try:
            self._card = nvml.card(device)
        except MeasurementError as error:
            self.reasons = dict.fromkeys((*READ, THROTTLE), str(error))

    def read(self) -> None:
        """Read every sensor that has not failed before: some 10 µs each."""
        if self._card is None:
            return
        for name in READ:
            if name not in self.reasons:
                try:
                    self._values.setdefault(name, []).append(float(getattr(self._card, name)()))
                except MeasurementError as error:
                    self.reasons[name] = str(error)
        if THROTTLE not in self.reasons:
            try:
                found = self._card.throttle_reasons()
                self._throttled = {**(self._throttled or {}), **dict.fromkeys(found)}
            except MeasurementError as error:
                self.reasons[THROTTLE] = str(error)

    def readings(self) -> dict[str, Readings]:
        """Lowest, median and highest of each sensor that could be read."""
        return {
            name: Readings(n=len(values), low=min(values), median=statistics.median(values), high=max(values))
            for name, values in self._values.items()
            if values and name not in self.reasons
        }

    def throttled(self) -> tuple[str, ...] | None:
        """Every reason that kept the clocks down at one reading or more; None where they cannot be read."""
        return None if self._throttled is None or THROTTLE in self.reasons else tuple(self._throttled)
