"""The gated MLP for a few tokens, in Triton's interpreter: its values, its refusals and the choice of its tiles."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mlpfusion_kernels import ACTIVATIONS, act_mul
from mlpfusion_kernels.elementwise.autograd import act_mul_reference
from mlpfusion_kernels.gate_up.decode import (
    TOKEN_BLOCKS,
    DecodeConfig,
    StreamTile,
    choose_decode,
    down_decode,
    gate_up_decode,
)
from support import rings
from support.paths import RESULTS

WIDE = StreamTile(32, 64, 2, 4)
NARROW = StreamTile(16, 64, 3, 4)
CARDS = {"A100": (108, 163), "L40S": (142, 99), "H100": (132, 227), "H100 PCIe": (114, 227), "B200": (148, 227)}


def config(gate_up: StreamTile, down: StreamTile | None, tokens: int = 16) -> DecodeConfig:
    return DecodeConfig(tokens, gate_up, down, overlap=False)


def matrices(*shapes: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).div(shape[-1] ** 0.5).to(dtype) for shape in shapes]


def close(found: torch.Tensor, want: torch.Tensor, dtype: torch.dtype) -> None:
    """Within the rounding of one fp32 sum and one store."""
    scale = want.abs().max()
    torch.testing.assert_close(found.double(), want, rtol=2 * torch.finfo(dtype).eps, atol=1e-6 * float(scale))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("m", range(1, 17))
def test_any_number_of_tokens_up_to_16(m: int, dtype: torch.dtype) -> None:
    # Neither length is a multiple of what the kernels read of it at a time, and each is more than that.
    d, h = 48, 40
    x, gate, up, down = matrices((m, d), (h, d), (h, d), (d, h), dtype=dtype, seed=m)
    x *= d**0.5
    wide, narrow = WIDE._replace(columns=32), NARROW._replace(columns=32)
    chosen = config(wide, narrow) if m % 2 else config(narrow, wide)
    preacts = torch.full((2, m, h), torch.nan, dtype=dtype)
    product = gate_up_decode(x, gate, up, None, None, "gelu_tanh", chosen, preacts=(preacts[0], preacts[1]))
    close(preacts[0], x.double() @ gate.double().T, dtype)
    close(preacts[1], x.double() @ up.double().T, dtype)
    assert torch.equal(product, act_mul(preacts[0], preacts[1], "gelu_tanh"))
    assert torch.equal(product, gate_up_decode(x, gate, up, None, None, "gelu_tanh", chosen))
    close(down_decode(product, down, None, chosen), product.double() @ down.double().T, dtype)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_biases_activations_and_tails(activation: str) -> None:
    m, d, h = 3, 32, 48
    x, gate, up, down, biases = matrices((m, d), (h, d), (h, d), (d, h), (3, h), dtype=torch.float32)
    gate_bias, up_bias, down_bias = biases[0] * 8, biases[1] * 8, biases[2, :d].clone()
    chosen = config(WIDE, NARROW)
    product = gate_up_decode(x, gate, up, gate_bias, up_bias, activation, chosen)
    g = x.double() @ gate.double().T + gate_bias
    u = x.double() @ up.double().T + up_bias
    torch.testing.assert_close(product.double(), act_mul_reference(g, u, activation), rtol=1e-5, atol=1e-6)
    y = down_decode(product, down, down_bias, chosen)
    close(y, product.double() @ down.double().T + down_bias, torch.float32)


@settings(max_examples=rings.examples(15))
@given(
    m=st.integers(1, 16),
    d=st.integers(1, 7).map(lambda n: 16 * n),
    h=st.integers(1, 7).map(lambda n: 16 * n),
    pads=st.tuples(*[st.sampled_from([0, 16, 48])] * 4),
    swapped=st.booleans(),
    narrow=st.booleans(),
)
def test_rows_may_be_padded_and_weights_lie_anywhere(
    m: int, d: int, h: int, pads: tuple[int, int, int, int], swapped: bool, narrow: bool
) -> None:
    x, first, second, down = (
        torch.nn.functional.pad(matrix, (0, pad), value=float("nan"))[:, : matrix.shape[1]]
        for matrix, pad in zip(matrices((m, d), (h, d), (h, d), (d, h), dtype=torch.float32, seed=d), pads, strict=True)
    )
    gate, up = (second, first) if swapped else (first, second)
    chosen = config(NARROW, NARROW) if narrow else config(WIDE, WIDE)
    product = gate_up_decode(x, gate, up, None, None, "silu", chosen)
    want = act_mul_reference(x.double() @ gate.double().T, x.double() @ up.double().T, "silu")
    torch.testing.assert_close(product.double(), want, rtol=1e-5, atol=1e-6)
    close(down_decode(product, down, None, chosen), product.double() @ down.double().T, torch.float32)


def test_more_tokens_than_16_take_a_wider_configuration() -> None:
    x, gate, up, down = matrices((33, 32), (48, 32), (48, 32), (32, 48), dtype=torch.float32)
    chosen = config(WIDE, WIDE, tokens=64)
    product = gate_up_decode(x, gate, up, None, None, "relu", chosen)
    want = (x.double() @ gate.double().T).relu() * (x.double() @ up.double().T)
    torch.testing.assert_close(product.double(), want, rtol=1e-5, atol=1e-6)
    close(down_decode(product, down, None, chosen), product.double() @ down.double().T, torch.float32)


def test_no_tokens_launch_nothing() -> None:
    x, gate, up, down = matrices((1, 32), (48, 32), (48, 32), (32, 48), dtype=torch.float32)
    product = gate_up_decode(x[:0], gate, up, None, None, "gelu", config(WIDE, WIDE))
    assert product.shape == (0, 48)
    assert down_decode(product, down, None, config(WIDE, WIDE)).shape == (0, 32)


def test_what_it_cannot_run_is_refused() -> None:
    x, gate, up = matrices((17, 32), (48, 32), (48, 32), dtype=torch.float16)
    with pytest.raises(ValueError, match="17 tokens, but the configuration is for at most 16"):
        gate_up_decode(x, gate, up, None, None, "gelu", config(WIDE, WIDE))
    with pytest.raises(ValueError, match="must be multiples of 8 elements"):
        gate_up_decode(x[:4, :30], gate[:, :30], up[:, :30], None, None, "gelu", config(WIDE, WIDE))
    with pytest.raises(ValueError, match="65 tokens are too many; at most 64"):
        choose_decode(65, 768, 3072, 132, 2)
    down = torch.zeros(64, 48, dtype=torch.float16)
    with pytest.raises(ValueError, match="17 tokens, but the configuration is for at most 16"):
        down_decode(torch.zeros(17, 48, dtype=torch.float16), down, None, config(WIDE, WIDE))
    with pytest.raises(ValueError, match=r"leaves the down projection to F\.linear"):
        down_decode(torch.zeros(4, 48, dtype=torch.float16), down, None, config(WIDE, None))


@pytest.mark.parametrize(
    ("m", "dtype"), [(1, torch.float16), (16, torch.bfloat16), (17, torch.float16), (4, torch.float32)]
)
def test_down_is_left_to_cublas_for_more_tokens_and_wider_elements(m: int, dtype: torch.dtype) -> None:
    chosen = choose_decode(m, 768, 3072, 132, dtype.itemsize, shared_bytes=227 * 1024, overlap=True)
    ours = m <= 16 and dtype.itemsize == 2
    assert (chosen.down is not None) == ours
    # A kernel of another library that starts beside ours would have to wait by itself.
    assert chosen.overlap == ours


@given(
    m=st.integers(1, 64),
    d=st.integers(1, 1024).map(lambda n: 16 * n),
    h=st.integers(1, 4096).map(lambda n: 16 * n),
    card=st.sampled_from(sorted(CARDS)),
    itemsize=st.sampled_from([2, 4]),
)
def test_every_choice_fits_the_card(m: int, d: int, h: int, card: str, itemsize: int) -> None:
    sms, kib = CARDS[card]
    chosen = choose_decode(m, d, h, sms, itemsize, shared_bytes=kib * 1024)
    assert m <= chosen.tokens == min(block for block in TOKEN_BLOCKS if block >= m)
    rows = {chosen.gate_up: 2 * h} | ({chosen.down: d} if chosen.down else {})
    for tile, count in rows.items():
        assert tile.stages >= 2
        assert tile.shared_bytes(chosen.tokens, itemsize) <= kib * 1024
        # As many programs at once as there are, or two, unless two stages of so many do not fit.
        programs = -(-count // tile.rows)
        resident = min(2, -(-programs // sms))
        assert tile.stages == 2 or (tile.shared_bytes(chosen.tokens, itemsize) + 1024) * resident <= (kib + 1) * 1024


@pytest.mark.parametrize(
    ("d", "h", "gate_up", "down_stages"),
    [
        (768, 3072, StreamTile(64, 128, 5, 4), 6),
        (896, 4864, StreamTile(64, 128, 3, 4), 6),
        (2048, 16384, StreamTile(128, 128, 3, 4), 10),
        (4096, 11008, StreamTile(64, 128, 3, 4), 6),
        (4096, 14336, StreamTile(128, 128, 3, 4), 6),
        (8192, 28672, StreamTile(64, 128, 3, 4), 6),
    ],
)
def test_the_choice_is_what_was_measured_as_fast(d: int, h: int, gate_up: StreamTile, down_stages: int) -> None:
    measured = json.loads((RESULTS / "h200-decode.json").read_text())
    chosen = choose_decode(16, d, h, 132, 2, shared_bytes=227 * 1024, overlap=True)
    assert chosen == DecodeConfig(16, gate_up, StreamTile(16, 256, down_stages, 4), overlap=True)
    (tiles,) = (
        row for row in measured["gate_up_tiles"] if (row["m"], row["hidden"], row["intermediate"]) == (16, d, h)
    )
    name = f"{gate_up.rows}x{gate_up.columns}, {gate_up.stages} stages, {gate_up.warps} warps"
    assert tiles["median"][name] <= 1.03 * min(tiles["median"].values())
    assert tiles["median"][name] <= tiles["cublas packed"]
    downs = next(row for row in measured["pairs"] if (row["m"], row["hidden"], row["intermediate"]) == (16, d, h))
    name = f"16x256 in 4 slices, {down_stages} stages, 4 warps, 1 splits"
    assert downs["median"][name] <= 1.03 * min(downs["median"].values())
    assert downs["median"][name] < downs["peers"]["ours gate/up + cublas down"]
