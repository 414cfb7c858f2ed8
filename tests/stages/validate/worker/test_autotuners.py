"""Autotuned targets: judged by every configuration that tuning would try, and by one of them in all other checks."""

from __future__ import annotations

import textwrap

import pytest
from support import forked

from mlpfusion.stages.validate.judge import examine as examine_judge
from mlpfusion.stages.validate.judge.exam import Asked

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


@pytest.fixture(scope="module")
def bench():
    with forked.workers(), examine_judge.Bench("cpu") as made:
        yield made


def examine(bench, folder, configs, *, pruned="", grid=EACH, multiple=1, text=TUNED, **asked):
    path = folder / "mine.py"
    for word, value in (("CONFIGS", configs), ("PRUNED", pruned), ("GRID", grid), ("MULTIPLE", str(multiple))):
        text = text.replace(word, value)
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    order, asking = examine_judge.Order(f"{path}:act", "gelu_tanh"), Asked(**{"dtypes": ("float32",), **asked})
    return examine_judge.examine(
        bench,
        order,
        asking,
        seed=examine_judge.new_seed(),
        sources=lambda name, text: None,
        tell=lambda name, text: None,
    )


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


@pytest.mark.parametrize("blocks", [(512, 2048, 131072), (2048, 512, 131072), (131072, 512, 2048)])
def test_what_its_own_pruning_leaves_out_is_not_run(bench, tmp_path, blocks):
    pruned = ', prune_configs_by={"early_config_prune": wide_enough}'
    only = ("configurations", "elementwise", "written")
    verdict = examine(bench, tmp_path, listed(*blocks), pruned=pruned, grid="1", only=only)
    assert (verdict.word, verdict.configurations) == ("valid", 3), verdict.headline
    said = "right by 2 of 3 configurations; tuning would leave out the others here"
    assert found(verdict, "configurations").sentence == said


@pytest.mark.parametrize("blocks", [(1024, 2048), (2048, 1024)])
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
    verdict = examine(bench, tmp_path, "", text=text, dtypes=(dtype,), only=only)
    assert not [check for check in verdict.checks if check.status == "fail"]
    stores = [check.status for check in verdict.checks if check.name == "backward-store"]
    assert stores == ([] if dtype == "float32" else ["pass"])
