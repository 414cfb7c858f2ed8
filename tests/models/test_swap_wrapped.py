"""`swap` with what else changes a model: data parallelism, sharding, device maps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.plain_mlp import Plain
from support.tiny_models import build, inputs, logits
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from mlpfusion.errors import BackendUnavailableError, NothingSwappedError, UsageError
from mlpfusion.models.swap import swap

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest.importorskip("transformers")
BACKENDS = ("eager", "triton", "fused", "packed")


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A process group of this process alone."""
    file = tmp_path_factory.mktemp("group") / "store"
    distributed.init_process_group("gloo", init_method=f"file://{file}", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.fixture(scope="module")
def expected() -> list[Tensor]:
    return step(build("llama"))


def step(model: nn.Module) -> list[Tensor]:
    """The loss and all gradients of one backward."""
    loss = model(**inputs("llama")).logits.square().mean()
    loss.backward()
    grads = [value.grad for value in model.parameters()]
    return [loss.detach(), *(grad.full_tensor() if hasattr(grad, "full_tensor") else grad for grad in grads)]


def close(found: list[Tensor], expected: list[Tensor]) -> bool:
    return all(torch.allclose(a, b, atol=1e-7) for a, b in zip(found, expected, strict=True))


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("first", ["swap", "wrap"])
def test_data_parallel(backend: str, first: str, expected: list[Tensor]) -> None:
    model = build("llama")
    wrapped = DistributedDataParallel(model) if first == "wrap" else None
    handle = swap(wrapped or model, backend)
    wrapped = wrapped or DistributedDataParallel(model)
    reduced: list[int] = []

    def count(state, bucket):  # type: ignore[no-untyped-def] # annotations would have to be types, not their names
        reduced.append(len(bucket.gradients()))
        done: torch.futures.Future[Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    wrapped.register_comm_hook(None, count)
    assert close(step(wrapped), expected)
    assert sum(reduced) == len(list(model.parameters()))  # every gradient went through its hook
    handle.restore()


def sharded(model: Any) -> Any:
    mesh = init_device_mesh("cpu", (1,))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("backend", ["eager", "triton", "fused"])
def test_sharded_after_the_swap(backend: str, expected: list[Tensor]) -> None:
    model = build("llama")
    handle = swap(model, backend)
    assert close(step(sharded(model)), expected)
    handle.restore()


@pytest.mark.usefixtures("group")
def test_packed_weights_cannot_be_sharded_and_say_so() -> None:
    model = build("llama")
    swap(model, "packed")
    with pytest.raises(BackendUnavailableError, match="no longer adjacent"):
        step(sharded(model))


@pytest.mark.usefixtures("group")
def test_sharded_before_the_swap_is_refused() -> None:
    for backend in ("eager", "fused"):
        with pytest.raises(NothingSwappedError, match="gate_proj has a weight of type DTensor"):
            swap(sharded(build("llama")), backend)


@pytest.mark.usefixtures("group")
def test_an_mlp_sharded_by_itself_is_not_restored() -> None:
    model = build("llama")
    handle = swap(model, "eager")
    fully_shard(model.model.layers[0].mlp, mesh=init_device_mesh("cpu", (1,)))
    with pytest.raises(UsageError, match="wrapped since the swap"):
        handle.restore()


def dispatched(model: Any) -> Any:
    accelerate = pytest.importorskip("accelerate")
    places = dict.fromkeys(("model.embed_tokens", "model.norm", "model.rotary_emb", "lm_head"), "cpu")
    places |= {f"model.layers.{index}": "cpu" for index in range(2)}
    return accelerate.dispatch_model(model, places, main_device="cpu", force_hooks=True)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("first", ["swap", "dispatch"])
def test_a_device_map(backend: str, first: str) -> None:
    model = build("llama")
    before = logits(model, "llama")
    if first == "dispatch":
        dispatched(model)
    own = model.model.layers[0].mlp._old_forward.__func__ if first == "dispatch" else None
    handle = swap(model, backend)
    if first == "swap":
        dispatched(model)
    seen: list[str] = []
    hook = handle.modules[0]._hf_hook
    hook.pre_forward = lambda module, *args, **kwargs: seen.append("moved") or (args, kwargs)
    torch.testing.assert_close(logits(model, "llama"), before)
    assert seen == ["moved"]
    with handle.paused():
        assert torch.equal(logits(model, "llama"), before)
    handle.restore()
    assert torch.equal(logits(model, "llama"), before)
    assert own in {None, model.model.layers[0].mlp._old_forward.__func__}


def bound(module: nn.Module) -> None:
    """What accelerate's `remove_hook` leaves: the class's own forward, on the instance."""
    module.forward = module.forward  # type: ignore[method-assign]


def removed(module: nn.Module) -> None:
    accelerate = pytest.importorskip("accelerate")
    accelerate.hooks.add_hook_to_module(module, accelerate.hooks.AlignDevicesHook("cpu"))
    accelerate.hooks.remove_hook_from_module(module)


@pytest.mark.parametrize("part", ["", "0", "0.a"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("left", [bound, removed])
def test_a_forward_that_is_the_classs_own_is_no_other(left: Any, backend: str, when: str, part: str) -> None:
    model, x = nn.Sequential(Plain()), torch.randn(3, 32)
    before = model(x)
    if when == "before":
        left(model.get_submodule(part))
    handle = swap(model, backend)
    if when == "after":
        left(model.get_submodule(part))
    torch.testing.assert_close(model(x), before)
    with handle.paused():
        assert torch.equal(model(x), before)
        assert type(model[0]) is Plain
    with handle.skipped():
        assert torch.equal(model(x), x)
    handle.restore()
    assert torch.equal(model(x), before)
    assert type(model[0]) is Plain
    swap(model, backend).restore()


def test_offloaded_weights_are_refused() -> None:
    accelerate = pytest.importorskip("accelerate")
    model = build("llama")
    accelerate.cpu_offload(model, execution_device=torch.device("cpu"))
    with pytest.raises(
        NothingSwappedError, match=r"replaced on the module itself|no storage: it is on the meta device"
    ):
        swap(model, "eager")
