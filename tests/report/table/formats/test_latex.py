"""LaTeX with booktabs alone: no name is a command, and pdflatex compiles it."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.paths import RESULTS
from support.races_made import HOSTILE, failed, profile, source

from mlpfusion.report.table import render as formats
from mlpfusion.report.table.document import Options, document
from mlpfusion.report.table.formats.latex import escaped, render
from mlpfusion.stages.tabulate.sources import read

if TYPE_CHECKING:
    from pathlib import Path

# The commands that our text has itself; whatever else follows a backslash came from a name.
OURS = re.compile(
    r"\\(?:[#$%&_{}]|[`'^~\"][{]|[rvc][{]|text(?:backslash|asciitilde|asciicircum|less|greater|bar)\{\}|(?:mu|times|cdot|pm|geq|leq|to|approx"
    r"|circ)\$|ldots\{\}|S\{\}|ss\{\})"
)


def made(*sources: Any, **options: Any) -> str:
    return render(document(sources, Options(**options)))


def of_names(*names: str) -> str:
    return made(source(profile(dict.fromkeys(names, 0.5), extra=(failed("hub", names[0] or "no"),)), names[0]))


def test_a_table_has_the_rules_of_booktabs_and_a_caption() -> None:
    text = made(source(profile({"fused": 0.5})), caption="Speed, 100% of it", label="tab:speed")
    assert re.findall(r"\\(toprule|midrule|bottomrule)", text) == ["toprule", "midrule", "bottomrule"]
    assert r"\caption{Speed, 100\% of it}" in text
    assert r"\label{tab:speed}" in text
    assert text.count(r"\textbf{") == 2
    assert re.search(r"\\textbf\{\d\.\d+\$\\times\$ \[\d", text)
    assert "hline" not in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("µ × − ≥ ≤ · –", r"$\mu$ $\times$ $-$ $\geq$ $\leq$ $\cdot$ --"),
        ("a_b 5% #1 & {x} $ ~ ^", r"a\_b 5\% \#1 \& \{x\} \$ \textasciitilde{} \textasciicircum{}"),
        (r"\input{x}", r"\textbackslash{}input\{x\}"),
        ('<b> | "q"', r"\textless{}b\textgreater{} \textbar{} {''}q{''}"),
        ("a--b---c", "a-{}-b-{}-{}-c"),
        ("é ñ ü ç", r"\'{e} \~{n} \"{u} \c{c}"),
        ("中", "[U+4E2D]"),
        ("a\u202eb\nc", "a?b c"),
    ],
)
def test_what_tex_reads_as_its_own_is_spelled(text: str, shown: str) -> None:
    assert escaped(text) == shown


@given(st.text(max_size=60))
def test_no_text_has_a_command_of_its_own_or_a_letter_that_pdflatex_lacks(text: str) -> None:
    found = escaped(text)
    assert found.isascii()
    assert "\n" not in found
    rest = OURS.sub("", found)
    assert "\\" not in rest.replace("$^\\circ$", "")
    assert not set(rest) & set("%#&_~")


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_breaks_a_row(name: str) -> None:
    plain, hostile = of_names("other"), of_names(name)
    assert hostile.count("\\\\\n") == plain.count("\\\\\n")
    for line in hostile.splitlines():
        if line.endswith("\\\\"):
            assert not line.strip().startswith(("[", "*"))
            assert len(re.findall(r"(?<!\\)&", line)) == len(re.findall(r"(?<!\\)&", plain.splitlines()[8]))


def test_a_long_table_is_cut_into_pages_with_one_label() -> None:
    sources = [source(profile({f"b{each}": 0.5 for each in range(15)}, n), f"{n}") for n in (1, 2, 4, 8, 16)]
    text = made(*sources, label="tab:long")
    assert text.count(r"\begin{table}") > 1
    assert text.count(r"\label{") == 1
    assert "(1 of " in text


def test_intervals_of_a_wide_table_stand_below_their_values() -> None:
    sources = [source(profile({"fused": 0.5}, n), f"{n}") for n in (1, 2, 4, 8, 16, 32)]
    assert r"\scriptsize" in made(*sources, transpose=True)
    assert r"\scriptsize" not in made(*sources[:2], transpose=True)


# ---- with pdflatex: `make latex-test` --------------------------------------------------------------------------------


def compiled(folder: Path, *texts: str) -> str:
    """What pdflatex says of tables in an article with booktabs and nothing else; it must come to an end."""
    body = "\n\\clearpage\n".join(texts)
    preamble = "\\documentclass{article}\\usepackage{booktabs}\\textwidth=17cm\\oddsidemargin=0pt\\textheight=23cm"
    (folder / "t.tex").write_text(f"{preamble}\\begin{{document}}\n{body}\n\\end{{document}}\n", encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "t.tex"]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


needs_pdflatex = pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no pdflatex here")


@pytest.mark.latex
@needs_pdflatex
def test_every_recorded_kind_compiles_and_fits_the_page(tmp_path: Path) -> None:
    names = ["h200-profile.json", "h200-choose-article", "h200-prove-gemma-2b-fused.json", "h200-groups.json"]
    texts = [formats.tables(read([str(RESULTS / name)]), "latex", Options()) for name in names]
    chosen = read([str(RESULTS / "h200-choose-article")])
    texts += [
        formats.tables(chosen, "latex", Options(transpose=True), ["--transpose"]),
        formats.tables(
            read([str(RESULTS / "h200-profile.json")]), "latex", Options(columns=("kernels",)), ["--columns"]
        ),
    ]
    assert "Overfull" not in compiled(tmp_path, *texts)


@pytest.mark.latex
@needs_pdflatex
def test_hostile_names_compile(tmp_path: Path) -> None:
    said = compiled(tmp_path, *(of_names(name) for name in HOSTILE))
    assert "Missing character" not in said
