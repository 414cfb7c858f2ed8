"""An exam: shapes in its words."""

from __future__ import annotations

import pytest

from mlpfusion.errors import UsageError
from mlpfusion.stages.validate.judge.exam import shape_text


def test_shapes_are_written_as_they_are_typed() -> None:
    from mlpfusion.cli.validate import shape

    for each in ((), (0,), (7, 127), (1, 2, 3)):
        assert shape(shape_text(each)) == each
    for bad in ("", "7x", "x7", "-1", "7X8", "a"):
        with pytest.raises(UsageError, match="--shapes"):
            shape(bad)
