"""The checks of who computes a result and when, each by faults of its own."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from support import checked, rings

from mlpfusion.stages.validate.judge.checks import authorship

WRONG = {
    "late": """
        import threading, time
        out = torch.empty_like(gate)
        def work():
            time.sleep(0.005)
            with torch.no_grad():
                out.copy_(right(gate, up))
        threading.Thread(target=work).start()
        return out
    """,
    "many-calls": """
        if len(kept) > 300 and kept[-1].shape == gate.shape:
            return kept[-1]
        kept.append(right(gate, up))
        return kept[-1]
    """,
}

test_each_check_finds_the_fault_that_it_is_for, test_and_none_in_what_is_right = checked.judging(WRONG)


def test_who_computes_is_told(bench, tmp_path):
    verdict = checked.by(bench, tmp_path, "own-kernel", "return right(gate, up)")
    (told,) = {each.sentence for each in verdict.checks if each.name == "own-kernel"}
    assert told == "no kernel of its own was launched: PyTorch computed this (gelu, mul)"


@pytest.mark.parametrize(
    ("control", "word", "words"),
    rings.only_first(
        [
            ("authors.py:falls_back", "valid", "PyTorch computed this (gelu, mul); the launch that it tries raises"),
            ("authors.py:decoy_launched", "valid with hazards", "no kernel of its own was launched for 100% of the"),
            (
                "authors.py:decoy_times_one",
                "valid with hazards",
                "copies, or what is the same for other operands",
            ),
            ("authors.py:decoy_when_large", "valid with hazards", "no kernel of its own was launched for 100% of the"),
            ("authors.py:kernel_that_is_checked", "valid", "its own kernels make the result, by 1 launch of Triton's"),
            ("good.py:exact_exp", "valid", "its own kernels make the result, by 1 launch of Triton's"),
        ]
    ),
)
def test_a_launch_counts_if_the_result_depends_on_it(bench, control, word, words):
    verdict = checked.of_control(bench, control, "own-kernel", "float32")
    assert verdict.word in {word, "not decidable here"}
    (told,) = {each.sentence for each in verdict.checks if each.name == "own-kernel"}
    assert words in told


@pytest.mark.parametrize("launched", [0, 4])  # by an earlier call, or by this one
def test_a_graph_is_not_taken_for_another_author(launched):
    facts = {"launched": launched, "tried": launched, "replays": 1, "operators": []}
    exam = SimpleNamespace(plain=(2, 3), names=(), operands=lambda *_: {}, ask=lambda *_, **__: ({}, facts))
    found = authorship.own_kernel(exam, "float32")
    assert found.status == "reported"
    assert "a CUDA graph makes the result" in found.sentence


@pytest.mark.parametrize("replays", [0, 1])
def test_a_graph_that_a_call_has_captured_keeps_a_result_that_is_no_decoy_s(replays):
    """Of another shape than `plain`, in which none was captured before."""
    y = torch.ones(3, 5)

    def ask(probe, given, **options):
        is_plain = given["gate"].shape == (2, 3)
        results = {"y": y, "without nan": y + is_plain}
        return results, {"launched": 1, "tried": 1, "replays": 0 if is_plain else replays, "operators": []}

    exam = SimpleNamespace(
        kind="act_mul",
        plain=(2, 3),
        names=("gate",),
        launched={},
        operands=lambda dtype, shape, purpose: {"gate": torch.ones(shape)},
        ask=ask,
        some=lambda shapes: shapes[:1],
        lack=lambda dtype: "none",
    )
    assert authorship.own_kernel(exam, "float32").status == ("pass" if replays else "reported")
