"""For a user's pytest: `assert_valid` fails with the verdict, the smallest failing shape and a command to repeat it."""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlpfusion.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.verdicts import Verdict


def assert_valid(
    target: Any,
    *,
    activation: str = "gelu_tanh",
    dtypes: Sequence[str] | None = None,
    shapes: Sequence[tuple[int, ...]] | None = None,
    device: str | None = None,
    strict: bool = False,
    only: Sequence[str] | None = None,
    seed: int | None = None,
    time_limit_s: float = 120.0,
) -> Verdict:
    """Judge a target, and fail unless it is valid (with `strict`, valid without hazards).

    `target` is a text as for `mlpfusion validate`, or a function or class at the top level of a module: it is run in
    another process, which imports it by its name.

    Raises:
        AssertionError: the verdict, the smallest failing shape of each check that failed, and a command for each.
        UsageError: a bad value, or something that is no target.
    """
    from mlpfusion.report.verdict import summary
    from mlpfusion.validating import validate

    found = validate(
        [target if isinstance(target, str) else name_of(target)],
        activation=activation,
        dtypes=dtypes,
        shapes=shapes,
        device=device,
        against=(),
        only=only,
        seed=seed,
        time_limit_s=time_limit_s,
    )
    verdict = found.verdicts[0]
    if not all(each.is_accepted(strict=strict) for each in found.verdicts):
        raise AssertionError("\n".join(summary(v) for v in found.verdicts if not v.is_accepted(strict=strict)))
    return verdict


def name_of(target: Any) -> str:
    """The text `file.py:name` or `module:name` by which another process finds a function or class.

    Raises:
        UsageError: it has no name at the top level of a module.
    """
    if inspect.isclass(type(target)) and not hasattr(target, "__qualname__"):
        target = type(target)  # an instance of a backend, say
    name, module_name = target.__qualname__, target.__module__
    if "<locals>" in name:
        raise UsageError(
            f"{name!r} is defined inside a function, where another process cannot find it; move it to the top level of "
            "its file"
        )
    module = sys.modules.get(module_name) or importlib.import_module(module_name)
    file = getattr(module, "__file__", None)
    if file is not None and file.endswith(".py") and "." not in module_name:  # a test or script that nobody installed
        return f"{Path(file).resolve()}:{name}"
    return f"{module_name}:{name}"
