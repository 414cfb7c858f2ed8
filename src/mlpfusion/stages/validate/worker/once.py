"""The process that runs a target once, for a tool that watches: `once TARGET ACTIVATION DTYPE SEED DEVICE PATH`.

PATH is where the judge imports from. It ends with a line that says what was called, or with the target's exception.
"""

from __future__ import annotations

import os
import sys
from typing import Final

import torch

from mlpfusion.device import detect
from mlpfusion.stages.validate.channel import CALLED
from mlpfusion.stages.validate.worker.targets import loader

SHAPE: Final = (7, 127)  # of gate; whole tiles of nothing
ROWS, HIDDEN, INTERMEDIATE = 7, 64, 128


def main() -> None:
    """Call it forward and, where it has gradients, backward."""
    target, activation, dtype, seed, kind, path = sys.argv[1:7]
    sys.path += [entry for entry in path.split(os.pathsep) if entry and entry not in sys.path]
    here = detect(kind)
    device = torch.device("cuda", here.index) if here.kind == "cuda" else torch.device("cpu")
    made = loader.load(target, activation, here)
    generator = torch.Generator().manual_seed(int(seed))
    shapes = {"gate": SHAPE, "up": SHAPE, "x": (ROWS, HIDDEN), "wd": (HIDDEN, INTERMEDIATE)}
    operands = tuple(
        torch.randn(shapes.get(name, (INTERMEDIATE, HIDDEN)), generator=generator).to(getattr(torch, dtype)).to(device)
        for name in loader.OPERANDS[made.kind]
    )
    called = ["forward"]
    bound = made.bind(tuple(each.requires_grad_() for each in operands))
    y = bound()
    if y.requires_grad:
        torch.autograd.grad(y, bound.leaves, torch.ones_like(y), allow_unused=True)
        called.append("backward")
    if here.kind == "cuda":
        torch.cuda.synchronize()
    sys.stdout.write(f"{CALLED}{' and '.join(called)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
