"""What a pass puts into graphs: a backend or a choice, from how many tokens on, and a digest of all that decides it."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mlpfusion import backend as registry
from mlpfusion import backends as ours
from mlpfusion import limits
from mlpfusion.backends.auto import Auto
from mlpfusion.device import detect
from mlpfusion.environment import conditions, provenance
from mlpfusion.errors import UsageError
from mlpfusion.inductor.operator import Rule
from mlpfusion.records.profile import BASELINE
from mlpfusion.storage import results

if TYPE_CHECKING:
    from mlpfusion.device import Device
    from mlpfusion.spec import MLPSpec

MIN_TOKENS: Final = limits.Whole(0, limits.TOKENS.most)


class Settings(NamedTuple):
    """The backend as it was asked for, what was loaded for it, and the least number of tokens that it gets."""

    backend: str
    made: Any
    min_tokens: int

    def unsupported(self, spec: MLPSpec, device: Device) -> str | None:
        """Why the backend, or the choice, does not run such an MLP here; or None."""
        reason: str | None = self.made.unsupported(spec, device)
        return reason

    def placed(self) -> tuple[Any, ...]:
        """The backends that can be put into a graph."""
        if not isinstance(self.made, Auto):
            return (self.made,)
        return tuple(
            each for name, each in self.made.loaded_backends().items() if name != BASELINE and _stands_alone(each)
        )

    def rules(self, training: bool) -> tuple[Rule, ...]:
        """Which numbers of tokens which backend gets; all others stay as Inductor compiles them."""
        if not isinstance(self.made, Auto):
            return (Rule(self.min_tokens, None, self.backend),)
        mode = "training" if training else "inference"
        placed = {made.name for made in self.placed()}
        return tuple(
            Rule(max(each.first, self.min_tokens), each.last, each.backend)
            for each in self.made.choice.ranges
            if each.mode == mode and each.backend in placed and (each.last is None or each.last >= self.min_tokens)
        )

    def kept(self, training: bool, tokens: int) -> str:
        """Why no backend gets this number of tokens."""
        if tokens < self.min_tokens:
            return f"fewer tokens than min_tokens = {self.min_tokens}"
        mode = "training" if training else "inference"
        for each in self.made.choice.ranges:
            if each.mode == mode and Rule(each.first, each.last, each.backend).holds(tokens):
                return f"the choice names {each.backend} in {mode}"
        return f"the choice names nothing for so many tokens in {mode}"

    def digest(self) -> str:
        """A digest of the sources of pass, operator and backward, versions, backend, min_tokens, choice and card."""
        parts = (_sources(), self.backend, str(self.min_tokens), _contents(self.made), _here(self._backends()))
        return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:32]

    def _backends(self) -> tuple[str, ...]:
        return self.made.backends if isinstance(self.made, Auto) else (self.backend,)


def settle(backend: object, min_tokens: object) -> Settings:
    """Settings of valid arguments.

    Raises:
        UsageError: no such backend, one that needs a module, or a number of tokens that is none.
        BackendUnavailableError: the backend cannot be loaded.
    """
    if not isinstance(backend, str):
        raise UsageError(f"backend must be a name, got {backend!r}; valid: fused, or auto:FILE of a choice")
    least = limits.whole("min_tokens", min_tokens, MIN_TOKENS)
    made = registry.load(backend)
    if not isinstance(made, Auto) and not _stands_alone(made):
        raise UsageError(
            f"backend {backend!r} needs a module and cannot stand in a graph; valid: fused, or auto:FILE of a choice"
        )
    return Settings(backend, made, least)


def _stands_alone(made: object) -> bool:
    return isinstance(getattr(made, "on_tensors", None), registry.OnTensors)


def folders() -> tuple[Path, ...]:
    """Where what decides and what runs lies, but for the kernels, which the conditions have."""
    return Path(__file__).parent, Path(str(ours.__file__)).parent


@functools.cache
def _sources() -> str:
    return provenance.digest(sorted(path for folder in folders() for path in folder.rglob("*.py")))


def _contents(made: object) -> str:
    return results.encode(made.choice) if isinstance(made, Auto) else ""


@functools.lru_cache(maxsize=64)
def _here(backends: tuple[str, ...]) -> str:
    return repr(conditions.conditions(detect(), backends))
