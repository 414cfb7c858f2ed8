"""`restore`: a swapped model gets its own forwards back without a handle, all of them or none."""

from __future__ import annotations

import copy
import io
import pickle
from typing import TYPE_CHECKING

import pytest
import torch
from support.plain_mlp import Plain
from support.tiny_models import build, logits, skip_unless_picklable
from torch import nn

from mlpfusion import UsageError, restore, swap
from mlpfusion.stages.prove.run import prove

if TYPE_CHECKING:
    from collections.abc import Callable

pytest.importorskip("transformers")
LAYERS = ("model.layers.0.mlp", "model.layers.1.mlp")


def deepcopied(model: nn.Module) -> nn.Module:
    return copy.deepcopy(model)


def pickled(model: nn.Module) -> nn.Module:
    found: nn.Module = pickle.loads(pickle.dumps(model))
    return found


def saved(model: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    found: nn.Module = torch.load(file, weights_only=False)
    return found


def kinds(model: nn.Module) -> list[type]:
    return [type(module) for module in model.modules()]


def traces(model: nn.Module) -> list[str]:
    """What a swap leaves on modules."""
    return [name for module in model.modules() for name in vars(module) if name.startswith("_mlpfusion")]


@pytest.mark.parametrize("family", ["llama", "phi3"])
@pytest.mark.parametrize("backend", ["eager", "triton", "packed", "fused"])
@pytest.mark.parametrize("made", [deepcopied, pickled, saved])
def test_a_copy_is_restored_and_the_original_stays_swapped(
    family: str, backend: str, made: Callable[[nn.Module], nn.Module]
) -> None:
    model = build(family)
    if made is not deepcopied:
        skip_unless_picklable(model)
    before, own = logits(model, family), kinds(model)
    handle = swap(model, backend)
    swapped = logits(model, family)
    twin = made(model)
    assert restore(twin) == LAYERS
    assert kinds(twin) == own
    assert not traces(twin)
    assert torch.equal(logits(twin, family), before)
    assert list(twin.state_dict()) == list(model.state_dict())
    assert len(handle.modules) == 2
    assert kinds(model) != own
    assert torch.equal(logits(model, family), swapped)
    handle.restore()
    assert kinds(model) == own


def test_it_restores_what_several_swaps_did_and_only_within_the_given_module() -> None:
    model = build("llama")
    before, own = logits(model, "llama"), kinds(model)
    swap(model, "triton", where="*.0.mlp")
    swap(model, "packed", where="*.1.mlp")
    assert restore(model.model.layers[0]) == ("mlp",)
    assert restore(model.model.layers[1].mlp) == ("",)
    assert kinds(model) == own
    swap(model, "triton", where="*.0.mlp")
    swap(model, "packed", where="*.1.mlp")
    assert restore(nn.ModuleDict({"inner": nn.ModuleList([model])})) == tuple(f"inner.0.{name}" for name in LAYERS)
    assert kinds(model) == own
    assert torch.equal(logits(model, "llama"), before)


def test_what_it_cannot_restore_is_one_line() -> None:
    model = Plain()
    with pytest.raises(UsageError, match=r"^nothing is swapped in this Plain: there is nothing to restore$"):
        restore(model)
    handle = swap(model, "eager")
    with pytest.raises(UsageError, match=r"^model must be a torch\.nn\.Module, got a Handle$"):
        restore(handle)  # type: ignore[arg-type]
    restore(model)
    with pytest.raises(UsageError, match="nothing is swapped"):
        restore(model)


def test_one_that_was_wrapped_since_keeps_all_of_them_swapped() -> None:
    model = nn.Sequential(Plain(), Plain())
    handle = swap(model, "eager")
    swapped = kinds(model)
    model[1].forward = lambda x: x
    for way in (restore, lambda _: handle.restore()):
        with pytest.raises(UsageError, match=r"^the forward of '1' was replaced since the swap; undo that first$"):
            way(model)
        assert kinds(model) == swapped
    del model[1].forward
    model[1].__class__ = type("Wrapped", (type(model[1]),), {})
    for way in (restore, lambda _: handle.restore()):
        with pytest.raises(UsageError, match=r"'1' is a .*\.Wrapped now, wrapped since the swap"):
            way(model)
        assert type(model[0]) is swapped[1]
    model[1].__class__ = swapped[1]
    assert restore(model) == ("0", "1")


def test_a_handle_knows_of_it() -> None:
    model = nn.Sequential(Plain(), Plain())
    x = torch.randn(3, 32)
    before, own = model(x), kinds(model)
    with swap(model, "packed") as handle:
        restore(model[0])
        assert handle.modules == [model[1]]
        with handle.paused():
            assert kinds(model) == own
        assert type(model[0]) is Plain is not type(model[1])
        with pytest.raises(UsageError, match="1 of the handle's 2 modules are not swapped now: it was restored"):
            prove(handle, x)
        restore(model)
        assert handle.modules == []
        with handle.skipped():
            assert torch.equal(model(x), before)
    handle.restore()
    assert kinds(model) == own
    other = swap(model, "triton")
    handle.restore()  # the new swap is none of its own
    assert len(other.modules) == 2
    other.restore()
    with pytest.raises(UsageError, match="nothing is swapped"):
        restore(model)


@pytest.mark.parametrize("way", ["paused", "skipped"])
def test_within_a_pause_it_restores_for_good(way: str) -> None:
    model = nn.Sequential(Plain(), Plain())
    x = torch.randn(3, 32)
    before, own = model(x), kinds(model)
    handle = swap(model, "packed")
    with getattr(handle, way)():
        twin = copy.deepcopy(model)
        assert restore(model) == ("0", "1")
        assert torch.equal(model(x), before)
    assert kinds(model) == own
    assert not traces(model)
    assert restore(twin) == ("0", "1")
    assert torch.equal(twin(x), before)
    assert not traces(twin)


def test_a_pause_in_a_pause_ends_as_it_began() -> None:
    model = Plain()
    handle = swap(model, "eager")
    swapped = type(model)
    with handle.paused():
        with handle.skipped():
            assert type(model) not in {Plain, swapped}
        assert type(model) is Plain
    assert type(model) is swapped


def test_a_copy_of_model_and_handle_belongs_together() -> None:
    model, x = Plain(), torch.randn(3, 32)
    handle = swap(model, "packed")
    twin, its = copy.deepcopy((model, handle))
    its.restore()
    assert type(twin) is Plain is not type(model)
    assert torch.equal(twin(x), restore(model) and model(x))


def test_what_the_backend_held_is_let_go() -> None:
    model = Plain()
    handle = swap(model, "packed")
    view = model._mlpfusion_view
    assert view._call is not None
    restore(model)
    assert view._call is None
    assert handle.modules == []


@pytest.mark.parametrize("backend", ["eager", "triton", "packed"])
@pytest.mark.parametrize("twice", [False, True])
def test_a_device_map_stays_in_place(backend: str, twice: bool) -> None:
    accelerate = pytest.importorskip("accelerate")
    model = build("llama")
    before = logits(model, "llama")
    places = dict.fromkeys(("model.embed_tokens", "model.norm", "model.rotary_emb", "lm_head", "model.layers"), "cpu")
    accelerate.dispatch_model(model, places, main_device="cpu", force_hooks=True)
    own = model.model.layers[0].mlp._old_forward.__func__
    swap(model, backend)
    restored = copy.deepcopy(model) if twice else model
    restore(restored)
    mlp, seen = restored.model.layers[0].mlp, []
    assert mlp._old_forward.__func__ is own
    assert mlp._old_forward.__self__ is mlp
    mlp._hf_hook.pre_forward = lambda module, *args, **kwargs: seen.append(module) or (args, kwargs)
    assert torch.equal(logits(restored, "llama"), before)
    assert seen == [mlp]
