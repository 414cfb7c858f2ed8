"""Writes the parts of the documentation that are generated from the sources; a test checks that they are up to date.

python tools/generated.py
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlpfusion_kernels.layers import LAYERS

from mlpfusion import spec
from mlpfusion.report.profile.columns.every import all_columns
from mlpfusion.report.profile.columns.speed import BACKEND
from mlpfusion.report.table import render
from mlpfusion.report.table.document import Options
from mlpfusion.stages.tabulate import sources

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
WHOLE = ROOT / "bench" / "results" / "h200-plugin.json"
GRID = ROOT / "bench" / "results" / "h200-grid.json"
MAPPED = ("src/mlpfusion", "kernels/torch-ext/mlpfusion_kernels", "bench", "tools")


def columns() -> str:
    """The table of all columns of a profile, each with its meaning."""
    rows = [f"| `{column.key}` | {column.meaning} |" for column in (BACKEND, *all_columns())]
    return "\n".join(["| column | meaning |", "|---|---|", *rows])


def activations() -> str:
    """The table of activations, each with the names by which it may be requested."""
    rows = []
    for row in spec.TABLE:
        others = [alias for alias in (row.hidden_act, *row.aliases) if alias != row.name]
        rows.append(f"| `{row.name}` | {row.label} | {', '.join(f'`{other}`' for other in others) or '–'} |")
    return "\n".join(["| activation | what it is | other names that are taken |", "|---|---|---|", *rows])


def layers() -> str:
    """The table of the layers that the Hub kernel has."""
    rows = [f"| `{layer.__name__}` | `{name}`: {spec.ROWS[name].label} |" for name, layer in LAYERS.items()]
    return "\n".join(["| layer | activation |", "|---|---|", *rows])


def tree() -> str:
    """Every module below its folder, with the first line of its docstring."""
    lines = [line for name in MAPPED for line in _folder(ROOT / name, name, 0)]
    return "\n".join(["```", *lines, "```"])


def _folder(folder: Path, name: str, depth: int) -> Iterator[str]:
    yield f"{'  ' * depth}{name}/"
    for path in sorted(folder.glob("*.py")):
        if said := ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))):
            yield f"{'  ' * depth}  {path.name:<26} {said.splitlines()[0].rstrip('.')}"
    for below in sorted(path for path in folder.iterdir() if any(path.rglob("*.py"))):
        yield from _folder(below, below.name, depth + 1)


def table() -> str:
    """The table of a recorded choice as papers print it, with its methods."""
    found = sources.read([str(ROOT / "bench" / "results" / "h200-choose-article")])
    return render.tables(found, "github", Options(transpose=True), ["--transpose"]).rstrip("\n")


def _parts() -> list[dict[str, Any]]:
    """The parts of the recording of whole models, each with its ways by their names."""
    found = json.loads(WHOLE.read_text(encoding="utf-8"))["parts"]
    return [one | {"ways": {way["way"]: way for way in one["ways"]}} for one in found]


def _ratio(found: dict[str, float], digits: int = 3) -> str:
    return f"{found['median']:.{digits}f}x [{found['low']:.{digits}f}–{found['high']:.{digits}f}]"


def whole_models() -> str:
    """The table of whole models in each way to run them, against plain `torch.compile`."""
    head = ["model", "mode", "compiled", "eager", "swapped", "swapped and compiled", "the pass", "the pass / the swap"]
    rows = []
    for one in _parts():
        ways = one["ways"]
        plain, passed = ways["compile"], ways["pass"]
        cells = [f"{one['shape']}, {one['layers']} layers", one["mode"], f"{plain['clock']['median'] / 1000:.1f} ms"]
        cells += [_ratio(ways[way]["speedup"]) for way in ("eager", "swap", "swap-compile", "pass")]
        cells += [_ratio(one["pass_to_swap"], 4)]
        cells += [f"{plain['compile_s']:.1f} → {passed['compile_s']:.1f} s, {passed['pass_ms']:.0f} ms of it"]
        rows.append(f"| {' | '.join(cells)} |")
    columns = [*head, "compiling"]
    return "\n".join([f"| {' | '.join(columns)} |", "|---" * len(columns) + "|", *rows])


def untuned() -> str:
    """Where `fused` wins and loses over models and token counts."""
    sys.path.append(str(ROOT / "bench"))  # its scripts are modules for each other
    try:
        import grid
    finally:
        sys.path.remove(str(ROOT / "bench"))
    return grid.told(grid.read(GRID))


def swapped() -> str:
    """What a swap and the pass give a whole model, in few words."""
    of = [one for one in _parts() if one["shape"] == "gemma-2b"]
    what = f"{of[0]['layers']} layers of gemma-2b, {of[0]['batch']} × {of[0]['seq']} tokens, H200"
    head = [f"{what}: speed over plain `torch.compile`", "eager", "swapped", "swapped, compiled", "the pass, compiled"]
    names = {"inference": "prefill", "training": "training step"}
    rows = [
        [
            names[one["mode"]],
            *(_ratio(one["ways"][way]["speedup"]) for way in ("eager", "swap", "swap-compile", "pass")),
        ]
        for one in of
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *rows])


PARTS = {
    ("README.md", "grid"): untuned,
    ("README.md", "swap"): swapped,
    ("docs/inductor.md", "whole models"): whole_models,
    ("docs/publishing.md", "table"): table,
    ("docs/columns.md", "columns"): columns,
    ("docs/backends.md", "activations"): activations,
    ("kernels/CARD.md", "layers"): layers,
    ("CONTRIBUTING.md", "tree"): tree,
}


def filled(text: str, marker: str, part: str) -> str:
    """A page's text with `part` between its marker and the end of that."""
    before, rest = text.split(f"<!-- {marker} -->\n", 1)
    _, after = rest.split(f"<!-- /{marker} -->", 1)
    return f"{before}<!-- {marker} -->\n{part}\n<!-- /{marker} -->{after}"


def main() -> int:
    """Write every part into its page."""
    for (name, marker), made in PARTS.items():
        path = ROOT / name
        path.write_text(filled(path.read_text(encoding="utf-8"), marker, made()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
