"""`triton`: PyTorch's three projections around our act·mul kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlpfusion.module import PackedGatedMLP

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from mlpfusion.backend import GatedLayers
    from mlpfusion.device import Device
    from mlpfusion.spec import MLPSpec


class Triton:
    """gate and up by cuBLAS, activation and product in one Triton kernel, down by cuBLAS: four kernels."""

    name = "triton"
    takes_packed = True

    def unsupported(self, spec: MLPSpec, device: Device) -> str | None:
        """Triton needs a GPU, or its interpreter; bfloat16 needs compute capability 8.0."""
        return act_mul_unsupported(spec, device)

    def bind(self, mlp: GatedLayers) -> Callable[[Tensor], Tensor]:
        """Calls the projections as modules, so that hooks and adapters on them take part."""
        from mlpfusion_kernels import act_mul

        activation = mlp.spec.activation
        if isinstance(mlp, PackedGatedMLP):
            both, out, halves = mlp.gate_up_proj, mlp.down_proj, mlp.halves

            def packed_forward(x: Tensor) -> Tensor:
                y: Tensor = out(act_mul(*halves(both(x)), activation))
                return y

            return packed_forward
        gate, up, down = mlp.gate_proj, mlp.up_proj, mlp.down_proj

        def forward(x: Tensor) -> Tensor:
            y: Tensor = down(act_mul(gate(x), up(x), activation))
            return y

        return forward


def act_mul_unsupported(spec: MLPSpec, device: Device) -> str | None:
    """None if our act·mul kernel can run on this device, else why not."""
    if device.kind == "cpu" and not device.interpreted:
        return "Triton kernels need a GPU; this run is on the CPU (TRITON_INTERPRET=1 emulates them there)"
    old = device.capability is not None and device.runtime == "cuda" and device.capability < (8, 0)
    if old and spec.dtype == "bfloat16":
        return f"bfloat16 kernels need compute capability 8.0 or later; {device.name} has {device.capability}"
    return None
