"""`swap` and `prove` on a GPU: real kernels in a model, their trace and their times; on two GPUs where there are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.tiny_models import build, inputs

from mlpfusion.models.swap import swap
from mlpfusion.stages.prove.run import prove

pytest.importorskip("transformers")
WIDE: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "head_dim": 64}


def made(family: str, dtype: torch.dtype = torch.bfloat16) -> Any:
    model = build(family, **WIDE).to("cuda", dtype)
    return model, {name: value.cuda() for name, value in inputs(family, batch=4, seq=64).items()}


@pytest.mark.parametrize("family", ["gemma", "llama", "phi3"])
@pytest.mark.parametrize("backend", ["triton", "packed", "fused"])
def test_a_proof_holds_and_the_trace_shows_our_kernels(family: str, backend: str) -> None:
    model, given = made(family)
    with swap(model, backend) as handle:
        proof = prove(handle, given, rounds=20)
    assert proof.holds, proof.failures
    assert proof.speed is not None
    assert proof.speed.clock == "event_us"
    assert proof.speed.original.p20 is not None
    assert proof.memory is not None
    gone = {each.name for each in proof.kernels if each.original and not each.swapped}
    come = {each.name for each in proof.kernels if each.swapped and not each.original}
    assert gone
    assert come


def test_training_is_timed_and_goes_the_same_way() -> None:
    model, given = made("gemma")
    with swap(model, "fused") as handle:
        proof = prove(handle, given, rounds=6, mode="training")
    assert proof.holds, proof.failures
    assert proof.gradients is not None
    assert proof.speed is not None


def test_a_graph_backend_is_for_inference() -> None:
    model, given = made("llama")
    with swap(model, "fused-graph") as handle:
        proof = prove(handle, given, rounds=6)
    assert proof.holds, proof.failures
    assert proof.gradients is None
    assert "for inference" in proof.reasons["gradients"]


def test_generate_gives_the_same_tokens_in_float32() -> None:
    model, given = made("llama", torch.float32)
    options = {"max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False}
    before = model.generate(given["input_ids"], **options)
    with swap(model, "triton"):
        assert torch.equal(model.generate(given["input_ids"], **options), before)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("backend", ["triton", "packed", "fused", "fused-graph"])
def test_a_device_map_over_two_gpus(backend: str) -> None:
    accelerate = pytest.importorskip("accelerate")
    model, given = made("llama")
    places = dict.fromkeys(("model.embed_tokens", "model.rotary_emb", "model.layers.0"), 0)
    places |= dict.fromkeys(("model.layers.1", "model.norm", "lm_head"), 1)
    accelerate.dispatch_model(model, places)
    with torch.no_grad():
        before = model(**given).logits
        handle = swap(model, backend)
        assert [next(module.parameters()).device.index for module in handle.modules] == [0, 1]
        after = model(**given).logits
        torch.testing.assert_close(after, before, rtol=0.05, atol=0.05)
        handle.restore()
        assert torch.equal(model(**given).logits, before)
