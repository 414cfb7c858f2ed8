"""Autotuned targets: judged by every configuration that tuning would try, and by one of them in all other checks."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from support import rings
from support.targets_made import verdict_of

from mlpfusion.stages.validate.worker.targets import autotuners

TUNED = """
import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from triton.runtime.errors import OutOfResources


def too_large(operands):  # as a launch is on a GPU
    raise OutOfResources(262144, 232448, "shared memory")


def wide_enough(configs, operands, **_):
    return [config for config in configs if config.kwargs["BLOCK"] >= operands["n"]]


@triton.autotune(configs=CONFIGS, key=["n"]PRUNED)
@triton.jit
def tuned(x, out, n, SHIFT: tl.constexpr, BLOCK: tl.constexpr):
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    offsets = tl.program_id(0) * n + columns
    value = tl.load(x + offsets, mask=columns < n)
    tl.store(out + offsets, value + SHIFT, mask=columns < n)


def act(gate, up):
    y = (F.gelu(gate, approximate="tanh") * up).contiguous()
    if not y.numel():
        return y
    rows = 1 if y.dim() < 2 else y.shape[0]
    if y.numel() // rows % MULTIPLE:
        raise ValueError("only whole multiples")
    out = torch.empty_like(y)
    globals()["tu" + "ned"][lambda meta: (rows, GRID)](y, out, y.numel() // rows)
    return out
"""
EACH = "triton.cdiv(y.numel() // rows, meta['BLOCK'])"


def examine(bench, folder, configs, *, pruned="", grid=EACH, multiple=1, text=TUNED, **asked):
    path = folder / "mine.py"
    for word, value in (("CONFIGS", configs), ("PRUNED", pruned), ("GRID", grid), ("MULTIPLE", str(multiple))):
        text = text.replace(word, value)
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return verdict_of(bench, f"{path}:act", **{"dtypes": ("float32",), **asked})


def found(verdict, name):
    return next(check for check in verdict.checks if check.name == name)


def listed(*blocks, shifts=None, hooks=None):
    """Configurations as source."""
    made = []
    for block in blocks:
        shift, hook = (shifts or {}).get(block, 0), (hooks or {}).get(block)
        made.append(f'triton.Config({{"BLOCK": {block}, "SHIFT": {shift}}}, pre_hook={hook})')
    return f"[{', '.join(made)}]"


@pytest.mark.parametrize("multiple", [1, 16, 256])
def test_one_that_is_first_seen_when_it_runs_is_judged_in_every_configuration(bench, tmp_path, multiple):
    configs = listed(2048, 1024, shifts={1024: 1})
    verdict = examine(bench, tmp_path, configs, multiple=multiple, only=("configurations",))
    assert (found(verdict, "configurations").status, verdict.configurations) == ("fail", 2)
    assert "1 of 2 configurations fail: number 1 (BLOCK: 1024, SHIFT: 1" in found(verdict, "configurations").sentence


@pytest.mark.parametrize("blocks", rings.only_first([[512, 2048, 131072], [2048, 512, 131072], [131072, 512, 2048]]))
def test_what_its_own_pruning_leaves_out_is_not_run(bench, tmp_path, blocks):
    pruned = ', prune_configs_by={"early_config_prune": wide_enough}'
    only = ("configurations", "elementwise", "written")
    verdict = examine(bench, tmp_path, listed(*blocks), pruned=pruned, grid="1", only=only)
    assert (verdict.word, verdict.configurations) == ("valid", 3), verdict.headline
    said = "right by 2 of 3 configurations; tuning would leave out the others here"
    assert found(verdict, "configurations").sentence == said


@pytest.mark.parametrize("blocks", rings.only_first([[1024, 2048], [2048, 1024]]))
def test_what_tuning_would_find_too_large_is_left_out(bench, tmp_path, blocks):
    configs = listed(*blocks, hooks={2048: "too_large"})
    verdict = examine(bench, tmp_path, configs, only=("configurations", "elementwise"))
    assert (verdict.word, verdict.configurations) == ("valid", 2), verdict.headline
    assert found(verdict, "configurations").sentence.startswith("right by 1 of 2 configurations")
    everything = listed(*blocks, hooks={1024: "too_large", 2048: "too_large"})
    refused = examine(bench, tmp_path, everything, only=("elementwise",))
    assert "OutOfResources" in refused.headline


def test_no_check_is_judged_by_the_configuration_of_another(bench, tmp_path):
    configs = listed(2048, 1024, shifts={1024: 1})
    verdict = examine(bench, tmp_path, configs, only=("configurations", "elementwise", "deterministic", "autocast"))
    assert {check.name for check in verdict.checks if check.status == "fail"} == {"configurations"}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("in_backward", [False, True])
def test_shapes_that_are_refused_are_no_fault_of_a_dtype_that_is_asked_for(bench, tmp_path, dtype, in_backward):
    text = """
        import torch
        import torch.nn.functional as F

        def demand(x):
            if x.dim() < 2 or x.shape[-1] % 256 or x.shape[0] % 8:
                raise ValueError("only multiples of 8 and 256")

        class Act(torch.autograd.Function):
            @staticmethod
            def forward(ctx, gate, up):
                ctx.save_for_backward(gate, up)
                if not IN_BACKWARD:
                    demand(gate)
                return F.gelu(gate, approximate="tanh") * up

            @staticmethod
            def backward(ctx, dy):
                gate, up = ctx.saved_tensors
                demand(gate)
                dgate = torch.ops.aten.gelu_backward(dy * up, gate, approximate="tanh")
                return dgate, dy * F.gelu(gate, approximate="tanh")

        def act(gate, up):
            return Act.apply(gate, up)
        """
    only = ("configurations", "backward", "store", "backward-store", "backward-configurations")
    text = text.replace("IN_BACKWARD", str(in_backward))
    verdict = examine(bench, tmp_path, "", text=text, dtypes=(dtype,), only=only, quick=False)
    assert not [check for check in verdict.checks if check.status == "fail"]
    stores = [check.status for check in verdict.checks if check.name == "backward-store"]
    assert stores == ([] if dtype == "float32" else ["pass"])


@triton.autotune(configs=[triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})], key=["n"])
@triton.jit
def tuned_kernel(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n), mask=offsets < n)


class Launches(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return deeper(x)


def deeper(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    tuned_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
    return out


def calls_a_function(x: torch.Tensor) -> torch.Tensor:
    return Launches.apply(x)


def test_kernels_are_found_behind_functions_and_pinned() -> None:
    found = autotuners.reachable(calls_a_function)
    assert found == [tuned_kernel]
    assert autotuners.reachable(torch.nn.functional.gelu) == []
    pins = autotuners.Pins(found)
    assert pins.count == 2
    x = torch.arange(40.0)
    for index, block in enumerate(("16", "32")):
        pins.pin(index)
        assert f"BLOCK: {block}" in pins.said()
        assert torch.equal(calls_a_function(x), x)
    pins.pin(None)
    assert len(tuned_kernel.configs) == 2


@triton.jit
def four_kernel(g, u, o, count, B: tl.constexpr, ACT: tl.constexpr):
    pass


def test_a_bare_kernel_is_told_how_to_become_a_target() -> None:
    assert autotuners.jit_function(tuned_kernel) is tuned_kernel
    assert autotuners.jit_function(deeper) is None
    tuned = autotuners.wrapping(tuned_kernel)  # BLOCK is what its configurations set
    assert "tuned_kernel[lambda meta: (triton.cdiv(n, meta['BLOCK']),)](x=..., out=..., n=...); return out" in tuned
    plain = autotuners.wrapping(four_kernel)
    assert "four_kernel[(triton.cdiv(n, 1024),)](g=gate, u=up, o=out, count=n, B=1024, ACT=...)" in plain
    heuristic = autotuners.wrapping(triton.heuristics({"B": lambda args: 64, "ACT": lambda args: 0})(four_kernel))
    assert "four_kernel[lambda meta: (triton.cdiv(n, meta['B']),)](g=gate, u=up, o=out, count=n); " in heuristic
