"""How results come into the file of tuned configurations: beside those of other kernels, cards and processes."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlpfusion_kernels import reload_tuned
from mlpfusion_kernels.gate_up import tuned
from support import rings, tunings_made
from support.tunings_made import (
    EVEN,
    FAST,
    HERE,
    OTHER,
    QUESTION,
    SHIPPED,
    Fake,
    entry,
    forward,
    searched,
    warned,
    write,
)

from mlpfusion import limits
from mlpfusion.errors import MlpfusionError, UsageError
from mlpfusion.records import tuning
from mlpfusion.stages.tune import run

if TYPE_CHECKING:
    from pathlib import Path

file = tunings_made.file  # a fixture


def entries(file: Path) -> list[Any]:
    return tuned.parse(file.read_bytes())


def versions(file: Path) -> list[str]:
    return [one["kernels"] for one in entries(file)]


def keep(file: Path, config: Any, version: str | None = None, question: tuning.Question = QUESTION) -> None:
    """As an environment with those kernels keeps it, or where the shipped configuration won, nothing."""
    with pytest.MonkeyPatch.context() as patched:
        if version is not None:
            patched.setattr(tuned, "kernels_version", lambda: version)
        answer = tuning.Answer(question=question, shipped="shipped", kept=config is not None)
        file.parent.mkdir(exist_ok=True)
        run.keep(file, run.Found(answer, config), HERE)


# ---- versions --------------------------------------------------------------------------------------------------------


def test_environments_with_other_kernels_share_the_file(file: Path) -> None:
    keep(file, FAST, "a")
    keep(file, EVEN)
    keep(file, OTHER, "b")
    assert versions(file) == ["a", tuned.kernels_version(), "b"]
    assert warned() == (EVEN, [])
    keep(file, None)  # these kernels' shipped configuration won: that is no word on the others
    assert versions(file) == ["a", "b"]
    keep(file, FAST)
    keep(file, OTHER, "a")
    assert versions(file) == ["b", tuned.kernels_version(), "a"]
    assert warned() == (FAST, [])


def test_what_other_kernels_wrote_stays_whatever_it_is_and_what_is_damaged_goes(file: Path) -> None:
    card = entry(device="NVIDIA A40", capability=(8, 6), version="another")
    later = entry(version="later") | {"config": {"clusters": 2}, "direction": "sideways"}
    later["digest"] = tuned.digest(later)
    damaged = entry(tokens=256)
    damaged["config"]["stages"] += 1
    write(file, card, {"no": "entry"}, 7, damaged, later, entry(EVEN))
    searched(file, Fake({SHIPPED: 100.0, FAST: 90.0}))
    *others, mine = entries(file)
    assert others == [card, later]
    assert tuned.entry_of(mine).config == FAST
    assert mine["found"]["time_ratio"] == pytest.approx([0.9] * 3)


@settings(max_examples=rings.examples(40))
@given(found=st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from([256, 8192]), st.booleans()), max_size=20))
def test_of_each_question_the_newest_kernels_stay(file: Path, found: list[tuple[str, int, bool]]) -> None:
    file.unlink(missing_ok=True)
    wanted: dict[int, list[str]] = {256: [], 8192: []}
    for version, tokens, is_faster in found:
        question = run.questions(tunings_made.SPEC, [tokens], "inference", tunings_made.GPU)[0]
        keep(file, FAST if is_faster else None, version, question)
        others = [one for one in wanted[tokens] if one != version][-run.OTHER_KERNELS :]
        wanted[tokens] = others + [version] * is_faster
    left = entries(file) if file.exists() else []
    assert {m: [one["kernels"] for one in left if one["tokens"] == m] for m in wanted} == wanted


def test_the_most_that_the_command_takes_fits_the_file() -> None:
    most = {"hidden_size": limits.SIZE.most, "intermediate_size": limits.SIZE.most}
    assert tuned.entry_of(entry(tokens=limits.TUNED_TOKENS.most, **most)).key.tokens == limits.TUNED_TOKENS.most
    assert tuned.bucket(limits.TUNED_TOKENS.most) == limits.TUNED_TOKENS.most
    for beyond in ({"tokens": 2 * limits.TUNED_TOKENS.most}, {"hidden_size": limits.SIZE.most + 1}):
        with pytest.raises(ValueError, match="must be an integer of 32 bits"):
            tuned.entry_of(entry(**beyond))


# ---- processes -------------------------------------------------------------------------------------------------------

WRITERS, WRITES = 3, 12
# Python 3.12 and later say of every fork beside a thread that it may deadlock. The threads here are those of PyTorch's
# pools, idle, and the forks compute nothing by PyTorch.
forks = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def _write(which: int, file: Path, barrier: Any) -> None:
    barrier.wait()
    for place in range(WRITES):
        sizes = {"hidden_size": 16 * (which * WRITES + place + 1), "intermediate_size": 3072}
        asked = {"direction": "forward", "tokens": 8192, "dtype": "bfloat16", "activation": "silu"}
        keep(file, OTHER, question=tuning.Question(**asked, **sizes))


def _hold(file: Path, ready: Any) -> None:
    with run._alone(file):
        ready.set()
        signal.pause()


@forks
def test_searches_of_several_processes_keep_all_they_find(file: Path) -> None:
    file.parent.mkdir()
    forking = multiprocessing.get_context("fork")
    barrier = forking.Barrier(WRITERS)
    writers = [forking.Process(target=_write, args=(which, file, barrier)) for which in range(WRITERS)]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    assert [each.exitcode for each in writers] == [0] * WRITERS
    assert {one["hidden_size"] for one in entries(file)} == {16 * (n + 1) for n in range(WRITERS * WRITES)}
    assert sorted(each.name for each in file.parent.iterdir()) == ["tuned.json", "tuned.json.lock"]


@forks
def test_a_killed_process_leaves_no_lock_and_one_that_keeps_it_is_named(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.parent.mkdir()
    forking = multiprocessing.get_context("fork")
    ready = forking.Event()
    holder = forking.Process(target=_hold, args=(file, ready))
    holder.start()
    try:
        assert ready.wait(60)
        monkeypatch.setattr(run, "LOCK_S", 0.0)
        with pytest.raises(MlpfusionError, match=r"another process holds '.*tuned.json.lock'"):
            keep(file, FAST)
        assert not file.exists()
    finally:
        holder.kill()
        holder.join()
    keep(file, FAST)
    assert warned() == (FAST, [])


def test_a_link_and_its_file_have_one_lock(file: Path, tmp_path: Path) -> None:
    keep(file, FAST)
    link = tmp_path / "link.json"
    link.symlink_to(file)
    with run._alone(link), file.with_name("tuned.json.lock").open("ab") as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    keep(link, EVEN)
    assert link.is_symlink()
    reload_tuned()
    assert forward() == EVEN


def test_a_lock_that_cannot_be_is_one_line_before_any_search(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.with_name("tuned.json.lock").mkdir(parents=True)
    with pytest.raises(MlpfusionError, match=r"cannot lock '.*tuned.json.lock': Is a directory"):
        run.check_file()
    file.with_name("tuned.json.lock").rmdir()
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with pytest.raises(UsageError, match="no POSIX locks here, without which it is not kept"):
        run.check_file()


def test_what_is_no_regular_file_is_refused_before_any_search(file: Path) -> None:
    file.parent.mkdir()
    os.mkfifo(file)
    with pytest.raises(UsageError, match="is not a regular file"):
        run.check_file()
    with pytest.raises(UsageError, match="it is not a regular file"):
        keep(file, FAST)
