"""Placeholders: one for each name, no word of it, and alike exactly where names are one name with a parameter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlpfusion.trace.calls.select import template
from mlpfusion.trace.read.placeholders import Placeholders

KNOWN = (
    "mlpfusion.call", "ProfilerStep#12", "Torch-Compiled Region: 0/1", "nccl:all_reduce", "record_param_comms",
    "Optimizer.step#AdamW.step", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    "TorchDynamo Cache Lookup", "_compile.compile_inner (dynamo_timed)", "## Call CompiledFxGraph fabc123 ##",
    "DistributedDataParallel.forward", "PyTorch Profiler (0)",
)  # fmt: skip
NAMES = st.one_of(
    st.text(max_size=20),
    st.builds(
        "{}_{}({})_{}".format,
        st.sampled_from(["secret", "execute_context"]),
        st.integers(0, 40),
        st.integers(0, 3),
        st.sampled_from(["generation", "fp16", "step3"]),
    ),
)


@pytest.mark.parametrize("name", KNOWN)
def test_what_pytorch_writes_itself_is_kept(name: str) -> None:
    assert Placeholders().of(name, "annotation") == name


@pytest.mark.parametrize("name", ["Optimizer.step#SecretSauce.step", "torch.secret", "FSDP::x (secret.0)", "## secret"])
def test_a_word_of_a_user_s_in_an_annotation_of_pytorch_s_goes(name: str) -> None:
    found = Placeholders().of(name, "annotation")
    assert "ecret" not in found
    assert found.startswith(name[:3])


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("nn.Module: SecretMLP_0", "nn.Module: Module_a_0"),
        ("nn.Module: Linear_12", "nn.Module: Linear_12"),
        ("secret/model.py(170): forward", "frame_a 0"),
        ("torch/nn/modules/module.py(1775): _call_impl", "torch/nn/modules/module.py(1775): _call_impl"),
        ("<built-in method secret of type object at 0x7f>", "frame_a 0x0"),
    ],
)
def test_frames_and_modules(name: str, shown: str) -> None:
    assert Placeholders().of(name, "python") == shown


@given(st.lists(NAMES, max_size=12))
def test_names_are_told_apart_and_grouped_as_before(names: list[str]) -> None:
    given_out = Placeholders()
    shown = [given_out.of(name, "annotation") for name in names]
    for name, one in zip(names, shown, strict=True):
        for other, another in zip(names, shown, strict=True):
            assert (name == other) == (one == another)
            assert (template(name) == template(other)) == (template(one) == template(another))


@given(st.lists(NAMES, max_size=12))
def test_placeholders_have_placeholders_of_their_own(names: list[str]) -> None:
    first, second = Placeholders(), Placeholders()
    shown = [first.of(name, "annotation") for name in names]
    assert [second.of(name, "annotation") for name in shown] == shown
