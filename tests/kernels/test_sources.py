"""The digest of the kernels' sources: what changes it, and that compiled code of another version is not taken."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from mlpfusion_kernels.sources import DIGEST, digest

if TYPE_CHECKING:
    from pathlib import Path

STEP = """
import sys, torch
from torch._dynamo.utils import counters
from mlpfusion_kernels import Weights, act_mul, gated_mlp
from mlpfusion_kernels.elementwise import autograd as first
from mlpfusion_kernels.gate_up import autograd as second
first.DIGEST = second.DIGEST = sys.argv[1]
torch.manual_seed(0)
x, *weights = (torch.randn(*each).requires_grad_() for each in ((8, 16), (32, 16), (32, 16), (16, 32)))
call = {
    "gated_mlp": lambda x: gated_mlp(x, Weights(*weights), "silu"),
    "act_mul": lambda x: act_mul(x, x + 1, "silu"),
}[sys.argv[2]]
torch.compile(call, fullgraph=True)(x).sum().backward()
print(counters["aot_autograd"]["autograd_cache_hit"], counters["aot_autograd"]["autograd_cache_miss"])
"""


def test_it_is_of_names_and_contents_at_any_depth(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "a.py").write_text("1\n")
    (tmp_path / "below" / "b.py").write_text("2\n")
    found = [digest(tmp_path)]
    (tmp_path / "below" / "b.py").write_text("3\n")
    found.append(digest(tmp_path))
    (tmp_path / "below" / "b.py").rename(tmp_path / "below" / "c.py")
    found.append(digest(tmp_path))
    (tmp_path / "notes.txt").write_text("4\n")
    assert len(set(found)) == 3
    assert digest(tmp_path) == found[-1]
    assert len(DIGEST) == 16


@pytest.mark.full
@pytest.mark.parametrize("call", ["gated_mlp", "act_mul"])
def test_compiled_code_on_disk_is_of_one_version(call: str, tmp_path: Path) -> None:
    """It is compiled again for another digest, and for the same one comes from the cache."""

    def ran(version: str) -> str:
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "1"}
        command = [sys.executable, "-c", STEP, version, call]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()

    assert [ran(version) for version in ("one", "one", "two")] == ["0 1", "1 0", "0 1"]
