"""Sweeps every gate value through a target, an act·mul or a whole MLP."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final, NamedTuple

import torch
from torch import Tensor

from mlpfusion.spec import ACTIVATIONS
from mlpfusion.stages.validate.judge import bounds, excuses
from mlpfusion.stages.validate.judge.diagnose import Diagnosis, against, diagnose, in_up
from mlpfusion.stages.validate.judge.worker_handle import DiedError, RaisedError, UndecidableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlpfusion.spec import Activation, Dtype
    from mlpfusion.stages.validate.channel import Tensors
    from mlpfusion.stages.validate.judge.exam import Exam
# Gates beyond these say nothing: a cube overflows from 7e12 on, in right formulas too, and results of a gate below
# 2^-100 may be subnormal in float32, which hardware may take for 0.
LARGEST_GATE: Final = 65504.0
SMALLEST_GATE: Final = 2.0**-100
LARGER: Final = 3.0  # an up far from 1, by which a sum is told from a factor


class Swept(NamedTuple):
    """y for gate values and a constant up, each [N]."""

    y: Tensor
    gate: Tensor
    up: Tensor


def rows_of(tensor: Tensor, columns: int) -> Tensor:
    """A tensor [N] as rows [.., columns], the last one padded with zeros."""
    rows = torch.zeros(-(-tensor.numel() // columns) * columns, dtype=tensor.dtype)
    rows[: tensor.numel()] = tensor
    return rows.view(-1, columns)


def through_mlp(gate: Tensor, up: float, sizes: tuple[int, int], run: Callable[[Tensors], Tensor]) -> Swept:
    """Gate values as x of an MLP whose weights pass them on unchanged: products with ones and zeros are exact.

    The last column carries up. `sizes` are the MLP's hidden_size and intermediate_size.

    Raises:
        UndecidableError: the result has another shape than x.
    """
    d, h = sizes
    largest = torch.finfo(gate.dtype).max
    size = gate.double().abs()
    inside = size * up < largest * (1 - torch.finfo(gate.dtype).eps)  # inf·0 would spoil its row
    if gate.dtype is not torch.float16:  # a matrix product may take subnormals, those of float32's exponent, for 0
        inside &= (size >= 4 * torch.finfo(gate.dtype).tiny) | (size == 0)
    gate = gate[inside]
    values = rows_of(gate, d - 1)
    x = torch.cat((values, torch.full((values.shape[0], 1), up, dtype=gate.dtype)), dim=1)
    passes = torch.zeros(h, d, dtype=gate.dtype)
    passes[:d] = torch.eye(d, dtype=gate.dtype)
    ones = torch.zeros(h, d, dtype=gate.dtype)
    ones[:, -1] = 1.0
    y = run({"x": x, "wg": passes, "wu": ones, "wd": passes.T.contiguous()})
    if y.shape != x.shape:
        raise UndecidableError(f"it returns {tuple(y.shape)} for x of {tuple(x.shape)}")
    kept = y[:, : d - 1].reshape(-1)[: gate.numel()]
    return Swept(kept, gate, torch.full_like(gate, up))


class Sweeps:
    """What a target and eager give over every gate value, with up = 1 and with the next number after it, by dtype.

    A whole MLP gets the gates through one-hot weights.
    """

    def __init__(self, exam: Exam) -> None:
        self._exam = exam
        self._own: dict[Dtype, list[Swept]] = {}
        self._eager: dict[tuple[Dtype, Activation], list[Tensor] | None] = {}
        self._left_out: dict[Dtype, list[Tensor]] = {}
        self._diagnoses: dict[Dtype, Diagnosis | None] = {}

    def of(self, dtype: Dtype) -> list[Swept]:
        """The target's values, one for each up."""
        if dtype not in self._own:
            exam = self._exam
            self._own[dtype] = self._through(dtype, exam.flat if exam.kind == "act_mul" else exam.forward)
        return self._own[dtype]

    def diagnosis(self, dtype: Dtype) -> Diagnosis | None:
        """What is wrong with the target's function, or None."""
        if dtype not in self._diagnoses:
            activation = self._exam.activation
            found = (
                diagnose(*swept, activation, dtype, eager=self._eager_of(dtype, index))
                for index, swept in enumerate(self.of(dtype))
            )
            first = next((each for each in found if each is not None), None)
            self._diagnoses[dtype] = first if first is None else self._by_up(dtype) or first
        return self._diagnoses[dtype]

    def diagnosis_in(self, mode: str, dtype: Dtype) -> Diagnosis | None:
        """What is wrong with it where calls are made in another mode, by the same values; or None."""
        exam = self._exam
        forward = functools.partial(exam.flat if exam.kind == "act_mul" else exam.forward, mode=mode)
        for index, swept in enumerate(self._through(dtype, forward)):
            found = diagnose(*swept, exam.activation, dtype, eager=self._eager_of(dtype, index))
            if found is not None:
                return found
        return None

    def diagnosis_of_few(self, dtype: Dtype) -> tuple[int, Diagnosis] | None:
        """What is wrong with an MLP's function in calls of so few rows that other code makes them, and how many."""
        exam = self._exam
        for rows in (16, 1):
            for index, swept in enumerate(self._through(dtype, functools.partial(exam.forward, rows=rows))):
                found = diagnose(*swept, exam.activation, dtype, eager=self._eager_of(dtype, index))
                if found is not None:
                    return rows, found
        return None

    def slopes(self, dtype: Dtype, *, eager: bool) -> Swept:
        """An MLP's dx where dy is 1, which is the slope at each gate: the target's, or eager's."""
        exam = self._exam
        gates = bounds.every_value(dtype)
        size = gates.double().abs()
        gates = gates[(size <= LARGEST_GATE) & (size >= SMALLEST_GATE)]

        def dx(given: Tensors) -> Tensor:
            given = given | {"dy": torch.ones_like(given["x"])}
            return (exam.ask_peer("eager", "backward", given) if eager else exam.backward(given))[0]["d:x"]

        return through_mlp(gates, 1.0, exam.sizes, dx)

    def _by_up(self, dtype: Dtype) -> Diagnosis | None:
        """What is wrong, if it shows in how the values of an act·mul grow with up, which is near 1 in a sweep."""
        exam = self._exam
        if exam.kind == "mlp":
            return None
        low, gate, up = self.of(dtype)[0]
        try:
            high = exam.flat({"gate": gate, "up": torch.full_like(up, LARGER)})
        except (RaisedError, UndecidableError):
            return None
        sentence = in_up(low, high, gate, (1.0, LARGER), exam.activation)
        return None if sentence is None else Diagnosis("function", sentence)

    def fitting(self, dtype: Dtype) -> list[Activation]:
        """The functions that all of the target's values with up = 1 are, but for what eager gives as wrongly."""
        swept, eager = self.of(dtype)[0], self._eager_of(dtype, 0)
        return [name for name in ACTIVATIONS if not bool(against(*swept, name, dtype=dtype, eager=eager).wrong.any())]

    def unexcused(self, dtype: Dtype) -> list[Swept]:
        """The target's values without those that are excused."""
        kept = (~excused for excused in self._excused(dtype))
        return [Swept(*(each[mask] for each in swept)) for swept, mask in zip(self.of(dtype), kept, strict=True)]

    def note(self, dtype: Dtype) -> None:
        """Tell the exam which gate values are excused."""
        masked = list(zip(self.of(dtype), self._excused(dtype), strict=True))
        values, gates = (torch.cat(parts) for parts in zip(*((s.y[m], s.gate[m]) for s, m in masked), strict=True))
        self._exam.note(excuses.of_gates(values, gates, max(swept.gate.numel() for swept, _ in masked)))

    def _excused(self, dtype: Dtype) -> list[Tensor]:
        name = self._exam.activation

        def excused(index: int, swept: Swept) -> Tensor:
            y, gate, up = swept
            eager = functools.partial(self._eager_of(dtype, index), name)
            return excuses.part(lambda value: bounds.beyond(value, gate, up, name, dtype), y, eager).excused

        if dtype not in self._left_out:
            self._left_out[dtype] = [excused(index, swept) for index, swept in enumerate(self.of(dtype))]
        return self._left_out[dtype]

    def _eager_of(self, dtype: Dtype, index: int) -> Callable[[Activation], Tensor | None]:
        def eager(name: Activation) -> Tensor | None:
            if (dtype, name) not in self._eager:
                self._eager[dtype, name] = self._by_eager(dtype, name)
            swept = self._eager[dtype, name]
            return None if swept is None else swept[index]

        return eager

    def _by_eager(self, dtype: Dtype, activation: Activation) -> list[Tensor] | None:
        def forward(given: Tensors) -> Tensor:
            return self._exam.ask_peer("eager", "forward", given, activation=activation)[0]["y"]

        try:
            return [swept.y for swept in self._through(dtype, forward)]
        except (RaisedError, DiedError, UndecidableError):  # which excuses nothing
            return None

    def _through(self, dtype: Dtype, run: Callable[[Tensors], Tensor]) -> list[Swept]:
        gate, ups = bounds.every_value(dtype), (1.0, 1.0 + bounds.EPS[dtype])
        if self._exam.kind == "mlp":
            return [through_mlp(gate, up, self._exam.sizes, run) for up in ups]
        constants = [torch.full_like(gate, up) for up in ups]
        return [Swept(run({"gate": gate, "up": up}), gate, up) for up in constants]
