"""Findings about compilation: recompiles, autotuning, fallbacks, graphs that were not used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.findings_made import COMPILED, FUSED, LOOKUP, every, said
from support.timeline import GEMM, Timeline

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def region(number: Callable[[int], str]) -> Any:
    def add(made: Any, start: int, index: int) -> None:
        made.op(LOOKUP, start, 1)
        made.op(f"Torch-Compiled Region: {number(index)}", start + 1, 99)

    return every(kernels=COMPILED, each=add)


def test_an_id_alone_is_no_recompile(tmp_path: Path) -> None:
    found = said(region(lambda index: "0/1"), tmp_path)
    assert not {"recompile", "graph_changed", "eager_fallback"} & set(found)


def test_compilation_inside_a_call_is_said(tmp_path: Path) -> None:
    made = every(kernels=COMPILED).op("_compile.compile_inner", 3001, 80)
    assert "1x _compile.compile_inner, 80 µs" in said(made, tmp_path)["recompile"].seen
    before = every(kernels=COMPILED).op("_compile.compile_inner", 500, 80)
    assert "recompile" not in said(before, tmp_path)


def test_two_ids_of_one_frame_between_calls_are_said(tmp_path: Path) -> None:
    switched = said(region(lambda index: "0/0" if index < 2 else "0/1"), tmp_path)["graph_changed"]
    assert switched.seen.endswith("0/0 in 2 (from 1 to 2), 0/1 in 3 (from 3 to 5)")
    assert "recompiled" in switched.means
    turns = said(region(lambda index: f"0/{index % 2}"), tmp_path)["graph_changed"]
    assert "alternate" in turns.means


def test_two_ids_of_one_frame_in_every_call_are_two_modules(tmp_path: Path) -> None:
    def both(made: Any, start: int, index: int) -> None:
        made.op("Torch-Compiled Region: 0/0", start + 1, 40).op("Torch-Compiled Region: 0/1", start + 50, 40)

    assert "graph_changed" not in said(every(kernels=COMPILED, each=both), tmp_path)


def test_other_frames_are_no_change(tmp_path: Path) -> None:
    assert "graph_changed" not in said(region(lambda index: f"{index}/0"), tmp_path)


def test_a_fallback_to_eager_is_said(tmp_path: Path) -> None:
    looked = every(each=lambda made, start, index: made.op(LOOKUP, start, 1))
    assert "Dynamo looked up its cache" in said(looked, tmp_path)["eager_fallback"].seen
    assert "compile was requested" in said(every(), tmp_path, asked="compile")["eager_fallback"].seen
    assert "eager_fallback" not in said(every(), tmp_path)
    assert "eager_fallback" not in said(every(kernels=COMPILED), tmp_path, asked="compile")


def test_missing_cuda_graphs_are_said_where_they_were_requested(tmp_path: Path) -> None:
    assert "no_cuda_graph" in said(every(kernels=COMPILED), tmp_path, asked="cudagraphs")
    asks = every(kernels=COMPILED, each=lambda made, start, index: (
        made.op("Torch-Compiled Region: 0/0", start + 1, 98), made.api("cudaStreamIsCapturing", start + 1))
    )  # fmt: skip
    assert "no_cuda_graph" not in said(asks, tmp_path)  # Triton's launcher and the allocator ask this in any mode
    assert "no_cuda_graph" not in said(every(kernels=COMPILED), tmp_path)

    def replay(made: Any, start: int, index: int) -> None:
        made.launch(GEMM, start + 60, start + 110, 5, api="cudaGraphLaunch").api("cudaStreamIsCapturing", start + 55)

    assert "no_cuda_graph" not in said(every(each=replay), tmp_path, asked="cudagraphs")


def test_autotuning_inside_a_call_is_said(tmp_path: Path) -> None:
    def tune(made: Any, start: int, index: int) -> None:
        for number in range(30 if index == 0 else 1):
            made.launch("my_kernel", start + 60 + number, start + 200 + 3 * number, 2)

    assert "call 1 ran my_kernel 30 times, the others 1" in said(every(each=tune), tmp_path)["autotune"].seen
    named = every().op("CachingAutotuner.benchmark_all_configs (dynamo_timed)", 1001, 90)
    found = said(named, tmp_path)
    assert "benchmark_all_configs" in found["autotune"].seen
    assert "recompile" not in found
    twice = every(each=lambda made, start, index: made.launch("my_kernel", start + 60, start + 120, 2))
    assert "autotune" not in said(twice, tmp_path)


@pytest.mark.parametrize("name", ["my_kernel", GEMM, "fused_moe_kernel", FUSED])
@pytest.mark.parametrize("by", [None, "ProfilerStep#3"])
def test_a_kernel_of_many_layers_is_no_autotuning(tmp_path: Path, name: str, by: str | None) -> None:
    made = Timeline()
    if by:
        made.call(0, 2000, by)
    made.op("aten::mm", 0, 5)
    for number in range(120):
        made.launch(name, 10 + 5 * number, 12 + 5 * number, 2)
    assert "autotune" not in said(made, tmp_path)


def test_a_call_of_twice_the_work_is_no_autotuning(tmp_path: Path) -> None:
    """Two micro-batches instead of one: all its kernels run more often, not one alone."""

    def layers(made: Any, start: int, index: int) -> None:
        for number in range(80 if index == 2 else 40):
            made.launch("my_kernel", start + 100 + 4 * number, start + 200 + 4 * number, 2)
            made.launch(GEMM, start + 102 + 4 * number, start + 202 + 4 * number, 2)

    assert "autotune" not in said(every(each=layers), tmp_path)
