"""Parts the sources into two wheels: `mlpfusion-read` has what is imported without PyTorch, `mlpfusion` the rest."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

if TYPE_CHECKING:
    from collections.abc import Iterator

READER = "mlpfusion-read"
PACKAGE = "mlpfusion"


class Split(BuildHookInterface):  # type: ignore[type-arg]
    """Gives a wheel its share of `src/mlpfusion`, and the reader's source archive the sources that it is built from."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the files; an editable install has the whole folder of sources instead."""
        root = Path(self.root)
        source = next(each for each in (root / "src", root.parents[1] / "src") if each.is_dir())
        reads = self.metadata.name == READER
        below = "src/" if self.target_name == "sdist" else ""
        if version == "editable" or (below and not reads):
            return
        reader = root if reads else root / "packages" / "read"
        light = reading(source / PACKAGE, dependencies(reader / "pyproject.toml"))
        files = {path for path in (source / PACKAGE).rglob("*") if path.is_file() and "__pycache__" not in path.parts}
        for path in light if reads else files - light:
            build_data["force_include"][str(path)] = f"{below}{path.relative_to(source)}"


def dependencies(project: Path) -> set[str]:
    """The names of the packages that a project depends on, which are those of their modules."""
    listed = re.search(r"^dependencies = \[(.*?)^\]", project.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return set(re.findall(r'^\s*"([\w-]+)', listed[1] if listed else "", re.MULTILINE))


def reading(package: Path, allowed: set[str]) -> set[Path]:
    """The modules of a package that import nothing but Python, `allowed` and each other; and all files of data.

    What a function imports when it is called does not count, nor what is for type checkers alone.
    """
    found = {dotted(path, package.parent): path for path in package.rglob("*.py")}
    fine = {*sys.stdlib_module_names, *allowed, "__future__"}

    names = {name: {name, *imports(ast.parse(path.read_text(encoding="utf-8")))} for name, path in found.items()}
    needs = {name: {each for one in wanted for each in parents(one) if each in found} for name, wanted in names.items()}
    heavy = {name for name, wanted in names.items() if {each.split(".")[0] for each in wanted} - fine - {package.name}}
    while more := {name for name, wanted in needs.items() if wanted & heavy} - heavy:
        heavy |= more
    data = {path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    return {path for name, path in found.items() if name not in heavy} | {path for path in data if path.suffix != ".py"}


def imports(tree: ast.AST) -> Iterator[str]:
    """The dotted names that a module imports as it is imported."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{each.name}" for each in node.names)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from imports(ast.Module(node.orelse, []))
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from imports(node)


def parents(name: str) -> list[str]:
    """`a`, `a.b` and `a.b.c` of `a.b.c`: all that importing it imports."""
    parts = name.split(".")
    return [".".join(parts[: end + 1]) for end in range(len(parts))]


def dotted(path: Path, root: Path) -> str:
    """The name of the module in a file."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
