"""What kernel names mean, as text, Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json

import pytest

from mlpfusion.errors import UsageError
from mlpfusion.records.profile import Decoded, Explanation, Token
from mlpfusion.report.explain import render

PLAIN = Explanation(
    name="mul|add",
    sentence="an elementwise kernel that does mul|add",
    decoded=Decoded(),
    tokens=(
        Token(text="mul", meaning="a product", certainty="established"),
        Token(text="add", meaning="a sum", certainty="likely"),
    ),
)
MANGLED = Explanation(name="_Z1fv", sentence="a function", decoded=Decoded(), tokens=(), demangled="f()")


def test_text_has_each_name_its_sentence_and_its_tokens() -> None:
    first, second = render([PLAIN, MANGLED]).rstrip("\n").split("\n\n")
    name, sentence, _, _, *tokens = first.splitlines()
    assert (name, sentence) == (PLAIN.name, PLAIN.sentence)
    assert [line.split() for line in tokens] == [["mul", "a", "product", "established"], ["add", "a", "sum", "likely"]]
    assert second.splitlines() == ["_Z1fv", "f()", "a function"]


def test_a_name_that_is_its_own_cpp_spelling_is_shown_once() -> None:
    same = Explanation(name="f()", sentence="a function", decoded=Decoded(), tokens=(), demangled="f()")
    assert render([same]).splitlines() == ["f()", "a function"]


def test_markdown_sets_names_as_code_and_escapes_what_would_be_a_table() -> None:
    text = render([PLAIN, MANGLED], "github")
    assert "**`mul|add`**\n\nan elementwise kernel that does mul\\|add\n\n| token" in text
    assert "**`_Z1fv`**\n\n`f()`\n\na function" in text


def test_csv_has_a_line_for_each_token_and_json_everything() -> None:
    lines = list(csv.DictReader(io.StringIO(render([PLAIN, MANGLED], "csv"))))
    assert [(line["name"], line["token"], line["certainty"]) for line in lines] == [
        ("mul|add", "mul", "established"),
        ("mul|add", "add", "likely"),
    ]
    found = json.loads(render([PLAIN, MANGLED], "json"))
    assert (found["schema"], found["kind"]) == (1, "explanations")
    assert [one["demangled"] for one in found["names"]] == [None, "f()"]


def test_nothing_in_a_name_steers_the_terminal() -> None:
    bad = Explanation(name="k\x1b[2J", sentence="\x07", decoded=Decoded(), tokens=())
    assert render([bad]).isprintable() is False  # its line ends
    assert all(line.isprintable() for line in render([bad]).splitlines())


def test_a_format_that_is_none() -> None:
    with pytest.raises(UsageError, match="unknown format 'pdf'; valid: text, github, csv, json"):
        render([PLAIN], "pdf")
