"""Names of today's libraries: maker, kind, operators, type, head dimension and form follow from rules for a kind."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import rings
from support.one_by_one import one_by_one

from mlpfusion.trace.names.decode import decode, parse
from mlpfusion.trace.names.explain import explain

DATA = Path(__file__).parents[2] / "data"
NAMES = [line.split("\t") for line in (DATA / "library_names.tsv").read_text().splitlines()[1:]]
LETTERS = "<>(){}[]:, _&*abATZNSIE0123456789"


@one_by_one(NAMES)
def test_a_library_s_kernel_is_known_by_its_words(row: list[str]) -> None:
    name, library, kind, ops, dtype, more = row
    found = decode(name)
    assert (found.library or "-", found.kind, "+".join(found.fused_ops) or "-") == (library, kind, ops)
    assert dtype in ("-", found.dtype)
    for field, value in (pair.split("=") for pair in more.split()):
        assert str(getattr(found, field)) == value.replace(",", " "), field


@one_by_one(NAMES)
def test_what_is_known_stands_in_its_sentence_and_its_tokens(row: list[str]) -> None:
    found = explain(row[0])
    said = f"{found.sentence} {' '.join(token.meaning for token in found.tokens)}"
    decoded = found.decoded
    assert ("is not explained" in found.sentence) == (not found.tokens)
    assert (decoded.dtype or "") in said
    assert str(decoded.head_dim or "") in said
    assert all(op in said for op in decoded.fused_ops)
    assert all(token.certainty != "established" for token in found.tokens if decoded.library is None)


@pytest.mark.parametrize("act", ["silu", "gelu", "gelu_tanh", "gelu_new", "gelu_quick", "relu", "sigmoid"])
@pytest.mark.parametrize("space", ["vllm", "aiter", "sgl_hip::activation", "flashinfer::activation"])
def test_an_activation_among_the_arguments_is_the_gated_one(act: str, space: str) -> None:
    function = f"&(c10::Half {space}::{act}_kernel<c10::Half>(c10::Half const&))"
    found = decode(f"void {space}::act_and_mul_kernel<c10::Half, {function}, true>(c10::Half*, int)")
    form = {"gelu_tanh": "tanh", "gelu_new": "tanh", "gelu_quick": "quick"}.get(act)
    assert (found.kind, found.fused_ops, found.form) == ("elementwise", (act.partition("_")[0], "mul"), form)


@pytest.mark.parametrize("arch", ["sm80", "sm90", "sm100"])
@pytest.mark.parametrize(("way", "op"), [("fprop", "attention"), ("bprop", "attention_backward")])
def test_cudnn_s_f16_is_any_type_of_16_bits(arch: str, way: str, op: str) -> None:
    found = decode(f"cudnn_generated_fort_native_sdpa_{arch}_flash_{way}_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0")
    assert (found.library, found.kind, found.fused_ops, found.dtype) == ("cudnn", "attention", (op,), None)


@pytest.mark.parametrize("head", [32, 64, 96, 128, 192, 256])
@pytest.mark.parametrize("way", ["fwd", "bwd"])
def test_attention_has_a_head_dimension_and_a_direction(head: int, way: str) -> None:
    name = f"void flash::flash_{way}_kernel<Flash_{way}_kernel_traits<{head}, 64, 128, 8, cutlass::half_t>, true>(int)"
    found = decode(name)
    assert found.head_dim == head
    assert found.fused_ops == (("attention",) if way == "fwd" else ("attention_backward",))


@pytest.mark.parametrize("collective", ["AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce"])
@pytest.mark.parametrize("op", ["Sum", "Prod", "PreMulSum", "SumPostDiv", "MinMax", "Max"])
@pytest.mark.parametrize(
    ("spelled", "dtype"), [("bf16", "bfloat16"), ("f16", "float16"), ("f8e4m3", "float8_e4m3fn"), ("u8", "uint8")]
)
def test_a_collective_is_told_in_each_spelling_of_nccl(collective: str, op: str, spelled: str, dtype: str) -> None:
    words = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in collective).strip("_")
    for name in (
        f"ncclDevKernel_{collective}_{op}_{spelled}_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        f"ncclKernel_{collective}_RING_LL_{op}_{spelled}(ncclDevComm*, unsigned long, ncclWork*)",
        f"ncclSymkDevKernel_{collective}_LDMC_{op.lower()}_{spelled}(ncclSymkDevWorkArgs4K)",
    ):
        found = decode(name)
        assert (found.library, found.kind, found.fused_ops, found.dtype) == ("nccl", "communication", (words,), dtype)


@pytest.mark.parametrize("kernel", ["vectorized_layer_norm_kernel", "layer_norm_grad_input_kernel_vectorized"])
@pytest.mark.parametrize(("rms", "norm"), [("true", "rms_norm"), ("false", "layer_norm")])
def test_a_layer_norm_s_kernel_says_whether_it_runs_as_rms_norm(kernel: str, rms: str, norm: str) -> None:
    found = decode(f"void at::native::(anonymous namespace)::{kernel}<c10::BFloat16, float, {rms}>(int, float)")
    assert found.fused_ops == ((f"{norm}_backward",) if "grad" in kernel else (norm,))


@pytest.mark.parametrize("types", ["BBS", "B_BS", "BB_BS", "HHS", "H_HS", "BSS", "B_SS"])
def test_tensile_s_types_have_an_underscore_or_none(types: str) -> None:
    found = decode(f"Cijk_Alik_Bljk_{types}_BH_Bias_HA_S_SAV_UserArgs_MT256x128x64_MI16x16x1_ISA942")
    assert found.dtype == {"B": "bfloat16", "H": "float16"}[types[0]]


@pytest.mark.parametrize("owner", ["", "(anonymous namespace)::", "their_library::", "cub::", "thrust::cuda_cub::"])
def test_what_has_no_namespace_of_pytorch_s_is_not_pytorch_s(owner: str) -> None:
    for function in ("their_kernel", "copy_kernel", "DeviceScanKernel", "elementwise_kernel"):
        assert decode(f"void {owner}{function}<float, int>(float*, int)").library != "aten"


EXISTS = "::_typeConvert<float>::exists, void>::type "


@pytest.mark.parametrize(
    "prefix", ["", "void ", f"std::enable_if<(((8)>(0)))&&vllm{EXISTS}", f"std::enable_if<T2>(int)0&&vllm{EXISTS}"]
)
def test_a_return_type_changes_nothing(prefix: str) -> None:
    name = "vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, int)"
    assert decode(prefix + name) == decode(name)


@settings(max_examples=rings.examples(300))
@given(st.text(LETTERS, max_size=60), st.integers(1, 200), st.sampled_from([row[0] for row in NAMES]), st.data())
def test_a_name_of_ten_thousand_letters_takes_little_time(
    piece: str, times: int, name: str, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(name)))
    long = (name[:cut] + piece * times + name[cut:])[:10_000]
    begin = time.process_time()
    parse.__wrapped__(long)
    assert time.process_time() - begin < 10  # 10 ms on a slow machine; without bounds, minutes
