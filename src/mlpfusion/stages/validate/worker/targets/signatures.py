"""Reads which operands a callable takes, whatever it is wrapped in."""

from __future__ import annotations

import inspect
import re
import typing
from typing import Any, Final

import torch
from torch import nn

_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
# What no operand is: numbers, texts and settings, as they are annotated, and as they are called where nothing is.
_NO_TENSOR: Final = re.compile(r"\b(int|bool|float|str|dtype|device|Callable)\b")
_NO_OPERAND: Final = re.compile(
    r"(^|_)(n|m|k|sizes?|shapes?|dims?|multiple|count|index|blocks?|dtype|device|name|path|config|kernel|eps|fn|func|ctx)"
    r"(_|$)"
)


def operands(found: Any) -> list[str] | None:
    """The names of its positional parameters without a default, or None where they cannot be read."""
    read = _read(found)
    if read is None:
        return None
    names = [each.name for each in read if each.kind in _POSITIONAL and each.default is each.empty]
    # Two or more belong to a function that takes others besides; fewer to a wrapper that hides those of what it calls.
    hidden = len(names) < 2 and any(each.kind is each.VAR_POSITIONAL for each in read)
    return None if hidden else names


def by_name_alone(found: Any) -> list[str]:
    """The names of its parameters that cannot be given by position, and have no default."""
    read = _read(found) or []
    return [each.name for each in read if each.kind is each.KEYWORD_ONLY and each.default is each.empty]


def required(found: Any) -> list[str]:
    """The same, but none where they cannot be read."""
    return operands(found) or []


def may_be_a_kernel(found: Any) -> bool:
    """Whether its parameters are those of a target, by their number, names and annotations."""
    names = operands(found) or []
    if not (len(names) in (2, 4) or takes_activation(names)):
        return False
    tensors = names[:2] if takes_activation(names) else names
    hints = _hints(found)
    return all(_may_be_a_tensor(each, hints.get(each.name)) for each in _read(found) or () if each.name in tensors)


def takes_activation(names: list[str]) -> bool:
    """Whether these are gate, up and the name of the activation."""
    return len(names) == 3 and names[2] in {"activation", "act"}


def _may_be_a_tensor(parameter: inspect.Parameter, hint: Any) -> bool:
    if parameter.annotation is parameter.empty:
        return _NO_OPERAND.search(parameter.name.lower()) is None
    written = inspect.formatannotation(parameter.annotation)
    if "Tensor" in written:
        return True
    return hint is object if inspect.isclass(hint) else _NO_TENSOR.search(written) is None


def _hints(found: Any) -> dict[str, Any]:
    """The annotations as what they name; none where one names what was imported for a type checker alone."""
    try:
        return typing.get_type_hints(getattr(found, "_init_fn", found))
    except (AttributeError, NameError, TypeError):
        return {}


def _read(found: Any) -> list[inspect.Parameter] | None:
    try:
        if _is_apply(found):
            return _of_function(found.__self__)
        if isinstance(found, nn.Module):
            found = getattr(found, "_orig_mod", found).forward  # of a compiled module, that of the one within
        made_of = getattr(found, "_init_fn", None)  # of a custom operator, the function that it was made of
        read = list(inspect.signature(made_of or found).parameters.values())
        is_hidden = made_of is not None and any(each.kind is each.VAR_POSITIONAL for each in read)
        return _of_schema(found._opoverload._schema) if is_hidden else read
    except (AttributeError, TypeError, ValueError):
        return None


def _of_schema(schema: Any) -> list[inspect.Parameter]:
    """What an operator takes, by its schema: a `triton_op` hides the function that it was made of."""
    return [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY if each.kwarg_only else inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=each.default_value if each.has_default_value() else inspect.Parameter.empty,
            annotation=str(each.type),
        )
        for each in schema.arguments
    ]


def _is_apply(found: Any) -> bool:
    made = getattr(found, "__self__", None)
    return inspect.isclass(made) and issubclass(made, torch.autograd.Function) and found.__name__ == "apply"


def _of_function(made: type[torch.autograd.Function]) -> list[inspect.Parameter]:
    """What `apply` takes: what `forward` does, without the context, which it has unless another method gets it."""
    forward = list(inspect.signature(made.forward).parameters.values())
    return forward if made.setup_context is not torch.autograd.Function.setup_context else forward[1:]
