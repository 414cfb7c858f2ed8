"""The checks of what changes between calls, each by a fault of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support import checked
from support.targets_made import verdict_of

from mlpfusion.stages.validate.judge.checks import updates
from mlpfusion.stages.validate.worker import update_probes

if TYPE_CHECKING:
    from pathlib import Path

    from mlpfusion.stages.validate.judge.examine import Bench

WRONG = {
    "accumulation": """
        y = right(gate, up)
        if y.requires_grad:
            y.register_hook(lambda dy: setattr(up, "grad", torch.ones_like(up)))
        return y
    """,
    "updated": """
        if torch.is_grad_enabled():
            return right(gate, up)
        if not kept or kept[0] is not gate:
            kept[:] = [gate, right(gate, up)]
        return kept[1].clone()
    """,
}


test_each_check_finds_the_fault_that_it_is_for, test_and_none_in_what_is_right = checked.judging(WRONG)


def test_the_worker_knows_every_way_in_which_a_weight_is_updated() -> None:
    assert tuple(update_probes.UPDATES) == updates.WAYS


TURNS = """
    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx, gate, up):
            ctx.save_for_backward(gate, up)
            return right(gate, up)

        @staticmethod
        def backward(ctx, dy):
            gate, up = ctx.saved_tensors
            dup = dy * gelu(gate, approximate="tanh")
            kept.append(dup if len(kept) < BUFFERS else kept.pop(0).copy_(dup))
            return torch.ops.aten.gelu_backward(dy * up, gate, approximate="tanh"), kept[-1].view(dup.shape)

    return Own.apply(gate, up)
"""


@pytest.mark.parametrize("buffers", [2, 5, updates.LAYERS - 1])
def test_gradients_that_take_turns_are_found_however_many_buffers_there_are(
    bench: Bench, tmp_path: Path, buffers: int
) -> None:
    body = TURNS.replace("BUFFERS", str(buffers))
    verdict = checked.by(bench, tmp_path, "accumulation", body, dtypes=("float32",))
    assert verdict.word == "not valid"
    assert "a later backward overwrites the gradient of up that another was given" in verdict.headline


PACKED = (
    checked.HEAD
    + """
class Layer(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        sizes = config.hidden_size, config.intermediate_size
        self.gate_proj, self.up_proj = (torch.nn.Linear(*sizes, bias=False) for _ in range(2))
        self.down_proj = torch.nn.Linear(*reversed(sizes), bias=False)
        self.kept = None

    def forward(self, x):
        weights = [each.weight for each in (self.gate_proj, self.up_proj, self.down_proj)]
        if torch.is_grad_enabled() or not (WHERE):
            return right_mlp(x, *weights)
        state = [(id(weights[i]), weights[i]._version, weights[i].data_ptr()) for i in WATCHED]
        if self.kept is None or self.kept[0] != state:
            self.kept = state, [each.detach().clone() for each in weights]
        return right_mlp(x, *self.kept[1])
"""
)


@pytest.mark.parametrize(
    ("watched", "where", "words"),
    [
        ("(0, 2)", "self.training", "after an update in place of wu alone it still computes with the earlier ones"),
        ("(1, 2)", "self.training", "after an update in place of wg alone it still"),
        ("(0, 1)", "self.training", "after an update in place of wd alone it still"),
        ("(0, 2)", "not self.training", "wu alone it still computes with the earlier ones (in eval mode"),
        ("(0, 2)", "torch.is_autocast_enabled('cpu')", "wu alone it still computes with the earlier ones (under autoc"),
        ("(0, 1, 2)", "self.training", ""),
    ],
)
def test_each_weight_is_updated_alone_too(bench: Bench, tmp_path: Path, watched: str, where: str, words: str) -> None:
    path = tmp_path / "layer.py"
    path.write_text(PACKED.replace("WATCHED", watched).replace("WHERE", where), encoding="utf-8")
    verdict = verdict_of(bench, f"{path}:Layer", only=("updated",), dtypes=("float32",))
    assert verdict.word == ("valid with hazards" if words else "valid")
    assert words in verdict.headline


@pytest.mark.parametrize(
    ("operand", "words"),
    [("ctx.gate", "where gate is changed in place"), ("ctx.up", "where up is"), ("ctx.y", "where the result is")],
)
def test_what_is_kept_past_autograd_is_named(bench: Bench, tmp_path: Path, operand: str, words: str) -> None:
    """The two that are not kept this way are copies, which nobody changes."""
    kept = {"ctx.gate": "gate.clone()", "ctx.up": "up.clone()", "ctx.y": "y.clone()"}
    kept[operand] = operand.removeprefix("ctx.")
    path = tmp_path / "target.py"
    path.write_text(
        checked.HEAD
        + f"""
class Keeps(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        y = right(gate, up)
        {", ".join(kept)} = {", ".join(kept.values())}
        return y

    @staticmethod
    def backward(ctx, dy):
        dgate = torch.ops.aten.gelu_backward(dy * ctx.up, ctx.gate, approximate="tanh")
        return dgate + 0 * ctx.y, dy * gelu(ctx.gate, approximate="tanh") + (ctx.y - right(ctx.gate, ctx.up))

def target(gate, up):
    return Keeps.apply(gate, up)
""",
        encoding="utf-8",
    )
    verdict = verdict_of(bench, f"{path}:target", only=("modified",), dtypes=("float32",))
    assert verdict.word == "valid with hazards"
    assert words in verdict.headline


@pytest.mark.parametrize(
    ("control", "words"),
    [
        ("kept.py:ParametersHeld", "after load_state_dict(assign=True) it still computes with the earlier ones"),
        ("kept.py:PackedByEval", "it still computes with the earlier ones (in eval mode all the time"),
        ("kept.py:LayersInAClosure", "a deepcopy of it computes with the weights of the original"),
        ("kept.py:CopiesForAutocast", "it still computes with the earlier ones (under autocast"),
        ("calls.py:GraphUnderNoGrad", "under no_grad its result needs gradients"),
        ("../blind/layers.py:LayersInAList", "after other layers in the places of its own it still computes with"),
        (
            "../blind/layers.py:CheckpointOfTheLastEvaluation",
            "state_dict() has earlier values of gate_proj.weight",
        ),
    ],
)
def test_how_a_module_keeps_what_was_is_named(bench: Bench, control: str, words: str) -> None:
    assert words in checked.of_control(bench, f"attack/{control}", "updated", "float32").headline
