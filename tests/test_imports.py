"""The rules of the design that a machine can check: which module imports which, how long a file is, what it says."""

from __future__ import annotations

import ast
import functools
import graphlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src"
KERNELS = ROOT / "kernels" / "torch-ext"
PACKAGE = sorted((SRC / "mlpfusion").rglob("*.py"))
DEVICE_CODE = sorted(KERNELS.rglob("*.py"))
ALL = [*PACKAGE, *DEVICE_CODE, *sorted((ROOT / "bench").rglob("*.py"))]

# What a module, or all modules of a package, may import of mlpfusion. Data flows one way: leaves know only leaves, the
# stages (measure, trace, report) do not know each other; `api` puts them together, and `tracing` those of a trace.
LEAVES = {
    "errors",
    "limits",
    "spec",
    "device",
    "ledgers",
    "records",
    "readings",
    "tunings",
    "verdicts",
    "proofs",
    "choices",
}
ALLOWED = {
    "errors": set(),
    "limits": {"errors"},
    "spec": {"errors", "limits"},
    "exact": {"spec"},
    "device": {"errors", "quantities"},
    "quantities": set(),
    "ledgers": {"quantities"},
    "records": {"errors", "spec", "device", "ledgers", "quantities"},
    "readings": {"ledgers", "records"},
    "tunings": {"spec", "device", "records"},
    "verdicts": {"spec", "device", "records"},
    "proofs": {"spec", "device", "records"},
    "choices": {"errors", "limits", "quantities", "spec", "device", "records"},
    "invariants": {"choices", "ledgers", "records"},
    "files": {"errors"},
    "inputs": {"errors", "files"},
    "heads": {"errors"},
    "spread": LEAVES,
    "derived": LEAVES,
    "moved": LEAVES | {"aligned", "roundtrips"},
    "roofline": LEAVES,
    "counted": LEAVES | {"measure.counters", "measure.supervise", "measure.tasks"},
    "scheduled": LEAVES | {"moved", "roundtrips", "measure.supervise", "measure.tasks"},
    "weighing": LEAVES | {"counted", "roofline", "scheduled", "trace", "measure.supervise", "measure.tasks"},
    "regions": {"ledgers"},
    "roundtrips": {"ledgers", "regions"},
    "aligned": {"ledgers"},
    "environment": LEAVES,
    "planned": LEAVES | {"backend"},
    "hub_tree": LEAVES,
    "hooks": {"errors"},
    "backend": LEAVES | {"module", "hooks"},  # the module only as a type
    "provenance": LEAVES | {"backend"},
    "holding": LEAVES | {"provenance"},
    "choice_file": LEAVES | {"files", "heads", "invariants"},
    "auto": LEAVES | {"backend", "holding", "provenance", "choice_file", "module"},  # the module only as a type
    "module": LEAVES | {"backend", "auto"},
    "backends": LEAVES | {"backend", "module", "hooks", "backends"},
    "reference": LEAVES | {"module", "exact"},
    "measure": LEAVES
    | {"files", "backend", "provenance", "module", "reference", "backends.eager", "regions", "measure"},
    "trace": LEAVES
    | {"files", "inputs", "spread", "trace", "__init__"},  # called as a function, the package is `mlpfusion.record`
    # It judges with what others measure with: workers, clocks, tracer, the repair of the interpreter.
    "validate": LEAVES
    | {"backend", "module", "exact", "reference", "backends.eager", "hub_tree", "measure", "spread", "validate"},
    "testing": {"errors", "verdicts", "report", "validating"},
    "store": LEAVES | {"files", "heads", "inputs", "invariants"},
    "report": LEAVES
    | {"spread", "report", "store", "choice_file", "models.predict", "models.foresee"},  # as types alone
    "raced": LEAVES | {"spread", "measure.tasks"},  # what a race answers, only as a type
    "perfetto": {"errors", "limits"},
    "cli_streams": {"errors"},
    "cli_text": {"errors", "limits", "inputs", "cli_streams"},
    "cli_renamed": {"errors", "cli_text"},
    "cli_needs": {"errors"},
    "cli_saved": {"store"},
    "interrupts": set(),
    "__main__": {"cli", "interrupts"},
}
VERBS = {"cli", "cli_traces", "cli_tune", "cli_validate", "cli_prove", "cli_choose"}
# May import all of mlpfusion but these.
EVERYTHING = {
    "api": {*VERBS, "models", "tracing", "tune", "validating", "testing"},
    "tracing": {*VERBS, "models", "api", "tune", "validating", "testing"},
    "tune": {*VERBS, "models", "api", "tracing", "validating", "testing"},
    "validating": {*VERBS, "models", "api", "tracing", "tune", "testing"},
    "models": {*VERBS, "tracing", "tune", "validating", "testing"},
    "cli_traces": (VERBS | {"api", "tune"}) - {"cli_traces"},
    "cli_tune": (VERBS | {"api", "tracing"}) - {"cli_tune"},
    "cli_validate": (VERBS | {"api", "tune"}) - {"cli_validate"},
    "cli_prove": (VERBS | {"api", "tracing", "tune"}) - {"cli_prove", "cli_choose"},
    "cli_choose": (VERBS | {"tracing", "tune"}) - {"cli_choose"},
    "cli": set(),
    "__init__": VERBS,
}

# Libraries that only these parts may import, wherever in the file.
LIBRARIES = {
    "typer": {"cli", "cli_text", "cli_renamed", *VERBS},
    "click": set(),
    "rich": {"cli"},
    "tabulate": {"report"},
    "liger_kernel": {"backends"},
    "quack": {"backends"},
    "torch": {
        "device",
        "environment",
        "exact",
        "hub_tree",
        "backend",
        "hooks",
        "module",
        "backends",
        "reference",
        "measure",
        "validate",
        "models",
        "api",
        "auto",
        "holding",
    },
    "transformers": {"models"},
}
LIGHT = {
    "errors",
    "spec",
    "device",
    "records",
    "readings",
    "tunings",
    "choices",
    "choice_file",
    "holding",
    "backend",
    "provenance",
    "store",
    "files",
    "heads",
    "inputs",
    "api",
    "tracing",
    "tune",
    "perfetto",
    "planned",
    "cli",
    "cli_streams",
    "cli_text",
    "cli_renamed",
    "cli_needs",
    "cli_traces",
    "cli_tune",
    "cli_validate",
    "verdicts",
    "testing",
    "cli_prove",
    "cli_choose",
    "trace",
    "environment",
}  # no torch at import


class Import(NamedTuple):
    name: str  # dotted, absolute
    line: int
    late: bool  # inside a function
    typing: bool  # under `if TYPE_CHECKING:`


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@functools.cache
def imports(path: Path) -> list[Import]:
    return list(_imports(tree(path), late=False, typing=False))


def _imports(node: ast.AST, *, late: bool, typing: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(alias.name, child.lineno, late, typing) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            base = "." * child.level + (child.module or "")
            yield from (Import(f"{base}.{alias.name}", child.lineno, late, typing) for alias in child.names)
        else:
            inside = late or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
                yield from _imports(ast.Module(child.body, []), late=inside, typing=True)
                yield from _imports(ast.Module(child.orelse, []), late=inside, typing=typing)
            else:
                yield from _imports(child, late=inside, typing=typing)


def module_name(path: Path) -> str:
    """Below mlpfusion: `trace.kineto`; a package stands for its `__init__`."""
    parts = path.relative_to(SRC / "mlpfusion").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


MODULES = {module_name(path) for path in PACKAGE}


def own(name: str) -> str | None:
    """The module of mlpfusion that an import reaches: `mlpfusion.trace.read.kineto.read` -> `trace.kineto`."""
    if name.split(".", maxsplit=1)[0] != "mlpfusion":
        return None
    parts = name.split(".")[1:]
    while parts and ".".join(parts) not in MODULES:
        parts.pop()
    return ".".join(parts) or "__init__"


def within(module: str, parts: set[str]) -> bool:
    return any(module == part or module.startswith(f"{part}.") for part in parts)


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


each_module = pytest.mark.parametrize("path", PACKAGE, ids=shown)
each_file = pytest.mark.parametrize("path", ALL, ids=shown)


@each_module
def test_imports_point_one_way(path: Path) -> None:
    module = module_name(path)
    top = module.split(".")[0]
    assert top in ALLOWED or top in EVERYTHING, f"say in {Path(__file__).name} what {module} may import"
    for found in imports(path):
        target = own(found.name)
        if target is None:
            continue
        fine = within(target, ALLOWED[top]) if top in ALLOWED else not within(target, EVERYTHING[top])
        assert fine, f"{shown(path)}:{found.line} imports mlpfusion.{target}"


@each_module
def test_what_is_imported_only_as_a_type_stays_so(path: Path) -> None:
    only_typing = {
        ("auto", "module"),
        ("backend", "module"),
        ("raced", "measure.tasks"),
        ("report.predicted", "models.predict"),
        ("report.foreseen", "models.foresee"),
    }
    for found in imports(path):
        if (module_name(path), own(found.name)) in only_typing:
            assert found.typing, f"{shown(path)}:{found.line}"


@each_module
def test_libraries_stay_where_they_belong(path: Path) -> None:
    top = module_name(path).split(".")[0]
    for found in imports(path):
        library = found.name.split(".")[0]
        if library in LIBRARIES:
            assert top in LIBRARIES[library], f"{shown(path)}:{found.line} imports {library}"
        if library == "torch" and top in LIGHT:
            assert found.late or found.typing, f"{shown(path)}:{found.line} makes importing {top} cost seconds"


def test_no_import_cycle() -> None:
    graph = {
        module_name(path): {
            target
            for found in imports(path)
            if not found.typing and (target := own(found.name)) is not None and target != "__init__"
        }
        for path in PACKAGE
    }
    assert list(graphlib.TopologicalSorter(graph).static_order())


def test_the_package_itself_imports_nothing() -> None:
    for found in imports(SRC / "mlpfusion" / "__init__.py"):
        assert found.typing or (found.late and found.name.startswith("importlib")), found


@pytest.mark.parametrize("path", DEVICE_CODE, ids=shown)
def test_kernels_stand_alone(path: Path) -> None:
    for found in imports(path):
        library = found.name.split(".")[0]
        assert library not in {"mlpfusion", "mlpfusion_kernels"}, f"{shown(path)}:{found.line}: relative imports only"


def test_our_kernels_do_not_shadow_hugging_faces() -> None:
    assert not (ROOT / "kernels" / "__init__.py").exists()


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
