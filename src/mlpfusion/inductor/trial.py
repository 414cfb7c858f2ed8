"""A model compiled with the pass and without it, for a proof of what the pass changes."""

from __future__ import annotations

import contextlib
import copy
import functools
from typing import TYPE_CHECKING, Any, Final, Literal

import torch
from torch import nn

from mlpfusion import backend as registry
from mlpfusion.errors import NothingSwappedError, UsageError
from mlpfusion.inductor.ledger import LEDGER
from mlpfusion.inductor.operator import UNCHOSEN, noting
from mlpfusion.inductor.switch import options
from mlpfusion.models.find import Examined, examine
from mlpfusion.models.swap import RefusedModule, SwappedModule
from mlpfusion.models.swapped import skipped_class
from mlpfusion.spec import MLPSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from mlpfusion.inductor.ledger import Entry

    Compiler = Callable[[Callable[..., Any], dict[str, Any] | None], Callable[..., Any]]

_State = Literal["placed", "plain", "idle"]
_SHOWN: Final = 3  # near misses that the message of an error spells out
# A proof compiles a model in three states, with gradients and without. Beyond its limit of recompilations torch.compile
# would run the model uncompiled, and the proof compare it with itself.
_LIMITS: Final = {"recompile_limit": 64, "accumulated_recompile_limit": 1024, "fail_on_recompile_limit_hit": True}


class Trial:
    """A model to be compiled with the pass and without: `mlpfusion.prove(Trial(model, "fused"), inputs)`.

    `trial.call(model)` runs it compiled with the pass or, within `paused`, without. The model itself is not touched.
    """

    how: Final = "inductor"

    def __init__(
        self, model: nn.Module, backend: str = "fused", *, min_tokens: int = 0, compiler: Compiler | None = None
    ) -> None:
        """`backend` and `min_tokens` are as of `enable`.

        `compiler(call, options)` is what compiles a call, with these options or with None; `torch.compile` by default.

        Raises:
            UsageError: a bad argument.
            BackendUnavailableError: the backend cannot be loaded.
        """
        if not isinstance(model, nn.Module):
            raise UsageError(f"model must be a torch.nn.Module, got a {type(model).__name__}")
        self.model, self.backend = model, backend
        self.swapped: tuple[SwappedModule, ...] = ()
        self.refused: tuple[RefusedModule, ...] = ()
        self.pass_ms = 0.0  # what the pass took for the model's graphs with gradients
        self._options = options(backend, min_tokens=min_tokens)
        self._compiler = compiler or _by_inductor
        self._compiled = dict[tuple[str, int], Any]()
        self._state: _State = "placed"

    @functools.cached_property
    def parts(self) -> dict[str, nn.Module]:
        """The modules by name that are a placed MLP by themselves; other MLPs are a part of some module."""
        found = dict(self.model.named_modules())
        placed = {each.name: found[each.name] for each in self.swapped if each.name in found}
        return {name: module for name, module in placed.items() if isinstance(examine(module), Examined)}

    @contextlib.contextmanager
    def started(self, call: Callable[[], object]) -> Iterator[None]:
        """Compile the model with the pass, by this call of it, and allow the compilations of a proof.

        Raises:
            NothingSwappedError: the pass placed nothing; the message gives its reasons.
        """
        with torch._dynamo.config.patch(_LIMITS):
            known = LEDGER.report()
            call()
            met = LEDGER.report()
            self._keep(met.entries[len(known.entries) :])
            self.pass_ms = met.pass_ms - known.pass_ms
            yield

    def paused(self) -> contextlib.AbstractContextManager[nn.Module]:
        """Calls run what is compiled without the pass, for the time of a `with` block."""
        return self._in("plain")

    def skipped(self) -> contextlib.AbstractContextManager[nn.Module]:
        """Calls run the model compiled with each of `parts` returning its input, for the time of a `with` block."""
        return self._in("idle")

    def call(self, module: nn.Module) -> Callable[..., Any]:
        """What runs the model, or one of its modules by itself, in the state of now."""
        key = (self._state, id(module))
        if key not in self._compiled:
            compiled = self._idle_model if self._state == "idle" else module
            self._compiled[key] = self._compiler(compiled, self._options if self._state == "placed" else None)
        found: Callable[..., Any] = self._compiled[key]
        return found

    def unrun(self, call: Callable[[], object], called: Collection[str]) -> list[str]:
        """What the backend does not run of what the pass placed, in this call of the model: a line for each reason."""
        with noting() as ran:
            call()
        allowed = {None, UNCHOSEN} if registry.of_a_file(self.backend) else {None}
        reasons = (str(each) for each in dict.fromkeys(ran) if each not in allowed)
        return [f"PyTorch's products ran in the operator, and not the backend: {reason}" for reason in reasons]

    @contextlib.contextmanager
    def _in(self, state: _State) -> Iterator[nn.Module]:
        was, self._state = self._state, state
        try:
            yield self.model
        finally:
            self._state = was

    @functools.cached_property
    def _idle_model(self) -> nn.Module:
        """The model, on the same tensors, with each of `parts` returning its input.

        What is compiled does not see the class of a module change: so it is another model.
        """
        shared: dict[int, Any] = {id(each): each for each in (*self.model.parameters(), *self.model.buffers())}
        idle: nn.Module = copy.deepcopy(self.model, shared)
        for name in self.parts:
            module = idle.get_submodule(name)
            object.__setattr__(module, "__class__", skipped_class(type(module)))
        return idle

    def _keep(self, entries: tuple[Entry, ...]) -> None:
        """What the pass met."""
        modules = dict(self.model.named_modules())
        swapped, refused = list[SwappedModule](), list[RefusedModule]()
        for each in entries:
            kind = type(modules.get(each.module, self.model)).__name__
            if each.outcome == "placed":
                swapped.append(SwappedModule(each.module, kind, _spec(each), {}, self.backend))
            else:
                refused.append(RefusedModule(each.module, kind, str(each.reason)))
        self.swapped, self.refused = tuple(swapped), tuple(refused)
        if not swapped:
            shown = [f"{each.name or 'the model itself'} ({each.kind}): {each.reason}" for each in self.refused]
            more = f"; and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
            said = "; ".join(shown[:_SHOWN]) + more or "no graph has a gated MLP"
            raise NothingSwappedError(f"nothing was placed: {said}", self.refused)


def _spec(entry: Entry) -> MLPSpec:
    """What a placed MLP computes, which its entry says."""
    known: Any = entry
    return MLPSpec(
        hidden_size=known.hidden_size,
        intermediate_size=known.intermediate_size,
        activation=known.activation,
        dtype=known.dtype,
        bias=known.bias,
    )


def _by_inductor(call: Callable[..., Any], using: dict[str, Any] | None) -> Callable[..., Any]:
    compiled: Callable[..., Any] = torch.compile(call, options=using)
    return compiled
