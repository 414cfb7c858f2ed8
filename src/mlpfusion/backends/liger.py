"""`liger`: the gated MLPs of the PyPI package liger-kernel, run on our weights."""

from __future__ import annotations

import re
from importlib import metadata, util
from typing import TYPE_CHECKING, Final

from mlpfusion.backend import both
from mlpfusion.backends.liger_shared import beyond_liger, borrow, no_gpu
from mlpfusion.errors import BackendUnavailableError, first_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from mlpfusion.backend import GatedLayers
    from mlpfusion.device import Device
    from mlpfusion.spec import MLPSpec

OLDEST: Final = (0, 8, 2)  # the GEGLU kernels are the same from here to 0.8.5
TOO_NEW: Final = (0, 9)
REQUIREMENT: Final = "liger-kernel>=0.8.2,<0.9"


class Liger:
    """Liger's LigerGEGLUMLP (gelu_tanh) and LigerSwiGLUMLP (silu) from the installed liger-kernel."""

    name = "liger"
    distributions = ("liger-kernel",)

    def unsupported(self, spec: MLPSpec, device: Device) -> str | None:
        """The first limit that `spec`, `device` or the installation runs into; does not import Liger (2.5 s)."""
        here = both(no_gpu(device), _not_installed)
        return here or beyond_liger(spec, device, tiles_wide_rows=True) or _not_installed()

    def bind(self, mlp: GatedLayers) -> Callable[[Tensor], Tensor]:
        """Liger's forward on `mlp`: x [..., hidden_size] -> y [..., hidden_size], in the dtype of the weights.

        Raises:
            BackendUnavailableError: Liger is missing or cannot be imported, or has no such MLP.
        """
        reason = _not_installed()
        if reason is not None:
            raise BackendUnavailableError(self.name, reason)
        try:
            from liger_kernel import transformers as layers
        except Exception as error:  # its import probes devices and optional packages
            raise BackendUnavailableError(
                self.name, f"liger_kernel cannot be imported: {type(error).__name__}: {first_line(error)}"
            ) from error
        return borrow(layers, mlp, self.name, tiles_wide_rows=True)


def _not_installed() -> str | None:
    """Why liger-kernel cannot be used as it is installed, or None; reads metadata only."""
    if util.find_spec("liger_kernel") is None:
        return "liger-kernel is not installed (pip install 'mlpfusion[liger]')"
    try:
        version = metadata.version("liger-kernel")
    except metadata.PackageNotFoundError:
        return f"liger_kernel is there but not as the package liger-kernel: its version is unknown, need {REQUIREMENT}"
    release = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
    if not OLDEST <= release < TOO_NEW:
        return f"liger-kernel {version} is installed, need {REQUIREMENT}"
    return None
