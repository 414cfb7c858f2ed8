"""Words and a table of who wins where."""

from __future__ import annotations

import re

from support import profiles_made as made
from support.paths import RESULTS
from support.reported import source

from mlpfusion.report.page import cases, standings
from mlpfusion.report.page.sources import gather
from mlpfusion.spec import MLPSpec, Workload

ROWS = (made.timed("eager", 100.0, 101.0), made.timed("fast", 80.0, 81.0), made.timed("near", 81.0, 80.0))


def said(*profiles):
    found = [source(each, f"{number}.json") for number, each in enumerate(profiles)]
    ranked = [cases.standing(case, "event_us") for case in cases.cases(found)]
    return list(standings.sentences(ranked, found)), standings.table(ranked)


def at(tokens, *rows):
    work = Workload(spec=MLPSpec(hidden_size=768, intermediate_size=3072), batch=1, seq=tokens)
    return made.profile(*rows, workload=work)


def test_a_sentence_has_the_interval_the_clock_and_the_source_of_each_number() -> None:
    (sentence,), _ = said(made.profile(*ROWS))
    assert "fast has the lowest event_us, L2 cold: 80.5 [80.0–81.0] µs" in sentence
    assert "inconclusive against near" in sentence
    assert sentence.endswith("Source: 0.json.")
    numbers = re.findall(r"\d+\.\d+x?(?! ?\[|\d|–|\])", sentence)
    assert not [each for each in numbers if each.endswith("x")], "a ratio without an interval"


def test_a_winner_alone_says_by_how_much() -> None:
    (sentence,), _ = said(made.profile(*ROWS[:2]))
    assert re.search(r"the next, eager, is behind: \d\.\d+x \[", sentence)


def test_nobody_wins_without_a_time() -> None:
    (sentence,), table = said(made.profile(made.HUB, made.LIGER, made.TRITON))
    assert "none is fastest" in sentence
    assert table.lines[0].cells[2].text == "–"


def test_a_case_without_a_winner_is_named_beside_those_with_one() -> None:
    sentences, _ = said(at(1, *ROWS), at(2, made.HUB))
    assert sentences[-1].startswith("Without a winner: ")
    assert "2 tokens (1.json)" in sentences[-1]


def test_many_cases_are_counted_and_the_table_has_all() -> None:
    sentences, table = said(*(at(tokens, *ROWS) for tokens in range(1, 13)))
    assert "Of 12 cases by event_us, no backend alone; 12 are inconclusive" in sentences[0]
    assert len(sentences) == 3
    assert len(table.lines) == 12


def test_the_ranges_of_a_choice_come_first() -> None:
    found = gather([str(RESULTS / "h200-choose-gemma-2b")])
    ranked = [cases.standing(case, "event_us") for case in cases.cases(found)]
    first = next(iter(standings.sentences(ranked, found)))
    assert first.startswith(
        "Chosen for gemma-2b in inference, by event_us: compile-max-autotune at 1 token; fused from"
    )
    assert first.endswith("(choice.json).")
