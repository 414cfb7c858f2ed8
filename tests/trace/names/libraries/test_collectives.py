"""Names of NCCL's kernels, made of their parts in each spelling: collective, type, algorithm, protocol."""

from __future__ import annotations

import pytest

from mlpfusion.trace.names.decode import decode, parse

OPERATIONS = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "Broadcast": "broadcast",
    "SendRecv": "send_recv",
}


@pytest.mark.parametrize("collective", OPERATIONS)
@pytest.mark.parametrize(
    ("short", "dtype"), [("f32", "float32"), ("bf16", "bfloat16"), ("f16", "float16"), ("u8", "uint8")]
)
@pytest.mark.parametrize("way", ["RING_LL", "TREE_LL128", "NVLS_SIMPLE", "COLLNET_DIRECT_SIMPLE"])
def test_the_spelling_of_today(collective: str, short: str, dtype: str, way: str) -> None:
    found = decode(f"ncclDevKernel_{collective}_Sum_{short}_{way}(ncclDevKernelArgsStorage<4096ul>)")
    assert (found.library, found.kind, found.dtype) == ("nccl", "communication", dtype)
    assert found.fused_ops == (OPERATIONS[collective],)
    algorithm, _, protocol = way.rpartition("_")
    assert found.form == f"{algorithm} {protocol}".lower()


@pytest.mark.parametrize("collective", OPERATIONS)
def test_older_spellings_say_the_same(collective: str) -> None:
    for name in (f"ncclKernel_{collective}_RING_LL_Sum_float", f"nccl{collective}RingLLKernel_sum_f32"):
        found = decode(name)
        assert (found.fused_ops, found.dtype, found.form) == ((OPERATIONS[collective],), "float32", "ring ll")


def test_symmetric_memory_is_told() -> None:
    found = decode("ncclSymkDevKernel_AllReduce_AGxLLMC_R_Sum_bf16")
    assert (found.fused_ops, found.dtype) == (("all_reduce",), "bfloat16")
    assert (found.form or "").startswith("symmetric ")


def test_one_kernel_for_all_says_which_ran_of_none() -> None:
    found = parse("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)")
    assert (found.decoded.library, found.decoded.fused_ops) == ("nccl", ())
    assert any("does not say which one ran" in token.meaning for token in found.tokens)
