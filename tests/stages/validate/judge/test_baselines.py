"""What a target is set against, when it is faster, and whether its values are right after that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mlpfusion.stages.validate import channel
from mlpfusion.stages.validate.judge import baselines
from mlpfusion.stages.validate.judge.exam import Asked, Exam, UndecidableError
from mlpfusion.stages.validate.layouts import ends

if TYPE_CHECKING:
    from torch import Tensor

    from mlpfusion.records.validation import Kind
    from mlpfusion.stages.validate.channel import Facts, Tensors


def test_faster_needs_the_whole_interval_and_one_percent() -> None:
    def word(*ratios: float) -> str:
        mine: list[float | None] = list(ratios)
        return baselines.verdict_on(baselines.ratio_of(mine, [1.0] * len(ratios), "eager"))

    assert word(*[0.9] * 20) == "faster"
    assert word(*[1.1] * 20) == "slower"
    assert word(*[0.995] * 20) == "same within noise"  # within the band of 1%
    assert word(*[0.8, 1.2] * 10) == "same within noise"
    with pytest.raises(UndecidableError, match="3 rounds are too few"):
        word(0.9, 0.9, 0.9)


# ---- values after a race ---------------------------------------------------------------------------------------------

ROUNDS = 60


class Raced:
    """A worker that races a function; with `is_replayed` it gives the result on earlier values again. And eager."""

    def __init__(self, kind: Kind, *, is_replayed: bool) -> None:
        self.kind = kind
        self.is_replayed = is_replayed

    def holds(self, *_: object) -> bool:
        return True

    def ask(self, probe: str, given: Tensors, **options: Any) -> tuple[Tensors, Facts]:
        timed = self.compute(given)
        if probe == "forward":
            return {"y": timed}, {}
        other = given | {name.partition(":")[2]: each for name, each in given.items() if name.startswith("other:")}
        results = {"timed": ends(timed), "fresh": ends(timed if self.is_replayed else self.compute(other))}
        samples = [[name, "event_us", [1.0] * options["rounds"]] for name in ("target", *options["peers"])]
        common = {"launches": 0, "configurations": 0, "left": {}}
        return results, {"calls": 2345, "samples": samples, **common}

    def compute(self, given: Tensors) -> Tensor:
        return exam(self.kind, self).compute({name: each.double() for name, each in given.items()}).float()


def exam(kind: Kind, worker: Any) -> Exam:
    loaded = channel.Loaded(kind=kind, described="a function")
    asked = Asked(rounds=ROUNDS)
    return Exam("t", "gelu_tanh", loaded, worker, worker, dtypes=("float32",), asked=asked, seed=0, device="cuda")


@pytest.mark.parametrize("kind", ["act_mul", "mlp"])
@pytest.mark.parametrize("is_replayed", [False, True])
def test_each_race_says_what_it_has_shown_of_the_values(kind: Kind, is_replayed: bool) -> None:
    judged = exam(kind, Raced(kind, is_replayed=is_replayed))
    given = judged.operands("float32", (100, 8) if kind == "act_mul" else (100,), "race")
    ratio, clock = baselines._race(judged, "eager", given)
    assert (ratio.median, ratio.n, clock) == (1.0, ROUNDS, "event_us")
    (found,) = judged.after_timing
    assert found.status == ("fail" if is_replayed else "pass")
    assert "after 2345 timed calls" in found.sentence
    assert found.shape == (tuple(given[judged.names[0]].shape) if is_replayed else None)
