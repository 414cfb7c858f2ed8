"""Detects global state a target leaves in the worker, so that it cannot affect the next target."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

from mlpfusion.stages.validate.worker import settings
from mlpfusion.stages.validate.worker.functions import Functions

# What the next target would see of a setting that one before it changed, or by which its own change of it would not
# be seen; the others are set anew for each request, or change no result.
_SEEN: Final = (
    "the working directory",
    "the environment",
    "the default device",
    "deterministic algorithms",
    "the number of threads",
    "flushing of subnormals",
    "anomaly detection",
    "autocast",
    "inference mode",
    "hooks of saved tensors",
    "modes of torch",
    "global hooks of modules",
    "the handlers of logging",
    "how processes are started",
    "how processes share tensors",
    "torch's print options",
    "the timeout of sockets",
    "its threads",
    "stdout and stderr",
)
TARGET: Final = "mlpfusion_target_"  # the names of targets' own modules, each of which is its path's alone


class Before:
    """The process as it was before any target ran in it."""

    def __init__(self) -> None:
        self._settings = _settings()
        self.functions = Functions()
        self._modules = {name.partition(".")[0] for name in sys.modules}
        self._path = list(sys.path)
        self._folders: set[Path] = set()

    def changed(self, folders: tuple[Path, ...]) -> list[str]:
        """What has changed, in words, and matters to a target whose sibling files are in `folders`.

        Sibling files of other targets count: an `import impl` would load theirs.
        """
        now = _settings()
        found = [name for name, value in self._settings.items() if now[name] != value]
        modules = [f"the module {name}" for name, place in self._imported() if self._is_strange(name, place, folders)]
        return [*found, *self.functions.replaced(), *modules]

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
    return {**settings.read(_SEEN), "custom operators": _operators()}


def _operators() -> frozenset[str]:
    """The custom operators of others than PyTorch and this package: one of the same name would replace the first."""
    known: dict[str, Any] = getattr(sys.modules.get("torch._library.custom_ops"), "OPDEFS", {})
    homes = {name: str(getattr(made._init_fn, "__module__", "")).partition(".")[0] for name, made in known.items()}
    return frozenset(name for name, home in homes.items() if home not in {"torch", "mlpfusion", "mlpfusion_kernels"})
