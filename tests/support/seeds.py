"""The same random numbers in each run of a test, whichever ran before it; MLPFUSION_TEST_SEEDS=random has others.

Otherwise what fails once in fifty seeds would fail once in fifty runs, on somebody's machine. Whoever looks for such a
fault asks for random seeds, and runs a test many times.
"""

from __future__ import annotations

import itertools
import os
import zlib
from typing import Final

ARE_RANDOM: Final = os.environ.get("MLPFUSION_TEST_SEEDS") == "random"


def begin(name: str) -> None:
    """Seed what the test of this name draws: PyTorch's generator, and the validations that ask for a new seed."""
    import torch

    from mlpfusion.stages.validate.judge import examine

    first = zlib.crc32(name.encode())
    torch.manual_seed(first)
    drawn = itertools.count(first)
    examine.new_seed = lambda: next(drawn) % 2**32
