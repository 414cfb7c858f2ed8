"""Builds a Hub kernel tree of Liger's MLPs from the installed liger-kernel, in the style of version 1 or 2.

The `hub` backend can then be run without a network, here on a GPU:

    python tests/support/liger_trees.py DIRECTORY --style v1
    LOCAL_KERNELS="kernels-community/liger-kernels=DIRECTORY" mlpfusion profile --backends eager,liger,hub

Liger's kernels are copied as they are installed (their text differs a little from the published versions'), with their
imports made relative. The layers are written here, with
the published names and the two published shapes: in version 1 a layer is a module with a constructor and projections
of its own, from version 2 on a forward only, which is run on another module's projections.
"""

from __future__ import annotations

import argparse
import json
import zlib
from importlib import metadata
from pathlib import Path
from typing import Final

STYLES: Final = ("v1", "v2")
VARIANT: Final = "torch-universal"  # the one build directory that loads on every backend

# Installed file -> its name in the tree, and what its absolute imports become.
SOURCES: Final = {
    "liger_kernel/ops/geglu.py": "geglu.py",
    "liger_kernel/ops/swiglu.py": "swiglu.py",
    "liger_kernel/ops/utils.py": "utils.py",
    "liger_kernel/utils.py": "devices.py",
}
IMPORTS: Final = {
    "from liger_kernel.ops.utils import": "from .utils import",
    "from liger_kernel.utils import": "from .devices import",
}

HEADER: Final = '''"""Liger's MLPs as layers of a Hub kernel."""

from torch import nn

from .geglu import LigerGELUMulFunction
from .swiglu import LigerSiLUMulFunction
'''

LAYER_V1: Final = """

class {name}(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x):
        return self.down_proj({function}.apply(self.gate_proj(x), self.up_proj(x)))
"""

LAYER_V2: Final = """

class {name}(nn.Module):
    gate_proj: nn.Linear
    up_proj: nn.Linear
    down_proj: nn.Linear
    can_torch_compile = True

    def forward(self, x):
        return self.down_proj({function}.apply(self.gate_proj(x), self.up_proj(x)))
"""

LAYERS: Final = {"LigerGEGLUMLP": "LigerGELUMulFunction", "LigerSwiGLUMLP": "LigerSiLUMulFunction"}


def build(
    directory: Path, *, style: str = "v1", variant: str = VARIANT, layers: tuple[str, ...] = tuple(LAYERS)
) -> Path:
    """Write a tree of `style` with these `layers` into `directory`; returns the directory of its one build."""
    target = directory / "build" / variant
    target.mkdir(parents=True, exist_ok=True)
    installed = metadata.distribution("liger-kernel")
    for source, name in SOURCES.items():
        text = Path(str(installed.locate_file(source))).read_text(encoding="utf-8")
        for absolute, relative in IMPORTS.items():
            text = text.replace(absolute, relative)
        (target / name).write_text(text, encoding="utf-8")
    template = LAYER_V1 if style == "v1" else LAYER_V2
    classes = "".join(template.format(name=name, function=LAYERS[name]) for name in layers)
    (target / "layers.py").write_text(HEADER + classes, encoding="utf-8")
    (target / "__init__.py").write_text("from . import geglu, layers, swiglu\n", encoding="utf-8")
    (target / "metadata.json").write_text(json.dumps(_metadata(style, directory), indent=2), encoding="utf-8")
    return target


def identifier(directory: Path, style: str) -> str:
    """The name under which `kernels` imports the tree in `directory`: another one for every tree."""
    return f"_liger_kernels_{style}_{zlib.crc32(str(directory.resolve()).encode()):08x}"


def _metadata(style: str, directory: Path) -> dict[str, object]:
    return {
        "id": identifier(directory, style),
        "name": "liger-kernels",
        "version": int(style.removeprefix("v")),
        "license": "BSD-2-Clause",
        "python-depends": [],
        "backend": {"type": "cpu"},  # has to be a real one; a torch-universal build is not matched against it
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--style", choices=STYLES, default="v1")
    arguments = parser.parse_args()
    build(arguments.directory, style=arguments.style)
    print(f'LOCAL_KERNELS="kernels-community/liger-kernels={arguments.directory.resolve()}"')


if __name__ == "__main__":
    main()
