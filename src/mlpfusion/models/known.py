"""Resolves a model's gated MLP from a known name, a config.json, or its directory."""

from __future__ import annotations

import functools
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from mlpfusion import spec
from mlpfusion.errors import UsageError, nearest
from mlpfusion.models import configs
from mlpfusion.records.choice import Model
from mlpfusion.storage import inputs

if TYPE_CHECKING:
    import os


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    hidden_size: int
    intermediate_size: int
    activation: spec.Activation
    dtype: spec.Dtype
    source: str
    notes: tuple[str, ...] = ()
    inference_only: str | None = None


@functools.cache
def models() -> dict[str, Model]:
    """The models of `models.toml` by name, in its order."""
    text = resources.files("mlpfusion.models").joinpath("models.toml").read_text(encoding="utf-8")
    entries = msgspec.toml.decode(text, type=dict[str, _Entry])
    return {
        name: Model(
            name=name,
            source=entry.source,
            spec=spec.MLPSpec(
                hidden_size=entry.hidden_size,
                intermediate_size=entry.intermediate_size,
                activation=entry.activation,
                dtype=entry.dtype,
            ),
            notes=entry.notes,
            inference_only=entry.inference_only,
        )
        for name, entry in entries.items()
    }


def find(model: str | os.PathLike[str], *, dtype: spec.Dtype | None = None) -> Model:
    """The MLP of a known name, of a config.json or of the one in a directory; `dtype` instead of its own.

    A name that is known is never taken for a path; `./gemma-2b` is a directory. `-` is a config.json on stdin.

    Raises:
        UsageError: it is neither; or a configuration that is refused, with the reason.
    """
    known = models().get(str(model))
    if known is not None:
        return known if dtype is None else _changed(known, dtype)
    path = Path(model)
    if not str(model) or not (inputs.is_stdin(model) or path.exists()):
        raise UsageError(
            f"unknown model {str(model)!r}: no config.json or directory of that name, and no known model; "
            f"{nearest(str(model), models())}"
        )
    return configs.read(path, dtype=dtype)


def of_sizes(made: spec.MLPSpec) -> Model:
    """A model that is nothing but the sizes of its MLP."""
    name = f"{made.hidden_size}x{made.intermediate_size}-{made.activation}"
    return Model(name=name, source="sizes as given", spec=made)


def _changed(model: Model, dtype: spec.Dtype) -> Model:
    if model.spec.dtype == dtype:
        return model
    note = f"{dtype} as requested instead of {model.spec.dtype}"
    return msgspec.structs.replace(
        model, spec=msgspec.structs.replace(model.spec, dtype=dtype), notes=(*model.notes, note)
    )
