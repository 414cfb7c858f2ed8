"""Reads the gated MLP of a configuration from the model that transformers builds of it, without memory for weights."""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import warnings
from collections import Counter
from importlib import metadata, util
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mlpfusion import limits
from mlpfusion.errors import UsageError, nearest
from mlpfusion.records.choice import Model
from mlpfusion.spec import MLPSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

    from mlpfusion.models.find import Examined, Refused
    from mlpfusion.spec import Dtype

_LAYERS: Final = limits.Whole(0, 1000)  # each is built: no public model has two hundred
_LONGEST: Final = 200  # characters of a library's error that are shown
_DROPS: Final = "in training it drops out values inside, which no backend does"


def lacking() -> str | None:
    """Why no model can be built here, or None."""
    if util.find_spec("transformers") is None:
        return "transformers is not installed"
    version = metadata.version("transformers")
    return None if version.split(".")[0] == "5" else f"transformers {version} is installed, and not 5"


def parse(raw: dict[str, Any], *, name: str, source: str, dtype: Dtype) -> Model:
    """The gated MLP that most layers have of the model of these values, found as `swap` finds it; others are notes.

    Of a model with several parts it is the language model's. Nothing is downloaded, and no code of the model's runs.

    Raises:
        UsageError: a model type that the library does not know, values of which it builds no model, or a model without
            a gated MLP that backends run, with the reason.
    """
    config = _configuration(raw)
    text = config.get_text_config()
    limits.whole("num_hidden_layers", getattr(text, "num_hidden_layers", None) or 0, _LAYERS)
    try:
        with _undisturbed():
            model = on_meta(text, dtype)
            seen = _seen(model)
    except UsageError:
        raise
    except Exception as error:  # sizes that do not go together, an activation that nobody knows, a package that lacks
        raise UsageError(f"transformers builds no model of it: {_said(error)}") from None
    notes = [] if text is config else [f"its language model is {text.model_type}"]
    return _chosen(seen, model, text.model_type, dtype, Model(name=name, source=source, spec=_ANY, notes=tuple(notes)))


def on_meta(config: Any, dtype: Dtype | None = None) -> nn.Module:
    """The model of a configuration of the library, in eval mode and on the meta device, by whatever class builds it."""
    import torch
    from transformers import AutoModel

    kind = AutoModel._model_mapping[type(config)] if type(config) in AutoModel._model_mapping else _class_of(config)
    kind = kind[0] if isinstance(kind, tuple) else kind
    with torch.device("meta"):
        made: nn.Module = kind._from_config(config, **({} if dtype is None else {"dtype": getattr(torch, dtype)}))
    return made.eval()


def _class_of(config: Any) -> Any:
    """A class of models that takes such configurations, where no automatic one leads to it."""
    from transformers import PreTrainedModel

    home = type(config).__module__
    modeling = importlib.import_module(home.replace(".configuration_", ".modeling_"))
    for name, each in vars(modeling).items():
        is_model = isinstance(each, type) and issubclass(each, PreTrainedModel) and not name.endswith("PreTrainedModel")
        if is_model and each.config_class is type(config) and each.__module__ == modeling.__name__:
            return each
    raise UsageError(f"transformers has no model of a {type(config).__name__}")


def _configuration(raw: dict[str, Any]) -> Any:
    """The library's configuration of these values, without those by which it would run code."""
    from mlpfusion.models import trusted

    kind = raw.get("model_type")
    with _undisturbed():
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING

        if not isinstance(kind, str) or kind not in CONFIG_MAPPING:
            known = f"transformers {metadata.version('transformers')}"
            raise UsageError(
                f"model_type {kind!r} is not known to {known}; {nearest(str(kind), CONFIG_MAPPING.keys())}; or "
                "give the sizes by --hidden-size, --intermediate-size and --activation"
            )
        try:
            return CONFIG_MAPPING[kind].from_dict(trusted.harmless(raw))
        except Exception as error:  # each class has checks, and mistakes, of its own
            raise UsageError(f"its values cannot be read: {_said(error)}") from None


class _Seen(NamedTuple):
    """A module that is, or looks like, a gated MLP, and how many of the model are like it."""

    name: str
    module: nn.Module
    judged: Examined | Refused
    number: int


def _seen(model: nn.Module) -> list[_Seen]:
    """What `swap` would look at in a model, one of each kind."""
    from mlpfusion.models.swap import candidates

    alike = Counter[Any]()

    def first(_: str, module: nn.Module) -> bool:
        kind = _kind(module)
        alike[kind] += 1
        return alike[kind] == 1

    found = list(candidates(model, first))
    return [_Seen(name, module, judged, alike[_kind(module)]) for name, module, judged in found]


def _kind(module: nn.Module) -> Any:
    """What is equal for modules that compute the same: classes, shapes and attributes of all their parts."""
    parts: list[Any] = [repr(module)]
    for path, part in module.named_modules():
        plain = {key: value for key, value in vars(part).items() if not key.startswith("_") and key != "layer_idx"}
        parts.append((path, type(part), tuple((key, _shown(value)) for key, value in plain.items())))
        parts.append(tuple(tuple(each.shape) for each in part.parameters(recurse=False)))
    return tuple(parts)


def _shown(value: object) -> object:
    if isinstance(value, functools.partial):  # each layer's activation may have one of its own
        return id(value.func), repr(value.args), repr(value.keywords)
    return (type(value), value) if isinstance(value, int | float | str | type(None)) else id(value)


def _chosen(seen: list[_Seen], model: nn.Module, kind: str, dtype: Dtype, made: Model) -> Model:
    """The record of the gated MLP that most have, with notes on all others."""
    from msgspec.structs import replace

    from mlpfusion.models.find import Examined, Refused

    specs = Counter[MLPSpec]()
    drops: dict[MLPSpec, bool] = {}
    for each in seen:
        if isinstance(each.judged, Examined):
            spec = _spec(each, model, dtype)
            specs[spec] += each.number
            drops[spec] = each.judged.found.drops
    experts = sum(each.judged.experts * each.number for each in seen if isinstance(each.judged, Refused))
    if not specs:
        raise UsageError(f"model_type {kind!r} has no gated MLP that a backend runs{_why(seen)}")
    (spec, number), *others = specs.most_common()
    notes = [*made.notes]
    if others:
        said = ", ".join(f"{count} of {_sizes(each)}" for each, count in others)
        notes.append(f"{number} of its MLPs are this one; it also has {said}")
    if experts:
        notes.append(f"its {experts} routed experts are one grouped operator, not a gated MLP")
    refused = [each for each in seen if isinstance(each.judged, Refused) and not each.judged.experts]
    notes += [
        f"{each.number} of {type(each.module).__name__} keep their own forward: {each.judged.reason}"
        for each in refused
        if isinstance(each.judged, Refused)
    ]
    return replace(made, spec=spec, notes=tuple(notes), inference_only=_DROPS if drops[spec] else None)


def _spec(each: _Seen, model: nn.Module, dtype: Dtype) -> MLPSpec:
    """What a gated MLP computes, from its layers."""
    from mlpfusion.models import layers

    found = each.judged.found  # type: ignore[union-attr]
    linears = {role: layers.at(each.module, path) for role, path in found.layers.items()}
    wide = [path for path in found.layers.values() if path in (getattr(model, "_keep_in_fp32_modules", None) or ())]
    if dtype == "float16" and wide:
        raise UsageError(f"in float16 the library keeps {wide[0]} in float32; its projections have two dtypes")
    hidden, intermediate = layers.size_of(linears["down"]) or (0, 0)
    return MLPSpec(
        hidden_size=hidden,
        intermediate_size=intermediate,
        activation=found.activation,
        dtype=dtype,
        bias=any(getattr(linear, "bias", None) is not None for linear in linears.values()),
    )


def _why(seen: list[_Seen]) -> str:
    """What its MLPs are instead, that of most of them."""
    if not seen:
        return ""
    most = max(seen, key=lambda each: each.number)
    return f": {most.name or 'the model itself'} ({type(most.module).__name__}): {most.judged.reason}"  # type: ignore[union-attr]


def _sizes(spec: MLPSpec) -> str:
    return f"{spec.activation} {spec.hidden_size} x {spec.intermediate_size}"


_ANY: Final = MLPSpec(hidden_size=1, intermediate_size=1)


def _said(error: Exception) -> str:
    """An error of the library in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:_LONGEST]}"


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Within, the library asks no network, prints no advice and leaves the random state as it was."""
    import torch

    from mlpfusion.models import trusted

    log = logging.getLogger("transformers")
    before = log.level
    with trusted.offline(), torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        log.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            log.setLevel(before)
