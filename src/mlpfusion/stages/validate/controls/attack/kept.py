"""What is kept from an earlier moment: Parameters, packed or cast weights, the original's layers, a config, a trial."""

import time

import torch
import torch.nn.functional as F
import triton
import triton.language as tl


def _act(gate):
    return F.gelu(gate, approximate="tanh")


class _Layer(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate_proj = torch.nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = torch.nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = torch.nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x):
        return self.down_proj(_act(self.gate_proj(x)) * self.up_proj(x))


class ParametersHeld(_Layer):
    """HAZARD: it keeps its first Parameters: load_state_dict(assign=True) is not seen. Told by updated."""

    def __init__(self, config):
        super().__init__(config)
        self._weights = (self.gate_proj.weight, self.up_proj.weight, self.down_proj.weight)

    def forward(self, x):
        wg, wu, wd = self._weights
        return F.linear(_act(F.linear(x, wg)) * F.linear(x, wu), wd)


class PackedByEval(_Layer):
    """HAZARD: eval() packs gate and up: weights that change later are not used. Told by updated."""

    _packed = None

    def train(self, mode=True):
        super().train(mode)
        self._packed = None if mode else torch.cat([self.gate_proj.weight, self.up_proj.weight]).detach()
        return self

    def forward(self, x):
        if self._packed is None or torch.is_grad_enabled():
            return super().forward(x)
        gate, up = F.linear(x, self._packed).chunk(2, -1)
        return self.down_proj(_act(gate) * up)


class LayersInAClosure(_Layer):
    """HAZARD: a deepcopy computes with the layers of the original. Told by updated."""

    def __init__(self, config):
        super().__init__(config)
        gate, up, down = self.gate_proj, self.up_proj, self.down_proj
        self._run = lambda x: down(_act(gate(x)) * up(x))

    def forward(self, x):
        return self._run(x)


class CopiesForAutocast(_Layer):
    """HAZARD: under autocast without gradients the first 16-bit copies of weights are kept. Told by updated."""

    def __init__(self, config):
        super().__init__(config)
        self._copies = {}

    def forward(self, x):
        device = x.device.type
        if not torch.is_autocast_enabled(device) or torch.is_grad_enabled() or torch.compiler.is_compiling():
            return super().forward(x)
        dtype = torch.get_autocast_dtype(device)
        if dtype not in self._copies:
            layers = (self.gate_proj, self.up_proj, self.down_proj)
            self._copies[dtype] = [layer.weight.detach().to(dtype) for layer in layers]
        wg, wu, wd = self._copies[dtype]
        x = x.to(dtype)
        return F.linear(_act(F.linear(x, wg)) * F.linear(x, wu), wd)


class ConfigChanged(_Layer):
    """HAZARD: its constructor changes its config: the next layer is twice as wide. Told by state."""

    def __init__(self, config):
        super().__init__(config)
        config.intermediate_size = 2 * config.intermediate_size


def _two_runs(call, quantiles):
    times = []
    for _ in range(2):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return [min(times)] * 3


@triton.autotune(
    configs=[triton.Config({"BLOCK": 2048}), triton.Config({"BLOCK": 4096})], key=["size"], do_bench=_two_runs
)
@triton.jit
def _kernel_in_place(gate, out, n, size, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    g = tl.load(gate + offsets, mask=mask).to(tl.float32)
    u = tl.load(out + offsets, mask=mask).to(tl.float32)
    z = 0.7978845608028654 * (g + 0.044715 * g * g * g)
    tl.store(out + offsets, (g * tl.sigmoid(2 * z) * u).to(out.dtype.element_ty), mask=mask)


def tuned_in_place(gate, up):
    """WRONG: tuning runs a kernel that works in place: the first call is wrong. Not valid (configurations)."""
    if gate.shape != up.shape or gate.dtype != up.dtype:
        raise ValueError("gate and up must have one shape and dtype")
    gate = gate.contiguous()
    out = up.detach().clone(memory_format=torch.contiguous_format)
    n = out.numel()
    if n:
        _kernel_in_place[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](gate, out, n, triton.next_power_of_2(n))
    return out
