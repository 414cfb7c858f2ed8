"""What the worker answers, whatever the target that it serves does to its process."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import pytest
import torch
from support.one_worker import GIVEN, LIMIT_S, RIGHT, is_right
from support.targets_made import written

from mlpfusion.errors import UsageError
from mlpfusion.stages.validate.judge.worker_handle import RaisedError, UndecidableError
from mlpfusion.stages.validate.worker import main
from mlpfusion.stages.validate.worker.results import NoTensorError

if TYPE_CHECKING:
    from pathlib import Path

    from mlpfusion.stages.validate.judge.worker_handle import Hired

GOOD = "def good(gate, up):\n    return F.gelu(gate, approximate='tanh') * up\n"


@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_compiled_target_stays_compiled_however_many_shapes_it_is_asked_for(
    worker: Hired, tmp_path: Path, fullgraph: bool
) -> None:
    """Dynamo gives up after eight, where it raises or runs the function as it is: this one is wrong then."""
    text = """
        def body(gate, up):
            return F.gelu(gate, approximate='tanh') * up if torch.compiler.is_compiling() else gate

        def compiled():
            return torch.compile(body, backend='eager', dynamic=False, fullgraph=FULL)
        """
    text = textwrap.dedent(text.replace("FULL", str(fullgraph)))
    text += "made = []\ndef act(gate, up):\n    made[:] = made or [compiled()]\n    return made[0](gate, up)\n"
    worker.load(written(tmp_path, text) + ":act", "gelu_tanh", time_limit_s=LIMIT_S)
    for width in range(1, 13):
        given = {name: value[:, :width].contiguous() for name, value in GIVEN.items()}
        y = worker.ask("forward", given, time_limit_s=LIMIT_S)[0]["y"]
        assert torch.allclose(y, RIGHT[:, :width]), width


def test_a_copy_of_the_worker_answers_nothing(worker: Hired, tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        def forks(gate, up):
            y = F.gelu(gate, approximate="tanh") * up
            return y * 2 if os.fork() == 0 else y
        """,
    )
    assert is_right(worker, f"{path}:forks")
    for _ in range(5):
        y = worker.ask("forward", GIVEN, time_limit_s=LIMIT_S)[0]["y"]
        assert torch.allclose(y, RIGHT)


def test_an_exception_s_text_may_be_no_unicode(worker: Hired, tmp_path: Path) -> None:
    path = written(tmp_path, "def raises(gate, up):\n    raise ValueError('bad \\udcff value')\n")
    worker.load(f"{path}:raises", "gelu_tanh", time_limit_s=LIMIT_S)
    with pytest.raises(RaisedError, match=r"ValueError: bad \\udcff value"):
        worker.ask("forward", GIVEN, time_limit_s=LIMIT_S)


def test_what_an_import_changed_is_said_each_time_that_it_is_loaded(worker: Hired, tmp_path: Path) -> None:
    path = written(tmp_path, f"torch.backends.cudnn.benchmark = True\n{GOOD}")
    left = [worker.load(f"{path}:good", name, time_limit_s=LIMIT_S).left for name in ("gelu_tanh", "gelu", "gelu_tanh")]
    assert list(left[0]) == ["cudnn.benchmark"]
    assert left[1:] == left[:1] * 2


def test_without_a_target_there_is_an_answer_too(worker: Hired) -> None:
    worker.retire()
    with pytest.raises(UndecidableError, match="mlpfusion's own, none of the target's: RuntimeError: nothing is load"):
        worker.ask("forward", GIVEN, time_limit_s=LIMIT_S)


def test_an_error_of_the_judge_s_own_is_no_refusal(worker: Hired, tmp_path: Path) -> None:
    worker.load(f"{written(tmp_path, GOOD)}:good", "gelu_tanh", time_limit_s=LIMIT_S)
    with pytest.raises(UndecidableError, match="KeyError: 'dy'"):
        worker.ask("backward", GIVEN, time_limit_s=LIMIT_S)


@pytest.mark.parametrize(
    ("mode", "change", "how"),
    [
        ("gradients on", "torch.set_grad_enabled(False)", {"grad mode": "was True and is False"}),
        ("inference", "torch.set_grad_enabled(True)", {"grad mode": "was False and is True"}),
        (None, "torch.set_default_dtype(torch.half)", {"the default dtype": "was torch.float32 and is torch.float16"}),
    ],
)
@pytest.mark.parametrize("raises", [False, True])
def test_what_a_call_leaves_is_told_where_it_raises_too(
    worker: Hired, tmp_path: Path, mode: str | None, change: str, how: dict[str, str], raises: bool
) -> None:
    text = f"def leaves(gate, up):\n    y = gate * up\n    {change}\n    return 1 / 0 if {raises} else y\n"
    worker.load(f"{written(tmp_path, text)}:leaves", "gelu_tanh", time_limit_s=LIMIT_S)
    if raises:
        with pytest.raises(RaisedError, match="ZeroDivisionError") as raised:
            worker.ask("forward", GIVEN, time_limit_s=LIMIT_S, mode=mode)
        assert raised.value.left == how
    else:
        assert worker.ask("forward", GIVEN, time_limit_s=LIMIT_S, mode=mode)[1]["left"] == how


@pytest.mark.parametrize(
    "setting",
    [
        "torch.set_grad_enabled(False)",
        "torch.set_default_dtype(torch.float64)",
        "torch.set_float32_matmul_precision('medium')",
        "setattr(torch.backends.cuda.matmul, 'allow_tf32', True)",
    ],
)
def test_each_request_finds_the_same_settings(worker: Hired, tmp_path: Path, setting: str) -> None:
    body = """
        def sets(gate, up):
            seen.append((torch.is_grad_enabled(), torch.get_default_dtype(), torch.get_float32_matmul_precision(),
                         torch.backends.cuda.matmul.allow_tf32))
            SETTING
            if len(set(seen)) > 1:
                raise ValueError(f"seen {set(seen)}")
            return F.gelu(gate, approximate="tanh") * up
        """
    path = written(tmp_path, "seen = []\n" + textwrap.dedent(body.replace("SETTING", setting)))
    worker.load(f"{path}:sets", "gelu_tanh", time_limit_s=LIMIT_S)
    for _ in range(2):
        worker.ask("backward", GIVEN | {"dy": torch.ones(4, 16)}, time_limit_s=LIMIT_S)


def test_each_request_says_which_configuration_ran(worker: Hired, tmp_path: Path) -> None:
    worker.load(f"{written(tmp_path, GOOD)}:good", "gelu_tanh", time_limit_s=LIMIT_S)
    facts = worker.ask("forward", GIVEN, time_limit_s=LIMIT_S)[1]
    assert facts["configurations"] == 0
    assert facts["bf16_arithmetic"] is False


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (UsageError("it names nothing"), "misused"),
        (NoTensorError("it returns a list"), "wrong"),
        (MemoryError(), "memory"),
        (torch.OutOfMemoryError("CUDA out of memory"), "memory"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), "memory"),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), "poisoned"),
        (RuntimeError("HIP error: invalid device function"), "poisoned"),
        (type("AcceleratorError", (RuntimeError,), {})("device-side assert"), "poisoned"),
        (RuntimeError("0 active drivers ([]). There should only be one."), "interpreter"),
        (ValueError("gate and up differ"), "refused"),
        (SystemExit("needs a licence key"), "refused"),
    ],
)
def test_why_a_request_failed(error: BaseException, why: str) -> None:
    assert main._why(error) == why
