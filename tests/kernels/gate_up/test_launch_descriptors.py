"""By what a launch finds its encoded descriptors again, and that this decides all that they say."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mlpfusion_kernels import Weights
from mlpfusion_kernels.gate_up import launch as launch_gate_up
from mlpfusion_kernels.gate_up.configs import Card, Config
from support import rings

DESCRIBED = [("wide", "forward"), ("wide", "backward"), ("hopper", "forward"), ("hopper", "backward")]


def boxes_of_a_launch(form: str, direction: str, sizes: dict[str, Any]) -> tuple[Any, tuple[Any, ...]]:
    """By what a launch on operands in one large buffer would find its descriptors again, and what they would say."""
    m, k, h = sizes["m"], 16 * sizes["k"], 16 * sizes["h"]
    memory = torch.zeros(1 << 20, dtype=torch.float16)

    def matrix(rows: int, columns: int, place: int, wider: int) -> torch.Tensor:
        return memory.as_strided((rows, columns), (columns + 8 * wider, 1), 8 * place)

    x = matrix(m, k, *sizes["x"])
    outputs = tuple(matrix(m, h, place, 0) for place in sizes["outputs"][:3])
    calls: list[tuple[Any, ...]] = []

    def recorder(*arguments: Any) -> None:
        calls.append(arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch_gate_up, "_WIDE", recorder)
        patch.setattr(launch_gate_up, "_BACKWARD_TMA", recorder)
        patch.setattr(launch_gate_up, "_hopper", lambda: (recorder, recorder))
        here = Card((9, 0), 132, 232448)
        config = Config(form, 128, 128, 64, 8, 4, 4, 1)
        if direction == "backward":
            launch = launch_gate_up._backward_wide if form == "wide" else launch_gate_up._backward_hopper
            both = matrix(m, 2 * h, sizes["outputs"][3], 0)
            launch(config, here, x, matrix(k, h, *sizes["gate"]), outputs[1], outputs[2], both, outputs[0], "silu")
        else:
            gate = matrix(h, k, *sizes["gate"])
            up = matrix(h, k, sizes["up"], sizes["gate"][1])
            weights = Weights(gate, up, gate)
            if form == "wide":
                apart = (up.data_ptr() - gate.data_ptr()) // 2
                launch_gate_up._launch_wide(config, here, x, weights, apart, outputs, "silu", True)
            else:
                launch_gate_up._launch_hopper(config, here, x, weights, outputs, "silu", True)
    key, _, described = calls[0][:3]
    found = (key, *(each.data_ptr() - memory.data_ptr() for each in described.tensors), *described.extents)
    said = tuple(
        (box.tensor.data_ptr() - memory.data_ptr(), tuple(box.shape), tuple(box.strides), box.block)
        for box in described.boxes()
    )
    return found, said


SIZES = st.fixed_dictionaries(
    {
        "m": st.integers(1, 3),
        "k": st.integers(1, 2),
        "h": st.integers(1, 2),
        "x": st.tuples(st.integers(0, 2), st.integers(0, 1)),
        "gate": st.tuples(st.integers(0, 2), st.integers(0, 1)),
        "up": st.integers(3, 5) | st.integers(0, 0),
        "outputs": st.tuples(*[st.integers(0, 1)] * 4),
    }
)


@pytest.mark.parametrize(("form", "direction"), DESCRIBED)
@settings(max_examples=rings.examples(40))
@given(first=SIZES, second=SIZES)
def test_what_a_launch_is_found_again_by_decides_all_its_descriptors(
    form: str, direction: str, first: dict[str, Any], second: dict[str, Any]
) -> None:
    """A descriptor of another tensor would be a read, or a write, in somebody else's memory."""
    found, said = boxes_of_a_launch(form, direction, first)
    for name, size in second.items():
        other_found, other_said = boxes_of_a_launch(form, direction, first | {name: size})
        assert said == other_said or found != other_found, name
