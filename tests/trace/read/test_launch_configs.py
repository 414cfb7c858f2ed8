"""How kernels were launched: read of recorded traces, and of what is no trace or damaged."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import rings
from support.paths import DATA

from mlpfusion.records.profile import LaunchConfig
from mlpfusion.trace.analysis.kernels import analyse_work
from mlpfusion.trace.read import kineto, launch_configs

ARGS = {"grid": [24576, 1, 1], "block": [128, 1, 1], "registers per thread": 31}
CONFIG = LaunchConfig(grid=(24576, 1, 1), block=(128, 1, 1), registers=31)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["grid", "block", "x"]), inner),
    max_leaves=8,
)


def event(args: Any, **changes: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "kernel", "name": "k", "ts": 1.5, "dur": 2, "pid": 0, "tid": 7, "args": args, **changes}


def trace(*events: Any) -> bytes:
    return json.dumps({"traceEvents": events}).encode()


def test_each_kernel_by_its_start_and_its_name() -> None:
    second = {**ARGS, "registers per thread": None}
    found = launch_configs.read(trace(event(ARGS), event(second, name="other"), event(ARGS, ts=2)))
    assert found == {
        (1500, "k"): CONFIG,
        (1500, "other"): LaunchConfig(grid=CONFIG.grid, block=CONFIG.block),
        (2000, "k"): CONFIG,
    }


@pytest.mark.parametrize(
    "one",
    [
        event({}),
        event({**ARGS, "grid": [1, 1]}),
        event({**ARGS, "grid": [1, 1, "1"]}),
        event({**ARGS, "block": [1, -1, 1]}),
        event(ARGS, cat="gpu_memset"),
        event(ARGS, ts="soon"),
        event([ARGS]),
        "grid",
        None,
    ],
)
def test_what_does_not_say_it_is_left_out(one: Any) -> None:
    assert launch_configs.read(trace(one, event(ARGS, ts=9))) == {(9000, "k"): CONFIG}


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"traceEvents": 3}', b'{"traceEvents": [', b"\xff" * 40])
def test_what_is_no_trace_says_nothing(data: bytes) -> None:
    assert launch_configs.read(data) == {}


@settings(max_examples=rings.examples(200))
@given(JSON, JSON)
def test_no_arguments_break_it(args: Any, registers: Any) -> None:
    for one in (event(args), event({**ARGS, "registers per thread": registers})):
        for config in launch_configs.read(trace(one)).values():
            assert min(*config.grid, *config.block) >= 0
            assert config.registers is None or config.registers >= 0


@pytest.mark.parametrize("name", ["h200_eager", "h200_compile", "h200_triton", "h200_packed", "h200_eager_training"])
def test_every_kernel_of_a_recorded_call_has_its_own(name: str) -> None:
    path = DATA / f"{name}.json.gz"
    found, _ = analyse_work(kineto.read(path), device="cuda", configs=launch_configs.read(path))
    for kernel in found.kernels:
        assert (kernel.launch is None) == (kernel.decoded.kind in ("memset", "memcpy")), kernel.name


def test_inductor_s_kernel_as_it_was_launched() -> None:
    path = DATA / "h200_compile.json.gz"
    found, _ = analyse_work(kineto.read(path), device="cuda", configs=launch_configs.read(path))
    (launch,) = (kernel.launch for kernel in found.kernels if kernel.name.startswith("triton_poi"))
    assert launch == CONFIG
