"""The checks of who computes a result and when, each by faults of its own."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
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
            ("good.py:exact_exp", "valid", "its own kernels make the result, by 1 launch of Triton's"),
        ]
    ),
)
def test_a_launch_counts_if_the_result_depends_on_it(bench, control, word, words):
    verdict = checked.of_control(bench, control, "own-kernel", "float32")
    assert verdict.word in {word, "not decidable here"}
    (told,) = {each.sentence for each in verdict.checks if each.name == "own-kernel"}
    assert words in told


def test_a_graph_of_an_earlier_call_is_not_taken_for_another_author():
    facts = {"launched": 0, "tried": 0, "replays": 1, "operators": []}
    exam = SimpleNamespace(plain=(2, 3), operands=lambda *_: {}, ask=lambda *_: ({}, facts))
    found = authorship.own_kernel(exam, "float32")
    assert found.status == "reported"
    assert "captured before" in found.sentence
