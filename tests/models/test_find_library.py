"""Real MLPs of libraries: nested, wrapped, adapted or patched, each is swapped or refused with a true reason."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.plain_mlp import Plain
from torch import Tensor, nn
from torch.nn import functional

from mlpfusion.errors import NothingSwappedError
from mlpfusion.models.find import Found, Refused, probe
from mlpfusion.models.swap import swap

transformers: Any = pytest.importorskip("transformers")
SMALL: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}


def swapped_like_before(module: nn.Module) -> Any:
    """The one module that a swap took, after the same output of both."""
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.2)
    x = torch.randn(2, 3, 32)
    with torch.no_grad():
        before = module(x)
        with swap(module, "eager") as handle:
            torch.testing.assert_close(module(x), before)
            (found,) = handle.swapped
    return found


def test_clvps_gate_is_inside_a_part() -> None:
    from transformers.models.clvp.modeling_clvp import ClvpEncoderMLP

    found = swapped_like_before(ClvpEncoderMLP(transformers.ClvpEncoderConfig(**SMALL)).eval())
    assert found.layers == {"gate_up": "fc1.proj", "down": "fc2"}


@pytest.mark.parametrize("clips", [False, True])
def test_gemma_4s_wrapped_linears_that_may_clip(clips: bool) -> None:
    from transformers.models.gemma4.modeling_gemma4 import Gemma4VisionMLP

    config = transformers.Gemma4VisionConfig(**SMALL, use_clipped_linears=clips)
    found = swapped_like_before(Gemma4VisionMLP(config).eval())
    assert found.layers == {"gate": "gate_proj.linear", "up": "up_proj.linear", "down": "down_proj.linear"}


def test_gemma_4s_linears_that_do_clip_are_refused() -> None:
    from transformers.models.gemma4.modeling_gemma4 import Gemma4VisionMLP

    module = Gemma4VisionMLP(transformers.Gemma4VisionConfig(**SMALL, use_clipped_linears=True)).eval()
    module.up_proj.output_max.fill_(3.0)
    found = probe(module)
    assert isinstance(found, Refused)
    assert "extra maths" in found.reason


def test_zamba_2s_mlp_with_an_adapter_for_each_layer_is_refused() -> None:
    from transformers.models.zamba2.modeling_zamba2 import Zamba2MLP

    config = transformers.Zamba2Config(**SMALL, layers_block_type=["mamba", "hybrid"])
    found = probe(Zamba2MLP(config, num_fwd_mem_blocks=1, block_id=0).eval())
    assert isinstance(found, Refused)
    assert "cannot be run on one tensor" in found.reason


class GEGLU(nn.Module):
    """As diffusers writes it: one layer of up and then gate."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.proj = nn.Linear(width, 2 * inner)

    def forward(self, hidden_states: Tensor) -> Tensor:
        hidden_states, gate = self.proj(hidden_states).chunk(2, dim=-1)
        return hidden_states * functional.gelu(gate)


class FeedForward(nn.Module):
    """As diffusers writes it: the gate, a dropout and the last layer in a list."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.net = nn.ModuleList([GEGLU(width, inner), nn.Dropout(0.0), nn.Linear(inner, width)])

    def forward(self, hidden_states: Tensor) -> Tensor:
        for module in self.net:
            hidden_states = module(hidden_states)
        return hidden_states


def test_the_feed_forward_of_diffusers_is_swapped() -> None:
    found = swapped_like_before(FeedForward(32, 48).eval())
    assert found.spec.activation == "gelu"
    assert found.layers == {"gate_up": "net.0.proj", "down": "net.2"}


def test_a_list_of_layers_is_in_no_list() -> None:
    plain = Plain()
    assert isinstance(probe(plain), Found)
    assert probe(nn.ModuleList(plain.children())) is None


def test_models_that_liger_has_patched() -> None:
    patch = pytest.importorskip("liger_kernel.transformers.monkey_patch")
    from liger_kernel.transformers.swiglu import LigerSwiGLUMLP
    from transformers.models.llama.modeling_llama import LlamaMLP

    config = transformers.LlamaConfig(**SMALL)
    patched = LlamaMLP(config).eval()
    patch._patch_swiglu_module(patched, LigerSwiGLUMLP)  # what apply_liger_kernel_to_llama(model=…) does to each
    with pytest.raises(NothingSwappedError, match="its forward is replaced on the module itself"):
        swap(patched, "eager")
    of_class = LigerSwiGLUMLP(config).eval()  # what it does to models that are built later
    try:
        (found,) = swap(of_class, "eager").swapped
        assert found.spec.activation == "silu"
    except NothingSwappedError as error:
        assert "LigerSwiGLUMLP" in str(error)  # noqa: PT017  # without a GPU its kernel may not run at all
        assert "cannot be run on one tensor of float64" in str(error)  # noqa: PT017
