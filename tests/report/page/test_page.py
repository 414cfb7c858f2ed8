"""The page as a whole, as it is without a script."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import sys

import pytest
from support import profiles_made as made
from support.checks_made import self_test
from support.paths import RESULTS
from support.reported import HOSTILE, Read, hostile, many, rendered, source

from mlpfusion.errors import UsageError
from mlpfusion.report.page import page
from mlpfusion.report.page.sources import gather

FOLDER = gather([str(RESULTS / "h200-choose-article")])


@pytest.fixture(scope="module")
def folder() -> str:
    return page.render(FOLDER, "0.1.0")


def test_it_is_one_file_that_fetches_nothing(folder: str) -> None:
    read = Read(folder)
    assert not [each for each in read.elements if each[0] in ("link", "img", "iframe", "object", "embed", "base")]
    assert not [attributes for _, attributes in read.elements if "src" in attributes]
    targets = [each["href"] or "" for each in read.all("a")]
    assert all(each.startswith(("#", "data:application/gzip;base64,")) for each in targets)
    assert not any(re.search(r"@import|url\(", each) for each in re.findall(r"<style>(.*?)</style>", folder, re.DOTALL))


def test_its_policy_allows_what_it_holds_and_nothing_else(folder: str) -> None:
    (policy,) = [each["content"] for each in Read(folder).all("meta") if each.get("http-equiv")]
    for tag in ("style", "script"):
        for text in re.findall(rf"<{tag}>(.*?)</{tag}>", folder, re.DOTALL):
            assert base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() in policy
    assert not re.search(
        r"\son\w+=|style=|javascript:", re.sub(r"<(script|style).*?</\1>", "", folder, flags=re.DOTALL)
    )


def test_words_come_before_cautions_and_these_before_tables(folder: str) -> None:
    places = [folder.index(text) for text in ('id="summary"', "Do not read more into this", "<table", 'id="methods"')]
    assert places == sorted(places)


def test_all_is_there_without_a_script(folder: str) -> None:
    text = Read(folder).text
    for part in ("Every row", "Kernels, decoded", "Ledger", "Errors against fp64", "Measure it again", "Cite it"):
        assert part in text
    for each in FOLDER:
        assert each.digest in text


def test_it_carries_its_files_as_they_are_on_disk(folder: str) -> None:
    held = [each["href"].split(",")[1] for each in Read(folder).all("a") if "download" in each]
    assert [gzip.decompress(base64.b64decode(each)) for each in held] == [each.data for each in FOLDER]


@pytest.mark.full
@pytest.mark.parametrize("count", [20, 50])  # at 20 shapes most figures are still drawn
def test_ten_backends_by_fifty_shapes_stay_below_6_mb(count: int) -> None:
    assert len(rendered(*many(count))) < 6e6


def test_twenty_shapes_with_every_figure_are_below_6_mb_at_what_one_more_adds() -> None:
    two, three = (len(rendered(*many(count))) for count in (2, 3))
    assert two + 18 * (three - two) < 6e6


def test_the_same_input_gives_the_same_bytes(folder: str) -> None:
    assert page.render(FOLDER, "0.1.0") == folder


def test_a_name_is_text_wherever_it_stands() -> None:
    text = rendered(hostile())
    read = Read(text)
    assert {tag for tag, _ in read.elements} <= {tag for tag, _ in Read(rendered(made.profile())).elements} | {
        "details",
        "summary",
    }
    for name in HOSTILE:
        assert "".join(each if each.isprintable() else "�" for each in " ".join(name.split())) in read.text
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u200f]", text)
    (numbers,) = re.findall(r'id="numbers">(.*?)</script>', text)
    assert json.loads(numbers)["backends"][1] == HOSTILE[0]


def test_what_stands_in_backticks_is_code_and_a_single_one_a_letter() -> None:
    one = made.msgspec.structs.replace(made.LIGER, reason="needs `pip install <liger>` first")
    other = made.msgspec.structs.replace(made.HUB, backend="a`b")
    text = rendered(made.profile(made.EAGER, one, other))
    assert "needs <code>pip install &lt;liger&gt;</code> first" in text
    assert "<li>a`b failed" in text
    sentences = re.findall(r"<td>A[^<]* kernel .*", text)  # what the names of kernels say
    assert any("<code>" in each for each in sentences)
    assert not any("`" in each for each in sentences)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ((made.HUB, made.LIGER), "No backend has a time with an interval"),
        ((made.TRITON,), "Emulated by Triton's interpreter"),
        ((made.EAGER,), "nothing else was timed"),
        ((made.msgspec.structs.replace(made.EAGER, clocks=None),), "No backend has a time with an interval"),
    ],
    ids=["failed", "emulated", "one", "untimed"],
)
def test_a_file_without_a_comparison_is_a_page_that_says_so(rows, said: str) -> None:
    assert said in Read(rendered(made.profile(*rows))).text


def test_a_file_of_another_kind_is_a_page_too() -> None:
    assert "self-test" in Read(rendered(self_test())).text


def test_without_jinja_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(UsageError, match=r"needs jinja2, .* pip install 'mlpfusion-read\[report\]'$"):
        page.render([source(made.profile())], "0.1.0")
