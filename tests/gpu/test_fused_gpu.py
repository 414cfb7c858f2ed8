"""The kernels of `fused` on a GPU: every form and tile to the bit, weights anywhere, and what autograd sees."""

from __future__ import annotations

import gc

import pytest
import torch
from mlpfusion_kernels import ACTIVATIONS, Weights, act_mul, gated_mlp
from mlpfusion_kernels.activations import activate_reference
from mlpfusion_kernels.gate_up import configs, launch
from torch.nn import functional

from mlpfusion import backend
from mlpfusion.module import GatedMLP
from mlpfusion.spec import MLPSpec

CUDA = torch.device("cuda")
CARD = launch.card(torch.cuda.current_device())
TABLE = configs.table(CARD, torch.bfloat16)
# Sums of as many steps as an epilogue has parts or pieces, and of one more, among them. Others expect (1000, 768, 3072)
# last.
SHAPES = [
    (8, 256, 128),
    (9, 272, 128),
    (300, 512, 208),
    (300, 528, 208),
    (129, 1024, 384),
    (200, 1040, 272),
    (3000, 1040, 2736),
    (1000, 768, 3072),
]


def made(m, d, h, *, dtype=torch.bfloat16, bias=False, seed=0):
    generator = torch.Generator(CUDA).manual_seed(seed)

    def random(*shape, scale=1.0):
        return (torch.randn(*shape, device=CUDA, generator=generator) * scale).to(dtype)

    biases = (random(h), random(h), random(d)) if bias else ()
    return random(m, d), Weights(random(h, d, scale=d**-0.5), random(h, d, scale=d**-0.5), random(d, h), *biases)


def error(found, exact):
    return ((found.double() - exact).norm() / exact.norm()).item()


def tiles(direction):
    return list(dict.fromkeys(config for rule in getattr(TABLE, direction) for config in rule.configs))


def checked(config, shape, activation, *, keep, bias):
    """The product by one configuration, after a look at what it was made of."""
    x, weights = made(*shape, bias=bias)
    product, gate, up = launch.gate_up_forward(x, weights, activation, keep, config)
    references = [
        functional.linear(x.double(), weight.double(), None if not bias else bias_of.double())
        for weight, bias_of in zip(weights[:2], weights[3:5], strict=True)
    ]
    if not keep:
        rounded_gate, rounded_up = (reference.to(x.dtype) for reference in references)
        assert error(product, act_mul(rounded_gate, rounded_up, activation).double()) < 5e-3
        return product
    for found, reference in zip((gate, up), references, strict=True):
        assert error(found, reference) < 2.5e-3  # rounding to 8 bits makes 1.7e-3
    assert torch.equal(product, act_mul(gate, up, activation))
    return product


# A compilation takes seconds, so each configuration gets one activation for all shapes, and one gets all activations.
@pytest.mark.parametrize("config", tiles("training"), ids=str)
def test_product_is_act_mul_of_the_rounded_preactivations_to_the_bit(config):
    bias = config.block_m == 64
    for shape in SHAPES:
        if config.sums_in(shape[1]):
            checked(config, shape, "gelu_tanh", keep=True, bias=bias)


@pytest.mark.parametrize("config", [each for each in tiles("forward") if each not in tiles("training")], ids=str)
def test_tiles_that_store_nothing_else_give_the_product_and_the_same_bits_again(config):
    for shape in SHAPES:
        if config.sums_in(shape[1]):
            product = checked(config, shape, "gelu_tanh", keep=False, bias=True)
            assert torch.equal(product, checked(config, shape, "gelu_tanh", keep=False, bias=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_shared_tiles_are_right_at_each_number_of_them(dtype):
    splits = [config for config in tiles("forward") if config.split > 1]
    for config in splits[: 1 if dtype is torch.float16 else None]:
        sizes = [(1, columns) for columns in (1, 2, 7, 66, 100, 131, 133, 140, 200, 263, 265)]
        for rows, columns in [*sizes, (2, 33), (2, 67), (3, 45), (3, 90), (4, 25), (5, 27), (7, 13), (8, 50), (17, 11)]:
            x, weights = made(rows * config.block_m - 3, 1040, columns * config.block_n - 8, dtype=dtype)
            product, _, _ = launch.gate_up_forward(x, weights, "silu", False, config)
            whole, _, _ = launch.gate_up_forward(x, weights, "silu", False, config._replace(split=1))
            # Sums in another order differ by little, and by nothing where no tile is shared.
            assert error(product, whole.double()) < 2e-3
            shares = config.shares(x.shape[0], 1040, weights.gate.shape[0], CARD.multiprocessors)
            first = (slice(config.block_m), slice(1))  # of the first tile
            assert torch.equal(product[first], whole[first]) or shares.whole < CARD.multiprocessors


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_inference_training_and_backward_give_one_product(activation):
    shape, config = SHAPES[-1], TABLE.forward[-1].configs[0]
    product = checked(config, shape, activation, keep=False, bias=False)
    assert torch.equal(product, checked(config, shape, activation, keep=True, bias=False))
    x, weights = made(*shape)
    _, gate, up = launch.gate_up_forward(x, weights, activation, True, config)
    check_gradients(TABLE.backward[-1].configs[0], shape, activation, gate, up, product)


def check_gradients(config, shape, activation, gate, up, product):
    dy, down = made(*shape, seed=5)[0], made(*shape)[1].down
    dgate_up, again = launch.gate_up_backward(dy, down, gate, up, activation, config)
    assert torch.equal(again, product)
    operands = [each.double().requires_grad_() for each in (gate, up)]
    activated = activate_reference(operands[0], activation)
    (slope,) = torch.autograd.grad(activated.sum(), operands[0], retain_graph=True)
    y = activated * operands[1]
    dproduct = dy.double() @ down.double()
    exact = torch.cat(torch.autograd.grad(y, operands, dproduct), 1)
    # By far most of the error is the rounding of dproduct, of the result, and of both.
    assert error(dgate_up, exact) < 4e-3
    # Element by element: three roundings to 8 bits of factors that make at most 1.13·|dproduct|·max(|g|, |u|, 1), or
    # the derivative itself where the activation grows faster.
    factors = (gate.double(), up.double(), slope * operands[1], activated)
    largest = torch.stack([each.detach().abs() for each in factors]).amax(0).clamp_min(1)
    bound = 2**-6 * torch.cat(2 * (dproduct.abs() * largest,), 1) + 2**-9 * dproduct.abs().mean()
    assert ((dgate_up.double() - exact).abs() <= bound).all()


SHARED_BACKWARD = [each._replace(split=8) for each in tiles("backward") if each.form == "hopper"]


@pytest.mark.parametrize("config", tiles("backward") + SHARED_BACKWARD, ids=str)
def test_every_backward_tile_gives_the_forwards_product_and_the_right_gradients(config):
    for shape in SHAPES:
        if config.sums_in(shape[1]):
            x, weights = made(*shape, seed=3)
            product, gate, up = launch.gate_up_forward(x, weights, "gelu_tanh", True)
            check_gradients(config, shape, "gelu_tanh", gate, up, product)


@pytest.mark.parametrize("shape", [(8192, 768, 3072), (8192, 2048, 16384)])
def test_no_copy_overtakes_what_it_overwrites(shape):
    # 31 tiles for each multiprocessor: a copy that came before a slow read was done showed at this size alone.
    x, weights = made(*shape)
    product, gate, up = launch.gate_up_forward(x, weights, "gelu_tanh", True)
    assert torch.equal(product, act_mul(gate, up, "gelu_tanh"))
    dy = torch.randn_like(x)
    first, again = launch.gate_up_backward(dy, weights.down, gate, up, "gelu_tanh")
    assert torch.equal(again, product)
    for _ in range(5):
        assert torch.equal(launch.gate_up_forward(x, weights, "gelu_tanh", False)[0], product)
        dgate_up, again = launch.gate_up_backward(dy, weights.down, gate, up, "gelu_tanh")
        assert torch.equal(again, product)
        assert torch.equal(dgate_up, first)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("m", [1, 2, 7, 16, 17, 64, 65, 129, 256, 1000])
def test_any_number_of_tokens(m, dtype):
    x, weights = made(m, 768, 1536, dtype=dtype, bias=m == 7)
    biases = [None if bias is None else bias.double() for bias in weights[3:]]
    gate, up = (functional.linear(x.double(), w.double(), b) for w, b in zip(weights[:2], biases[:2], strict=True))
    exact = functional.linear(functional.silu(gate) * up, weights.down.double(), biases[2])
    plain = functional.linear(
        functional.silu(functional.linear(x, weights.gate, weights.gate_bias))
        * functional.linear(x, weights.up, weights.up_bias),
        weights.down,
        weights.down_bias,
    )
    found = gated_mlp(x, weights, "silu")
    assert error(found, exact) <= 2 * error(plain, exact)
    assert torch.equal(found, gated_mlp(x, weights, "silu"))


@pytest.mark.parametrize("m", [4, 300])
def test_weights_anywhere_in_memory(m):
    d, h = 256, 384
    x, weights = made(m, d, h)
    expected = gated_mlp(x, weights, "gelu_tanh")

    def placed(buffer, gate_at, up_at):
        both = [buffer[at : at + h * d].view(h, d) for at in (gate_at, up_at)]
        both[0].copy_(weights.gate)
        both[1].copy_(weights.up)
        return weights._replace(gate=both[0], up=both[1])

    far = torch.empty(3 * 2**30, dtype=x.dtype, device=CUDA)  # 6 GiB
    for gate_at, up_at in ((0, h * d), (h * d, 0), (8, 5 * 2**29), (5 * 2**29, 8)):
        assert torch.equal(gated_mlp(x, placed(far, gate_at, up_at), "gelu_tanh"), expected)
    for gate_at, up_at in ((1, h * d + 8), (0, h * d + 4)):
        with pytest.raises(ValueError, match="must start at a multiple of 16 bytes"):
            gated_mlp(x, placed(far, gate_at, up_at), "gelu_tanh")
    del far
    wide = torch.zeros(h, 2 * d, dtype=x.dtype, device=CUDA)
    wide[:, :d] = weights.gate
    assert torch.equal(gated_mlp(x, weights._replace(gate=wide[:, :d]), "gelu_tanh"), expected)
    with pytest.raises(ValueError, match="share one memory"):
        gated_mlp(x, weights._replace(up=weights.gate), "gelu_tanh")


@pytest.mark.parametrize("tokens", [4, 300])
def test_weights_that_move_and_that_are_replaced_at_their_address_are_seen(tokens):
    mlp = GatedMLP(MLPSpec(hidden_size=768, intermediate_size=1536), device=CUDA, backend="fused")
    eager = GatedMLP(MLPSpec(hidden_size=768, intermediate_size=1536), device=CUDA)
    x = torch.randn(tokens, 768, device=CUDA, dtype=torch.bfloat16)
    for _ in range(4):
        with torch.no_grad():
            for parameter in mlp.parameters():
                shape, old = parameter.shape, parameter.data
                parameter.data = torch.empty(0, device=CUDA, dtype=old.dtype)
                del old
                gc.collect()
                parameter.data = torch.randn(shape, device=CUDA, dtype=torch.bfloat16) * 0.03
            eager.load_state_dict(mlp.state_dict())
            torch.testing.assert_close(mlp(x), eager(x), rtol=2e-2, atol=2e-2)


def test_more_than_2_to_31_elements():
    m, d, h = 140_032, 512, 16_384
    x, weights = made(m, d, h)
    product, _, _ = launch.gate_up_forward(x, weights, "gelu_tanh", False)
    tail, _, _ = launch.gate_up_forward(x[-1024:], weights, "gelu_tanh", False)
    assert torch.equal(product[-1024:], tail)


def test_sliced_and_strided_inputs():
    x, weights = made(300, 768, 1536)
    expected = gated_mlp(x, weights, "gelu")
    wide = torch.zeros(300, 1000, dtype=x.dtype, device=CUDA)
    for start in (0, 8, 1):  # read in place twice, copied once
        wide[:, start : start + 768] = x
        assert torch.equal(gated_mlp(wide[:, start : start + 768], weights, "gelu"), expected)
    assert torch.equal(gated_mlp(x.T.contiguous().T, weights, "gelu"), expected)
    assert torch.equal(
        gated_mlp(x[:1].expand(300, -1), weights, "gelu")[7], gated_mlp(x[:1].expand(300, -1), weights, "gelu")[0]
    )


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("tokens", [3, 300])
def test_backward_keeps_x_gate_and_up_alone_and_changes_nothing(tokens, recompute):
    x, weights = made(tokens, 768, 1536, bias=True)
    leaves = [x, *weights]
    for leaf in leaves:
        leaf.requires_grad_()
    before = [leaf.detach().clone() for leaf in leaves]
    own = {leaf.untyped_storage().data_ptr() for leaf in weights}
    kept = {}

    def keep(tensor):
        if tensor.untyped_storage().data_ptr() not in own:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        y = gated_mlp(x, Weights(*weights), "gelu_tanh", recompute=recompute)
    assert sum(kept.values()) == x.nbytes + (0 if recompute else 2 * tokens * 1536 * 2)
    dy = torch.randn_like(y)
    first = torch.autograd.grad(y, leaves, dy, retain_graph=True)
    second = torch.autograd.grad(y, leaves, dy)
    for one, two in zip(first, second, strict=True):
        assert torch.equal(one, two)
    for leaf, old in zip(leaves, before, strict=True):
        assert torch.equal(leaf, old)
        assert leaf._version == 0
    y = gated_mlp(x, Weights(*weights), "gelu_tanh", recompute=recompute)
    (dx,) = torch.autograd.grad(y.sum() + (x * x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(dx.sum(), x)


def test_a_compiled_training_step_is_a_plain_one():
    mlp = GatedMLP(MLPSpec(hidden_size=256, intermediate_size=512, bias=True), device=CUDA, backend="fused")
    x = torch.randn(300, 256, device=CUDA, dtype=torch.bfloat16, requires_grad=True)
    leaves = [x, *mlp.parameters()]
    plain = torch.autograd.grad(mlp(x).float().square().sum(), leaves)
    compiled = torch.compile(mlp, fullgraph=True)
    for one, two in zip(plain, torch.autograd.grad(compiled(x).float().square().sum(), leaves), strict=True):
        torch.testing.assert_close(one, two, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("tokens", [1, 300])
def test_two_kernels_and_no_copy(tokens):
    mlp = GatedMLP(MLPSpec(hidden_size=768, intermediate_size=1536), device=CUDA, backend="fused")
    x = torch.randn(tokens, 768, device=CUDA, dtype=torch.bfloat16)
    with torch.no_grad():
        for _ in range(3):
            mlp(x)
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            mlp(x)
            torch.cuda.synchronize()
    names = [event.name for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    kernels = [name for name in names if not name.startswith(("Memset", "Memcpy"))]
    assert len(kernels) <= 3, names  # cuBLAS may split the down product's sum and add it up in a third
    assert "gate_up" in kernels[0]
    assert not any(name.startswith("Memcpy") for name in names)


def test_every_launch_is_seen_by_hooks():
    from triton import knobs

    x, weights = made(300, 768, 1536)
    gated_mlp(x, weights, "gelu_tanh")
    seen = []
    knobs.runtime.launch_enter_hook.add(lambda metadata: seen.append(metadata.get()))
    try:
        gated_mlp(x, weights, "gelu_tanh")
    finally:
        knobs.runtime.launch_enter_hook.calls.clear()
    assert len(seen) == 1
    assert seen[0]["flops16"] == 4 * 300 * 768 * 1536
    assert seen[0]["bytes"] == 2 * (300 * 768 + 2 * 768 * 1536 + 300 * 1536)


def test_unsupported_sizes_are_refused_with_the_number():
    reason = backend.load("fused").unsupported(MLPSpec(hidden_size=72, intermediate_size=208), None)
    assert reason == "hidden_size must be a multiple of 16, got 72"
