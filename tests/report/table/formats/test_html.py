"""A page that needs nothing else, and in which no name is markup."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest
from support.races_made import HOSTILE, failed, profile, source

from mlpfusion.report.table.document import Options, document
from mlpfusion.report.table.formats.html import html_table, render


class Page(HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def made(name: str = "fused", **options: object) -> str:
    reason = name if name.strip() else "no"
    found = document([source(profile({name: 0.5}, extra=(failed("hub", reason),)), name)], Options(**options))  # type: ignore[arg-type]
    return render(found)


def test_the_page_needs_no_network_and_no_script_and_its_policy_says_so() -> None:
    page = made()
    found = Page(page)
    assert found.open == []
    assert {tag for tag, _ in found.tags}.isdisjoint({"script", "link", "img", "iframe"})
    assert not any({"src", "href", "style", "onclick"} & set(attributes) for _, attributes in found.tags)
    policy = next(a["content"] for tag, a in found.tags if tag == "meta" and "http-equiv" in a)
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'"


def test_rows_and_columns_are_headed_and_the_best_is_strong() -> None:
    found = Page(made())
    scopes = [attributes.get("scope") for tag, attributes in found.tags if tag == "th"]
    assert {"row", "col"} == set(scopes)
    assert [tag for tag, _ in found.tags].count("strong") == 2


def test_the_caption_is_the_users() -> None:
    assert "<caption>Speed &lt;of&gt; it</caption>" in made(caption="Speed <of> it")


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_is_markup(name: str) -> None:
    plain, hostile = Page(made("other")), Page(made(name))
    assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in plain.tags]
    assert all(letter.isprintable() or letter == "\n" for letter in made(name))
    if len(name) < 50:
        shown = "".join(each if each.isprintable() else "�" for each in " ".join(name.split()))
        assert shown in hostile.text or "`" in name


def test_one_table_is_an_element() -> None:
    (table,) = document([source(profile({"fused": 0.5}))], Options()).tables
    text = html_table(table)
    assert text.startswith("<table>")
    assert Page(text).open == []
