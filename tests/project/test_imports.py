"""The rules of the design that no linter checks: what works without torch, how long a file is, what it says."""

from __future__ import annotations

import ast
import functools
import re
import sys
from typing import TYPE_CHECKING

from support import lacking
from support.paths import DATA, RESULTS, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SRC = ROOT / "src" / "mlpfusion"
DEVICE_CODE = sorted((ROOT / "kernels" / "torch-ext").rglob("*.py"))
PACKAGE = [*sorted(SRC.rglob("*.py")), *DEVICE_CODE]
ALL = [*PACKAGE, *sorted((ROOT / "bench").rglob("*.py"))]
RESULT = RESULTS / "h200-article.json"


@functools.cache
def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(text(path), str(path))


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


# ---- imports that import-linter cannot judge -------------------------------------------------------------------------

# A verb must not need what an earlier one imported.
WITHOUT_TORCH = [
    ["read", str(DATA / "h200_eager.json.gz")],
    ["table", str(RESULT)],
    ["compare", str(RESULT), str(RESULTS / "h200-choose-article" / "inference-8192.json")],
    ["diff", str(DATA / "h200_eager.json.gz"), str(DATA / "h200_compile.json.gz")],
    ["plot", str(RESULT), "--figure", "ratios", "-o", "figure.json"],
    ["explain", "triton_poi_fused__unsafe_view_gelu_mul_0"],
    ["--help"],
]


def test_reading_works_where_torch_cannot_be_imported(tmp_path: Path) -> None:
    found = lacking.run(sys.executable, ["torch", "triton", "mlpfusion_kernels"], WITHOUT_TORCH, folder=tmp_path)
    assert len(found) == len(WITHOUT_TORCH)
    for arguments, (code, out, err) in zip(WITHOUT_TORCH, found, strict=True):
        assert (code, err) == (0, ""), arguments
        assert out, arguments


def test_kernels_stand_alone() -> None:
    for path in DEVICE_CODE:
        for node in ast.walk(tree(path)):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            tops = {name.split(".")[0] for name in names}
            assert not tops & {"mlpfusion", "mlpfusion_kernels"}, f"{shown(path)}: relative imports only"


def test_our_kernels_do_not_shadow_hugging_faces() -> None:
    assert not (ROOT / "kernels" / "__init__.py").exists()


# ---- the tree --------------------------------------------------------------------------------------------------------


def test_few_modules_lie_loose_and_no_folder_is_long() -> None:
    assert len([path for path in SRC.glob("*.py") if not path.stem.startswith("__")]) <= 10
    for folder in {path.parent for path in PACKAGE}:
        assert len(list(folder.glob("*.py"))) <= 16, shown(folder)


# ---- files -----------------------------------------------------------------------------------------------------------


# One test each for all files: to name a test takes longer than to read a file.


def test_a_file_is_short_and_says_what_it_is() -> None:
    faults = {shown(path): list(_faults(path)) for path in ALL}
    assert {file: found for file, found in faults.items() if found} == {}


def _faults(path: Path) -> Iterator[str]:
    if len(text(path).splitlines()) > 500:
        yield "more than 500 lines"
    first = (ast.get_docstring(tree(path)) or "").partition("\n")[0]
    if not first.endswith("."):
        yield f"its docstring's first line is not a sentence: {first!r}"
    if re.search(r"[.!?]\s+[A-Z`]", first):
        yield f"its docstring's first line is more than one sentence: {first!r}"
    if re.search(r"util|helper|common|manager", path.stem):
        yield "named after nothing"


def test_a_function_is_short() -> None:
    long = []
    for path in ALL:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > 80 and not any("jit" in ast.unparse(each) for each in node.decorator_list):
                    long.append(f"{shown(path)}:{node.lineno} {node.name} has {length} lines")
    assert long == []


def test_nothing_is_left_to_do() -> None:
    assert [shown(path) for path in ALL if re.search(r"\b(TODO|FIXME|XXX|HACK)\b", text(path))] == []
