"""What a proof judges: a model with MLPs of a backend in it and, for the time of a block, without them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from contextlib import AbstractContextManager
    from typing import Any

    from torch import nn

    from mlpfusion.backend import Backend
    from mlpfusion.models.swap import RefusedModule, SwappedModule
    from mlpfusion.records.proof import How


class Change(Protocol):
    """A swap's `Handle`, or a `Trial` of the pass of `mlpfusion.inductor`, whose model is compiled in every state.

    `call(model)` runs the backend but within `paused` and `skipped`.
    """

    model: nn.Module
    swapped: tuple[SwappedModule, ...]
    refused: tuple[RefusedModule, ...]

    @property
    def how(self) -> How:
        """By which of the two."""
        ...

    @property
    def backend(self) -> str | Backend:
        """What runs the MLPs."""
        ...

    @property
    def parts(self) -> dict[str, nn.Module]:
        """The modules by name that are a gated MLP by themselves."""
        ...

    def call(self, module: nn.Module) -> Callable[..., Any]:
        """What runs the model, or one of its modules by itself, in the state of now."""
        ...

    def unrun(self, call: Callable[[], object], called: Collection[str]) -> list[str]:
        """What the backend does not run in this call of the model, which calls these of `parts`: a line for each."""
        ...

    def paused(self) -> AbstractContextManager[nn.Module]:
        """The model without the backend."""
        ...

    def skipped(self) -> AbstractContextManager[nn.Module]:
        """The model with `parts` that return their input."""
        ...


@runtime_checkable
class Compiling(Protocol):
    """A change that begins with a first call, which compiles the model."""

    def started(self, call: Callable[[], object]) -> AbstractContextManager[None]:
        """The model compiled by this call, for the time of a `with` block."""
        ...
