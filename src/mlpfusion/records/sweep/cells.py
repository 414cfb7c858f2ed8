"""Records of what a study measures: its settings and its cells."""

from __future__ import annotations

from mlpfusion.records.base import Record
from mlpfusion.spec import Workload
from mlpfusion.units import Some, Time


class Settings(Record, frozen=True, kw_only=True):
    """What all cells of a study share. `gpus` are the kinds that it names, None for those that are there."""

    backends: tuple[str, ...]
    rounds: Some
    processes: Some = 1
    counters: bool = False
    time_limit_s: Time = 600.0
    gpus: tuple[str, ...] | None = None


class Use(Record, frozen=True, kw_only=True):
    """A model whose MLP a cell measures, or the share of it that one of `tp` cards has."""

    model: str
    tp: Some = 1

    def __str__(self) -> str:
        return self.model if self.tp == 1 else f"{self.model} tp{self.tp}"


class Work(Record, frozen=True, kw_only=True):
    """One workload and the models that it is of; several may have the same MLP."""

    of: tuple[Use, ...]
    workload: Workload


class Cell(Record, frozen=True, kw_only=True):
    """The unit of a study: one workload on one kind of GPU, all backends in one race."""

    work: Work
    gpu: str
