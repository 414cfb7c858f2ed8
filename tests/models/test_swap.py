"""What `swap` refuses for the state that it is in, for the backend's limits and for its arguments."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.plain_mlp import Plain
from support.tiny_models import build
from torch import Tensor, nn
from torch.nn import functional

import mlpfusion
from mlpfusion.errors import BackendUnavailableError, NothingSwappedError, UnknownBackendError, UsageError
from mlpfusion.models.swap import swap

pytest.importorskip("transformers")


class Dropping(Plain):
    def forward(self, x: Tensor) -> Tensor:
        inner = functional.dropout(functional.silu(self.a(x)) * self.b(x), 0.5, self.training)
        y: Tensor = self.c(inner)
        return y


def refusal(model: nn.Module, backend: Any = "eager", **options: Any) -> str:
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
    model.forward = lambda x: x  # type: ignore[method-assign]
    assert "its forward is replaced on the module itself" in refusal(model)


class Broken:
    """A third party's backend with a mistake in one of its methods."""

    name = "broken"

    def __init__(self, where: str) -> None:
        self.where = where

    def unsupported(self, spec: object, device: object) -> str | None:
        if self.where == "unsupported":
            raise KeyError("boom")
        return None

    def bind(self, mlp: Any) -> Any:
        raise ValueError("boom\nand more")


@pytest.mark.parametrize(("where", "said"), [("unsupported", "KeyError: 'boom'"), ("bind", "ValueError: boom")])
def test_a_backends_own_error_names_it_and_the_module(where: str, said: str) -> None:
    model = nn.Sequential(Plain())
    assert f"1 refused: 0 (Plain): backend 'broken' failed: {said}" in refusal(model, Broken(where))
    assert type(model[0]) is Plain


@pytest.mark.parametrize("shape", [(1, 1, 32), (1, 32, 1), (3, 1, 32)])
def test_three_tokens_of_a_model_are_no_experts(shape: tuple[int, ...]) -> None:
    model = Plain()
    for name in ("cls", "mask", "dist"):
        model.register_parameter(name, nn.Parameter(torch.zeros(shape)))
    assert len(swap(model, "eager").swapped) == 1


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


def test_where_limits_it() -> None:
    model = build("llama")
    assert [each.name for each in swap(model, "eager", where="*.1.mlp").swapped] == ["model.layers.1.mlp"]
    handle = swap(model, "eager", where=lambda name, module: ".0." in name)
    assert [each.name for each in handle.swapped] == ["model.layers.0.mlp"]
    assert "among those that where='nothing' leaves" in refusal(build("llama"), where="nothing")
    assert mlpfusion.swap is swap
