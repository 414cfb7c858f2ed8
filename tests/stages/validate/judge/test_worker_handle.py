"""The worker and who hires it: what targets leave behind in it, and what they may answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from support.one_worker import GIVEN, RIGHT, is_right
from support.targets_made import written

from mlpfusion.stages.validate import channel
from mlpfusion.stages.validate.judge.worker_handle import DiedError, Hired, RaisedError

if TYPE_CHECKING:
    from pathlib import Path


# ---- what a target leaves behind -------------------------------------------------------------------------------------

GOOD = "def good(gate, up):\n    return F.gelu(gate, approximate='tanh') * up\n"


@pytest.mark.parametrize("lazily", [False, True])
def test_each_target_gets_its_own_neighbours(worker: Hired, tmp_path: Path, lazily: bool) -> None:
    if lazily:
        text = "def act(gate, up):\n    from impl import f\n    return f(gate) * up\n"
    else:
        text = "from impl import f\n\ndef act(gate, up):\n    return f(gate) * up\n"
    for folder, form in (("one", "F.gelu(g, approximate='tanh')"), ("other", "F.gelu(g)")):
        written(tmp_path / folder, f"def f(g):\n    return {form}\n", "impl.py")
        written(tmp_path / folder, text)
    written(tmp_path / "third", text)
    assert is_right(worker, f"{tmp_path}/one/mine.py:act")
    assert not is_right(worker, f"{tmp_path}/other/mine.py:act")
    with pytest.raises(RaisedError, match="No module named 'impl'"):
        is_right(worker, f"{tmp_path}/third/mine.py:act")


def test_a_file_of_a_package_may_import_relatively(worker: Hired, tmp_path: Path) -> None:
    for folder, form in (("one", "F.gelu(g, approximate='tanh')"), ("other", "F.gelu(g)")):
        written(tmp_path, "", f"{folder}/pack/__init__.py")
        written(tmp_path, f"def f(g):\n    return {form}\n", f"{folder}/pack/impl.py")
        written(tmp_path, "from .impl import f\n\ndef act(g, u):\n    return f(g) * u\n", f"{folder}/pack/mine.py")
    assert is_right(worker, f"{tmp_path}/one/pack/mine.py:act")
    assert not is_right(worker, f"{tmp_path}/other/pack/mine.py:act")


def test_targets_of_one_folder_share_a_worker_and_its_modules(worker: Hired, tmp_path: Path) -> None:
    written(tmp_path, GOOD, "random_neighbour.py")
    one = written(tmp_path, "from random_neighbour import good\n", "one.py")
    two = written(tmp_path, "import random_neighbour\n\ngood = random_neighbour.good\n", "two.py")
    assert is_right(worker, f"{one}:good")
    started = worker.started
    assert is_right(worker, f"{two}:good")
    assert worker.started == started


def test_what_a_target_leaves_behind_is_not_there_for_the_next(worker: Hired, tmp_path: Path) -> None:
    changes = "F.gelu = lambda x, approximate='none': 1.5 * x"
    text = f"own = F.gelu\n\ndef meddles(g, u):\n    {changes}\n    return own(g, approximate='tanh') * u\n"
    meddles = f"{written(tmp_path, text)}:meddles"
    good = f"{written(tmp_path, GOOD, 'good.py')}:good"
    assert is_right(worker, good)
    started = worker.started
    assert is_right(worker, meddles)
    assert is_right(worker, meddles)
    assert worker.started == started
    assert is_right(worker, good)
    assert is_right(worker, good)
    assert worker.started == started + 1


@pytest.mark.full
def test_compiling_and_autograd_leave_nothing_behind(worker: Hired, tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        @torch.compile
        def compiled(gate, up):
            return F.gelu(gate, approximate="tanh") * up
        """,
    )
    assert is_right(worker, f"{path}:compiled")
    started = worker.started
    worker.ask("backward", GIVEN | {"dy": torch.ones(4, 16)}, time_limit_s=900)
    assert is_right(worker, f"{path}:compiled")
    assert worker.started == started


def test_an_operator_of_the_same_name_is_judged_in_a_worker_of_its_own(worker: Hired, tmp_path: Path) -> None:
    text = """
    library = torch.library.Library("shared", "DEF")
    library.define("act(Tensor gate, Tensor up) -> Tensor")
    library.impl("act", lambda gate, up: F.gelu(gate, approximate={how!r}) * up, "CPU")
    act = lambda gate, up: torch.ops.shared.act(gate, up)
    """
    targets = [f"{written(tmp_path, text.format(how=how), f'{how}.py')}:act" for how in ("tanh", "none")]
    assert [is_right(worker, target) for target in targets] == [True, False]


# ---- what a target may answer ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "process"), [(1, 0), (0, 1)])
def test_an_answer_to_something_else_ends_the_worker(
    worker: Hired, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, process: int
) -> None:
    path = written(tmp_path, GOOD)
    assert is_right(worker, f"{path}:good")
    unframed = channel.unframed

    def stale(data: bytes) -> tuple[int, int, bytes]:
        told, pid, rest = unframed(data)
        return told - number, pid + process, rest

    with monkeypatch.context() as patch:
        patch.setattr(channel, "unframed", stale)
        with pytest.raises(DiedError, match="a copy of the worker"):
            worker.ask("forward", GIVEN, time_limit_s=900)
    assert is_right(worker, f"{path}:good")


# ---- kernels behind a target -----------------------------------------------------------------------------------------

TUNED = """
import triton
import triton.language as tl

@triton.autotune(configs=[triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})], key=["n"])
@triton.jit
def tuned(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n), mask=offsets < n)

def launch(kernel, gate, up):
    y = F.gelu(gate, approximate="tanh") * up
    out = torch.empty_like(y)
    kernel[lambda meta: (triton.cdiv(y.numel(), meta["BLOCK"]),)](y, out, y.numel())
    return out
"""
REACHES = """
import functools
import tuned_kernels
from tuned_kernels import launch

TABLE = {"a": [tuned_kernels.tuned]}

def attribute(gate, up):
    return launch(tuned_kernels.tuned, gate, up)

def table(gate, up):
    return launch(TABLE["a"][0], gate, up)

def default(gate, up, kernel=tuned_kernels.tuned):
    return launch(kernel, gate, up)

def inside(gate, up):
    from tuned_kernels import tuned
    return launch(tuned, gate, up)

class Method(torch.nn.Module):
    def go(self, gate, up):
        return launch(TABLE["a"][0], gate, up)

    def forward(self, gate, up):
        return self.go(gate, up)

class Holder:
    def __init__(self):
        self.kernels = {"a": tuned_kernels.tuned}

    def run(self, gate, up):
        return launch(self.kernels["a"], gate, up)

holder = Holder()

def instance(gate, up):
    return holder.run(gate, up)

partial = functools.partial(launch, tuned_kernels.tuned)

def hidden(gate, up):
    return launch(getattr(tuned_kernels, "tu" + "ned"), gate, up)
"""


@pytest.mark.parametrize("name", ["attribute", "table", "default", "inside", "Method", "instance", "partial", "hidden"])
def test_autotuners_are_found_however_they_are_reached(
    worker: Hired, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    folder = tmp_path_factory.getbasetemp() / "reaches"  # one for all, so that one worker serves them
    if not folder.exists():
        written(folder, TUNED, "tuned_kernels.py")
        written(folder, REACHES)
    loaded = worker.load(f"{folder}/mine.py:{name}", "gelu_tanh", time_limit_s=900)
    assert loaded.configurations == (0 if name == "hidden" else 2)
    for index, block in enumerate(("16", "32")):  # the same kernel for all: the last target's pin is gone
        tensors, facts = worker.ask("forward", GIVEN, time_limit_s=900, configuration=index)
        assert torch.allclose(tensors["y"], RIGHT)
        assert facts["configurations"] == 2
        assert f"BLOCK: {block}" in facts["configuration"] or (name, index) == ("hidden", 0)
    # What one request asks for is not left to the next.
    assert "BLOCK: 16" in worker.ask("forward", GIVEN, time_limit_s=900)[1]["configuration"]
