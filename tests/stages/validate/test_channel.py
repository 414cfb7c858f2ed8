"""Messages between judge and worker: tensors arrive bit by bit."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import rings

from mlpfusion.stages.validate import channel

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool]


@settings(max_examples=rings.examples(40))
@given(
    shape=st.lists(st.integers(0, 5), max_size=4),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 1000),
    transposes=st.booleans(),
)
def test_a_tensor_arrives_as_it_was_sent(shape: list[int], dtype: torch.dtype, seed: int, transposes: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    tensor = (torch.randn(shape, generator=generator) * 3).to(dtype)
    if transposes and tensor.dim() > 1:
        tensor = tensor.transpose(0, 1)
    message = channel.Ask(probe="forward", tensors=channel.pack({"x": tensor}), options={"times": 3})
    arrived = channel.decode_request(channel.encode(message))
    assert isinstance(arrived, channel.Ask)
    assert torch.equal(channel.unpack(arrived.tensors)["x"], tensor)
    assert arrived.options == {"times": 3}


def test_nan_payloads_and_subnormals_keep_their_bits() -> None:
    bits = torch.arange(2**16, dtype=torch.int32).to(torch.int16)
    for dtype in (torch.float16, torch.bfloat16):
        arrived = channel.unpack(channel.pack({"x": bits.view(dtype)}))["x"]
        assert torch.equal(arrived.view(torch.int16), bits)


def test_bytes_that_are_no_message_are_refused() -> None:
    with pytest.raises(ValueError, match="3 bytes are no message"):
        channel.unframed(b"abc")
