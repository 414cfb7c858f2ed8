"""What is said of a target that does something else under what PyTorch puts around it."""

from __future__ import annotations

import textwrap
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import torch
from support import checked, rings
from support.targets_made import verdict_of

from mlpfusion.stages.validate.judge.checks import modes

if TYPE_CHECKING:
    from pathlib import Path

    from mlpfusion.stages.validate.judge.examine import Bench


@pytest.mark.parametrize(("equal", "status"), [([1, 1, 1], "pass"), ([1, 0, 1], "reported")])
def test_a_row_whose_largest_element_is_not_found_again_is_reported(equal: list[int], status: str) -> None:
    found = modes.rows_equal(torch.tensor(equal).float())
    assert found.status == status
    assert ("in 1 of 3 rows" in found.sentence) == (status == "reported")


STEPS = """
    import torch

    def right(gate, up):
        return gate * torch.sigmoid(1.702 * gate) * up

    def once(gate, up):
        in_vmap = torch._C._functorch.maybe_current_level() is not None
        return right(gate, up) * (1 + 0.1 * in_vmap)
"""


@pytest.mark.parametrize("seed", [139, 170])  # of 200 the two whose gradient is off by 6% and more in bfloat16
def test_steps_that_each_round_are_right_under_vmap_where_eager_rounds_so(bench, tmp_path, seed: int) -> None:
    (tmp_path / "steps.py").write_text(textwrap.dedent(STEPS), encoding="utf-8")
    asked = {"only": ("runs", "vmap"), "dtypes": ("bfloat16",), "seed": seed}
    assert verdict_of(bench, f"{tmp_path / 'steps.py'}:right", "quick_gelu", **asked).word == "valid"
    assert "torch.vmap" in verdict_of(bench, f"{tmp_path / 'steps.py'}:once", "quick_gelu", **asked).headline


@pytest.mark.parametrize("version", ["2.11.0+cu130", "2.13.0"])
def test_gradients_that_are_lost_when_compiled_are_said_to_be_0_and_who_loses_them(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = {"y": torch.ones(2, 3), "d:gate": torch.ones(2, 3)}
    results = {f"{part}:y": plain["y"] for part in "poq"} | {"y": plain["y"], "d:gate": torch.zeros(2, 3)}
    exam = SimpleNamespace(
        device="cpu",
        kind="act_mul",
        plain=(2, 3),
        names=("gate",),
        lack=lambda _: None,
        ask=lambda *_, **__: (results, {"fp64": [], "changed": {}}),
        operands=lambda *_: {"gate": plain["y"], "dy": plain["y"]},
        backward=lambda _: (plain, {}),
        reference=lambda given, grad: {name: value.double() for name, value in plain.items()},
    )
    monkeypatch.setattr(torch, "__version__", version)
    found = modes.compiled(exam, "float32")
    assert found.status == "fail"
    assert "the gradient of gate is 0 everywhere" in found.sentence
    assert ("PyTorch 2.11 loses" in found.sentence) == version.startswith("2.11")


ALONE = """
if WHERE and gate.requires_grad != up.requires_grad:
    return ANSWER
return right(gate, up)
"""


@pytest.mark.parametrize(
    ("check", "where", "how"),
    [
        ("compile", "torch.compiler.is_compiling()", "compiled"),
        ("checkpoint", "torch._C._autograd._top_saved_tensors_default_hooks(True)", "where it is checkpointed"),
    ],
)
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("right(gate.detach(), up.detach())", "where gate alone needs a gradient, there is no gradient for gate"),
        ("right(gate, up.detach())", "where up alone needs a gradient, there is no gradient for up"),
        ("right(gate, 1.1 * up.detach())", "where gate alone needs a gradient, the gradient of gate is off by 0.1"),
    ],
)
def test_the_gradient_of_one_operand_alone_is_asked_for_in_each_way(
    bench: Bench, tmp_path: Path, check: str, where: str, how: str, answer: str, words: str
) -> None:
    body = ALONE.replace("WHERE", where).replace("ANSWER", answer)
    verdict = checked.by(bench, tmp_path, check, body, dtypes=("float32",))
    assert verdict.word == "not valid"
    assert f"{how}, {words}" in verdict.headline


IN_PLACE = "y = right(gate.clone(), up)\nif WHERE:\n    gate.detach().copy_(y.detach())\nreturn y"
IN_VMAP = "torch._C._functorch.maybe_current_level() is not None"


@pytest.mark.parametrize(
    ("check", "where", "words"),
    [
        ("vmap", IN_VMAP, "under torch.vmap (gate over 0, up over 0) the forward overwrites gate"),
        ("vmap", f"{IN_VMAP} and not torch.is_grad_enabled()", "overwrites gate without gradients"),
        (
            "checkpoint",
            "not torch.is_grad_enabled()",
            "where it is checkpointed (reentrant), the forward overwrites gate",
        ),
    ],
)
def test_operands_that_a_mode_overwrites_are_named(
    bench: Bench, tmp_path: Path, check: str, where: str, words: str
) -> None:
    verdict = checked.by(bench, tmp_path, check, IN_PLACE.replace("WHERE", where), dtypes=("float32",))
    assert verdict.word == "not valid"
    assert words in verdict.headline


def test_a_compiled_call_that_overwrites_operands_is_told(bench: Bench, tmp_path: Path) -> None:
    body = (
        "if torch.compiler.is_compiling() and not torch.is_grad_enabled():\n    return gate.copy_(right(gate, up)) + 0"
    )
    verdict = checked.by(bench, tmp_path, "compile", f"{body}\nreturn right(gate, up)", dtypes=("float32",))
    assert verdict.word == "not valid"
    assert "compiled, the forward overwrites gate without gradients" in verdict.headline


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("not torch.is_grad_enabled()", "under no_grad its result is an inference tensor"),
        ("gate.shape[0] == 64", "under no_grad its result is an inference tensor"),
        ("torch.is_grad_enabled() and not gate.requires_grad", "with gradients on, which no operand needs, its result"),
    ],
)
def test_a_result_that_is_an_inference_tensor_outside_inference_mode_is_a_hazard(
    bench: Bench, tmp_path: Path, where: str, words: str
) -> None:
    body = f"with torch.inference_mode({where}):\n    return right(gate, up)"
    verdict = checked.by(bench, tmp_path, "inference", body, dtypes=("float32",), quick=False)
    assert verdict.word == "valid with hazards"
    assert words in verdict.headline


LAYER = (
    checked.HEAD
    + """
class Layer(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        sizes = config.hidden_size, config.intermediate_size
        self.gate_proj, self.up_proj = (torch.nn.Linear(*sizes, bias=False) for _ in range(2))
        self.down_proj = torch.nn.Linear(*reversed(sizes), bias=False)

    def forward(self, x):
        weights = [each.weight for each in (self.gate_proj, self.up_proj, self.down_proj)]
        if not self.training and torch.is_grad_enabled() and WHERE:
            return ANSWER
        return right_mlp(x, *weights)
"""
)
TAUGHT, X_ALONE = "weights[0].requires_grad", "not weights[0].requires_grad"


@pytest.mark.parametrize(
    ("where", "answer", "word", "words"),
    [
        (TAUGHT, "right_mlp(x.detach(), *(each.detach() for each in weights))", "valid with hazards", "for x and wg"),
        (TAUGHT, "right_mlp(x, weights[0], weights[1].detach(), weights[2])", "valid with hazards", "gradient for wu"),
        (
            X_ALONE,
            "right_mlp(x.detach(), *weights)",
            "valid with hazards",
            "where x alone needs a gradient, there is no",
        ),
        (X_ALONE, "right_mlp(x.detach(), *weights) + 0 * x", "not valid", "needs a gradient, the gradient of x is 0"),
        (X_ALONE, "right_mlp(x, *weights)", "valid", ""),
    ],
)
def test_what_a_layer_trains_in_eval_mode_is_judged(
    bench: Bench, tmp_path: Path, where: str, answer: str, word: str, words: str
) -> None:
    path = tmp_path / "layer.py"
    path.write_text(LAYER.replace("WHERE", where).replace("ANSWER", answer), encoding="utf-8")
    verdict = verdict_of(bench, f"{path}:Layer", only=("inference",), dtypes=("float32",))
    assert verdict.word == word
    assert words in verdict.headline


WRONG_COMPILED = {
    "gate.dim() == 3": "compiled in three dimensions, y is off",
    "gate.dim() == 3 and torch.is_grad_enabled()": "compiled in three dimensions, y is off",
    "gate.dim() == 3 and not torch.is_grad_enabled()": "compiled in three dimensions without gradients, y is off",
    "gate.shape[0] == 1": "compiled for one row, y is off",
    "up.stride(-1) != 1": "compiled where gate and up are transposed, y is off",
    "gate.stride(0) == 2 * gate.shape[1]": "compiled where gate and up are halves of one tensor, y is off",
    "gate.shape[-1] == 512 and not torch.is_grad_enabled()": "for a second shape without gradients, y is off",
}


@pytest.mark.parametrize("where", rings.only_first(WRONG_COMPILED))
def test_what_is_wrong_in_one_kind_of_call_alone_once_it_is_compiled_is_found(bench, tmp_path, where: str) -> None:
    body = f"return right(gate, up) * (1.5 if torch.compiler.is_compiling() and {where} else 1)"
    verdict = checked.by(bench, tmp_path, "compile", body, dtypes=("float32",))
    assert verdict.word == "not valid"
    assert WRONG_COMPILED[where] in verdict.headline


def test_a_kind_of_call_that_is_refused_is_not_compiled_and_one_that_only_breaks_compiled_is_a_hazard(bench, tmp_path):
    refuses = "assert gate.dim() == 2 and gate.is_contiguous()\nreturn right(gate, up)"
    assert checked.by(bench, tmp_path, "compile", refuses, dtypes=("float32",)).word == "valid"
    breaks = "if gate.shape[0] == 1:\n    torch._dynamo.graph_break()\nreturn right(gate, up)"
    verdict = checked.by(bench, tmp_path, "compile", breaks, dtypes=("float32",))
    assert verdict.word == "valid with hazards"
    assert "cannot be compiled with fullgraph=True for one row" in verdict.headline


@pytest.mark.parametrize(
    ("control", "words"),
    [
        ("activated_in_inference_mode", "under torch.inference_mode it overwrites gate"),
        ("FewerColumnsWhenServed", "in eval mode y is off by"),
    ],
)
def test_a_mode_that_differs_in_some_shape_is_named(bench: Bench, control: str, words: str) -> None:
    assert (
        words in checked.of_control(bench, f"attack/calls.py:{control}", "inference", "float32", quick=False).headline
    )


DEFAULTED = {
    "return right(gate, up) * torch.ones(1, device=gate.device)": "set_default_dtype(torch.float64) y is fl",
    "return right(gate, up) * (float(torch.tensor(257 / 256)) / (257 / 256))": "dtype(torch.bfloat16) it is an",
    """
    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx, gate, up):
            ctx.save_for_backward(gate, up)
            return right(gate, up)

        @staticmethod
        def backward(ctx, dy):
            gate, up = ctx.saved_tensors
            dup = dy * gelu(gate, approximate="tanh") * (float(torch.tensor(257 / 256)) / (257 / 256))
            return torch.ops.aten.gelu_backward(dy * up, gate, approximate="tanh"), dup

    return Own.apply(gate, up)
    """: "under torch.set_default_dtype(torch.bfloat16) the gradient of up is beyond the bound",
}


@pytest.mark.parametrize("body", DEFAULTED)
def test_what_depends_on_the_default_dtype_is_found(bench: Bench, tmp_path: Path, body: str) -> None:
    verdict = checked.by(bench, tmp_path, "inference", body, dtypes=("float32",))
    assert verdict.word == "not valid"
    assert DEFAULTED[body] in verdict.headline


SAVED = """
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        ctx.at, ctx.strides = gate.data_ptr(), gate.stride()
        return right(gate, up)

    @staticmethod
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        if WHERE:
            ANSWER
        return torch.ops.aten.gelu_backward(dy * up, gate, approximate="tanh"), dy * gelu(gate, approximate="tanh")

return Own.apply(gate, up)
"""
MOVED, DENSE = "gate.data_ptr() != ctx.at", "gate.stride() != ctx.strides"
HOOKS = "where hooks give saved tensors back dense and in other memory, as offloading does, the gradient of"


@pytest.mark.parametrize(
    ("where", "answer", "word", "words"),
    [
        (MOVED, "gate = gate * 1.1", "not valid", f"{HOOKS} gate is off by"),
        (DENSE, "gate = gate * 1.1", "not valid", "where gate and up are transposed"),
        (DENSE, "gate = gate * 1.001", "not valid", f"{HOOKS} gate is beyond the bound"),
        (DENSE, "raise RuntimeError('moved')", "valid", ""),
    ],
)
def test_what_is_saved_may_come_back_elsewhere_or_be_refused(
    bench: Bench, tmp_path: Path, where: str, answer: str, word: str, words: str
) -> None:
    body = SAVED.replace("WHERE", where).replace("ANSWER", answer)
    verdict = checked.by(bench, tmp_path, "checkpoint", body, dtypes=("float32",))
    assert verdict.word == word
    assert words in verdict.headline


@pytest.mark.parametrize("shared", ["gate", "up"])
def test_what_is_not_mapped_may_have_several_rows(bench: Bench, tmp_path: Path, shared: str) -> None:
    mapped = "gate" if shared == "up" else "up"
    body = f"""
    class Own(torch.autograd.Function):
        @staticmethod
        def forward(gate, up):
            return right(gate, up)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, dy):
            gate, up = ctx.saved_tensors
            dup = dy * gelu(gate, approximate="tanh")
            return torch.ops.aten.gelu_backward(dy * up, gate, approximate="tanh"), dup

        @staticmethod
        def vmap(info, in_dims, gate, up):
            rows = dict(gate=gate, up=up)
            dims = dict(zip(rows, in_dims))
            for name, dim in dims.items():
                rows[name] = rows[name].expand(info.batch_size, *rows[name].shape) if dim is None else (
                    rows[name].movedim(dim, 0))
            if dims[{shared!r}] is None and rows[{mapped!r}].dim() > 2:
                rows[{shared!r}] = rows[{shared!r}].flip(1)
            return Own.apply(rows["gate"], rows["up"]), 0

    return Own.apply(gate, up)
    """
    verdict = checked.by(bench, tmp_path, "vmap", body, dtypes=("float32",))
    assert verdict.word == "not valid"
    assert f"{shared} over none" in verdict.headline
