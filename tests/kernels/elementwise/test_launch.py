"""How act_mul's kernels are launched: strides of rows, plans, tiles."""

from __future__ import annotations

import pytest
import torch
from mlpfusion_kernels import act_mul
from mlpfusion_kernels.elementwise.launch import plan_rows, row_stride


def test_row_stride() -> None:
    x = torch.empty(4, 6, 8)
    assert row_stride(x) == 8
    assert row_stride(x[..., :3]) == 8
    assert row_stride(x[:, 0]) == 48
    assert row_stride(x[:, ::2]) == 16
    assert row_stride(x[:, :4]) is None
    assert row_stride(x.transpose(0, 1)) is None
    assert row_stride(x.transpose(1, 2)) is None
    assert row_stride(x[..., :1]) == 8
    assert row_stride(x[:1, :1].as_strided((1, 1, 8), (1, 3, 1))) == 8
    assert row_stride(torch.empty(()).expand(4, 6)) is None
    assert row_stride(torch.empty(6).expand(4, 6)) == 0


def test_a_shape_is_planned_once() -> None:
    """Planning takes longer than a launch: a call may not repeat it."""
    plan_rows.cache_clear()
    for _ in range(3):
        gate, up = torch.randn(3, 80).chunk(2, dim=-1)
        torch.testing.assert_close(act_mul(gate, up, "relu"), torch.relu(gate) * up)
    assert (plan_rows.cache_info().misses, plan_rows.cache_info().hits) == (1, 2)


@pytest.mark.parametrize(
    ("columns", "strides", "unit", "width"),
    [
        (3072, (6144, 6144), 8, 1024),  # three full tiles, no lane idle
        (16384, (32768, 32768), 8, 2048),
        (3000, (6000, 6000), 8, 1024),  # multiple of 8, not of 16: still whole 16-byte accesses
        (3004, (6008, 6008), 4, 1024),
        (3001, (6002, 6002), 1, 1024),
        (2176, (4352, 4352), 8, 128),  # a tile of 2048 would idle almost half its lanes
        (3, (7, 7), 1, 4),
        (1, (5, 5), 1, 1),
    ],
)
def test_plan_rows(columns: int, strides: tuple[int, ...], unit: int, width: int) -> None:
    plan = plan_rows((4096, columns), strides, 2, 2048)
    assert (plan.unit, plan.tile_columns) == (unit, width)
    assert plan.tile_rows * plan.tile_columns == 2048
    assert plan.column_tiles * width >= columns
