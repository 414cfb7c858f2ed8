"""The search for configurations: what it tries, what it measures and what it keeps."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest
import torch
from mlpfusion_kernels.gate_up import tuned
from mlpfusion_kernels.gate_up.decode import StreamTile
from mlpfusion_kernels.gate_up.limits import DIRECTIONS
from support import tunings_made
from support.tunings_made import (
    BF16,
    EVEN,
    FAST,
    GPU,
    HERE,
    OTHER,
    SHAPE,
    SHIPPED,
    SLOW,
    SPEC,
    STREAM,
    WRONG,
    Fake,
    entry,
    forward,
    searched,
    warned,
    write,
)

from mlpfusion.device import Device
from mlpfusion.errors import MeasurementError, UsageError
from mlpfusion.records import tuning
from mlpfusion.stages.tune import run

if TYPE_CHECKING:
    from pathlib import Path

file = tunings_made.file  # a fixture


# ---- the search, with times that are known ---------------------------------------------------------------------------


def test_what_is_faster_is_kept_and_in_use_at_once(file: Path) -> None:
    assert forward() == SHIPPED
    bench = Fake({SHIPPED: 100.0, SLOW: 120.0, FAST: 90.0, WRONG: 1.0}, {WRONG: "wrong"})
    said: list[str] = []
    (answer,) = searched(file, bench, on_event=said.append)
    assert (answer.kept, answer.best, answer.shipped) == (True, run.describe(FAST), run.describe(SHIPPED))
    assert answer.ratio.median == pytest.approx(0.9)
    assert answer.ratio.high < 1
    assert [(one.config, one.reason) for one in answer.left_out] == [(run.describe(WRONG), "wrong")]
    assert f"left out: {run.describe(WRONG)}: wrong" in said
    assert warned() == (FAST, [])
    assert all(WRONG not in configs for configs in bench.raced)
    assert bench.raced[-1] == (SHIPPED, FAST)  # fresh rounds for these two alone


def test_what_is_within_the_noise_is_not(file: Path) -> None:
    (answer,) = searched(file, Fake({SHIPPED: 100.0, EVEN: 99.5}, noise=0.03))
    assert (answer.best, answer.kept) == (run.describe(EVEN), False)
    assert answer.ratio.low < 1 < answer.ratio.high
    assert not file.exists()


def test_where_the_shipped_one_is_fastest_its_earlier_rival_leaves_the_file(file: Path) -> None:
    others = entry(device="NVIDIA A40", capability=(8, 6))
    write(file, others, entry(), entry(tokens=256))
    (answer,) = searched(file, Fake({SHIPPED: 100.0, SLOW: 120.0}))
    assert (answer.best, answer.kept, answer.ratio) == (None, False, None)
    assert answer.shipped_us.median == pytest.approx(100.0)
    assert tuned.parse(file.read_bytes()) == [others, entry(tokens=256)]
    assert forward() == SHIPPED


def test_what_fits_one_activation_alone_is_not_kept(file: Path) -> None:
    bench = Fake({SHIPPED: 100.0, FAST: 80.0, EVEN: 90.0})
    bench.fits_no_other_activation = {FAST}
    (answer,) = searched(file, bench)
    assert answer.best == run.describe(EVEN)
    assert forward() == EVEN


def test_without_time_the_rest_is_not_tried_and_counted(file: Path) -> None:
    times = {SHIPPED: 100.0} | {OTHER._replace(group=group): 90.0 + group for group in range(1, 41)}
    bench = Fake(times)
    (answer,) = searched(file, bench, limit_s=10.0, now=lambda: bench.seconds)
    assert answer.untried == 40 - 7
    assert answer.kept


def test_time_that_one_search_leaves_is_the_next_ones(file: Path) -> None:
    asked = run.questions(SPEC, [256, 8192], "inference", GPU)
    first = Fake({SHIPPED: 100.0, FAST: 90.0})
    second = Fake({SHIPPED: 100.0} | {OTHER._replace(group=group): 90.0 + group for group in range(1, 41)})
    _, answer = searched(file, first, second, asked=asked, limit_s=40, now=lambda: first.seconds + second.seconds)
    assert answer.untried == 40 - 27  # seven tenths of 38 s


def test_a_search_that_fails_says_so_and_the_next_goes_on(file: Path) -> None:
    asked = run.questions(SPEC, [256, 8192], "inference", GPU)
    broken = Fake({SHIPPED: 100.0, FAST: 90.0})
    broken.interrupt = MeasurementError("no graph")
    failed, answer = searched(file, broken, Fake({SHIPPED: 100.0, FAST: 90.0}), asked=asked)
    assert (failed.reason, failed.kept) == ("no graph", False)
    assert answer.kept


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate"), "OutOfMemoryError: CUDA out of memory."),
        (
            RuntimeError("Triton Error [CUDA]: an illegal address"),
            "RuntimeError: Triton Error [CUDA]: an illegal address",
        ),
        (OSError(28, "No space left on device"), "OSError: [Errno 28] No space left on device"),
        (KeyError("graph"), "KeyError: 'graph'"),
        (MemoryError(), "MemoryError: MemoryError"),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("when", ["made", "raced"])
def test_whatever_a_search_fails_with_the_next_goes_on(file: Path, error: Exception, reason: str, when: str) -> None:
    broken, fine = Fake({SHIPPED: 100.0, FAST: 90.0}), Fake({SHIPPED: 100.0, FAST: 90.0})
    broken.interrupt = error

    def bench(question: tuning.Question, device: object) -> Any:
        if question.tokens == 8192:
            return fine
        if when == "made":
            raise error
        return broken

    file.parent.mkdir()
    asked = run.questions(SPEC, [256, 8192], "inference", GPU)
    failed, answer = run.search(asked, GPU, file, bench=bench)
    assert (failed.reason, failed.kept) == (reason, False)
    assert answer.kept


def test_the_memory_of_one_search_is_free_for_the_next(file: Path) -> None:
    alive: list[weakref.ref[Any]] = []

    def bench(question: tuning.Question, device: object) -> Any:
        gc.collect()
        assert [each() for each in alive] == [None] * len(alive)
        made = Fake({SHIPPED: 100.0, FAST: 90.0})
        made.interrupt = torch.OutOfMemoryError("CUDA out of memory") if question.tokens == 64 else None
        alive.append(weakref.ref(made))
        return made

    file.parent.mkdir()
    answers = list(run.search(run.questions(SPEC, [32, 64, 256], "inference", GPU), GPU, file, bench=bench))
    assert [answer.kept for answer in answers] == [True, False, True]


def test_an_interrupt_leaves_what_is_finished(file: Path) -> None:
    asked = run.questions(SPEC, [256, 8192], "inference", GPU)
    late = Fake({SHIPPED: 100.0, FAST: 90.0})
    late.interrupt = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        searched(file, Fake({SHIPPED: 100.0, FAST: 90.0}), late, asked=asked)
    assert forward(m=256) == FAST
    assert forward() == SHIPPED


def test_a_few_tokens_get_the_best_of_both_kernels(file: Path) -> None:
    gate_up, down = STREAM._replace(gate_up=StreamTile(64, 64, 3, 4)), STREAM._replace(down=StreamTile(16, 256, 4, 4))
    both = gate_up._replace(down=down.down)
    bench = Fake({STREAM: 10.0, gate_up: 9.0, down: 9.5, both: 8.0})
    bench.candidates.remove(both)
    (answer,) = searched(file, bench, asked=run.questions(SPEC, [4], "inference", GPU))
    assert answer.best == run.describe(both)
    assert tuned.decode_config(HERE, BF16, 4, *SHAPE[1:]) == both


def test_what_is_asked_for_which_tokens_and_mode() -> None:
    def asked(*tokens: int, mode: Any, device: Device = GPU) -> list[tuple[str, int]]:
        return [(one.direction, one.tokens) for one in run.questions(SPEC, tokens, mode, device)]

    assert asked(1, 256, mode="inference") == [("decode", 1), ("forward", 256)]
    assert asked(16, 17, mode="training") == [("decode", 16), ("backward", 16), ("training", 17), ("backward", 17)]
    hopper = Device(kind="cuda", name="NVIDIA H100", runtime="cuda", capability=(9, 0))
    assert asked(32, 33, mode="inference", device=hopper) == [("decode", 32), ("forward", 33)]
    with pytest.raises(UsageError, match="tokens 200 and 256 share one configuration, that of 129 to 256"):
        asked(200, 256, mode="inference")
    assert tuning.DIRECTIONS == DIRECTIONS
