"""README and the pages: what they list is all there is, and what they show is what was recorded."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import torch
from support.paths import RESULTS, ROOT, TESTS

from mlpfusion import GatedMLP, MLPSpec, backend
from mlpfusion.errors import BackendUnavailableError
from mlpfusion.report import choice
from mlpfusion.report.profile.table import render
from mlpfusion.storage import results as results_storage

if TYPE_CHECKING:
    from pathlib import Path

README, BACKENDS, CHOOSE = (
    (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/backends.md", "docs/choose.md")
)


def between(page: str, marker: str) -> str:
    """The text from one marker of a page to its end."""
    after = page.split(f"<!-- {marker} -->", 1)[1]
    return after.split(f"<!-- /{marker} -->", 1)[0]


def code(text: str) -> str:
    found = re.search(r"```\w*\n(.*?)```", text, re.DOTALL)
    assert found
    return found[1]


def test_every_backend_is_explained_in_its_order() -> None:
    table = BACKENDS.split("| backend | what runs |", 1)[1].split("\n\n", 1)[0]
    assert re.findall(r"^\| `([\w-]+)`", table, re.MULTILINE) == backend.built_in()


def test_a_backend_in_ten_lines_works(tmp_path: Path) -> None:
    text = code(between(BACKENDS, "backend"))
    assert len([line for line in text.splitlines() if line.strip()]) <= 10
    (tmp_path / "mine.py").write_text(text, encoding="utf-8")
    name = f"{tmp_path / 'mine.py'}:Mine"
    mlp = GatedMLP(MLPSpec(hidden_size=16, intermediate_size=24, dtype="float32"))
    x = torch.randn(3, 5, 16)
    expected = mlp(x)
    torch.testing.assert_close(mlp.set_backend(name)(x), expected)
    silu = GatedMLP(MLPSpec(hidden_size=16, intermediate_size=24, activation="silu", dtype="float32"))
    with pytest.raises(BackendUnavailableError, match="only gelu_tanh is written"):
        silu.set_backend(name)


def test_the_readme_is_read_in_one_sitting() -> None:
    assert len(README.splitlines()) <= 190


def test_the_table_is_what_the_recorded_run_gives() -> None:
    command = re.search(r"`mlpfusion table (bench/results/\S+\.json) --format github`", README)
    assert command, "README names no file that its table is made of"
    assert (
        between(README, "table").strip()
        == render(results_storage.load(ROOT / command[1]), "github", source=command[1]).strip()
    )
    assert "| triton " in between(README, "table")


@pytest.mark.parametrize("model", ["gemma-2b", "article"])
def test_the_recorded_choices_are_what_the_page_shows(model: str) -> None:
    results = RESULTS
    made = results_storage.load_choice(results / f"h200-choose-{model}" / "choice.json")
    text = choice.render(made, "github")
    assert text == (results / f"h200-choose-{model}.md").read_text(encoding="utf-8")
    shown = between(CHOOSE, f"choose-{model}").strip()
    assert shown.startswith("| mode ")
    assert f"**Winners**\n\n{shown}\n\n" in text


# ---- what make and CI run --------------------------------------------------------------------------------------------


def test_every_target_of_make_is_described() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    assert phony
    described = set(re.findall(r"^# make ([\w-]+)  ", text, re.MULTILINE))
    assert described == set(phony[1].split()) - {"found", "found-dev", "found-docs"}


def test_what_judges_values_runs_under_both_instruction_sets_and_the_whole_suite_last() -> None:
    run = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert re.findall(r"^make (\S+)", run, re.MULTILINE) == ["lint", "docs", "test-isa", "test", "test-rest"]
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").split("\ntest-isa:", 1)[1].split("\n\n", 1)[0]
    assert "ONEDNN_MAX_CPU_ISA=AVX2" in recipe
    assert "-m values $$(grep -rlE '^(pytestmark = |@)pytest.mark.values' tests --include='test_*.py')" in recipe


def test_a_file_that_judges_values_by_functions_of_pytorch_has_the_marker() -> None:
    pattern = re.compile(r"^(pytestmark = |@)pytest\.mark\.values$", re.MULTILINE)
    files = {path for path in TESTS.rglob("test_*.py") if pattern.search(path.read_text(encoding="utf-8"))}
    judge = "stages/validate/judge"
    assert {str(path.relative_to(TESTS)) for path in files} >= {
        *("test_reference.py", "test_reference_exact.py", "cli/test_validate.py"),
        *(f"{judge}/test_bounds.py", f"{judge}/test_excuses.py"),
    }
    assert TESTS / judge / "test_self_test.py" not in files  # which takes minutes
