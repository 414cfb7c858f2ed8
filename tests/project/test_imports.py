"""The rules of the design that no linter checks: what works without torch, how long a file is, what it says."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support.paths import DATA, RESULTS, ROOT

if TYPE_CHECKING:
    from pathlib import Path

SRC = ROOT / "src" / "mlpfusion"
DEVICE_CODE = sorted((ROOT / "kernels" / "torch-ext").rglob("*.py"))
PACKAGE = [*sorted(SRC.rglob("*.py")), *DEVICE_CODE]
ALL = [*PACKAGE, *sorted((ROOT / "bench").rglob("*.py"))]
RESULT = RESULTS / "h200-article.json"


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


each_file = pytest.mark.parametrize("path", ALL, ids=shown)


# ---- imports that import-linter cannot judge -------------------------------------------------------------------------

# Each in its turn in one process: a verb must not need what an earlier one imported.
WITHOUT_TORCH = [
    ["read", str(DATA / "h200_eager.json.gz")],
    ["table", str(RESULT)],
    ["compare", str(RESULT), str(RESULTS / "h200-choose-article" / "inference-8192.json")],
    ["diff", str(DATA / "h200_eager.json.gz"), str(DATA / "h200_compile.json.gz")],
    ["plot", str(RESULT), "--figure", "ratios", "-o", "figure.json"],
    ["explain", "triton_poi_fused__unsafe_view_gelu_mul_0"],
    ["--help"],
]


@pytest.mark.parametrize("arguments", WITHOUT_TORCH, ids=lambda each: each[0])
def test_reading_works_where_torch_cannot_be_imported(arguments: list[str], tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('torch', 'triton', 'mlpfusion_kernels'))); "
        f"from mlpfusion.cli.main import main; sys.exit(main({arguments!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=False, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


@pytest.mark.parametrize("path", DEVICE_CODE, ids=shown)
def test_kernels_stand_alone(path: Path) -> None:
    for node in ast.walk(tree(path)):
        names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        assert not {name.split(".")[0] for name in names} & {"mlpfusion", "mlpfusion_kernels"}, "relative imports only"


def test_our_kernels_do_not_shadow_hugging_faces() -> None:
    assert not (ROOT / "kernels" / "__init__.py").exists()


# ---- the tree --------------------------------------------------------------------------------------------------------


def test_few_modules_lie_loose_and_no_folder_is_long() -> None:
    assert len([path for path in SRC.glob("*.py") if not path.stem.startswith("__")]) <= 10
    for folder in {path.parent for path in PACKAGE}:
        assert len(list(folder.glob("*.py"))) <= 16, shown(folder)


# ---- files -----------------------------------------------------------------------------------------------------------


@each_file
def test_a_file_is_short_and_says_what_it_is(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 500
    said = ast.get_docstring(tree(path))
    assert said, "no docstring"
    first = said.splitlines()[0]
    assert first.endswith("."), f"its first line is not a sentence: {first!r}"
    assert not re.search(r"[.!?]\s+[A-Z`]", first), f"its first line is more than one sentence: {first!r}"
    assert not re.search(r"util|helper|common|manager", path.stem), "named after nothing"


@each_file
def test_a_function_is_short(path: Path) -> None:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            on_device = any("jit" in ast.unparse(decorator) for decorator in node.decorator_list)
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert on_device or length <= 80, f"{shown(path)}:{node.lineno} {node.name} has {length} lines"


@each_file
def test_nothing_is_left_to_do(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"\b(TODO|FIXME|XXX|HACK)\b", text)
