"""For all tests: Triton's interpreter unless a GPU is asked for, one thread per process, no deadline, two rings."""

from __future__ import annotations

import gc
import os

import pytest
from hypothesis import HealthCheck, settings
from support import rings, seeds

# Modules and tests stay to the end: the collector need not look through their millions of objects, now or later.
gc.disable()

if os.environ.get("MLPFUSION_GPU_TESTS") != "1":
    # Read by triton when a kernel is defined, so it must be set before any package with kernels is imported.
    os.environ.setdefault("TRITON_INTERPRET", "1")
    # Read by torch when it is imported, here and in the processes that tests start. The cores are shared by the
    # processes of pytest-xdist: threads of one that wait for each other spin while another could run.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # Nor does Inductor start processes that compile: they would import torch, and compile a kernel or two.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

# How long an example takes is the machine's affair: pytest's timeout ends what hangs. Examples share the fixtures of
# their test, which makes them faster, and each writes its own files.
settings.register_profile(
    "mlpfusion",
    deadline=None,
    derandomize=not seeds.ARE_RANDOM,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("mlpfusion")
# What the first ring tries of the examples of a property; `rings.examples` takes as much of a number of its own.
settings.register_profile("first ring", settings.get_profile("mlpfusion"), max_examples=rings.PERCENT)


@pytest.hookimpl(optionalhook=True)  # pytest-xdist's, for `-n auto`
def pytest_xdist_auto_num_workers() -> int:
    """One more than cores: a test that waits, for a process or a time limit, leaves its core to another."""
    affinity = getattr(os, "sched_getaffinity", None)
    return (len(affinity(0)) if affinity else os.cpu_count() or 1) + 1


def pytest_configure(config: pytest.Config) -> None:
    if config.option.markexpr == rings.FIRST:
        settings.load_profile("first ring")
    from mlpfusion.backends.fused import no_loops  # imports triton, which reads what is set above

    if os.environ.get("TRITON_INTERPRET") == "1":
        if (reason := no_loops()) is not None:
            raise pytest.UsageError(reason)  # 400 tests run kernels with loops; each would fail in words of Triton's
        from mlpfusion.measure.interpreter import list_builtins_once

        list_builtins_once()


@pytest.hookimpl(tryfirst=True)  # before pytest selects by markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in rings.beyond(items):
        item.add_marker(rings.FULL)
    for item in filter(rings.is_sampled, items):
        item.add_marker(rings.SAMPLED)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)  # before fixtures are made
def pytest_runtest_setup(item: pytest.Item) -> None:
    if not seeds.ARE_RANDOM:
        seeds.begin(item.nodeid)
