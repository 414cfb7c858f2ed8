"""Finds what is lost when a backend uses a layer's weights instead of calling it: hooks, wrappers, autocast's casts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch
from torch.nn import Linear

# Never replaced by other dicts: the handle of a hook removes it from the one that it was put into.
from torch.nn.modules.module import (
    _global_backward_hooks,
    _global_backward_pre_hooks,
    _global_forward_hooks,
    _global_forward_pre_hooks,
)

from mlpfusion.errors import BackendUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor, nn

    from mlpfusion.backend import GatedLayers

# What torch.nn.modules.module registers for every module of the process.
GLOBAL: Final[dict[str, dict[int, Any]]] = {
    "forward hook": _global_forward_hooks,
    "forward pre-hook": _global_forward_pre_hooks,
    "backward hook": _global_backward_hooks,
    "backward pre-hook": _global_backward_pre_hooks,
}


def bypassed(layer: nn.Module) -> str | None:
    """What a backend that does not call this layer would leave out, or None: hooks, or a replaced forward.

    Global hooks count, except PyTorch's own: they note which module runs, for `FlopCounterMode` and the like.
    """
    if layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks:
        return "has hooks, which this backend would bypass"
    if replaced(layer):
        return "has its forward replaced, which this backend would bypass"
    if _global_forward_hooks or _global_forward_pre_hooks or _global_backward_hooks or _global_backward_pre_hooks:
        return _seen_by()
    return None


def refuse_bypassed(backend: str, layers: Iterable[nn.Module]) -> None:
    """Refuse a call that would leave something of linear layers out; it runs at each call, so it must be fast.

    Raises:
        BackendUnavailableError: as `bypassed`, or a layer got another class, as by a parametrization.
    """
    everywhere = (
        _global_forward_hooks or _global_forward_pre_hooks or _global_backward_hooks or _global_backward_pre_hooks
    )
    for layer in layers:
        if (
            layer._forward_hooks
            or layer._forward_pre_hooks
            or layer._backward_hooks
            or layer._backward_pre_hooks
            or "forward" in layer.__dict__
            or everywhere
            or type(layer) is not Linear
        ):
            reason = bypassed(layer) or _become(layer)
            if reason is not None:
                raise BackendUnavailableError(backend, f"a projection {reason}")


def _become(layer: nn.Module) -> str | None:
    if type(layer) is Linear:
        return None
    return f"has become a {type(layer).__name__}, which this backend would bypass (a parametrization, an adapter?)"


def replaced(module: nn.Module) -> bool:
    """Whether the forward on an instance does something else than its class's, or than a `device_map` adds to that."""
    return "forward" in module.__dict__ and not only_bound(module) and not only_placed(module)


def only_bound(module: nn.Module) -> bool:
    """Whether the forward on an instance is its class's own: accelerate's `remove_hook` leaves it there."""
    forward: Any = module.__dict__.get("forward")
    return getattr(forward, "__func__", None) is type(module).forward and forward.__self__ is module


def only_placed(module: nn.Module) -> bool:
    """Whether the forward on an instance is accelerate's, which only moves inputs to where the weights are.

    So it is with a model that a `device_map` spreads over GPUs; one that offloads also moves the weights.
    """
    hook: Any = module.__dict__.get("_hf_hook")
    inner = getattr(module.__dict__.get("_old_forward"), "__func__", None)
    plain = type(hook).__name__ == "AlignDevicesHook" and not (hook.offload or hook.no_grad)
    return plain and inner is type(module).forward


def _seen_by() -> str | None:
    for kind, hooks in GLOBAL.items():
        if not all(str(getattr(hook, "__module__", None)).startswith("torch.") for hook in hooks.values()):
            return f"has a global {kind}, which this backend would bypass"
    return None


def plain_linears(mlp: GatedLayers, backend: str) -> None:
    """Refuse a module whose projections are more than matrix products on plain weights.

    A backend that bypasses `nn.Linear.forward` calls this in `bind`: it would drop hooks and adapters silently and
    misread weights that are quantised, sharded or elsewhere.

    Raises:
        BackendUnavailableError: names the projection and what it carries.
    """
    parts: dict[str, Any] = mlp.projections
    for name, linear in parts.items():
        reason = not_plain(linear) or bypassed(linear)
        if reason is not None:
            raise BackendUnavailableError(backend, f"{name} {reason}")
    leading, first = next((name, linear.weight) for name, linear in parts.items())
    for name, linear in parts.items():
        reason, weight = None, linear.weight
        if weight.dtype != first.dtype or weight.device != first.device:
            reason = f"is {weight.dtype} on {weight.device} where {leading} is {first.dtype} on {first.device}"
        elif weight.device.type == "meta":
            reason = "has no storage (meta device)"
        elif not isinstance(weight, torch.nn.Parameter):
            reason = f"has a weight of type {type(weight).__name__}"
        if reason is not None:
            raise BackendUnavailableError(backend, f"{name} {reason}")
    if (reason := _do_not_fit(parts)) is not None:  # one of them was replaced, and the others will be
        raise BackendUnavailableError(backend, reason)
    if len(parts) == 3 and (parts["gate_proj"].bias is None) != (parts["up_proj"].bias is None):
        raise BackendUnavailableError(backend, "only one of gate_proj and up_proj has a bias")


def _do_not_fit(parts: dict[str, Any]) -> str | None:
    """Which projection has no shape that goes with those before it, or None."""
    *inner, (down, last) = ((name, tuple(linear.weight.shape)) for name, linear in parts.items())
    first, shape = inner[0]
    for name, other in inner:
        if other != shape:
            return f"{name} is {_times(other)} where {first} is {_times(shape)}"
    rows, columns = shape
    wanted = (columns, rows * len(inner) // 2)
    return None if last == wanted else f"{down} is {_times(last)} where {first} is {_times(shape)}"


def _times(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def not_plain(linear: object) -> str | None:
    """What a projection is beyond `torch.nn.Linear` on a strided tensor, or None; `bypassed` is for hooks."""
    if type(linear) is not torch.nn.Linear:
        name = type(linear).__name__
        shown = f"{type(linear).__module__}.{name}" if name == "Linear" else name  # adapters like that name as well
        return f"is a {shown}, not a torch.nn.Linear (an adapter or a quantised layer?)"
    weight = linear.weight
    if type(weight.data) is not torch.Tensor or weight.layout != torch.strided:
        return f"has a weight of type {type(weight.data).__name__} (sharded or quantised?)"
    return None


def autocast_dtype(x: Tensor) -> torch.dtype | None:
    """The dtype that autocast casts x to, or None where it leaves x as it is: it is off, or x no float or float64."""
    kind = x.device.type
    # Of "meta" `is_autocast_enabled` raises.
    if kind == "meta" or not torch.is_autocast_enabled(kind):
        return None
    return torch.get_autocast_dtype(kind) if x.is_floating_point() and x.dtype != torch.float64 else None
