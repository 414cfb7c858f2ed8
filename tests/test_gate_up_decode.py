"""The gated MLP for a few tokens, in Triton's interpreter: its values, its workspace and the choice of its tiles."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mlpfusion_kernels import ACTIVATIONS, act_mul
from mlpfusion_kernels.act_mul import act_mul_reference
from mlpfusion_kernels.gate_up_decode import (
    TOKEN_BLOCKS,
    DecodeConfig,
    StreamTile,
    choose_decode,
    down_decode,
    gate_up_decode,
    workspace_items,
)

WHOLE = StreamTile(32, 32, 1, 2, 4)
SLICED = StreamTile(16, 16, 2, 2, 4)
CARDS = {"A100": (108, 163), "L40S": (142, 99), "H100": (132, 227), "H100 PCIe": (114, 227), "B200": (148, 227)}


def config(gate_up: StreamTile, down: StreamTile, splits: int, tokens: int = 16) -> DecodeConfig:
    return DecodeConfig(tokens, gate_up, down, splits, overlap=False, next_bytes=0, ahead=0)


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
    # Neither length is a multiple of a tile of either kernel.
    d, h = 48, 80
    x, gate, up, down = matrices((m, d), (h, d), (h, d), (d, h), dtype=dtype, seed=m)
    x *= d**0.5
    chosen = config(WHOLE, SLICED, 3) if m % 2 else config(SLICED, WHOLE, 2)
    preacts = torch.full((2, m, h), torch.nan, dtype=dtype)
    product, workspace = gate_up_decode(x, gate, up, None, None, "gelu_tanh", chosen, preacts=(preacts[0], preacts[1]))
    close(preacts[0], x.double() @ gate.double().T, dtype)
    close(preacts[1], x.double() @ up.double().T, dtype)
    assert torch.equal(product, act_mul(preacts[0], preacts[1], "gelu_tanh"))
    assert torch.equal(product, gate_up_decode(x, gate, up, None, None, "gelu_tanh", chosen)[0])
    close(down_decode(product, down, None, workspace, chosen), product.double() @ down.double().T, dtype)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_biases_activations_and_tails(activation: str) -> None:
    m, d, h = 3, 32, 48
    x, gate, up, down, biases = matrices((m, d), (h, d), (h, d), (d, h), (3, h), dtype=torch.float32)
    gate_bias, up_bias, down_bias = biases[0] * 8, biases[1] * 8, biases[2, :d].clone()
    chosen = config(WHOLE, SLICED, 2)
    product, workspace = gate_up_decode(x, gate, up, gate_bias, up_bias, activation, chosen)
    g = x.double() @ gate.double().T + gate_bias
    u = x.double() @ up.double().T + up_bias
    torch.testing.assert_close(product.double(), act_mul_reference(g, u, activation), rtol=1e-5, atol=1e-6)
    y = down_decode(product, down, down_bias, workspace, chosen)
    close(y, product.double() @ down.double().T + down_bias, torch.float32)


@settings(max_examples=15, deadline=None)
@given(
    m=st.integers(1, 16),
    d=st.integers(1, 7).map(lambda n: 16 * n),
    h=st.integers(1, 7).map(lambda n: 16 * n),
    pads=st.tuples(*[st.sampled_from([0, 16, 48])] * 4),
    swapped=st.booleans(),
    sliced=st.booleans(),
    splits=st.integers(1, 5),
)
def test_rows_may_be_padded_and_weights_lie_anywhere(
    m: int, d: int, h: int, pads: tuple[int, int, int, int], swapped: bool, sliced: bool, splits: int
) -> None:
    x, first, second, down = (
        torch.nn.functional.pad(matrix, (0, pad), value=float("nan"))[:, : matrix.shape[1]]
        for matrix, pad in zip(matrices((m, d), (h, d), (h, d), (d, h), dtype=torch.float32, seed=d), pads, strict=True)
    )
    gate, up = (second, first) if swapped else (first, second)
    chosen = config(*((SLICED, SLICED) if sliced else (WHOLE, WHOLE)), splits)
    product, workspace = gate_up_decode(x, gate, up, None, None, "silu", chosen)
    want = act_mul_reference(x.double() @ gate.double().T, x.double() @ up.double().T, "silu")
    torch.testing.assert_close(product.double(), want, rtol=1e-5, atol=1e-6)
    close(down_decode(product, down, None, workspace, chosen), product.double() @ down.double().T, torch.float32)


def test_more_tokens_than_16_take_a_wider_configuration() -> None:
    x, gate, up, down = matrices((33, 32), (48, 32), (48, 32), (32, 48), dtype=torch.float32)
    chosen = config(WHOLE, WHOLE, 2, tokens=64)
    product, workspace = gate_up_decode(x, gate, up, None, None, "relu", chosen)
    want = (x.double() @ gate.double().T).relu() * (x.double() @ up.double().T)
    torch.testing.assert_close(product.double(), want, rtol=1e-5, atol=1e-6)
    close(down_decode(product, down, None, workspace, chosen), product.double() @ down.double().T, torch.float32)


@pytest.mark.parametrize("splits", [1, 2, 5])
def test_the_parts_are_added_in_one_order(splits: int) -> None:
    x, gate, up, down = matrices((4, 48), (80, 48), (80, 48), (48, 80), dtype=torch.float32)
    chosen = config(WHOLE, SLICED, splits)
    found = []
    for _ in range(3):
        product, workspace = gate_up_decode(x, gate, up, None, None, "gelu", chosen)
        found.append(down_decode(product, down, None, workspace, chosen))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_the_workspace_is_as_large_as_said_and_its_counters_are_zeroed() -> None:
    x, gate, up, _ = matrices((4, 48), (80, 48), (80, 48), (48, 80), dtype=torch.float32)
    chosen = config(WHOLE, SLICED, 3)
    _, workspace = gate_up_decode(x, gate, up, None, None, "gelu", chosen)
    assert workspace is not None
    assert workspace.numel() == workspace_items(48, chosen) == 32 + 3 * 3 * 16 * 16
    assert workspace[: -(-48 // SLICED.rows)].tolist() == [0, 0, 0]
    alone = config(WHOLE, SLICED, 1)
    assert workspace_items(48, alone) == 0
    assert gate_up_decode(x, gate, up, None, None, "gelu", alone)[1] is None


def test_no_tokens_launch_nothing() -> None:
    x, gate, up, down = matrices((1, 32), (48, 32), (48, 32), (32, 48), dtype=torch.float32)
    product, workspace = gate_up_decode(x[:0], gate, up, None, None, "gelu", config(WHOLE, WHOLE, 1))
    assert product.shape == (0, 48)
    assert down_decode(product, down, None, workspace, config(WHOLE, WHOLE, 1)).shape == (0, 32)


def test_what_it_cannot_run_is_refused() -> None:
    x, gate, up = matrices((17, 32), (48, 32), (48, 32), dtype=torch.float16)
    with pytest.raises(ValueError, match="17 tokens, but the configuration is for at most 16"):
        gate_up_decode(x, gate, up, None, None, "gelu", config(WHOLE, WHOLE, 1))
    with pytest.raises(ValueError, match="must be multiples of 8 elements"):
        gate_up_decode(x[:4, :30], gate[:, :30], up[:, :30], None, None, "gelu", config(WHOLE, WHOLE, 1))
    with pytest.raises(ValueError, match="65 tokens are too many; at most 64"):
        choose_decode(65, 768, 3072, 132, 2)
    down = torch.zeros(64, 48, dtype=torch.float16)
    product, workspace = gate_up_decode(x[:4], gate, up, None, None, "gelu", config(WHOLE, WHOLE, 2))
    with pytest.raises(ValueError, match="64 rows of the down weight need a workspace of 2080 items, got 1056"):
        down_decode(product, down, None, workspace, config(WHOLE, WHOLE, 2))


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
    assert 1 <= chosen.splits <= -(-h // chosen.down.columns)
    for tile, programs in (
        (chosen.gate_up, -(-2 * h // chosen.gate_up.rows)),
        (chosen.down, -(-d // chosen.down.rows) * chosen.splits),
    ):
        assert tile.stages >= 2
        assert tile.shared_bytes(chosen.tokens, itemsize) <= kib * 1024
        # All programs at once, unless two stages of so many do not fit.
        per_sm = -(-programs // sms)
        assert tile.stages == 2 or (tile.shared_bytes(chosen.tokens, itemsize) + 1024) * per_sm <= (kib + 1) * 1024
