"""Defines the computation: one gated MLP and its batch, with their arithmetic and minimum traffic.

    y = down( act(x · Wgᵀ) * (x · Wuᵀ) )        x: [M, D], Wg, Wu: [H, D], Wd: [D, H], y: [M, D]

M is the number of tokens, D `hidden_size`, H `intermediate_size`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

import msgspec

from mlpfusion import limits
from mlpfusion.errors import UsageError


class ActivationRow(NamedTuple):
    """One activation: its name, what readers call it, the names that Hugging Face configs have for it, its smoothness.

    `hidden_act` is the name by which transformers makes it; `smoothness` counts its continuous derivatives: 0 of one
    whose slope jumps at 0.
    """

    name: str
    label: str
    hidden_act: str
    aliases: tuple[str, ...] = ()
    smoothness: float = math.inf


# The one place that lists activations. What else each has (its fp64 formula in `reference`, PyTorch's function in
# `backends.eager`, its device code in the kernels' `activations`) is found by the name given here.
TABLE: Final = (
    ActivationRow(
        name="gelu_tanh",
        label="the tanh form of GELU",
        hidden_act="gelu_pytorch_tanh",
        aliases=("gelu_new", "gelu_fast", "gelu_accurate", "gelu_python_tanh"),  # the same, spelled out
    ),
    ActivationRow(name="gelu", label="the exact (erf) GELU", hidden_act="gelu", aliases=("gelu_python",)),
    ActivationRow(name="silu", label="SiLU", hidden_act="silu", aliases=("swish",)),
    ActivationRow(name="quick_gelu", label="the quick GELU, g·sigmoid(1.702·g)", hidden_act="quick_gelu"),
    ActivationRow(name="relu", label="ReLU", hidden_act="relu", smoothness=0),
    ActivationRow(name="relu2", label="squared ReLU", hidden_act="relu2", aliases=("relu_squared",), smoothness=1),
)

ACTIVATIONS: Final = tuple(row.name for row in TABLE)
ROWS: Final = {row.name: row for row in TABLE}
ACTIVATION_ALIASES: Final = {alias: row.name for row in TABLE for alias in (row.hidden_act, *row.aliases)}

if TYPE_CHECKING:
    Activation = str
else:
    Activation = Literal[ACTIVATIONS]  # which records check when they are read

Dtype = Literal["bfloat16", "float16", "float32"]
Mode = Literal["inference", "training"]

DTYPES: Final[tuple[Dtype, ...]] = get_args(Dtype)
MODES: Final[tuple[Mode, ...]] = get_args(Mode)
ITEMSIZE: Final[dict[Dtype, int]] = {"bfloat16": 2, "float16": 2, "float32": 4}

DTYPE_ALIASES: Final[dict[str, Dtype]] = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    "fp32": "float32",
    "float": "float32",
}


def one_of(kind: str, value: object, valid: tuple[str, ...], aliases: dict[str, Any] | None = None) -> Any:
    """`value` if it is one of `valid` (or an alias of one); else a `UsageError` that names it and the valid ones."""
    if isinstance(value, str):
        if value in valid:
            return value
        if aliases and value in aliases:
            return aliases[value]
    raise UsageError(f"unknown {kind} {value!r}; valid: {', '.join(valid)}")


def parse_activation(name: str) -> Activation:
    """The activation a name stands for, Hugging Face aliases included."""
    activation: Activation = one_of("activation", name, ACTIVATIONS, ACTIVATION_ALIASES)
    return activation


def parse_dtype(name: str) -> Dtype:
    """The dtype a name stands for; `bf16`, `fp16`, `half`, `fp32` and `float` are accepted too."""
    dtype: Dtype = one_of("dtype", name, DTYPES, DTYPE_ALIASES)
    return dtype


class MLPSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One gated MLP: its sizes, activation, dtype and whether its three projections have biases."""

    hidden_size: int
    intermediate_size: int
    activation: Activation = "gelu_tanh"
    dtype: Dtype = "bfloat16"
    bias: bool = False

    def __post_init__(self) -> None:
        limits.whole("hidden_size", self.hidden_size, limits.SIZE)
        limits.whole("intermediate_size", self.intermediate_size, limits.SIZE)
        one_of("activation", self.activation, ACTIVATIONS)
        one_of("dtype", self.dtype, DTYPES)
        if not isinstance(self.bias, bool):
            raise UsageError(f"bias must be true or false, got {self.bias!r}")

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return ITEMSIZE[self.dtype]

    @property
    def weight_bytes(self) -> int:
        """Bytes of the three weights and, where there are any, the three biases."""
        h, d = self.intermediate_size, self.hidden_size
        return (3 * d * h + (2 * h + d if self.bias else 0)) * self.itemsize


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """An MLP and the batch of tokens it runs on: x is [batch, seq, hidden_size]."""

    spec: MLPSpec
    batch: int
    seq: int
    mode: Mode = "inference"

    def __post_init__(self) -> None:
        limits.whole("batch", self.batch, limits.SIZE)
        limits.whole("seq", self.seq, limits.SIZE)
        limits.whole("batch x seq", self.tokens, limits.TOKENS)
        one_of("mode", self.mode, MODES)

    @property
    def tokens(self) -> int:
        """M: rows of every matrix product."""
        return self.batch * self.seq

    @property
    def flops(self) -> int:
        """Floating-point operations of one call's matrix products: 6·M·D·H forward, 12·M·D·H more backward."""
        forward = 6 * self.tokens * self.spec.hidden_size * self.spec.intermediate_size
        return forward if self.mode == "inference" else 3 * forward

    @property
    def minimum_bytes(self) -> int:
        """Bytes of a forward that kept every intermediate on chip: the weights and x read, y written, once each."""
        return self.spec.weight_bytes + 2 * self.tokens * self.spec.hidden_size * self.spec.itemsize

    @property
    def resident_bytes(self) -> int:
        """Device memory that the widest backend needs at once, an estimate used to refuse before allocating.

        Weights twice (packing copies them once) and in fp64 for the oracle, x and y, four [M, H] tensors; in training
        the gradients too.
        """
        m, d, h = self.tokens, self.spec.hidden_size, self.spec.intermediate_size
        oracle = 8 * (3 * d * h + 2 * m * d)
        forward = 2 * self.spec.weight_bytes + oracle + (2 * m * d + 4 * m * h) * self.spec.itemsize
        return (
            forward if self.mode == "inference" else forward + self.spec.weight_bytes + 6 * m * h * self.spec.itemsize
        )
