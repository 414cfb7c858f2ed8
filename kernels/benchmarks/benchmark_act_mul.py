"""act·mul beside PyTorch's operators, for `kernels benchmark`."""

import torch
from kernels.benchmark import Benchmark


class ActMul(Benchmark):
    """[M, H] = [8192, 3072] in bfloat16 on a GPU; [64, 96] in float32 in Triton's interpreter."""

    seed = 0

    def setup(self) -> None:
        on_cpu = self.device == "cpu"
        shape, dtype = ((64, 96), torch.float32) if on_cpu else ((8192, 3072), torch.bfloat16)
        # Products stay under 2, where one bfloat16 ulp is 0.0078 and the runner's tolerance is 0.01.
        self.gate, self.up = (torch.empty(shape, device=self.device).uniform_(-1.4, 1.4).to(dtype) for _ in range(2))
        self.packed = torch.cat([self.gate, self.up], dim=-1)

    def benchmark_gelu_tanh(self) -> None:
        self.out = self.kernel.act_mul(self.gate, self.up, "gelu_tanh")

    def verify_gelu_tanh(self) -> torch.Tensor:
        return self.kernel.act_mul_reference(self.gate, self.up, "gelu_tanh")

    def benchmark_silu(self) -> None:
        self.out = self.kernel.act_mul(self.gate, self.up, "silu")

    def verify_silu(self) -> torch.Tensor:
        return self.kernel.act_mul_reference(self.gate, self.up, "silu")

    def benchmark_packed_gelu_tanh(self) -> None:
        gate, up = self.packed.chunk(2, dim=-1)
        self.out = self.kernel.act_mul(gate, up, "gelu_tanh")

    def verify_packed_gelu_tanh(self) -> torch.Tensor:
        return self.kernel.act_mul_reference(self.gate, self.up, "gelu_tanh")
