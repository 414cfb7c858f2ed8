"""Decoding kernel names: what is claimed of real names is right, and what a token does not establish is None."""

from __future__ import annotations

import json
import re
import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import rings
from support.mangled_names import MANGLED
from support.one_by_one import one_by_one
from support.paths import DATA

from mlpfusion.records.profile import Decoded
from mlpfusion.trace.names.decode import decode, parse
from mlpfusion.trace.names.parsed import LAYOUTS

NAMES = [line.split("\t") for line in (DATA / "kernel_names.tsv").read_text().splitlines()]
# What each of these names is known to say, checked by hand; fields that are not given are None.
DECODED = {
    entry["name"]: msgspec.convert(entry["decoded"], Decoded)
    for entry in map(json.loads, (DATA / "decoded_names.jsonl").read_text().splitlines())
}
# What the list of real names calls a family, and the libraries of ours that it may be.
LIBRARIES = {
    "aiter": {"aiter"},
    "aten-reduce": {"aten", "vllm"},
    "aten-unrolled": {"aten"},
    "aten-vec": {"aten"},
    "ck": {"ck"},
    "cublas-ampere": {"cublas"},
    "cublas-gemv": {"cublas"},
    "cublas-volta": {"cublas"},
    "cublas-xmma": {"cublas"},
    "cudnn": {"cudnn"},
    "cutlass2": {"cutlass"},
    "flash": {"flash-attention", "aiter", None},
    "inductor": {"inductor"},
    "nccl": {"nccl"},
    "nvjet": {"cublas"},
    "splitKreduce": {"cublas"},
    "tensile": {"tensile"},
    "triton-user": {"liger", None},
}
PRODUCTS = {"cublas-ampere", "cublas-gemv", "cublas-volta", "cublas-xmma", "cutlass2", "nvjet", "tensile"}
# Names that broke the decoder once.
BROKEN = (
    "sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x64_stage364x64_kernel",
    "cutlass3x_sm90_tensorop_gemm_f16_f16_f32_void_f16_128x256x64_2x1x1_" + "9" * 5000 + "_tnn_align8",
)
SPLIT = (
    "cutlass_80_tensorop_bf16_s16816gemm_bf16_128x64_32x6_splitKparallel_tn_align8",
    "cutlass3x_sm90_tensorop_s64x128x16gemm_bf16_bf16_f32_void_bf16_128x128x64_2x1x1_0_tnn_align8_splitk",
    "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize96x128x32_stage4_warpsize2x2x1_tensor16x8x16_splitKreduce_kernel",
    "ampere_bf16_s16816gemm_bf16_128x256_ldg8_splitK_stages_64x3_tn",
)


@one_by_one(map(tuple, NAMES))
def test_real_names_have_the_right_library(name: str, family: str) -> None:
    decoded = decode(name)
    assert decoded.library in LIBRARIES[family]
    assert (decoded.kind == "gemm") == (family in PRODUCTS)


@one_by_one(map(tuple, NAMES))
def test_a_product_of_a_library_tells_its_shape(name: str, family: str) -> None:
    decoded = decode(name)
    if family in PRODUCTS - {"cublas-gemv"} and "_mma_" not in name:
        assert decoded.layout
        assert decoded.tile or "2cta" in name
        assert decoded.dtype
    if family == "cublas-gemv":
        assert decoded.dtype


@one_by_one(DECODED)
def test_decodes(name: str) -> None:
    assert decode(name) == DECODED[name]


def test_a_mangled_name_is_decoded_like_its_spelling() -> None:
    for mangled, spelled in list(MANGLED.items())[:3]:
        assert decode(mangled) == decode(spelled or "")


@pytest.mark.parametrize(
    "name",
    [
        "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT",
        "nvjet_sm90_tst_192x128_64x5_1x2_v_bz_coopB_TNN",
        "nvjet_sm100_qqtst_64x32_64x16_2x1_2cta_v_bz_splitK_TNT",
    ],
)
def test_what_is_not_established_is_said_to_be_unknown(name: str) -> None:
    certainty = {token.text: token.certainty for token in parse(name).tokens}
    for text in ("h", "v", "bz", "coopA", "coopB", "T", "N"):
        assert certainty.get(text, "unknown") == "unknown"
    assert certainty["TN"] == "established"
    if "2cta" in name:
        assert certainty["64x32"] == "unknown"
    else:
        assert {certainty[text] for text in certainty if text in ("256x128", "64x4", "192x128", "64x5")} == {
            "established"
        }


@one_by_one(sorted({*DECODED, *(name for name, _ in NAMES), *SPLIT}))
def test_a_field_rests_on_a_token_of_known_meaning(name: str) -> None:
    decoded, tokens = parse(name)
    said = " ".join(f"{token.text} {token.meaning}" for token in tokens if token.certainty != "unknown")
    numbers = set(re.findall(r"\d+", said))
    fields = (decoded.tile, decoded.instruction, decoded.cluster, decoded.stages, decoded.alignment, decoded.vector)
    assert {number for field in fields for number in re.findall(r"\d+", str(field))} <= numbers
    assert (decoded.arch or "").removeprefix("sm")[:3] in said.replace(".", "")
    assert (decoded.dtype or "") in said
    assert decoded.layout is None or LAYOUTS[decoded.layout] in said
    assert not decoded.split_k or re.search("split|SK|stream-K", said)
    assert all(word.split("_")[0] in said for word in decoded.epilogue)
    assert decoded.library is None or tokens


@pytest.mark.parametrize("name", SPLIT)
def test_a_split_along_k_is_told(name: str) -> None:
    assert decode(name).split_k


def test_a_relu_in_a_name_is_not_taken_for_applied() -> None:
    for name in ("cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_32x6_tn_align8",
                 "ampere_bf16_s16816gemm_bf16_64x64_ldg8_relu_f2f_stages_64x5_tn"):  # fmt: skip
        assert [token.certainty for token in parse(name).tokens if token.text == "relu"] == ["unknown"]
        assert decode(name).epilogue == decode(name).fused_ops == ()


@pytest.mark.parametrize("name", BROKEN, ids=lambda name: name[:40])
def test_numbers_of_another_form_are_unknown(name: str) -> None:
    assert decode(name).stages is None


@given(st.text(max_size=200))
def test_any_text_is_decoded(name: str) -> None:
    assert decode(name).kind


@given(st.text(st.sampled_from("_ZNSTIELDFJKPRXUltsrvifbjm0123456789"), max_size=120))
def test_any_mangled_text_is_decoded(name: str) -> None:
    assert decode(f"_ZN{name}").kind


@given(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3), st.data())
def test_any_mixture_of_real_names_is_decoded(parts: list[list[str]], data: st.DataObject) -> None:
    name = "".join(part[: data.draw(st.integers(0, len(part)))] for part, _ in parts)
    assert decode(name).kind


PIECES = sorted({piece for name, _ in NAMES for piece in re.split(r"(?<=[_<,( ])", name)})


@given(st.sampled_from([name for name, _ in NAMES] + list(DECODED)), st.lists(st.sampled_from(PIECES)), st.data())
def test_any_pieces_of_real_names_are_decoded(name: str, pieces: list[str], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(name)))
    assert decode(name[:cut] + "".join(pieces) + name[cut:]).kind


@settings(max_examples=rings.examples(60))
@given(st.sampled_from([name for name, _ in NAMES] + list(DECODED)), st.integers(1, 30), st.data())
def test_a_long_name_takes_bounded_time(name: str, times: int, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(name)))
    long = name[:cut] + name[cut : cut + 20] * times * 50 + name[cut:]
    begin = time.process_time()  # whatever else the machine does
    parse(long)
    assert time.process_time() - begin < 10  # single names take well below a millisecond; without a bound, minutes
