"""Which modules `swap` takes: the gated MLPs of real model families and of none, and what only looks like one."""

from __future__ import annotations

import re

import pytest
import torch
from support.plain_mlp import Plain
from support.tiny_models import build, logits
from torch import Tensor, nn
from torch.nn import functional

from mlpfusion.errors import NothingSwappedError
from mlpfusion.models.find import Found, probe
from mlpfusion.models.swap import swap
from mlpfusion.spec import TABLE

pytest.importorskip("transformers")

# Family: how many MLPs of its tiny model are gated, with which activation.
GATED = {
    "gemma": (2, "gelu_tanh"),
    "gemma2": (2, "gelu_tanh"),
    "gemma3_text": (2, "gelu_tanh"),
    "gemma3n": (1, "gelu_tanh"),
    "gemma4_text": (2, "gelu_tanh"),
    "llama": (2, "silu"),
    "qwen2": (2, "silu"),
    "qwen3": (2, "silu"),
    "mistral": (2, "silu"),
    "phi3": (2, "silu"),
    "glm4": (2, "silu"),
    "moonshine": (2, "silu"),
    "t5": (4, "gelu_tanh"),
    "olmo2": (2, "silu"),
    "smollm3": (2, "silu"),
    "granite": (2, "silu"),
    "lfm2": (2, "silu"),
    "modernbert": (2, "gelu"),
}
REFUSED = {
    "starcoder2": r"not gated: c_fc feeds c_proj",
    "gpt2": r"not gated: c_fc feeds c_proj",
    "nemotron": r"not gated: up_proj feeds down_proj",
    "bitnet": r"extra maths; it has .*BitNetRMSNorm \(ffn_sub_norm\)",
    "apertus": r"not gated: up_proj feeds down_proj",
    "falcon_h1": r"extra maths; it has .*gate_multiplier = 0\.5, down_multiplier = 2\.0",
    "mixtral": r"experts are 3-D parameters \(gate_up_proj, down_proj\)",
    "qwen3_moe": r"experts are 3-D parameters \(gate_up_proj, down_proj\)",
    "gpt_oss": r"experts are 3-D parameters \(gate_up_proj, down_proj\)",
}
TINY = 5e-6  # fp32 logits of size 1 after two layers; seen: up to 1.4e-6


@pytest.mark.parametrize("backend", ["eager", "triton"])
@pytest.mark.parametrize("family", GATED)
def test_every_gated_family_is_swapped_and_restored(family: str, backend: str) -> None:
    model = build(family)
    before, keys = logits(model, family), list(model.state_dict())
    parameters = dict(model.named_parameters())
    names = [name for name, _ in model.named_modules()]
    handle = swap(model, backend)
    number, activation = GATED[family]
    assert len(handle.swapped) == number
    assert {each.spec.activation for each in handle.swapped} == {activation}
    assert list(model.state_dict()) == keys
    assert [name for name, _ in model.named_modules()] == names
    assert all(value is parameters[name] for name, value in model.named_parameters())
    after = logits(model, family)
    if backend == "eager" and family != "t5":  # T5 spells its tanh GELU out, eager has one operator for it
        assert torch.equal(after, before)
    assert (after - before).abs().max() < TINY
    handle.restore()
    assert torch.equal(logits(model, family), before)
    assert not [name for module in model.modules() for name in vars(module) if name.startswith("_mlpfusion")]


@pytest.mark.parametrize("family", REFUSED)
def test_other_families_are_refused_with_the_reason(family: str) -> None:
    with pytest.raises(NothingSwappedError, match="2 refused") as failure:
        swap(build(family), "eager")
    assert len(failure.value.refused) == 2
    for each in failure.value.refused:
        assert re.search(REFUSED[family], each.reason), each


def test_one_class_holds_layers_that_are_taken_and_layers_that_are_not() -> None:
    handle = swap(build("gemma3n"), "eager")
    assert [each.name for each in handle.swapped] == ["model.layers.1.mlp"]
    sparse = next(each for each in handle.refused if each.name == "model.layers.0.mlp")
    assert sparse.kind == handle.swapped[0].kind == "Gemma3nTextMLP"
    assert "activation_sparsity = 0.95" in sparse.reason


def test_multipliers_of_one_are_no_extra_maths() -> None:
    assert len(swap(build("falcon_h1", mlp_multipliers=[1.0, 1.0]), "eager").swapped) == 2


@pytest.mark.parametrize(
    ("asked", "runs"),
    [(row.hidden_act, "gelu_tanh" if row.name == "gelu" else row.name) for row in TABLE],  # as a first Gemma runs it
)
def test_the_activation_that_runs_counts_not_the_configs_name(asked: str, runs: str) -> None:
    model = build("gemma", hidden_act=asked)
    if model.config.hidden_act == "gelu":  # a transformers of before Gemma's legacy "gelu" was the tanh form
        runs = "gelu"
    handle = swap(model, "eager")
    assert {each.spec.activation for each in handle.swapped} == {runs}


@pytest.mark.parametrize("layer", ["gated-silu", "gated-relu"])
def test_t5_keeps_its_bits_where_it_has_one_operator(layer: str) -> None:
    model = build("t5", feed_forward_proj=layer)
    before = logits(model, "t5")
    with swap(model, "eager"):
        assert torch.equal(logits(model, "t5"), before)


# ---- what a gated MLP is, and what only looks like one ---------------------------------------------------------------


class Clamped(Plain):
    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.c(functional.silu(self.a(x).clamp(max=500.0)) * self.b(x))
        return y


class Residual(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(x)


class Quick(Plain):
    def forward(self, x: Tensor) -> Tensor:
        gate = self.a(x)
        y: Tensor = self.c(gate * torch.sigmoid(1.702 * gate) * self.b(x))
        return y


class Crossed(Plain):
    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.c(functional.silu(self.b(x)) * self.a(x))
        return y


class Sized(Plain):
    """Knows its own size, so it runs with no other."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.c((functional.silu(self.a(x)) * self.b(x)).view(*x.shape[:-1], 48))
        return y


class Interleaved(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.both, self.out = nn.Linear(32, 96), nn.Linear(48, 32)

    def forward(self, x: Tensor) -> Tensor:
        both = self.both(x)
        y: Tensor = self.out(functional.silu(both[..., ::2]) * both[..., 1::2])
        return y


class Attention(Plain):
    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        return super().forward(x) + position


class Stopped(Plain):
    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.c(functional.silu(self.a(x)) * self.b(x).detach())
        return y


class Frozen(Plain):
    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)


def test_gradients_of_its_own_are_refused_unless_there_are_none() -> None:
    with pytest.raises(NothingSwappedError, match=r"a gated MLP \(silu\) with custom gradients"):
        swap(Stopped(), "eager")
    with torch.inference_mode():
        assert len(swap(Frozen(), "eager").swapped) == 1
        with pytest.raises(NothingSwappedError, match="with custom gradients"):
            swap(Stopped(), "eager")


def test_what_is_written_out_is_found_by_its_values() -> None:
    assert swap(Quick(), "eager").swapped[0].spec.activation == "quick_gelu"


@pytest.mark.parametrize("kind", [Clamped, Residual, Interleaved])
def test_extra_maths_is_refused(kind: type[nn.Module]) -> None:
    with pytest.raises(NothingSwappedError, match="extra maths"):
        swap(kind(), "eager")


@pytest.mark.parametrize(("d", "h"), [(32, 48), (32, 32), (64, 32), (32, 64), (1, 1), (1, 2), (7, 3)])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("kind", "gate"), [(Plain, "a"), (Crossed, "b")])
def test_roles_are_found_whatever_the_sizes(d: int, h: int, bias: bool, kind: type[Plain], gate: str) -> None:
    found = probe(kind(d, h, bias=bias))
    assert isinstance(found, Found)
    assert found.layers == {"gate": gate, "up": "ab".replace(gate, ""), "down": "c"}


def test_a_module_that_knows_its_size_is_run_with_it() -> None:
    assert isinstance(probe(Sized()), Found)


class Scaled(Plain):
    """Multiplies by a parameter, or only has one."""

    def __init__(self, used: bool) -> None:
        super().__init__()
        self.scale, self.used = nn.Parameter(torch.tensor(2.0)), used
        self.register_buffer("other", torch.tensor(3.0))

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return y * self.scale + self.other if self.used else y


@pytest.mark.parametrize(
    "module", [Plain(), Plain(bias=True).half(), Scaled(used=True)], ids=["plain", "half", "other"]
)
def test_the_default_device_makes_no_difference(module: nn.Module) -> None:
    expected = probe(module)
    with torch.device("meta"):
        assert probe(module) == expected


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_parameters_and_buffers_without_dimensions_are_run_too(device: str) -> None:
    assert isinstance(probe(Scaled(used=False).to(device)), Found)
    assert "extra maths; it has a parameter scale" in probe(Scaled(used=True).to(device)).reason


def test_what_needs_more_than_one_tensor_is_no_mlp() -> None:
    assert probe(Attention()) is None
    with pytest.raises(NothingSwappedError, match="Attention has no gated MLP"):
        swap(Attention(), "eager")


def test_probing_leaves_no_trace() -> None:
    model = build("gemma")
    seen: list[int] = []
    for name, module in model.named_modules():
        if not name.endswith("act_fn"):  # hooks there are refused
            module.register_forward_hook(lambda *_: seen.append(1))
    state = {name: value.clone() for name, value in model.state_dict().items()}
    random = torch.get_rng_state()
    handle = swap(model, "eager")
    assert torch.equal(torch.get_rng_state(), random)
    assert not seen
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert not model.training
    handle.restore()
