"""`prove`: what it says of a right swap, what it finds in a wrong one, and what it leaves as it was."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import torch
from support.plain_mlp import Plain
from support.tiny_models import build, inputs
from torch import Tensor, nn
from torch.nn import functional

from mlpfusion.cli import main
from mlpfusion.errors import BackendUnavailableError, UsageError
from mlpfusion.models.swap import swap
from mlpfusion.models.watched import Watched
from mlpfusion.records.proof import Proof
from mlpfusion.report.proof import render
from mlpfusion.stages.prove.run import prove

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytest.importorskip("transformers")


class Backend:
    """eager through a function that a test gives."""

    name = "mine"

    def __init__(self, act_mul: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.act_mul = act_mul

    def unsupported(self, spec: object, device: object) -> str | None:
        return None

    def bind(self, mlp: Any) -> Callable[[Tensor], Tensor]:
        return lambda x: mlp.down_proj(self.act_mul(mlp.gate_proj(x), mlp.up_proj(x)))


@pytest.fixture(scope="module")
def proof() -> Proof:
    with swap(build("gemma"), "triton") as handle:
        return prove(handle, inputs("gemma"))


def test_a_right_swap_holds(proof: Proof) -> None:
    assert proof.holds
    assert proof.logits.top1 == 1.0
    assert proof.logits.kl_max < 1e-12
    assert proof.logits.positions == 14
    assert proof.logits.accuracy is not None
    assert proof.logits.accuracy.ratio < 2
    assert proof.loss is not None
    assert proof.loss.fp64 is not None
    assert proof.loss.swapped == pytest.approx(proof.loss.fp64, abs=1e-5)
    assert proof.gradients is not None
    assert proof.gradients.accuracy is not None
    assert proof.gradients.tensors == 20
    assert [each.name for each in proof.layers] == ["model.layers.0.mlp", "model.layers.1.mlp"]
    assert set(proof.reasons) == {"speed", "memory", "kernels"}


def test_it_is_json_both_ways_and_text_in_two_forms(proof: Proof) -> None:
    assert msgspec.json.decode(render(proof, "json"), type=Proof) == proof
    text, markdown = render(proof), render(proof, "github")
    for part in ("holds: 4 parts judged", "gradients", "model.layers.1.mlp", proof.policy, "interpreter computes but"):
        assert part in text
        assert part in markdown
    assert "**policy**" in markdown
    with pytest.raises(UsageError, match="valid: text, github, csv, json"):
        render(proof, "html")


def test_the_same_bits_have_no_difference() -> None:
    with swap(build("llama"), "eager") as handle:
        proof = prove(handle, inputs("llama"), rounds=6)
    assert proof.logits.difference.max_error == 0
    assert proof.logits.kl_mean == 0
    assert proof.gradients is not None
    assert proof.gradients.difference.max_error == 0
    assert proof.speed is not None
    assert proof.speed.clock == "wall_us"
    assert proof.speed.original.n == proof.speed.swapped.n == proof.speed.without.n == 6
    assert proof.speed.ratio is not None
    assert {each.name for each in proof.kernels} >= {"aten::silu"}
    assert all(each.original == each.swapped for each in proof.kernels)
    assert proof.holds
    assert "n = 6" in render(proof) or "6 rounds" in render(proof) or "6 interleaved rounds" in render(proof)


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (lambda gate, up: functional.gelu(gate) * up, "the other GELU"),
        (lambda gate, up: functional.gelu(gate, approximate="tanh") * up * (1 + 1e-5), "a factor"),
        (lambda gate, up: (functional.gelu(gate, approximate="tanh") * up).bfloat16().float(), "a rounding"),
        (lambda gate, up: functional.gelu(gate, approximate="tanh") * up.detach(), "a lost gradient"),
    ],
)
def test_a_wrong_backend_fails_by_the_part_that_is_wrong(wrong: Any, what: str) -> None:
    with swap(build("gemma"), Backend(wrong), where="*.1.mlp") as handle:
        proof = prove(handle, inputs("gemma"), rounds=0, trace=False)
    assert not proof.holds, what
    failed = " ".join(proof.failures)
    assert ("model.layers.1.mlp: " in failed) == (what != "a lost gradient")
    assert "gradients" in failed
    assert "model.layers.0.mlp" not in failed
    assert "fails: " in render(proof)


def test_nan_is_a_failure() -> None:
    with swap(build("gemma"), Backend(lambda gate, up: gate * math.nan)) as handle:
        proof = prove(handle, inputs("gemma"), rounds=0, trace=False)
    assert len(proof.failures) == 5
    assert any("not the same parameters get one" in each for each in proof.failures)
    assert proof.logits.difference.max_error is None
    assert "nan or inf" in render(proof)


def test_a_backend_that_does_not_run_is_seen_in_the_trace() -> None:
    honest = Backend(lambda gate, up: functional.gelu(gate, approximate="tanh") * up)
    with swap(build("gemma"), honest) as handle:
        assert prove(handle, inputs("gemma"), rounds=0, fp64=False).failures == (
            "kernels: the trace shows the same ones with 'mine' as before",
        )


def test_a_backend_for_inference_has_no_gradients() -> None:
    def act_mul(gate: Tensor, up: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            raise BackendUnavailableError("mine", "it is for inference")
        return functional.gelu(gate, approximate="tanh").mul_(up)

    with swap(build("gemma"), Backend(act_mul)) as handle:
        proof = prove(handle, inputs("gemma"), rounds=0, trace=False)
    assert proof.gradients is None
    assert proof.reasons["gradients"].endswith("mlp: it is for inference")
    assert proof.logits.accuracy is not None


def test_it_leaves_the_model_as_it_was() -> None:
    model = build("phi3").train()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    hooks = sum(len(module._forward_pre_hooks) for module in model.modules())
    model.lm_head.weight.grad = torch.ones_like(model.lm_head.weight)
    handle = swap(model, "triton")
    classes = [type(module) for module in model.modules()]
    prove(handle, inputs("phi3"), fp64=False)
    assert [type(module) for module in model.modules()] == classes
    assert model.training
    assert sum(len(module._forward_pre_hooks) for module in model.modules()) == hooks
    assert bool((model.lm_head.weight.grad == 1).all())
    assert all(value.grad is None for name, value in model.named_parameters() if "mlp" in name)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


def test_without_fp64_of_the_model_each_mlp_is_judged() -> None:
    with swap(build("gemma"), Backend(lambda gate, up: functional.gelu(gate) * up)) as handle:
        proof = prove(handle, inputs("gemma"), rounds=0, fp64=False, trace=False)
    assert proof.reasons["fp64"] == "not requested"
    assert proof.logits.accuracy is None
    assert len(proof.failures) == 2


def test_a_model_of_one_tensor_is_called_by_position() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(16, 32), nn.Linear(16, 32), nn.Linear(32, 16)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.c(functional.silu(self.a(x)) * self.b(x))
            return y

    with swap(Block(), "eager") as handle:
        proof = prove(handle, torch.randn(2, 5, 16), rounds=6, mode="training", trace=False)
    assert proof.holds
    assert proof.mode == "training"
    assert proof.speed is not None


def test_bad_arguments() -> None:
    handle = swap(build("llama"), "eager")
    with pytest.raises(UsageError, match="unknown mode 'fast'"):
        prove(handle, inputs("llama"), mode="fast")
    with pytest.raises(UsageError, match="rounds must be"):
        prove(handle, inputs("llama"), rounds=-1)
    handle.restore()
    with pytest.raises(UsageError, match="it was restored"):
        prove(handle, inputs("llama"))


# ---- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    build("gemma").save_pretrained(folder)
    return folder


def test_the_command_reads_weights_and_says_what_it_found(saved: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "proof.json"
    command = ["prove", str(saved), "--backend", "triton", "--seq", "8", "--device", "cpu", "--json", str(out)]
    assert main.main([*command, "--format", "github"]) == 0
    shown = capsys.readouterr()
    assert "- **model**: GemmaForCausalLM, 17,568 parameters" in shown.out
    assert "2 swapped, 0 refused" in shown.err
    proof = msgspec.json.decode(out.read_bytes(), type=Proof)
    assert render(proof, "github") == shown.out
    assert json.loads(out.read_text())["kind"] == "proof"
    assert main.main(command) == 0  # a proof may be replaced by another


def test_layers_and_a_config_alone_build_a_random_model(saved: Path, capsys: Any) -> None:
    arguments = ["--backend", "triton", "--layers", "1", "--seq", "4", "--dtype", "fp16", "--no-fp64"]
    assert main.main(["prove", str(saved / "config.json"), *arguments, "--device", "cpu"]) == 0
    assert "swapped   1 gated MLP to triton: 32 x 48, gelu_tanh, float16" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (["nowhere", "--backend", "eager"], "model 'nowhere' does not exist", 2),
        (["{saved}", "--backend", "nope"], "unknown backend 'nope'", 2),
        (["{saved}", "--backend", "eager", "--layers", "9"], "--layers is 9, and the model has 2", 2),
        (["{saved}", "--backend", "eager", "--seq", "0"], "--seq must be an integer from 1 to 2147483647", 2),
        (["{saved}", "--backend", "eager", "--format", "html"], "valid: text, github, csv, json", 2),
        (["{saved}", "--backend", "eager", "--where", "x"], "nothing was swapped", 1),
        (["{saved}", "--backend", "eager", "--json", "{saved}/config.json"], "holds no 'proof'", 2),
    ],
)
def test_what_is_wrong_is_one_line(arguments: list[str], said: str, code: int, saved: Path, capsys: Any) -> None:
    typed = [each.replace("{saved}", str(saved)) for each in arguments]
    assert main.main(["prove", *typed, "--device", "cpu"]) == code
    last = capsys.readouterr().err.splitlines()[-1]
    assert said in last
    assert last.startswith("mlpfusion: ")


class Optional(Plain):
    """An MLP that is also called with more than x."""

    def forward(self, x: Tensor, more: Tensor | None = None) -> Tensor:
        y = super().forward(x)
        return y if more is None else y + more


class Buffered(Plain):
    """An MLP with a buffer, whose own forward runs where it is compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.scale


class Model(nn.Module):
    """A model of one MLP, which it calls as a test says."""

    def __init__(self, mlp: nn.Module, call: Callable[[Any, Tensor], Tensor] = lambda mlp, x: mlp(x)) -> None:
        super().__init__()
        self.embed, self.mlp, self.head = nn.Embedding(64, 32), mlp, nn.Linear(32, 64, bias=False)
        self.call = call

    def forward(self, ids: Tensor) -> Tensor:
        y: Tensor = self.head(self.call(self.mlp, self.embed(ids)))
        return y


OWN, NONE = r"mlp: its own forward ran, and not the backend", r"the model calls none of the swapped modules"


@pytest.mark.parametrize("compiled", [None, "eager", "inductor"])
@pytest.mark.parametrize(
    ("model", "said"),
    [
        (lambda: Model(Plain()), None),
        (lambda: Model(Optional(), lambda mlp, x: mlp(x=x)), None),
        (lambda: Model(Optional(), lambda mlp, x: mlp(x) + mlp(x, x)), None),
        (lambda: Model(Optional(), lambda mlp, x: mlp(x, x)), OWN),
        (lambda: Model(Plain(), lambda mlp, x: mlp.c(functional.silu(mlp.a(x)) * mlp.b(x))), NONE),
        (lambda: Model(Plain(), lambda mlp, x: x), NONE),
    ],
    ids=["right", "named", "with more too", "with more", "its layers", "never"],
)
def test_it_fails_where_the_backend_does_not_run(
    model: Callable[[], nn.Module], said: str | None, compiled: str | None
) -> None:
    made = model().eval()
    torch.compiler.reset()
    if compiled:
        made.compile(backend=compiled)
    with swap(made, "triton") as handle:
        found = prove(handle, torch.arange(8)[None], rounds=0, trace=False)
    assert found.holds is (said is None), found.failures
    assert said is None or re.search(said, " ".join(found.failures))


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.filterwarnings("ignore:mlp. compiled code runs its own forward:UserWarning")
def test_it_fails_where_compiled_code_runs_a_modules_own_forward(before: bool) -> None:
    model, ids = Model(Buffered()).eval(), torch.arange(8)[None]
    torch.compiler.reset()
    with swap(model, "triton") as handle:
        model.compile(backend="eager")
        if before:
            model(ids)
        found = prove(handle, ids, rounds=0, trace=False)
        assert OWN in found.failures
        model._compiled_call_impl = None
        assert prove(handle, ids, rounds=0, trace=False).holds


def test_it_fails_where_a_module_wrongly_seems_to_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Watched, "changed_traced", lambda *_: "act")
    model, ids = Model(Plain()).eval(), torch.arange(8)[None]
    torch.compiler.reset()
    with swap(model, "triton") as handle:
        model.compile(backend="eager")
        with pytest.warns(UserWarning, match="compiled code runs its own forward"):
            found = prove(handle, ids, rounds=0, trace=False)
        assert OWN in found.failures
