"""`swap`: which modules of real model families it takes and refuses, what stays as it was, and what undoes it."""

from __future__ import annotations

import copy
import io
import re
import runpy
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import mlpfusion
from mlpfusion import choice_file, environment, holding
from mlpfusion.choices import Choice, Range
from mlpfusion.device import detect
from mlpfusion.errors import BackendUnavailableError, NothingSwappedError, UnknownBackendError, UsageError
from mlpfusion.models import known
from mlpfusion.models.find import Found, probe
from mlpfusion.models.swap import swap
from mlpfusion.spec import MODES, MLPSpec

pytest.importorskip("transformers")
TINY_MODELS = runpy.run_path(str(Path(__file__).with_name("tiny_models.py")))
build, inputs, logits = (TINY_MODELS[name] for name in ("build", "inputs", "logits"))

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


@pytest.mark.parametrize("family", GATED)
def test_every_gated_family_is_swapped_and_restored(family: str) -> None:
    model = build(family)
    before, keys = logits(model, family), list(model.state_dict())
    parameters = dict(model.named_parameters())
    names = [name for name, _ in model.named_modules()]
    for backend in ("eager", "triton"):
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
    ("asked", "runs"), [("gelu", "gelu_tanh"), ("gelu_pytorch_tanh", "gelu_tanh"), ("relu", "relu")]
)
def test_the_activation_that_runs_counts_not_the_configs_name(asked: str, runs: str) -> None:
    handle = swap(build("gemma", hidden_act=asked), "eager")  # Gemma's "gelu" is the tanh form
    assert {each.spec.activation for each in handle.swapped} == {runs}


@pytest.mark.parametrize("layer", ["gated-silu", "gated-relu"])
def test_t5_keeps_its_bits_where_it_has_one_operator(layer: str) -> None:
    model = build("t5", feed_forward_proj=layer)
    before = logits(model, "t5")
    with swap(model, "eager"):
        assert torch.equal(logits(model, "t5"), before)


# ---- what a gated MLP is, and what only looks like one ---------------------------------------------------------------


class Plain(nn.Module):
    """A gated MLP with room for a mistake."""

    def __init__(self, d: int = 32, h: int = 48, *, bias: bool = False) -> None:
        super().__init__()
        self.c = nn.Linear(h, d, bias=bias)
        self.a = nn.Linear(d, h, bias=bias)
        self.b = nn.Linear(d, h, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.c(functional.silu(self.a(x)) * self.b(x))
        return y


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


class Dropping(Plain):
    def forward(self, x: Tensor) -> Tensor:
        inner = functional.dropout(functional.silu(self.a(x)) * self.b(x), 0.5, self.training)
        y: Tensor = self.c(inner)
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


@pytest.mark.parametrize("kind", [Clamped, Residual, Quick, Interleaved])
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


def test_what_needs_more_than_one_tensor_is_no_mlp() -> None:
    assert probe(Attention()) is None
    with pytest.raises(NothingSwappedError, match="Attention has no gated MLP"):
        swap(Attention(), "eager")


def test_probing_leaves_no_trace() -> None:
    model = build("gemma")
    seen: list[int] = []
    for module in model.modules():
        module.register_forward_hook(lambda *_: seen.append(1))
    state = {name: value.clone() for name, value in model.state_dict().items()}
    random = torch.get_rng_state()
    handle = swap(model, "eager")
    assert torch.equal(torch.get_rng_state(), random)
    assert not seen
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert not model.training
    handle.restore()


# ---- what is refused for the state it is in --------------------------------------------------------------------------


def refusal(model: nn.Module, backend: str = "eager", **options: Any) -> str:
    with pytest.raises(NothingSwappedError) as failure:
        swap(model, backend, **options)
    return str(failure.value)


def test_dropout_is_refused_in_training_and_stopped_later() -> None:
    model = Dropping()
    assert "in training it drops out values" in refusal(model.train())
    handle = swap(model.eval(), "eager")
    model(torch.randn(2, 32))
    with pytest.raises(BackendUnavailableError, match="in training this module drops out"):
        model.train()(torch.randn(2, 32))
    handle.restore()
    model(torch.randn(2, 32))


def test_t5_without_dropout_trains() -> None:
    model = build("t5", dropout_rate=0.0).train()
    assert len(swap(model, "eager").swapped) == 4


def test_mixed_dtypes_are_refused() -> None:
    model = build("t5").bfloat16()
    for module in model.modules():
        if hasattr(module, "wo"):
            module.wo.float()  # as transformers loads T5 in half precision
    assert "its dtypes are mixed: wo is float32 where wi_0 is bfloat16" in refusal(model)


def test_weights_on_the_meta_device_are_refused() -> None:
    assert "a has no storage: it is on the meta device" in refusal(Plain().to("meta"))


def test_wrapped_and_quantised_layers_are_refused() -> None:
    class Adapter(nn.Module):
        def __init__(self, inner: nn.Linear) -> None:
            super().__init__()
            self.inner, self.in_features, self.out_features = inner, inner.in_features, inner.out_features

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.inner(x)
            return y

    class Linear4bit(nn.Linear):
        pass

    model = Plain()
    model.b = Adapter(model.b)  # type: ignore[assignment]
    assert "b is a Adapter, not a torch.nn.Linear" in refusal(model)
    model.b = Linear4bit(32, 48)
    assert "b is a Linear4bit, not a torch.nn.Linear" in refusal(model)
    model = Plain()
    nn.utils.parametrizations.weight_norm(model.a)
    assert "a is a ParametrizedLinear" in refusal(model)


def test_a_replaced_forward_is_refused() -> None:
    model = Plain()
    model.forward = model.forward  # type: ignore[method-assign]
    assert "its forward is replaced on the module itself" in refusal(model)


def test_hooks_on_layers_are_refused_by_backends_that_bypass_them() -> None:
    model, seen = Plain(), []
    model.a.register_forward_hook(lambda *_: seen.append(1))
    for backend in ("fused", "packed"):
        assert f"backend '{backend}': a has hooks, which this backend would bypass" in refusal(model, backend)
    for backend in ("eager", "triton"):
        with swap(model, backend):
            model(torch.randn(2, 32))
    assert len(seen) == 2


def test_a_backends_own_limits_are_the_reason() -> None:
    assert "backend 'fused': intermediate_size must be a multiple of 16" in refusal(Plain(32, 40), "fused")
    assert "weights of dtype 'float64' are not supported" in refusal(Plain().double())
    assert "backend 'liger'" in refusal(Plain(), "liger")


def test_gate_and_up_in_one_layer_are_refused_by_backends_that_want_two() -> None:
    class Two:
        name = "two"

        def unsupported(self, spec: object, device: object) -> str | None:
            return None

        def bind(self, mlp: Any) -> Any:
            raise AssertionError

    with pytest.raises(NothingSwappedError, match="takes gate and up as two layers, and here one layer holds both"):
        swap(build("phi3"), Two())


def test_a_second_swap_is_refused_until_the_first_is_undone() -> None:
    model = Plain()
    with swap(model, "eager"):
        assert "it is swapped already, to 'eager'" in refusal(model, "triton")
    swap(model, "triton").restore()


def test_bad_arguments() -> None:
    with pytest.raises(UnknownBackendError, match="unknown backend 'nope'"):
        swap(Plain(), "nope")
    with pytest.raises(UsageError, match="model must be a"):
        swap("gemma", "eager")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="backend must be"):
        swap(Plain(), 3)  # type: ignore[arg-type]


def chosen(*backends: str, bias: bool = False) -> Choice:
    """A choice for `Plain` here: the first backend up to 4 tokens, the second above."""
    spec = MLPSpec(hidden_size=32, intermediate_size=48, activation="silu", dtype="float32", bias=bias)
    here = detect("cpu")
    first, second = backends
    ranges = [
        Range(mode=mode, first=start, last=last, backend=name, phase="decode", measured=(start,), tie=False)
        for mode in MODES
        for start, last, name in ((1, 4, first), (5, None, second))
    ]
    return Choice(
        schema=1,
        kind="choice",
        mlpfusion="0.1.0",
        created="2026-01-01T00:00:00+00:00",
        model=known.of_sizes(spec),
        tp=1,
        spec=spec,
        clock="wall_us",
        rounds=25,
        device=here,
        environment=environment.collect(here),
        holds=holding.conditions(here, backends),
        points=(),
        ranges=tuple(ranges),
    )


def test_a_choice_says_which_backend_runs_how_many_tokens(tmp_path: Path) -> None:
    model, file = Plain(), tmp_path / "choice.json"
    few, many = torch.randn(3, 32), torch.randn(9, 32)
    expected = model(few), model(many)
    choice_file.save(chosen("eager", "triton"), file)
    for options in ({"choice": file}, {"backend": "auto", "choice": chosen("eager", "triton")}):
        with swap(model, **options) as handle:  # type: ignore[arg-type]
            assert handle.swapped[0].backend == "auto"
            assert torch.equal(model(few), expected[0])
            torch.testing.assert_close(model(many), expected[1])
    assert "the choice is for hidden_size 32" in refusal(Plain(64, 48), "auto", choice=file)
    with pytest.raises(UsageError, match="needs choice=FILE"):
        swap(model)


def test_a_choice_runs_gate_and_up_in_one_layer_if_all_its_backends_do() -> None:
    model = build("phi3")
    before = logits(model, "phi3")
    with swap(model, choice=chosen("eager", "triton")):
        torch.testing.assert_close(logits(model, "phi3"), before)
    assert "takes gate and up as two layers" in refusal(model, "auto", choice=chosen("eager", "liger"))


def test_where_limits_it() -> None:
    model = build("llama")
    assert [each.name for each in swap(model, "eager", where="*.1.mlp").swapped] == ["model.layers.1.mlp"]
    handle = swap(model, "eager", where=lambda name, module: ".0." in name)
    assert [each.name for each in handle.swapped] == ["model.layers.0.mlp"]
    assert "among those that where='nothing' leaves" in refusal(build("llama"), where="nothing")
    assert mlpfusion.swap is swap


# ---- what a model goes through afterwards ----------------------------------------------------------------------------


def test_two_models_do_not_touch_each_other() -> None:
    one, other = build("llama"), build("llama")
    kind = type(other.model.layers[0].mlp)
    with swap(one, "triton"):
        assert type(other.model.layers[0].mlp) is kind is type(one.model.layers[0].mlp).__mro__[2]
        assert type(one.model.layers[0].mlp).__name__ == kind.__name__
        assert isinstance(one.model.layers[0].mlp, kind)
    assert type(one.model.layers[0].mlp) is kind


def test_hooks_on_the_module_and_its_modes_stay() -> None:
    model, seen = build("llama"), []
    model.model.layers[0].mlp.register_forward_hook(lambda *_: seen.append("mlp"))
    with swap(model, "eager"):
        logits(model, "llama")
        assert seen == ["mlp"]
        assert not model.model.layers[0].mlp.training
        model.train()
        assert model.model.layers[0].mlp.training


@pytest.mark.parametrize("family", ["llama", "phi3", "moonshine"])
@pytest.mark.parametrize("backend", ["eager", "triton", "packed", "fused"])
def test_training_goes_the_same_way(family: str, backend: str) -> None:
    losses = []
    for swapped in (False, True):
        model = build(family)
        handle = swap(model, backend) if swapped else None
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        for _ in range(2):
            optimizer.zero_grad()
            loss = model(**inputs(family)).logits.square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert all(value.grad is not None for name, value in model.named_parameters() if "mlp" in name)
        if handle is not None:
            handle.restore()
        losses.append(logits(model, family).square().mean().item())
    assert losses[3:] == pytest.approx(losses[:3], rel=1e-5)
    assert losses[2] < losses[0]


@pytest.mark.parametrize("family", ["llama", "phi3"])
@pytest.mark.parametrize("backend", ["triton", "packed", "fused"])
def test_copies_pickles_and_loads_are_swapped_on_weights_of_their_own(family: str, backend: str) -> None:
    model = build(family)
    with swap(model, backend):
        before = logits(model, family)
        twin = copy.deepcopy(model)
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=False)
        with torch.no_grad():
            for value in model.parameters():
                value.zero_()
        for each in (twin, loaded):
            assert type(each.model.layers[0].mlp) is type(model.model.layers[0].mlp)
            torch.testing.assert_close(logits(each, family), before)
        model.load_state_dict(twin.state_dict())
        torch.testing.assert_close(logits(model, family), before)


@pytest.mark.parametrize("backend", ["triton", "packed"])
def test_save_pretrained_writes_a_plain_model(backend: str, tmp_path: Path) -> None:
    model = build("llama")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with swap(model, backend):
        model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path).state_dict()
    assert list(loaded) == list(before)
    assert all(torch.equal(value, before[name]) for name, value in loaded.items())


@pytest.mark.parametrize("family", ["gemma", "t5"])
def test_generate_with_its_cache_gives_the_same_tokens(family: str) -> None:
    model, ids = build(family), inputs(family)["input_ids"]
    options = {"max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False}
    before = model.generate(ids, **options)
    with swap(model, "triton"):
        assert torch.equal(model.generate(ids, **options), before)


def test_compiled_before_or_after() -> None:
    model, x = nn.Sequential(Plain(), Plain()).eval(), torch.randn(3, 32)
    before = model(x)
    compiled = torch.compile(model, backend="eager")
    torch.testing.assert_close(compiled(x), before)
    handle = swap(compiled, Counting())
    torch.testing.assert_close(compiled(x), before)
    assert len(Counting.calls) == 2  # code compiled before the swap is not what runs
    handle.restore()
    torch.testing.assert_close(compiled(x), before)
    assert len(Counting.calls) == 2
    swap(model, "triton")
    torch.testing.assert_close(torch.compile(model, backend="aot_eager", fullgraph=True)(x), before)


class Counting:
    """eager, and counts its calls."""

    name = "counting"
    calls: ClassVar[list[int]] = []

    def unsupported(self, spec: object, device: object) -> str | None:
        return None

    def bind(self, mlp: Any) -> Any:
        @torch.compiler.disable
        def forward(x: Tensor) -> Tensor:
            self.calls.append(1)
            y: Tensor = mlp.down_proj(functional.silu(mlp.gate_proj(x)) * mlp.up_proj(x))
            return y

        return forward


def test_an_adapter_added_later_takes_part_or_is_refused() -> None:
    class Doubled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    def doubled(linear: nn.Linear) -> nn.Linear:
        made = Doubled(linear.in_features, linear.out_features, bias=False)
        made.weight = linear.weight
        return made

    x = torch.randn(3, 32)
    model = Plain()
    with swap(model, "triton"), torch.no_grad():
        before = model(x)
        model.b = doubled(model.b)
        torch.testing.assert_close(model(x), 2 * before)
    model = Plain()
    with swap(model, "fused"):
        model.b = doubled(model.b)
        with pytest.raises(BackendUnavailableError, match=r"not a torch\.nn\.Linear"):
            model(x)


def test_another_activation_cannot_slip_in() -> None:
    model = build("llama")
    mlp = model.model.layers[0].mlp
    with swap(model, "eager"), pytest.raises(UsageError, match="'act_fn' of a swapped module cannot be replaced"):
        mlp.act_fn = nn.ReLU()
    mlp.act_fn = nn.ReLU()


def test_moved_and_cast_it_binds_anew_or_says_why_not() -> None:
    model = Plain()
    with swap(model, "fused"):
        model.half()
        assert model(torch.randn(2, 32).half()).dtype == torch.float16
        model.double()
        with pytest.raises(UsageError, match="float64"):
            model(torch.randn(2, 32).double())
    model(torch.randn(2, 32).double())


def test_restoring_what_was_wrapped_since_is_refused() -> None:
    model = Plain()
    handle = swap(model, "eager")
    model.forward = model.forward  # type: ignore[method-assign]
    with pytest.raises(UsageError, match="was replaced since the swap"):
        handle.restore()
    del model.forward
    handle.restore()
    handle.restore()
    assert type(model) is Plain
