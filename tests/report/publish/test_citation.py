"""BibTeX entries: whole, escaped, and of the file that is named."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.paths import RESULTS, ROOT

from mlpfusion.report.publish import citation
from mlpfusion.storage import results

PROFILE = results.load(RESULTS / "h200-profile.json")
DIGEST = "0123456789abcdef" * 4


def braces(text: str) -> int:
    """How many braces stay open; an escaped one is none."""
    plain = re.sub(r"\\[{}]", "", text)
    assert plain.count("}") <= plain.count("{")
    return plain.count("{") - plain.count("}")


def test_a_version_is_cited_as_software() -> None:
    text = citation.of_version("1.2.3")
    assert text.startswith("@software{mlpfusion-1.2.3,\n  author")
    assert "version = {1.2.3}" in text
    assert text.endswith("\n}\n")
    assert braces(text) == 0


def test_a_profile_is_cited_by_workload_card_date_and_digest() -> None:
    text = citation.of_result(PROFILE, "h200-profile.json", DIGEST)
    assert text.startswith("@misc{mlpfusion-profile-0123456789ab,\n")
    assert r"gelu\_tanh MLP 768 $\times$ 3072, bfloat16, 8192 tokens, inference, on NVIDIA H200" in text
    assert f"date   = {{{PROFILE.created[:10]}}}" in text
    assert f"SHA-256 {DIGEST}" in text


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("h200-choose-article/choice.json", r"mlpfusion choice: article, gelu\_tanh MLP"),
        ("h200-choose-article/plan.json", "mlpfusion choice plan: "),
        ("h200-prove-gemma-2b-fused.json", "mlpfusion proof: fused in GemmaForCausalLM, on NVIDIA H200"),
    ],
)
def test_every_kind_of_result_can_be_cited(name: str, said: str) -> None:
    assert said in citation.of_result(results.load_any(RESULTS / name), name, DIGEST)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_no_name_of_a_card_or_a_file_breaks_an_entry(name: str) -> None:
    odd = replace(PROFILE, device=replace(PROFILE.device, name=name), created=name)
    text = citation.of_result(odd, name, DIGEST)
    assert braces(text) == 0
    assert not re.search(r"(?<!\\)[#%&_]", text.replace(f"mlpfusion-profile-{DIGEST[:12]}", ""))
    assert len([line for line in text.splitlines() if line]) == text.count("\n")


def test_the_file_for_citations_is_of_this_version() -> None:
    cff = (ROOT / "CITATION.cff").read_text("utf-8")
    version = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    assert version
    assert f"\nversion: {version[1]}\n" in cff
    assert f'title: "{citation.TITLE}"' in cff
