"""`auto:FILE`: runs each call on the backend that a choice file names for its token count."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch
from msgspec.structs import replace

from mlpfusion import backend as registry
from mlpfusion.environment import again, conditions, provenance
from mlpfusion.errors import BackendUnavailableError
from mlpfusion.records.choice import Choice
from mlpfusion.spec import MODES
from mlpfusion.storage import results

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from torch import Tensor, nn

    from mlpfusion.backend import GatedLayers
    from mlpfusion.device import Device
    from mlpfusion.records.choice import Range
    from mlpfusion.spec import MLPSpec, Mode

NAME: Final = "auto"


class Auto:
    """The backends of a choice, each for its range of tokens; another card, version or MLP is refused, never used."""

    name = NAME

    def __init__(self, choice: Choice | str | os.PathLike[str]) -> None:
        """A choice, or the file that holds one.

        Raises:
            UsageError: no such file, or none with a choice in it; or the file of a backend that it names is not found.
        """
        self.choice = choice if isinstance(choice, Choice) else _found_again(results.load_choice(choice), Path(choice))
        self._made: dict[str, registry.Backend] = {}

    @property
    def backends(self) -> tuple[str, ...]:
        """The backends that it runs, each once."""
        return tuple(dict.fromkeys(each.backend for each in self.choice.ranges))

    @property
    def loaded(self) -> dict[str, str]:
        """The versions of the distributions behind its backends."""
        return {name: there or "not installed" for name, there in provenance.behind(self.backends).items()}

    @property
    def takes_packed(self) -> bool:
        """Whether all of them take gate and up in one layer."""
        return all(getattr(made, "takes_packed", False) for made in self.loaded_backends().values())

    def loaded_backends(self) -> dict[str, registry.Backend]:
        """Its backends by name, looked for once: one of these serves all MLPs of a model."""
        if not self._made:
            self._made = {name: registry.load(name) for name in self.backends}
        return self._made

    def __getstate__(self) -> dict[str, object]:
        return {"choice": self.choice, "_made": {}}  # copies and pickles find their own

    def unsupported(self, spec: MLPSpec, device: Device) -> str | None:
        """The first thing in which the choice is not for this MLP, card or these versions; or what a backend says."""
        choice = self.choice
        if spec != choice.spec:
            return f"the choice is for {_shape(choice.spec)}; this MLP has {_shape(spec)}"
        if not choice.ranges:
            return "the choice names no backend: none could be measured"
        loaded = self.loaded_backends()
        here = conditions.conditions(device, self.backends, also=choice.holds.versions)
        unsaid = sorted(here.versions.keys() - choice.holds.versions.keys())
        if unsaid:
            return (
                f"the choice holds for nothing: it does not say which {', '.join(unsaid)} it was measured with; "
                f"`mlpfusion choose --fresh` measures again"
            )
        other = conditions.differences(choice.holds, here)
        if other:
            return f"the choice was measured elsewhere: {'; '.join(other)}; `mlpfusion choose --fresh` measures again"
        for name, made in loaded.items():
            reason = made.unsupported(spec, device)
            if reason is not None:
                return f"{name}, which the choice names: {reason}"
        return None

    def bind(self, mlp: GatedLayers) -> Callable[[Tensor], Tensor]:
        """Binds every backend of the choice to the module; a call's is chosen by token count and gradient mode.

        Raises:
            BackendUnavailableError: a backend refuses the module; later, a call for which nothing was measured.
        """
        calls = {name: made.bind(mlp) for name, made in self.loaded_backends().items()}
        inference, training = (
            [(each.first, each.last, calls[each.backend]) for each in self.choice.ranges if each.mode == mode]
            for mode in MODES
        )
        width = self.choice.spec.hidden_size
        # Not their parameters, any of which may be another one by the next call.
        modules = [module for layer in mlp.projections.values() for module in layer.modules()]

        def forward(x: Tensor) -> Tensor:
            trains = torch.is_grad_enabled() and (x.requires_grad or any(map(_trains, modules)))
            tokens = x.numel() // width
            for first, last, call in training if trains else inference:  # a loop that torch.compile can follow
                if max(tokens, 1) >= first and (last is None or tokens <= last):
                    return call(x)
            raise _unmeasured(self.choice.ranges, tokens, "training" if trains else "inference")

        return forward


def _found_again(choice: Choice, path: Path) -> Choice:
    """The choice with the paths of its loose backends, below the working folder or the choice's own."""
    versions = choice.holds.versions
    folders = [Path.cwd(), path.resolve().parent]
    paths = {each.backend: again.found(each.backend, versions.get(each.backend), folders) for each in choice.ranges}
    if all(name == there for name, there in paths.items()):
        return choice
    return replace(
        choice,
        ranges=tuple(replace(each, backend=paths[each.backend]) for each in choice.ranges),
        holds=replace(choice.holds, versions={paths.get(name, name): there for name, there in versions.items()}),
    )


def _trains(module: nn.Module) -> bool:
    """Whether one of its own parameters needs a gradient."""
    return any(each is not None and each.requires_grad for each in module._parameters.values())


def _unmeasured(ranges: Sequence[Range], tokens: int, mode: Mode) -> BackendUnavailableError:
    measured = ", ".join(f"{each.first} to {each.last or 'any'}" for each in ranges if each.mode == mode) or "none"
    under = " (under torch.no_grad() it would be inference)" if mode == "training" else ""
    return BackendUnavailableError(
        NAME, f"the choice names nothing for {tokens} tokens in {mode}{under}; it does for: {measured}"
    )


def _shape(spec: MLPSpec) -> str:
    bias = "bias" if spec.bias else "no bias"
    return (
        f"hidden_size {spec.hidden_size}, intermediate_size {spec.intermediate_size}, {spec.activation}, "
        f"{spec.dtype}, {bias}"
    )
