"""What a swapped model goes through: training, copies, files, generation, compilation, changes and the way back."""

from __future__ import annotations

import copy
import io
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
import torch
from support.plain_mlp import Plain
from support.tiny_models import build, inputs, logits, skip_unless_picklable
from torch import Tensor, nn
from torch.nn import functional

from mlpfusion.errors import BackendUnavailableError, UsageError
from mlpfusion.models.swap import swap

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("transformers")


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
    skip_unless_picklable(model)
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


@pytest.mark.parametrize(
    "family",
    [
        "gemma",
        "phi3",
        "t5",
        *(
            pytest.param(each, marks=pytest.mark.full)
            for each in (
                "gemma2",
                "gemma3_text",
                "gemma3n",
                "gemma4_text",
                "llama",
                "qwen2",
                "qwen3",
                "mistral",
                "glm4",
                "moonshine",
                "olmo2",
                "smollm3",
                "granite",
                "lfm2",
                "modernbert",
            )
        ),
    ],
)
def test_compiled_the_backend_runs_every_swapped_module(family: str) -> None:
    model, graphs = build(family), []

    def kept(graph: torch.fx.GraphModule, _: object) -> Any:
        graphs.append(graph.code)
        return graph.forward

    handle = swap(model, "triton")
    torch.compiler.reset()
    with torch.no_grad():
        torch.compile(model, backend=kept)(**inputs(family))
    assert sum(graph.count("mlpfusion_kernels.act_mul") for graph in graphs) == len(handle.swapped) > 0


@pytest.mark.parametrize("compiled", [None, "the model", "each layer"])
def test_calls_of_backends_are_noted(compiled: str | None) -> None:
    model, x, graphs = nn.Sequential(*(Plain() for _ in range(12))).eval(), torch.randn(3, 32), []

    def kept(graph: torch.fx.GraphModule, _: object) -> Any:
        graphs.append(graph)
        return graph.forward

    torch.compiler.reset()
    with swap(model, "triton") as handle, torch.no_grad():
        for part in [model] if compiled == "the model" else model if compiled else ():
            part.compile(backend=kept)
        model(x)
        before = len(graphs)
        with handle.noting() as ran:
            noted = model(x)
        assert {name: len(calls) for name, calls in ran.items()} == {str(place): 1 for place in range(12)}
        assert len(graphs) == 2 * before
        torch.testing.assert_close(model(x), noted)
        assert len(graphs) == 2 * before
        assert all(len(calls) == 1 for calls in ran.values())


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


@pytest.mark.parametrize("backend", ["eager", "triton", "packed", "fused"])
@pytest.mark.parametrize("order", [("a", "b", "c"), ("c", "b", "a"), ("b", "c", "a")])
def test_narrower_layers_set_one_by_one(backend: str, order: tuple[str, ...]) -> None:
    model, x = Plain(), torch.randn(3, 32)
    own, narrow = Plain(), Plain(h=16)
    with swap(model, backend):
        for name in order[:2]:
            setattr(model, name, getattr(narrow, name))
        with pytest.raises((BackendUnavailableError, RuntimeError, ValueError), match="48"):
            model(x)
        setattr(model, order[2], getattr(narrow, order[2]))
        torch.testing.assert_close(model(x), narrow(x))
        assert model._mlpfusion_view.spec.intermediate_size == 16
        for name in order:
            setattr(model, name, getattr(own, name))
        torch.testing.assert_close(model(x), own(x))


def test_restoring_what_was_wrapped_since_is_refused() -> None:
    model = Plain()
    handle = swap(model, "eager")
    model.forward = lambda x: x  # type: ignore[method-assign]
    with pytest.raises(UsageError, match="was replaced since the swap"):
        handle.restore()
    del model.forward
    handle.restore()
    handle.restore()
    assert type(model) is Plain
