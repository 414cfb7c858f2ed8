"""Tells an exception of the judge's own code, which runs within a target's calls too, from one of the target."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mlpfusion.errors import MlpfusionError

if TYPE_CHECKING:
    from types import CodeType

_FOLDERS: Final = tuple(Path(__file__).resolve().parent / name for name in ("worker", "judge"))
# What they raise is theirs: none calls the target, or a function of PyTorch on the target's behalf but the one below.
_NEVER_CALL: Final = frozenset(("guard.py", "settings.py", "functions.py", "leftovers.py", "main.py"))
_CALLS: Final = "allocate"  # it stands for torch.empty, which refuses wrong arguments for the target's sake
# The others call targets and their tensors, which PyTorch, in C++, may refuse in the name of their frames: but not so.
_OF_PYTHON: Final = (KeyError, NameError, AttributeError, AssertionError)


def is_own(error: BaseException) -> bool:
    """Whether the innermost frame that raised it is the judge's, and it is none of those that it raises on purpose.

    A target that calls itself without end may reach the limit anywhere.
    """
    if isinstance(error, MlpfusionError | RecursionError | SystemExit):
        return False
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    code = frames[-1].f_code if frames else None
    return code is not None and _is_of_the_judge(code) and (_never_calls(code) or isinstance(error, _OF_PYTHON))


def _is_of_the_judge(code: CodeType) -> bool:
    return any(folder in Path(code.co_filename).parents for folder in _FOLDERS)


def _never_calls(code: CodeType) -> bool:
    return Path(code.co_filename).name in _NEVER_CALL and code.co_name != _CALLS
