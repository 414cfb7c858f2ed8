"""Exams whose workers are functions of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlpfusion.stages.validate.judge.exam import Asked, Exam

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from mlpfusion.device import DeviceKind
    from mlpfusion.spec import Dtype
    from mlpfusion.stages.validate.channel import Facts, Loaded, Tensors


class Here:
    """Stands for a worker: holds every target, and answers the probe "forward" with a function of the operands."""

    def __init__(self, function: Callable[..., Tensor] | None, names: tuple[str, ...]) -> None:
        self._function = function
        self._names = names

    def holds(self, *_: object) -> bool:
        return True

    def ask(self, probe: str, given: Tensors, **_: object) -> tuple[Tensors, Facts]:
        assert probe == "forward"
        assert self._function is not None, "this exam has no target"
        y = self._function(*(given[name] for name in self._names))
        return {"y": y}, {"configurations": 0, "left": {}, "launches": 0}


def exam(
    loaded: Loaded,
    function: Callable[..., Tensor] | None = None,
    eager: Callable[..., Tensor] | None = None,
    *,
    dtypes: tuple[Dtype, ...] = ("float32",),
    device: DeviceKind = "cpu",
    **asked: Any,
) -> Exam:
    """The exam of a function beside eager, for which `asked`, the fields of `exam.Asked`, is asked."""
    names = ("gate", "up") if loaded.kind == "act_mul" else ("x", "wg", "wu", "wd")
    mine, peer = (Here(each, names) for each in (function, eager))
    return Exam(
        "a function",
        "gelu_tanh",
        loaded,
        mine,  # type: ignore[arg-type]
        peer,  # type: ignore[arg-type]
        dtypes=dtypes,
        asked=Asked(**asked),
        seed=0,
        device=device,
    )
