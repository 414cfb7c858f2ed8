"""What a call leaves changed in its process is told by its name, and the generators can be put back."""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import multiprocessing
import os
import random
import signal
import socket
import sys
import threading
import warnings
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
import torch._dynamo
import torch.multiprocessing

from mlpfusion.stages.validate.worker import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def keep(tensor: torch.Tensor) -> torch.Tensor:
    """Saves a tensor as it is."""
    return tensor


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Afterwards the process has its own folder, environment and settings."""
    monkeypatch.chdir(".")
    kept = torch.get_default_dtype(), torch.get_num_threads(), sys.getrecursionlimit(), signal.getsignal(signal.SIGALRM)
    precision, thresholds = torch.get_float32_matmul_precision(), gc.get_threshold()
    errors, level, interval = np.geterr(), logging.getLogger("torch").level, sys.getswitchinterval()
    handlers, strategy = list(logging.root.handlers), torch.multiprocessing.get_sharing_strategy()
    with warnings.catch_warnings(), torch.set_grad_enabled(True), settings.own_generators():
        yield
    torch.set_default_dtype(kept[0])
    torch.set_num_threads(kept[1])
    sys.setrecursionlimit(kept[2])
    signal.signal(signal.SIGALRM, kept[3])
    torch.set_float32_matmul_precision(precision)
    torch.backends.cuda.enable_math_sdp(True)
    np.seterr(**errors)
    logging.getLogger("torch").setLevel(level)
    sys.setswitchinterval(interval)
    logging.root.handlers[:] = handlers
    multiprocessing.set_start_method(None, force=True)
    torch.multiprocessing.set_sharing_strategy(strategy)
    torch.set_printoptions(profile="default")
    socket.setdefaulttimeout(None)
    torch._dynamo.config.suppress_errors = False
    while torch._C._autograd._top_saved_tensors_default_hooks(True):
        torch._C._autograd._pop_saved_tensors_default_hooks()
    settings.CONFIG_CHANGES.clear()
    gc.set_threshold(*thresholds)
    torch.set_flush_denormal(False)
    os.environ.pop("MINE", None)


CHANGES: dict[str, tuple[Callable[[], object], str, str]] = {
    "dtype": (
        lambda: torch.set_default_dtype(torch.float64),
        "the default dtype",
        "was torch.float32 and is torch.float64",
    ),
    "grad": (lambda: torch._C._set_grad_enabled(False), "grad mode", "was True and is False"),
    "tf32": (lambda: torch.set_float32_matmul_precision("high"), "TF32", "high"),
    "threads": (lambda: torch.set_num_threads(torch.get_num_threads() + 1), "the number of threads", "was "),
    "subnormals": (lambda: torch.set_flush_denormal(True), "flushing of subnormals", "was False and is True"),
    "warnings": (lambda: warnings.simplefilter("ignore"), "silenced warnings", "Warning"),
    "folder": (lambda: os.chdir("/"), "the working directory", "and is /"),
    "environment": (lambda: os.environ.update(MINE="1"), "the environment", "is changed: MINE"),
    "signal": (lambda: signal.signal(signal.SIGALRM, signal.SIG_IGN), "handlers of signals", "and is "),
    "collector": (lambda: gc.set_threshold(123, 4, 5), "the collector", "(123, 4, 5)"),
    "compiler": (
        lambda: setattr(importlib.import_module("torch._dynamo.config"), "suppress_errors", True),
        "PyTorch's compiler",
        "_dynamo.config.suppress_errors = True",
    ),
    "attention": (lambda: torch.backends.cuda.enable_math_sdp(False), "kernels of attention", "was True and is False"),
    "numpy": (lambda: np.seterr(all="ignore"), "errors of NumPy", "('divide', 'ignore')"),
    "logging": (lambda: logging.getLogger("torch").setLevel(77), "the level of logging", "and is 77"),
    "handlers": (lambda: logging.root.addHandler(logging.NullHandler()), "the handlers of logging", "NullHandler"),
    "processes": (
        lambda: multiprocessing.set_start_method("spawn", force=True),
        "how processes are started",
        "was fork and is spawn",
    ),
    "sharing": (
        lambda: torch.multiprocessing.set_sharing_strategy("file_system"),
        "how processes share tensors",
        "was file_descriptor and is file_system",
    ),
    "printing": (lambda: torch.set_printoptions(precision=9), "torch's print options", "was 4 and is 9"),
    "sockets": (lambda: socket.setdefaulttimeout(3), "the timeout of sockets", "was None and is 3.0"),
    "switching": (lambda: sys.setswitchinterval(0.5), "the switching of threads", "and is 0.5"),
    "hooks": (
        lambda: torch.autograd.graph.saved_tensors_hooks(keep, keep).__enter__(),
        "hooks of saved tensors",
        "test_settings.keep",
    ),
    "config": (
        lambda: settings.CONFIG_CHANGES.update(["intermediate_size"]),
        settings.CONFIG,
        "is changed: intermediate_size",
    ),
    "recursion": (lambda: sys.setrecursionlimit(4321), "the recursion limit", "and is 4321"),
    "torch's seed": (lambda: torch.manual_seed(1), settings.GENERATORS[0], "is drawn from or seeded"),
    "torch's draw": (lambda: torch.rand(1), settings.GENERATORS[0], "is drawn from or seeded"),
    "random's draw": (random.random, settings.GENERATORS[2], "is drawn from or seeded"),
    "numpy's draw": (np.random.rand, settings.GENERATORS[3], "is drawn from or seeded"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_one_change_is_told_alone(change: str) -> None:
    make, name, words = CHANGES[change]
    before = settings.read()
    assert settings.changed(before) == {}
    make()
    (found,) = settings.changed(before).items()
    assert found[0] == name
    assert words in found[1]


@pytest.fixture
def frozen() -> Iterator[None]:
    """Objects that the collector leaves alone, as a forked worker has them."""
    before = gc.get_freeze_count()
    gc.freeze()
    yield
    if not before:
        gc.unfreeze()


@pytest.mark.usefixtures("frozen")
def test_frozen_objects_that_are_freed_are_no_change() -> None:
    kept = [[] for _ in range(100)]
    gc.freeze()
    before, count = settings.read(("frozen objects",)), gc.get_freeze_count()
    kept.clear()
    assert gc.get_freeze_count() < count
    assert settings.changed(before) == {}


@pytest.mark.usefixtures("frozen")
def test_to_unfreeze_them_is_one() -> None:
    before = settings.read(("frozen objects",))
    gc.unfreeze()
    try:
        assert list(settings.changed(before)) == ["frozen objects"]
    finally:
        gc.freeze()


def test_only_the_settings_that_were_read_are_compared() -> None:
    before = settings.read(("grad mode",))
    torch.set_default_dtype(torch.float64)
    assert list(before) == ["grad mode"]
    assert settings.changed(before) == {}


@pytest.mark.parametrize("name", sorted(settings.INDUCTOR))
def test_what_inductor_sets_when_it_compiles_is_no_change(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    before = settings.read(("the environment",))
    monkeypatch.setenv(name, "changed")
    assert settings.changed(before) == {}


@pytest.mark.parametrize(("name", "is_told"), [("mine", True), *((f"{pool}-0_1", False) for pool in settings.POOLS)])
def test_a_thread_that_a_compilation_does_not_keep_is_told(name: str, is_told: bool) -> None:
    before = settings.read(("its threads",))
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name=name, daemon=True)
    thread.start()
    try:
        found = settings.changed(before)
    finally:
        end.set()
        thread.join()
    assert (name in found.get("its threads", "")) is is_told


def test_a_working_directory_that_is_gone_is_told(tmp_path: Path) -> None:
    before = settings.read(("the working directory",))
    gone = tmp_path / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    assert list(settings.changed(before)) == ["the working directory"]


def test_a_setting_that_pytorch_refuses_to_read_is_its_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    before = settings.read(("TF32",))

    def refuse() -> str:
        raise RuntimeError("mixed\nand more")

    monkeypatch.setattr(torch, "get_float32_matmul_precision", refuse)
    assert settings.read(("TF32",)) == {"TF32": "mixed"}
    assert settings.changed(before)["TF32"].endswith("is mixed")


def test_a_long_value_is_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getcwd", lambda: "/" + "a" * 500)
    before = settings.read(("the working directory",))
    monkeypatch.setattr(os, "getcwd", lambda: "/b")
    (words,) = settings.changed(before).values()
    assert words == f"was /{'a' * 59}… and is /b"


def drawn() -> tuple[float, float, float]:
    return float(torch.rand(1)), random.random(), float(np.random.rand())


@pytest.mark.parametrize("seed", [None, 0, 7])
def test_generators_go_on_where_they_were(seed: int | None) -> None:
    settings.stir(3)
    first, second = drawn(), drawn()
    settings.stir(3)
    drawn()
    with contextlib.suppress(KeyError), settings.own_generators(seed):
        drawn()
        raise KeyError
    assert drawn() == second != first


def test_within_a_seed_every_generator_starts_from_it() -> None:
    found = []
    for seed in (0, 6, 0):
        drawn()
        with settings.own_generators(seed):
            found.append(drawn())
    assert found[0] == found[2]
    assert all(a != b for a, b in zip(found[0], found[1], strict=True))
    with settings.own_generators(1), settings.own_generators():
        inherited = drawn()
    with settings.own_generators(1):
        assert drawn() == inherited


def test_stirred_without_a_seed_every_generator_is_where_nobody_left_it() -> None:
    before = settings.read((settings.GENERATORS[0], *settings.GENERATORS[2:]))
    settings.stir()
    first = drawn()
    settings.stir()
    assert all(a != b for a, b in zip(first, drawn(), strict=True))
    assert settings.changed(before).keys() == before.keys()


def test_threads_of_a_compilation_are_not_told() -> None:
    """On a GPU Inductor compiles in subprocesses, and a thread reads their answers for good."""
    from torch._inductor.compile_worker.subproc_pool import SubprocPool

    before = settings.read(("its threads",))
    pool, ends = SubprocPool(1), threading.Event()
    other = threading.Thread(target=ends.wait, name="other")
    try:
        assert pool.read_thread.is_alive()
        assert settings.read(("its threads",)) == before
        other.start()
        assert "other" in str(settings.read(("its threads",)))
    finally:
        ends.set()
        pool.shutdown()


@pytest.mark.parametrize(
    ("make", "seeded"),
    [
        (lambda: None, set()),
        (lambda: torch.rand(3), set()),
        (lambda: torch.manual_seed(0), {settings.GENERATORS[0]}),
        (lambda: (torch.rand(2), random.seed(3), random.random()), {settings.GENERATORS[2]}),
        (lambda: np.random.seed(3), {settings.GENERATORS[3]}),
    ],
)
def test_a_generator_that_two_constructions_leave_in_one_state_is_seeded(
    make: Callable[[], object], seeded: set[str]
) -> None:
    settings.SEEDED.clear()
    construction, before = settings.Construction(), settings.read(settings.GENERATORS)
    for what in ("one", "another", "another"):
        assert not settings.SEEDED  # two of one kind are needed
        with construction.watched(what):
            make()
    assert set(settings.SEEDED) == seeded
    assert settings.changed(before) == {}
    if seeded:
        told = settings.changed({settings.CONSTRUCTOR: {}})
        assert told == {settings.CONSTRUCTOR: f"seeds {', '.join(seeded)}"}
    settings.SEEDED.clear()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_dtype_of_autocast_that_somebody_sets_is_noted_whatever_it_was(dtype: torch.dtype) -> None:
    before = torch.get_autocast_dtype("cpu")
    settings.LEFT_WITHIN.clear()
    for each in (torch.bfloat16, torch.float16):
        with settings.autocast_to(each):
            assert torch.get_autocast_dtype("cuda") == each
            torch.set_autocast_dtype("cpu", dtype)
    assert torch.get_autocast_dtype("cpu") == before
    assert settings.LEFT_WITHIN.pop(settings.AUTOCAST_DTYPES).endswith(f"and is {dtype}")


def test_whether_autocast_keeps_casts_is_a_setting() -> None:
    before = settings.read()
    torch.set_autocast_cache_enabled(not torch.is_autocast_cache_enabled())
    try:
        assert "autocast's cache" in settings.changed(before)
    finally:
        torch.set_autocast_cache_enabled(not torch.is_autocast_cache_enabled())
