"""Runs the kernels of a gated MLP: picks the form and the tile for the card, the dtype and the shape."""

# Tensors are passed in the order of the formula.
# ruff: noqa: PLR0917

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.nn.functional as F

from ..activations import HEAVIEST
from ..launching.cached import LISTENERS, CachedKernel, Launched, announce, is_interpreted
from ..launching.described import Box, Described, DescribedKernel, box_of
from . import backward_kernels, kernels
from .choice import few_tokens
from .configs import Card, Config, Shares
from .decode import DecodeConfig, down_decode, gate_up_decode
from .operands import Weights, aligned, aligned_rows, distance, unreadable, with_adjacent_biases
from .tuned import backward_config, decode_config, forward_config


def _portable_descriptor(box: Box) -> Any:
    from triton.tools.tensor_descriptor import TensorDescriptor

    return TensorDescriptor(box.tensor, list(box.shape), list(box.strides), list(box.block))


def _gluon_descriptor(box: Box) -> Any:
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    dtype = gl.bfloat16 if box.tensor.dtype is torch.bfloat16 else gl.float16
    layout = gl.NVMMASharedLayout.get_default_for(list(box.block), dtype)
    return TensorDescriptor(box.tensor, list(box.shape), list(box.strides), list(box.block), layout)


_POINTER = CachedKernel(kernels.gate_up_pointer_kernel)
_WIDE = DescribedKernel(kernels.gate_up_wide_kernel, _portable_descriptor)
_BACKWARD_POINTER = CachedKernel(backward_kernels.gate_up_backward_pointer_kernel)
_BACKWARD_TMA = DescribedKernel(backward_kernels.gate_up_backward_tma_kernel, _portable_descriptor)
_WARPGROUP = 128  # threads
INTERPRETED = is_interpreted(kernels.gate_up_pointer_kernel)


@functools.cache
def _hopper() -> tuple[DescribedKernel, DescribedKernel]:
    """The Gluon kernels, forward and backward, imported where they can run: Gluon has no interpreter."""
    from .hopper.backward import gate_up_backward_hopper_kernel
    from .hopper.forward import gate_up_hopper_kernel

    return (
        DescribedKernel(gate_up_hopper_kernel, _gluon_descriptor),
        DescribedKernel(gate_up_backward_hopper_kernel, _gluon_descriptor),
    )


@functools.cache
def card(index: int) -> Card:
    """What the choice of a configuration needs to know about a GPU; for -1, or with it on, of Triton's interpreter.

    Raises RuntimeError for a GPU of AMD: Triton's compiler for those cannot select among pointers, as the kernels do.
    """
    if index < 0 or INTERPRETED:
        return Card((0, 0), 1, 0)
    if torch.version.hip is not None:
        raise RuntimeError("gated_mlp has no kernels for AMD GPUs; three linear layers around act_mul run there")
    facts = torch.cuda.get_device_properties(index)
    shared_bytes: int = facts.shared_memory_per_block_optin  # type: ignore[attr-defined]  # not in the stubs
    return Card((facts.major, facts.minor), facts.multi_processor_count, shared_bytes, facts.name)


def mlp_forward(
    x: torch.Tensor, weights: Weights, activation: str, keep: bool
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """(y, gate, up) of checked operands, x [M, D]: y [M, D], and the preactivations [M, H] if `keep`, else None.

    Raises ValueError for weights that the kernels cannot read where they lie.
    """
    weights = with_adjacent_biases(weights)
    if _is_few(x):
        return few_tokens_forward(x, weights, activation, keep)
    product, gate, up = gate_up_forward(x, weights, activation, keep)
    return F.linear(product, weights.down, weights.down_bias), gate, up


def preactivations(x: torch.Tensor, weights: Weights, activation: str) -> tuple[torch.Tensor, torch.Tensor]:
    """gate and up [M, H] before the activation, by the kernels by which `mlp_forward` computes them.

    The weights are those of a forward. A saved-tensor hook, or an assignment to a weight's `.data`, may have laid them
    out anew since.
    """
    gate_weight, up_weight = aligned_rows(weights.gate), aligned_rows(weights.up)
    # No kernel here looks at the down weight: another one that can be read takes its place.
    weights = with_adjacent_biases(weights._replace(gate=gate_weight, up=up_weight, down=gate_weight))
    if _is_few(x):
        _, gate, up = _few_tokens_product(x, weights, activation, True, _few_tokens_config(x, weights))
    else:
        _, gate, up = gate_up_forward(x, weights, activation, True)
    assert gate is not None
    assert up is not None
    return gate, up


def few_tokens_forward(
    x: torch.Tensor, weights: Weights, activation: str, keep: bool, config: DecodeConfig | None = None
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """`mlp_forward` by the kernels that stream the weights past a few tokens, with another configuration if given."""
    config = config or _few_tokens_config(x, weights)
    product, gate, up = _few_tokens_product(x, weights, activation, keep, config)
    if config.down is None:
        y = F.linear(product, weights.down, weights.down_bias)
    else:
        y = down_decode(product, weights.down, weights.down_bias, config, precision=_precision(x))
    return y, gate, up


def _is_few(x: torch.Tensor) -> bool:
    return not INTERPRETED and 0 < x.shape[0] <= few_tokens(card(x.get_device()).capability, x.dtype)


def _few_tokens_config(x: torch.Tensor, weights: Weights) -> DecodeConfig:
    return decode_config(card(x.get_device()), x.dtype, *x.shape, weights.gate.shape[0])


def _few_tokens_product(
    x: torch.Tensor, weights: Weights, activation: str, keep: bool, config: DecodeConfig
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    _readable(weights)
    x = aligned_rows(x)
    shape = (x.shape[0], weights.gate.shape[0])
    gate, up = (x.new_empty(shape), x.new_empty(shape)) if keep else (None, None)
    product = gate_up_decode(
        x,
        weights.gate,
        weights.up,
        weights.gate_bias,
        weights.up_bias,
        activation,
        config,
        preacts=None if gate is None or up is None else (gate, up),
        precision=_precision(x),
    )
    return product, gate, up


def gate_up_forward(
    x: torch.Tensor, weights: Weights, activation: str, keep: bool, config: Config | None = None
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """(product, gate, up) of x [M, D]: each [M, H], contiguous; gate and up, before the activation, only if `keep`.

    `config` takes the place of the one that is for this card and shape.
    """
    _readable(weights)
    m, d = x.shape
    h = weights.gate.shape[0]
    product = x.new_empty((m, h))
    gate, up = (torch.empty_like(product), torch.empty_like(product)) if keep else (None, None)
    if not m:
        return product, gate, up
    x = aligned_rows(x)
    here = card(x.get_device())
    config = config or forward_config(here, x.dtype, m, d, h, training=keep)
    # Absent outputs are not allocated; a dummy pointer is passed instead.
    outputs = (product, product if gate is None else gate, product if up is None else up)
    if config.form == "hopper":
        _launch_hopper(config, here, x, weights, outputs, activation, keep)
        return product, gate, up
    apart = distance(weights.gate, weights.up) if config.form == "wide" else None
    if apart is not None:
        _launch_wide(config, here, x, weights, apart, outputs, activation, keep)
        return product, gate, up
    if config.form == "wide":
        config = forward_config(here, x.dtype, m, d, h, training=keep, descriptors=False)
    _launch_pointer(config, here, x, weights, outputs, activation, keep)
    return product, gate, up


Outputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def _launch_hopper(
    config: Config, here: Card, x: torch.Tensor, weights: Weights, outputs: Outputs, activation: str, keep: bool
) -> None:
    (m, d), h = x.shape, weights.gate.shape[0]
    rows, columns = config.block_m // config.warpgroups, config.block_n
    gate, up = weights.gate, weights.up

    def boxes() -> tuple[Box, ...]:
        inputs = ((x, rows), (gate, columns), (up, columns))
        part = (rows, columns // config.parts)
        return *(box_of(each, high, config.block_k) for each, high in inputs), *(
            box_of(each, *part) for each in outputs
        )

    described = Described((x, gate, up, *outputs), (m, h, d, x.stride(0), gate.stride(0), up.stride(0)), boxes)
    shares = config.shares(m, d, h, here.multiprocessors)
    parts, flags = _meeting_place(shares, (config.block_m, 2 * columns), config.warpgroups, x)
    has_bias = weights.gate_bias is not None
    # A long epilogue is a loop over half of its pieces: all of them are more code than the instruction cache holds.
    unroll = min(config.parts, 4) if keep or activation == HEAVIEST else config.parts
    tile = (rows, columns, config.block_k, config.stages, config.group, config.parts, unroll)
    constants = (*tile, activation, has_bias, keep, config.warpgroups, shares.programs > 0)
    programs = max(shares.programs, min(shares.whole, here.multiprocessors * config.resident))
    key = (x.get_device(), x.dtype, constants)
    if LISTENERS:
        biases = {"gate_bias": weights.gate_bias, "up_bias": weights.up_bias}
        read = {"x": x, "gate_weight": gate, "up_weight": up}
        read |= {name: bias for name, bias in biases.items() if bias is not None}
        written = dict(zip(("product", "gate", "up"), outputs if keep else outputs[:1], strict=False))
        written |= {"parts": parts, "flags": flags} if shares.programs else {}
        announce(Launched(_hopper()[0].kernel, (programs,), read, written))
    pointers = (*_biases(weights), parts, flags)
    rest = (m, h, d, shares.whole, shares.steps, shares.lanes, *constants)
    _hopper()[0](key, programs, described, pointers, rest, _specialised(config))


def _meeting_place(
    shares: Shares, tile: tuple[int, int], warpgroups: int, like: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Memory for the partial sums of shared tiles, and the flags, none of them raised; any where none are shared."""
    if not shares.programs:
        return like, like
    parts = like.new_empty((shares.programs, *tile), dtype=torch.float32)
    return parts, like.new_zeros((shares.programs, warpgroups, _WARPGROUP), dtype=torch.int32)


def _launch_wide(
    config: Config,
    here: Card,
    x: torch.Tensor,
    weights: Weights,
    apart: int,
    outputs: Outputs,
    activation: str,
    keep: bool,
) -> None:
    (m, d), h = x.shape, weights.gate.shape[0]
    block = (config.block_m, config.block_n // config.parts)
    first = weights.gate if apart > 0 else weights.up

    def boxes() -> tuple[Box, ...]:
        both = Box(first, (2, h, d), (abs(apart), first.stride(0), 1), (2, config.block_n, config.block_k))
        return box_of(x, config.block_m, config.block_k), both, *(box_of(each, *block) for each in outputs)

    described = Described((x, first, *outputs), (m, h, d, x.stride(0), first.stride(0), apart), boxes)
    constants = (activation, weights.gate_bias is not None, keep, apart < 0, _precision(x), *_tile(config))
    rest = (d, h, *config.tiles(m, h), *constants)
    key = (x.get_device(), x.dtype, constants, config.warps, config.stages)
    _WIDE(key, config.programs(m, h, here.multiprocessors), described, _biases(weights), rest, _options(config))


def _launch_pointer(
    config: Config, here: Card, x: torch.Tensor, weights: Weights, outputs: Outputs, activation: str, keep: bool
) -> None:
    (m, d), h = x.shape, weights.gate.shape[0]
    strides = (x.stride(0), weights.gate.stride(0), weights.up.stride(0))
    unit = _unit(d, h, *strides)
    constants = (activation, weights.gate_bias is not None, keep, _precision(x), unit, *_tile(config))
    rest = (m, d // unit, h // unit, *(stride // unit for stride in strides), *config.tiles(m, h), *constants)
    key = (x.get_device(), x.dtype, constants, config.warps, config.stages)
    tensors = (x, weights.gate, weights.up, *_biases(weights), *outputs)
    programs = config.programs(m, h, here.multiprocessors)
    _POINTER(key, programs, tensors, rest, config.warps, {"num_stages": config.stages})


def gate_up_backward(
    dy: torch.Tensor,
    down_weight: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    activation: str,
    config: Config | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(dgate beside dup [M, 2H], product [M, H]) of dy [M, D], down_weight [D, H] and gate and up [M, H].

    The product is what the forward gave to the down projection, computed again from gate and up. `config` takes the
    place of the one that is for this card and shape.
    """
    (m, d), h = dy.shape, gate.shape[1]
    dgate_up = dy.new_empty((m, 2 * h))
    product = dy.new_empty((m, h))
    if not m:
        return dgate_up, product
    # A saved-tensor hook, or an assignment to a weight's `.data`, may have brought any layout since the forward.
    dy, down_weight, gate, up = aligned_rows(dy), aligned_rows(down_weight), aligned(gate), aligned(up)
    here = card(dy.get_device())
    config = config or backward_config(here, dy.dtype, m, d, h)
    launch = {"hopper": _backward_hopper, "wide": _backward_wide, "pointer": _backward_pointer}[config.form]
    launch(config, here, dy, down_weight, gate, up, dgate_up, product, activation)
    return dgate_up, product


def _backward_hopper(
    config: Config,
    here: Card,
    dy: torch.Tensor,
    down_weight: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    dgate_up: torch.Tensor,
    product: torch.Tensor,
    activation: str,
) -> None:
    (m, d), h = dy.shape, gate.shape[1]
    rows = config.block_m

    def boxes() -> tuple[Box, ...]:
        return box_of(dy, rows // 2, config.block_k), box_of(down_weight, config.block_k, config.block_n)

    described = Described((dy, down_weight), (m, h, d, dy.stride(0), down_weight.stride(0)), boxes)
    shares = config.shares(m, d, h, here.multiprocessors)
    parts, flags = _meeting_place(shares, (config.block_m, config.block_n), 2, dy)
    # A piece of the epilogue under each step, or, where the sum is too short for that, two.
    per = 1 if config._replace(parts=2 * config.parts).sums_in(d) else 2
    constants = (
        rows,
        config.block_n,
        config.block_k,
        config.stages,
        config.group,
        per,
        activation,
        shares.programs > 0,
    )
    programs = max(shares.programs, min(shares.whole, here.multiprocessors * config.resident))
    key = (dy.get_device(), dy.dtype, constants)
    if LISTENERS:
        read = {"dy": dy, "down_weight": down_weight, "gate": gate, "up": up}
        written = {"dgate_up": dgate_up, "product": product}
        written |= {"parts": parts, "flags": flags} if shares.programs else {}
        announce(Launched(_hopper()[1].kernel, (programs,), read, written))
    tensors = (gate, up, dgate_up, product, parts, flags)
    rest = (m, h // 16, d, shares.whole, shares.steps, shares.lanes, *constants)
    _hopper()[1](key, programs, described, tensors, rest, _specialised(config))


def _backward_wide(
    config: Config,
    here: Card,
    dy: torch.Tensor,
    down_weight: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    dgate_up: torch.Tensor,
    product: torch.Tensor,
    activation: str,
) -> None:
    (m, d), h = dy.shape, gate.shape[1]
    block = (config.block_m, config.block_n // config.parts)

    def boxes() -> tuple[Box, ...]:
        operands = (box_of(dy, config.block_m, config.block_k), box_of(down_weight, config.block_k, config.block_n))
        results = (dgate_up[:, :h], dgate_up[:, h:], product)
        return *operands, *(box_of(each, *block) for each in results)

    tensors = (dy, down_weight, dgate_up, product)
    described = Described(tensors, (m, h, d, dy.stride(0), down_weight.stride(0)), boxes)
    unit = _unit(d, h)
    constants = (activation, _precision(dy), unit, *_tile(config))
    key = (dy.get_device(), dy.dtype, constants, config.warps, config.stages)
    rest = (m, d // unit, h // unit, *config.tiles(m, h), *constants)
    programs = config.programs(m, h, here.multiprocessors)
    _BACKWARD_TMA(key, programs, described, (gate, up), rest, _options(config))


def _backward_pointer(
    config: Config,
    here: Card,
    dy: torch.Tensor,
    down_weight: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    dgate_up: torch.Tensor,
    product: torch.Tensor,
    activation: str,
) -> None:
    (m, d), h = dy.shape, gate.shape[1]
    strides = (dy.stride(0), down_weight.stride(0), 2 * h)
    unit = _unit(d, h, *strides)
    constants = (activation, _precision(dy), unit, *_tile(config))
    rest = (m, d // unit, h // unit, *(stride // unit for stride in strides), *config.tiles(m, h), *constants)
    key = (dy.get_device(), dy.dtype, constants, config.warps, config.stages)
    tensors = (dy, down_weight, gate, up, dgate_up, product)
    programs = config.programs(m, h, here.multiprocessors)
    _BACKWARD_POINTER(key, programs, tensors, rest, config.warps, {"num_stages": config.stages})


def _readable(weights: Weights) -> None:
    reason = unreadable(weights)
    if reason is not None:
        raise ValueError(reason)


def _biases(weights: Weights) -> tuple[torch.Tensor, torch.Tensor]:
    if weights.gate_bias is None or weights.up_bias is None:
        return weights.gate, weights.up
    return weights.gate_bias, weights.up_bias


def _tile(config: Config) -> tuple[int, ...]:
    return config.block_m, config.block_n, config.block_k, config.group, config.parts


def _options(config: Config) -> dict[str, Any]:
    return {"num_warps": config.warps, "num_stages": config.stages}


def _specialised(config: Config) -> dict[str, Any]:
    """The warpgroups share the registers evenly at first; then the copying one gives most of its own to the others."""
    return {"num_warps": config.warps, "maxnreg": 65536 // (128 * (config.warpgroups + 1)) // 8 * 8}


def _precision(tensor: torch.Tensor) -> str:
    """How float32 products are computed: by PyTorch's setting for its own."""
    # `allow_tf32` raises where somebody has used `fp32_precision`, which follows both.
    return "tf32" if tensor.dtype is torch.float32 and torch.backends.cuda.matmul.fp32_precision == "tf32" else "ieee"


def _unit(*lengths: int) -> int:
    """The largest power of two up to 16 that divides every length."""
    bits = 16
    for length in lengths:
        bits |= length
    return bits & -bits
