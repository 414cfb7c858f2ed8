"""Verdicts and proofs among the files."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace
from support.checks_made import checked, self_test
from support.paths import RESULTS
from support.profiles_made import profile
from support.reported import source

from mlpfusion.errors import UsageError
from mlpfusion.records.bench import Bench
from mlpfusion.records.validation import Validation, Verdict
from mlpfusion.report.page import verdicts
from mlpfusion.report.page.sources import gather


def test_a_proof_has_its_word_and_its_whole_text() -> None:
    (found,) = verdicts.verdicts(gather([str(RESULTS / "h200-prove-gemma-2b-fused.json")]))
    assert found.name == "fused in GemmaForCausalLM, inference"
    assert found.word == "holds"
    assert "Errors against fp64" in found.text


def test_every_check_of_a_target_has_the_command_that_runs_it_again() -> None:
    found = [
        each for each in verdicts.verdicts(gather([str(RESULTS / "h200-validate.json.gz")])) if each.table is not None
    ]
    assert len(found) > 50
    for judged in found:
        assert judged.word in ("valid", "valid with hazards", "not valid", "not decidable here")
        assert all(line.cells[-1].text.startswith("mlpfusion validate") for line in judged.table.lines)


def test_a_file_of_verdicts_and_a_set_of_them_show_the_same() -> None:
    where = profile()
    check = replace(checked("values", "fail"), repro="mlpfusion validate t", shape=(3,))
    verdict = Verdict(
        target="t", kind="act_mul", activation="silu", word="not valid", headline="wrong", checks=(check,)
    )
    validation = Validation(
        schema=1,
        kind="validation",
        mlpfusion="0.1.0",
        created="2026-01-01T00:00:00+00:00",
        seed=1,
        device=where.device,
        environment=where.environment,
        verdicts=(verdict,),
    )
    content = {"judged": {"t": {"verdict": msgspec.to_builtins(verdict)}, "skipped": {"verdict": None}}}
    (one,) = verdicts.verdicts([source(validation)])
    (other,) = verdicts.verdicts([source(Bench(schema=1, kind="validation-set", content=content))])
    assert one.table is not None
    assert other.table is not None
    assert (one.word, one.table.lines) == (other.word, other.table.lines) == ("not valid", one.table.lines)
    assert [cell.text for cell in one.table.lines[0].cells] == [
        "values",
        "all",
        "fail",
        "of values",
        "mlpfusion validate t",
    ]


@pytest.mark.parametrize("content", [{}, {"judged": [1]}, {"judged": {"t": {"verdict": {"word": "fine"}}}}])
def test_a_damaged_set_is_one_line(content: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=r"^'result.json' is a damaged validation-set: [^\n]+$"):
        verdicts.verdicts([source(Bench(schema=1, kind="validation-set", content=content))])


def test_a_self_test_says_which_controls_were_judged_wrong() -> None:
    (found,) = verdicts.verdicts([source(self_test(), "self.json")])
    assert (found.name, found.word) == ("self-test (self.json)", "failed")
