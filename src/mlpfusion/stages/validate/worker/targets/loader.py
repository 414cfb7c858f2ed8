"""Finds a target by its text and makes it a callable: act(gate)·up, or a whole gated MLP."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import sys
import traceback
import types
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from mlpfusion import backend as registry
from mlpfusion.backends.eager import activation_function
from mlpfusion.errors import BackendUnavailableError, MlpfusionError, UsageError
from mlpfusion.module import GatedMLP
from mlpfusion.spec import ROWS, MLPSpec
from mlpfusion.stages.validate import hints
from mlpfusion.stages.validate.worker import settings
from mlpfusion.stages.validate.worker.leftovers import TARGET
from mlpfusion.stages.validate.worker.targets import autotuners
from mlpfusion.stages.validate.worker.targets import hub as hub_targets
from mlpfusion.stages.validate.worker.targets.signatures import (
    by_name_alone,
    operands,
    required,
    takes_activation,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlpfusion.device import Device
    from mlpfusion.records.validation import Kind
    from mlpfusion.spec import Activation

OPERANDS: Final[dict[Kind, tuple[str, ...]]] = {"act_mul": ("gate", "up"), "mlp": ("x", "wg", "wu", "wd")}
VALID: Final = (
    "a target is file.py:name, module:name, a registered backend or a Hub kernel directory, and names a function "
    "(gate, up) -> out or (x, wg, wu, wd) -> y, a Backend, or an nn.Module class"
)

TRIED: Final = (128, 64)  # intermediate_size and hidden_size of the module that is made when its class is loaded


class RefusedError(MlpfusionError):
    """A target says that it cannot run what it was given."""


class SeveralError(MlpfusionError):
    """A directory holds several targets; `names` are theirs."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(", ".join(names))
        self.names = names


class Bound(NamedTuple):
    """A target with its operands: `function(*arguments)` is one call; `leaves` are the operands in their order.

    `module` is the one that holds the weights, if they are no arguments; `frozen` are the weights that need no gradient
    when it is built.
    """

    function: Callable[..., Tensor]
    arguments: tuple[Tensor, ...]
    leaves: tuple[Tensor, ...]
    module: nn.Module | None = None
    frozen: tuple[str, ...] = ()

    def __call__(self) -> Tensor:
        """One call."""
        return self.function(*self.arguments)


class Target(NamedTuple):
    """A loaded target: its kind, what it is in words, its Triton kernels, and how operands are bound to it."""

    kind: Kind
    described: str
    kernels: list[Any]
    bind: Callable[[tuple[Tensor, ...]], Bound]


def load(text: str, activation: Activation, device: Device) -> Target:
    """The target that `text` names.

    Raises:
        UsageError: it names nothing, or something that is no target; the message says what is valid.
        SeveralError: it is a directory with more than one target.
        Exception: whatever its import raises.
    """
    if text.startswith("@"):
        return _function(_peer(text, activation), text, activation)
    found = _find(text)
    if not isinstance(found, str):
        return _made(found, text, activation, device)
    return _backend(registry.load(found), activation, device)


def folders(text: str) -> tuple[Path, ...]:
    """Where the sibling files of the file in `text` are: its folder, and that of its package."""
    path, separator, _ = text.rpartition(":")
    if not (separator and path.endswith(".py")):
        return ()
    here = root = Path(path).resolve().parent
    while (root / "__init__.py").is_file():
        root = root.parent
    return (here,) if root == here else (here, root)


def _find(text: str) -> Any:
    """The object that `text` names; a registered backend stays its name."""
    path, separator, name = text.rpartition(":")
    if not text or (separator and not (path and name)):
        raise UsageError(f"target {text!r} lacks a {'name' if path else 'file or module'}; {VALID}")
    if separator and path.endswith(".py"):
        return _attribute(_run_file(Path(path)), text, name)
    if Path(text).is_dir():
        return _from_hub(Path(text), None)
    if separator and Path(path).is_dir():
        return _from_hub(Path(path), name)
    if separator:
        if ":" in path or "/" in path:
            raise UsageError(f"target {text!r} must be FILE.py:NAME or MODULE:NAME, and {path!r} is neither")
        if util.find_spec(path.partition(".")[0]) is None:
            raise UsageError(f"module {path!r} of target {text!r} does not exist; {VALID}")
        return _attribute(importlib.import_module(path), text, name)
    if text in registry.names():
        return text
    raise UsageError(f"unknown target {text!r}: {VALID}; registered backends: {', '.join(registry.names())}")


def _run_file(path: Path) -> types.ModuleType:
    if not path.is_file():
        raise UsageError(f"target file {str(path)!r} does not exist")
    location = path.resolve()
    state = hashlib.sha256(f"{location}:{location.stat().st_mtime_ns}".encode()).hexdigest()[:12]
    name = f"{TARGET}{location.stem}_{state}"  # a name of its own for each state of the file
    if name in sys.modules:
        return sys.modules[name]
    spec = util.spec_from_file_location(name, location)
    if spec is None or spec.loader is None:
        raise UsageError(f"target file {str(path)!r} is no Python file")
    module = util.module_from_spec(spec)
    sys.modules[name] = module  # Triton and pickle look a module up by name
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, SystemExit) and not isinstance(error.code, str):  # a text says why
            raise UsageError(f"target file {str(path)!r}: {hints.ARGUMENTS}") from error
        root = folders(f"{location}:")[-1]
        if root != location.parent and isinstance(error, ImportError) and "attempted relative import" in str(error):
            return importlib.import_module(".".join(location.relative_to(root).with_suffix("").parts))
        raise
    return module


def _attribute(module: Any, text: str, name: str) -> Any:
    found = module
    for part in name.split("."):
        if not hasattr(found, part):
            own = [each for each, value in vars(found).items() if callable(value) and not each.startswith("_")]
            raise UsageError(f"target {text!r}: there is no {part!r}; valid: {', '.join(own[:12]) or 'it has none'}")
        found = getattr(found, part)
    return found


def _from_hub(path: Path, name: str | None) -> Any:
    """A layer or function of a Hub kernel directory."""
    kernel = hub_targets.load_kernel(path)
    if name is not None:
        return _attribute(kernel, f"{path.name}:{name}", name)
    names = hub_targets.target_names(kernel)
    if not names:
        raise UsageError(
            f"Hub kernel {path.name!r} has no function (gate, up) -> out and no gated-MLP layer that is recognised; "
            "name it as DIRECTORY:NAME"
        )
    raise SeveralError(names)


def _peer(text: str, activation: Activation) -> Callable[..., Tensor]:
    """PyTorch's operators, as they are or compiled: "@eager:act_mul", "@inductor:mlp" and so on."""
    act = activation_function(activation)

    def act_mul(gate: Tensor, up: Tensor) -> Tensor:
        return act(gate) * up

    def mlp(x: Tensor, wg: Tensor, wu: Tensor, wd: Tensor) -> Tensor:
        return functional.linear(act(functional.linear(x, wg)) * functional.linear(x, wu), wd)

    who, _, kind = text.partition(":")
    function: Callable[..., Tensor] = mlp if kind == "mlp" else act_mul
    return torch.compile(function, fullgraph=True, dynamic=False) if who == "@inductor" else function


def _made(found: Any, text: str, activation: Activation, device: Device) -> Target:
    kernel = autotuners.jit_function(found)
    if kernel is not None:
        raise UsageError(f"target {text!r} is a bare @triton.jit kernel; {autotuners.wrapping(kernel)}")
    if inspect.isclass(found) and issubclass(found, nn.Module):
        return _module(found, text, activation, device)
    if inspect.isclass(found) and hasattr(found, "bind"):
        found = found()
    if isinstance(found, registry.Backend):
        return _backend(found, activation, device)
    if callable(found) and not inspect.isclass(found):
        return _function(found, text, activation)
    raise UsageError(f"target {text!r} is a {type(found).__name__}; {VALID}")


def _function(found: Callable[..., Tensor], text: str, activation: Activation) -> Target:
    names = operands(found)
    if names is None:
        name = text.rpartition(":")[2]
        raise UsageError(
            f"the parameters of target {text!r}, a {type(found).__name__}, cannot be read; wrap it as a function: "
            f"def f(gate, up): return {name}(gate, up)"
        )
    hint = hints.of_operands(text.rpartition(":")[2], names, by_name_alone(found))
    if hint is not None and not isinstance(found, nn.Module):
        raise UsageError(f"target {text!r}: {hint}")
    used = autotuners.reachable(found)
    if len(names) == 2:
        made = isinstance(found, nn.Module)
        described = f"the module {type(found).__name__}" if made else "an act·mul function (gate, up) -> out"
        return Target("act_mul", described, used, lambda given: Bound(found, given, given))
    if takes_activation(names):

        def act_mul(gate: Tensor, up: Tensor) -> Tensor:
            return found(gate, up, activation)

        described = "an act·mul function (gate, up, activation) -> out"
        return Target("act_mul", described, used, lambda given: Bound(act_mul, given, given))
    if len(names) == 4:
        return Target("mlp", "an MLP function (x, wg, wu, wd) -> y", used, lambda given: Bound(found, given, given))
    if isinstance(found, nn.Module):
        raise UsageError(
            f"target {text!r} is a {type(found).__name__} whose forward takes ({', '.join(names)}); name its class, "
            "which is built in the sizes of each check, or a function (x, wg, wu, wd)"
        )
    raise UsageError(f"target {text!r} takes ({', '.join(names)}); {VALID}")


def _loaded_mlp(given: tuple[Tensor, ...], activation: Activation, *, copies: bool = False) -> GatedMLP:
    """A GatedMLP on (copies of) the weights wg, wu [H, D] and wd [D, H]."""
    x, wg, wu, wd = given
    dtype: Any = str(wg.dtype).removeprefix("torch.")
    spec = MLPSpec(hidden_size=wg.shape[1], intermediate_size=wg.shape[0], activation=activation, dtype=dtype)
    with settings.own_generators():  # weights are drawn, and then set
        mlp = GatedMLP(spec, device=x.device)
    _fill(mlp, (mlp.gate_proj, mlp.up_proj, mlp.down_proj), (wg, wu, wd), copies=copies)
    return mlp


def _fill(module: nn.Module, linears: tuple[Any, ...], weights: tuple[Tensor, ...], *, copies: bool = False) -> None:
    """Give the layers these weights; without `copies` dense ones where they lie, in margins that are watched."""
    with torch.no_grad():
        for linear, weight in zip(linears, weights, strict=True):
            own = linear.weight
            alike = (own.shape, own.dtype, own.device) == (weight.shape, weight.dtype, weight.device)
            if alike and weight.is_contiguous() and not copies:
                own.data = weight.detach()
            else:
                own.copy_(weight)
    needed = any(weight.requires_grad for weight in weights)
    module.requires_grad_(needed)


def _backend(made: registry.Backend, activation: Activation, device: Device) -> Target:
    def bind(given: tuple[Tensor, ...]) -> Bound:
        mlp = _loaded_mlp(given, activation)
        reason = made.unsupported(mlp.spec, device)
        if reason is not None:
            raise RefusedError(reason)
        try:
            call = made.bind(mlp)
        except BackendUnavailableError:  # it may not part a weight from the memory around it, which `packed` has to
            mlp = _loaded_mlp(given, activation, copies=True)
            call = made.bind(mlp)
        leaves = (given[0], mlp.gate_proj.weight, mlp.up_proj.weight, mlp.down_proj.weight)
        return Bound(call, given[:1], leaves, mlp)

    return Target("mlp", f"the backend {made.name}", autotuners.reachable(made), bind)


def _module(found: type[nn.Module], text: str, activation: Activation, device: Device) -> Target:
    names = required(found.forward)[1:]
    if len(names) == 2:
        needed = required(found.__init__)[1:]
        if needed:
            raise UsageError(
                f"target {text!r}: a module whose forward takes ({', '.join(names)}) is made without arguments, and "
                f"{found.__name__} needs ({', '.join(needed)}); validate a function (gate, up) that calls one"
            )
        call = found()
        used = autotuners.reachable(call)
        return Target("act_mul", f"the module {found.__name__}", used, lambda given: Bound(call, given, given))
    if len(names) != 1:
        raise UsageError(f"target {text!r}: its forward takes ({', '.join(names)}); it must take (x) or (gate, up)")

    def bind(given: tuple[Tensor, ...]) -> Bound:
        if not required(found.__init__)[1:] and not _has_projections(found):
            mlp: nn.Module = _loaded_mlp(given, activation)  # a layer of the Hub: a forward that borrows projections
            call: Callable[..., Tensor] = types.MethodType(found.forward, mlp)
        else:
            mlp = _construct(found, given, activation)
            call = mlp
        linears = tuple(getattr(mlp, name, None) for name in ("gate_proj", "up_proj", "down_proj"))
        if any(linear is None for linear in linears):
            own = [name for name, layer in mlp.named_children() if isinstance(layer, nn.Linear)]
            hint = hints.of_module(found.__name__, own)
            lacks = "has no gate_proj, up_proj and down_proj, by which its weights are set"
            raise UsageError(f"target {text!r} {lacks}" + (f"; {hint}" if hint is not None else ""))
        weights: list[Any] = [linear.weight for linear in linears if linear is not None]
        _check_set(mlp, weights, text)
        frozen = tuple(
            name for name, weight in zip(OPERANDS["mlp"][1:], weights, strict=True) if not weight.requires_grad
        )
        _fill(mlp, linears, given[1:])
        return Bound(call, given[:1], (given[0], *weights), mlp, frozen)

    # What is no target fails at loading. Any other exception is a refusal of these sizes, which checks handle.
    try:
        bind(_trial(device))
    except UsageError:
        raise
    except Exception:
        traceback.print_exc()
    return Target("mlp", f"the module {found.__name__}", autotuners.reachable(found), bind)


def _check_set(mlp: nn.Module, weights: list[Any], text: str) -> None:
    """Refuse a module with other parameters than its weights: they would stay as they were initialised."""
    unset = [name for name, parameter in mlp.named_parameters() if not any(parameter is weight for weight in weights)]
    if unset:
        raise UsageError(
            f"target {text!r} has parameters that are not set: {', '.join(unset)}; build it without biases, or "
            "validate a function (x, wg, wu, wd)"
        )


def _trial(device: Device) -> tuple[Tensor, ...]:
    """x [1, D], wg, wu [H, D] and wd [D, H] of ones, by which a module shows whether it can be made."""
    h, d = TRIED
    return tuple(torch.ones(shape, device=device.kind) for shape in ((1, d), (h, d), (h, d), (d, h)))


def _has_projections(found: type[nn.Module]) -> bool:
    try:
        with settings.own_generators():
            return hasattr(found(), "gate_proj")
    except Exception:  # a third-party constructor
        return True


def _construct(found: type[nn.Module], given: tuple[Tensor, ...], activation: Activation) -> nn.Module:
    """An instance by one of the two usual constructors: of a config, or of (hidden_size, intermediate_size)."""
    x, wg = given[:2]
    act = ROWS[activation].hidden_act
    sizes = {"hidden_size": wg.shape[1], "intermediate_size": wg.shape[0]}
    config = types.SimpleNamespace(**sizes, hidden_act=act, hidden_activation=act, mlp_bias=False)
    before = dict(vars(config))
    try:
        with settings.CONSTRUCTION.watched((found, *sizes.values())):
            made = found(*sizes.values()) if len(required(found.__init__)) == 3 else found(config)
    except (TypeError, AttributeError) as error:
        raise UsageError(
            f"{found.__name__} cannot be built as {found.__name__}(config) or {found.__name__}(hidden_size, "
            f"intermediate_size): {error}"
        ) from error
    changed = (name for name, value in vars(config).items() if name not in before or before[name] != value)
    settings.CONFIG_CHANGES.update(changed)
    return made.to(device=x.device, dtype=wg.dtype)
