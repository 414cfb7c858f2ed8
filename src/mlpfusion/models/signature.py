"""A forward with the signature of another one: of x alone it runs the backend, of anything more the module's own."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def like(own: Callable[..., Any]) -> Callable[..., Any]:
    """The forward of a swapped module whose class has the forward `own`.

    Its arguments have the names, kinds and defaults of `own`, in code, which is where torch.export and fx read them.
    It says that it wraps `own`: TorchScript, which compiles a source, gets that one's.
    """
    me, *parameters = inspect.signature(own).parameters.values()
    lines, defaults = _written(me.name, parameters)
    scope: dict[str, Any] = {}
    exec(lines, getattr(own, "__globals__", {}), scope)
    forward: Callable[..., Any] = scope["made"](*defaults)
    return functools.wraps(own)(forward)


def _written(me: str, parameters: list[inspect.Parameter]) -> tuple[str, list[object]]:
    """A function that makes the forward, as source, and its arguments: the defaults."""
    heads, passed, more, defaults, x = [me], [], [], list[object](), ""
    for each in parameters:
        star = "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
        default = "" if each.default is each.empty else f"_default_{len(defaults)}"
        if each.kind is each.KEYWORD_ONLY and not any(head.startswith("*") for head in heads):
            heads.append("*")
        heads.append(f"{star}{each.name}" + (f"={default}" if default else ""))
        passed.append(f"{each.name}={each.name}" if each.kind is each.KEYWORD_ONLY else f"{star}{each.name}")
        if default:
            defaults.append(each.default)
        if not x:
            x = f"{each.name}[0]" if star else each.name
            more += [f"len({each.name}) != 1"] if star else []
        elif star or default:
            more.append(each.name if star else f"{each.name} is not {default}")
    positional_only = [each.name for each in parameters if each.kind is each.POSITIONAL_ONLY]
    if positional_only:
        heads.insert(1 + len(positional_only), "/")
    given = ", ".join(f"_default_{index}" for index in range(len(defaults)))
    bypass = f"        if {' or '.join(more)}:\n            return {me}._mlpfusion_bypass({', '.join(passed)})\n"
    return (
        f"def made({given}):\n    def forward({', '.join(heads)}):\n{bypass if more else ''}"
        f"        return {me}._mlpfusion_run({x})\n    return forward\n",
        defaults,
    )
