"""docs/validate.md: its table is what the recorded run gives."""

from __future__ import annotations

import json

from support.paths import RESULTS, ROOT

from mlpfusion.spec import DTYPES

DOCS = (ROOT / "docs" / "validate.md").read_text(encoding="utf-8")
RECORDED = json.loads((RESULTS / "cpu-false-alarms.json").read_text(encoding="utf-8"))


def worst(form: str, dtype: str, score: str) -> float:
    return max(scale[score] for scale in RECORDED["forms"][form][dtype]["worst"].values())


def test_the_table_of_false_alarms() -> None:
    chosen, plain = "d_gate by 2^-21·|dy·u|·(1 + |g|)", "d_gate by 2^-22·|dy·u|, as in the forward"
    rows = DOCS.split("<!-- alarms -->\n", 1)[1].split("<!-- /alarms -->", 1)[0].splitlines()
    assert len(rows) == len(RECORDED["forms"])
    for row, form in zip(rows, RECORDED["forms"], strict=True):
        scores = [worst(form, dtype, score) for score in ("y", "d_up", chosen) for dtype in DTYPES]
        assert row == f"| {form} | {' | '.join(f'{score:.2f}' for score in scores)} |"
        assert max(scores) < RECORDED["limit"]
    by_plain = {form: f"{max(worst(form, dtype, plain) for dtype in DTYPES):.1f}" for form in RECORDED["forms"]}
    said = (
        f"up to {by_plain['eager']} for eager and\nInductor, {by_plain['tanh form']} for the tanh form and "
        f"{by_plain['sigmoid form']} for the sigmoid form"
    )
    assert said in DOCS


def test_no_right_form_raised_an_alarm() -> None:
    assert RECORDED["seeds"] == 200
    assert RECORDED["false_alarms"] == RECORDED["beyond_in_sweep"] == 0
