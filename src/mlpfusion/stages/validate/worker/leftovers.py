"""Detects global state a target leaves in the worker, so that it cannot affect the next target."""

from __future__ import annotations

import builtins
import math
import os
import sys
import threading
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional

# Whose functions a target may replace; Triton's language is not among them, since its interpreter replaces that itself.
_PLACES: Final[dict[str, Any]] = {
    "torch": torch,
    "torch.Tensor": torch.Tensor,
    "torch.nn.functional": functional,
    "torch.nn.Module": nn.Module,
    "torch.autograd": torch.autograd,
    "math": math,
    "builtins": builtins,
}
# What Inductor sets when it compiles.
_INDUCTOR: Final = frozenset(
    {
        "CUBLAS_WORKSPACE_CONFIG",
        "KMP_DUPLICATE_LIB_OK",
        "TORCHINDUCTOR_CACHE_DIR",
        "TORCH_WARM_POOL",
        "TRITON_CACHE_DIR",
        "TRITON_LIBDEVICE_PATH",
        "TRITON_PTXAS_PATH",
        "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR",
    }
)
_POOLS: Final = ("ThreadPoolExecutor", "tqdm_monitor")  # threads of a compilation, which wait
TARGET: Final = "mlpfusion_target_"  # the names of targets' own modules, each of which is its path's alone


class Before:
    """The process as it was before any target ran in it."""

    def __init__(self) -> None:
        self._settings = _settings()
        self._attributes = _attributes()
        self._modules = {name.partition(".")[0] for name in sys.modules}
        self._path = list(sys.path)
        self._folders: set[Path] = set()

    def changed(self, folders: tuple[Path, ...]) -> list[str]:
        """What has changed, in words, and matters to a target whose sibling files are in `folders`.

        Sibling files of other targets count: an `import impl` would load theirs.
        """
        now, attributes = _settings(), _attributes()
        found = [name for name, value in self._settings.items() if now[name] != value]
        found += [
            name
            for name, value in self._attributes.items()
            if attributes.get(name) is not value and not _is_compiler_s(attributes.get(name))
        ]
        return found + [
            f"the module {name}" for name, place in self._imported() if self._is_strange(name, place, folders)
        ]

    def serve(self, folders: tuple[Path, ...]) -> None:
        """Let a target import its sibling files before all else, as Python does for a script, and no other's."""
        sys.path[:] = [*map(str, folders), *self._path]
        self._folders.update(folders)

    def _imported(self) -> list[tuple[str, Path]]:
        """The top-level modules imported since, and the folder of each."""
        found = []
        for name, module in list(sys.modules.items()):
            if "." in name or name in self._modules:
                continue
            places = list(getattr(module, "__path__", ())) or [getattr(module, "__file__", None)]
            if isinstance(places[0], str):
                found.append((name, Path(places[0]).parent))
        return found

    def _is_strange(self, name: str, place: Path, folders: tuple[Path, ...]) -> bool:
        if name.startswith(TARGET) or place in folders:
            return False
        hides = any((folder / f"{name}.py").is_file() or (folder / name).is_dir() for folder in folders)
        return hides or place in self._folders


def _settings() -> dict[str, object]:
    try:
        where = os.getcwd()
    except OSError:  # it is gone
        where = ""
    return {
        "the working directory": where,
        "the environment": {name: value for name, value in os.environ.items() if name not in _INDUCTOR},
        "the default device": torch.get_default_device(),
        "deterministic algorithms": torch.get_deterministic_debug_mode(),
        "the number of threads": torch.get_num_threads(),
        "flushing of subnormals": bool(torch.tensor([1e-39], device="cpu", dtype=torch.float32).mul_(0.5) == 0),
        "anomaly detection": torch.is_anomaly_enabled(),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")),
        "inference mode": torch.is_inference_mode_enabled(),
        "its threads": {each.ident for each in threading.enumerate() if not each.name.startswith(_POOLS)},
        "stdout and stderr": (id(sys.stdout), id(sys.stderr)),
        "custom operators": _operators(),
    }


def _attributes() -> dict[str, Any]:
    return {f"{name}.{each}": value for name, place in _PLACES.items() for each, value in _members(place).items()}


def _members(place: Any) -> dict[str, Any]:
    """What a module has by name, or a class with its bases: a method may be replaced by a new one above it."""
    found: dict[str, Any] = {}
    for each in reversed(place.__mro__) if isinstance(place, type) else (place,):
        found |= vars(each)
    return found


def _is_compiler_s(value: Any) -> bool:
    """Whether a function is what PyTorch's compiler puts in another's place when it is first used."""
    return str(getattr(value, "__globals__", {}).get("__name__", "")).startswith(("torch._dynamo", "torch._compile"))


def _operators() -> frozenset[str]:
    """The custom operators of others than PyTorch and this package: one of the same name would replace the first."""
    known: dict[str, Any] = getattr(sys.modules.get("torch._library.custom_ops"), "OPDEFS", {})
    homes = {name: str(getattr(made._init_fn, "__module__", "")).partition(".")[0] for name, made in known.items()}
    return frozenset(name for name, home in homes.items() if home not in {"torch", "mlpfusion", "mlpfusion_kernels"})
