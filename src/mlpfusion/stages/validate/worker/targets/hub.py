"""Loads a Hub kernel directory and lists its possible targets."""

from __future__ import annotations

import inspect
import os
import tempfile
import types
from pathlib import Path
from typing import Any

from torch import nn

from mlpfusion.errors import UsageError
from mlpfusion.stages.validate.worker.targets.signatures import may_be_a_kernel, required


def load_kernel(path: Path) -> types.ModuleType:
    """The package of a Hub kernel directory: one that is built, or a source tree of pure Python.

    Raises:
        UsageError: the directory holds neither.
    """
    from kernels import get_local_kernel

    source = next(iter(sorted((path / "torch-ext").glob("*/__init__.py"))), None)
    if source is not None and not (path / "build").is_dir():
        from mlpfusion.storage.hub_tree import build_hub_tree

        scratch = tempfile.mkdtemp(prefix="hub-", dir=os.environ.get("MLPFUSION_SCRATCH"))
        path = build_hub_tree(Path(scratch) / "kernel", package=source.parent)
    try:
        kernel: types.ModuleType = get_local_kernel(path)
    except FileNotFoundError as error:
        raise UsageError(
            f"directory {str(path)!r} is no Hub kernel: it has no torch-ext/NAME/__init__.py and no build that fits "
            "this machine"
        ) from error
    return kernel


def target_names(kernel: types.ModuleType) -> list[str]:
    """The names of the functions and layers of a Hub kernel that may be targets: helpers are left out.

    Its functions are those in `__all__`, or without one those that it defines.
    """
    public = getattr(kernel, "__all__", None)
    functions = [
        name
        for name, value in vars(kernel).items()
        if (_is_of(kernel, value) if public is None else name in public)
        and not name.startswith("_")
        and (inspect.isfunction(value) or hasattr(value, "_init_fn"))
        and may_be_a_kernel(value)
    ]
    layers = getattr(kernel, "layers", None)
    classes = vars(layers).items() if isinstance(layers, types.ModuleType) else ()
    return functions + [f"layers.{name}" for name, value in classes if not name.startswith("_") and _is_layer(value)]


def _is_of(kernel: types.ModuleType, value: Any) -> bool:
    home = getattr(getattr(value, "_init_fn", value), "__module__", None) or ""
    return home == kernel.__name__ or home.startswith(f"{kernel.__name__}.")


def _is_layer(value: Any) -> bool:
    if not (inspect.isclass(value) and issubclass(value, nn.Module)):
        return False
    return required(value.forward)[1:] in (["x"], ["hidden_states"], ["gate", "up"])
