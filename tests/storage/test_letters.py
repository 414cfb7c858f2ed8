"""What is printed of texts that may hold anything: no letter steers a terminal, none has a meaning on GitHub."""

from __future__ import annotations

import json
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlpfusion.storage.letters import code, escaped, markdown, printable

STEERING = [
    "\x00",
    "\x07",
    "\x08",
    "\x1b[2J",
    "\r",
    "\t",
    "\x7f",
    "\x85",
    "\x9b",
    "\u200e",
    "\u202e",
    "\u2066",
    "\u2028",
    "\ud800",
]


def test_printable_leaves_lines_alone() -> None:
    assert printable("a\x1b[0m\tb\r\n\u202eµ → –") == "a�[0m�b�\n�µ → –"


@pytest.mark.parametrize("steering", STEERING)
def test_no_letter_steers_a_terminal(steering: str) -> None:
    for made in (printable(f"a{steering}\nb"), escaped(json.dumps([f"a{steering}\n"], ensure_ascii=False, indent=1))):
        assert not {unicodedata.category(each) for each in made.replace("\n", "")} & {"Cc", "Cf", "Cs", "Zl", "Zp"}


@given(st.text())
def test_json_loses_nothing(text: str) -> None:
    written = escaped(json.dumps({text: [text]}, ensure_ascii=False, indent=1))
    assert json.loads(written) == {text: [text]}
    assert written.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("<b>|", "&lt;b>\\|"),
        ("`<b>`", "`<b>`"),
        ("`a` <img src=x> `<b>`", "`a` &lt;img src=x> `<b>`"),
        ("<i> ` <b>", "&lt;i> \\` &lt;b>"),
        ("`a` ` <b>", "\\`a\\` \\` &lt;b>"),
        ("``a` <i> ```", "\\`\\`a\\` &lt;i> \\`\\`\\`"),  # runs of different length are no code
        ("`a|b_*`", "`a\\|b_*`"),
        ("hidden_size, a__b", "hidden_size, a__b"),
        ("_a_ __init__ a_ _b", "\\_a\\_ \\_\\_init\\_\\_ a\\_ \\_b"),
        ("*a* **b** ~~c~~", "\\*a\\* \\*\\*b\\*\\* \\~\\~c\\~\\~"),
        ("@torvalds a@b", "@<!-- -->torvalds a@<!-- -->b"),
        ("#12 #c #", "#<!-- -->12 #c #"),
        ("# a\n## b", "\\# a\n\\#\\# b"),
        ("&lt;b&gt; a & b", "&amp;lt;b&amp;gt; a &amp; b"),
        ("[a](http://b) [0.9, 1.1]", "[a\\](http://b) [0.9, 1.1]"),
        ("![a][b] [c]: d", "![a\\][b] [c]: d"),
        ("[c]: d", "\\[c]: d"),
        ("$x$ \\a", "\\$x\\$ \\\\a"),
        ("- a\n+ b\n> c", "\\- a\n\\+ b\n\\> c"),
    ],
)
def test_markup_outside_code_is_text(text: str, written: str) -> None:
    assert markdown(text) == written


LIVE = st.lists(st.sampled_from([*"_*@&<|~[](`$#!a1 ", "__", "**", "``", "@a", "#1", "&amp;", "<b>", "](x)"])).map(
    "".join
)


@given(LIVE)
def test_nothing_is_live_outside_code(text: str) -> None:
    made = markdown(text)
    if "``" not in text and text.count("`") % 2 == 0:
        made = re.sub("`[^`]*`", "", made)
    plain = re.sub(r"\\[!-/:-@\[-`{-~]|[@#]<!-- -->|&amp;|&lt;", " ", made)
    assert not re.search(r"[*~$@&<`|\\]|#\d|\][(\[]", plain)


@given(LIVE.filter(lambda text: "`" not in text))
def test_an_escaped_text_reads_as_it_was(text: str) -> None:
    read = re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", markdown(text).replace("<!-- -->", ""))
    assert read.replace("&lt;", "<").replace("&amp;", "&") == text


@pytest.mark.parametrize("name", ["a`b", "``", "a\nb", "_@*"])
def test_code_is_of_one_piece(name: str) -> None:
    assert re.fullmatch("`[^`\n]*`", code(name))
