"""The checks of what a target leaves behind, each by faults of its own."""

from __future__ import annotations

import pytest
from support import checked, rings
from support.targets_made import verdict_of

WRONG = {
    "replaced": """
        import torch.nn.functional
        torch.nn.functional.silu = torch.nn.functional.silu if kept else (lambda x: x)
        kept[:] = [1]
        return right(gate, up)
    """,
    "state": """
        torch.manual_seed(0)
        return right(gate, up)
    """,
    "growth": """
        kept.append(gate.detach().clone())
        return right(gate, up)
    """,
}
MORE = {
    "time": ("replaced", "import time; time.sleep = lambda s: None; return right(gate, up)", "by which it is timed"),
    "forward of a module": ("replaced", "torch.nn.Linear.forward = right; return right(gate, up)", "Linear.forward"),
    "by a later call": (
        "replaced",
        "kept.append(1)\nif len(kept) == 9:\n    torch.nn.functional.silu = right\nreturn right(gate, up)",
        "functional.silu",
    ),
    "by a backward": (
        "replaced",
        """
        def replacing(grad):
            torch.nn.functional.silu = right
        y = right(gate, up)
        if y.requires_grad:
            y.register_hook(replacing)
        return y
        """,
        "functional.silu",
    ),
    "by a backward that raises": (
        "replaced",
        """
        def replacing(grad):
            torch.nn.functional.silu = right
            raise ValueError("no gradients")
        y = right(gate, up)
        if y.requires_grad:
            y.register_hook(replacing)
        return y
        """,
        "functional.silu",
    ),
    "tf32": ("state", "torch.backends.cuda.matmul.allow_tf32 = True; return right(gate, up)", "TF32 was"),
    "default dtype": ("state", "torch.set_default_dtype(torch.half); return right(gate, up)", "the default dtype was"),
    "grad mode": ("state", "y = right(gate, up); torch.set_grad_enabled(False); return y", "grad mode was"),
    "draws": ("state", "torch.rand(1); return right(gate, up)", "random numbers is drawn from by each call"),
    "numpy": ("state", "import numpy; numpy.random.seed(3); return right(gate, up)", "numpy.random is seeded by each"),
    "warnings": ("state", "import warnings; warnings.simplefilter('ignore'); return right(gate, up)", "silenced"),
    "environment": ("state", "import os; os.environ['MINE'] = '1'; return right(gate, up)", "is changed: MINE"),
    "freezes": (
        "state",
        """
        import gc
        if not kept:
            (gc.unfreeze if gc.get_freeze_count() else gc.freeze)()
            kept.append(None)
        return right(gate, up)
        """,
        "frozen objects was",
    ),
    "autocast": (
        "state",
        "torch.set_autocast_dtype('cpu', torch.bfloat16); return right(gate, up)",
        "the dtypes of autocast on a CPU and on a GPU was torch.float16 and is torch.bfloat16",
    ),
    "kept under autocast": (
        "growth",
        """
        if torch.is_autocast_enabled(gate.device.type):
            kept.append(gate.detach())
        return right(gate, up)
        """,
        "by a call under autocast",
    ),
    "bytes": ("growth", "kept.append(bytes(30000)); return right(gate, up)", "bytes of memory by a call"),
    "small objects": ("growth", "kept.append([str(n) for n in range(900)]); return right(gate, up)", "bytes of memory"),
    "a few small objects": ("growth", "kept.append((-len(kept), [])); return right(gate, up)", "small obj"),
    "a few small objects of a backward": (
        "growth",
        """
        y = right(gate, up)
        if y.requires_grad:
            y.register_hook(lambda grad: kept.append((len(kept), str(len(kept)), float(len(kept)))))
        return y
        """,
        "small objects by a call with its backward",
    ),
    "one tensor of all shapes": (
        "growth",
        """
        longest, seen = kept.pop() if kept else (gate.new_empty(0), set())
        if gate.shape not in seen:
            longest = torch.cat([longest, gate.detach().reshape(-1)])
        kept.append((longest, seen | {gate.shape}))
        return right(gate, up)
        """,
        "bytes of tensors by a call of another shape",
    ),
    "shapes trained": (
        "growth",
        """
        if gate.requires_grad and torch.is_grad_enabled() and gate.shape not in [each.shape for each in kept]:
            kept.append(gate.detach().clone())
        return right(gate, up)
        """,
        "by a call of another shape with its backward",
    ),
    "until a backward": (
        "growth",
        """
        y = right(gate, up)
        if y.requires_grad:
            kept.append(gate.detach().clone())
            y.register_hook(lambda dy: kept.clear())
        return y
        """,
        "by a call whose graph is dropped without a backward",
    ),
    "graphs": ("growth", "y = right(gate, up); kept.append(y); return y", "tensors"),
}

test_each_check_finds_the_fault_that_it_is_for, test_and_none_in_what_is_right = checked.judging(WRONG)


@pytest.mark.parametrize("name", rings.only_first(MORE))
def test_the_kinds_of_what_is_left_are_named(bench, tmp_path, name):
    check, body, words = MORE[name]
    verdict = checked.by(bench, tmp_path, check, body)
    assert verdict.word == ("not valid" if name == "time" else "valid with hazards")
    assert words in verdict.headline


@pytest.mark.parametrize("body", ["@functools.lru_cache", "@functools.lru_cache(32)"])
def test_results_that_python_s_own_cache_keeps_for_each_shape_do_not_grow(bench, tmp_path, body):
    verdict = checked.by(
        bench,
        tmp_path,
        "growth",
        f"""
        import functools
        if not kept:
            {body}
            def workspace(shape):
                return torch.empty(shape)
            kept.append(workspace)
        kept[0](gate.shape)
        return right(gate, up)
        """,
    )
    assert verdict.word == "valid"


def test_a_shape_whose_values_nobody_compares_is_none_that_it_is_judged_for(bench, tmp_path):
    verdict = checked.by(bench, tmp_path, "state", "return right(gate, up)", dtypes=("float32",))
    assert verdict.judged_for == checked.by(bench, tmp_path, "runs", "return right(gate, up)").judged_for


@pytest.mark.parametrize(
    ("control", "check", "words"),
    [
        ("PlansForGood", "growth", "of 3 modules that were built, called and deleted 3 stay in memory"),
        ("SeededLayers", "state", "its constructor seeds torch's generator of random numbers"),
    ],
)
def test_what_modules_leave_behind_is_named(bench, control, check, words):
    verdict = checked.of_control(bench, f"blind/layers.py:{control}", check, "float32")
    assert verdict.word == "valid with hazards"
    assert words in verdict.headline


@pytest.mark.parametrize("check", ["growth", "state"])
def test_modules_that_are_freed_and_draw_their_weights_leave_nothing(bench, check):
    assert checked.of_control(bench, "blind/layers.py:ValuesCompared", check, "float32").word == "valid"


IN_EVAL = (
    checked.HEAD
    + """
class Layer(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        sizes = config.hidden_size, config.intermediate_size
        self.gate_proj, self.up_proj = (torch.nn.Linear(*sizes, bias=False) for _ in range(2))
        self.down_proj = torch.nn.Linear(*reversed(sizes), bias=False)
        self.kept = []

    def forward(self, x):
        if not self.training:
            self.kept.append(x.detach())
        return right_mlp(x, *(each.weight for each in (self.gate_proj, self.up_proj, self.down_proj)))
"""
)


def test_what_a_layer_keeps_in_eval_mode_alone_grows(bench, tmp_path):
    (tmp_path / "layer.py").write_text(IN_EVAL, encoding="utf-8")
    path = f"{tmp_path / 'layer.py'}:Layer"
    verdict = verdict_of(bench, path, only=("growth",), dtypes=("float32",), quick=False)
    assert verdict.word == "valid with hazards"
    assert "by a call in eval mode" in verdict.headline
