"""What shapes of two files have in common."""

from __future__ import annotations

from msgspec.structs import replace
from support.profiles_made import profile

from mlpfusion.report.figures.shape import Shape


def test_shapes_of_one_mlp_tokens_and_mode_have_one_key() -> None:
    made = profile()
    shape = Shape("a.json", made.workload, made.rows, made.device)
    spread = replace(made.workload, batch=1, seq=made.workload.tokens)
    assert shape._replace(path="b.json", workload=spread).key == shape.key
    for other in (
        replace(made.workload, seq=made.workload.seq + 1),
        replace(made.workload, mode="training"),
        replace(made.workload, spec=replace(made.workload.spec, dtype="float16")),
    ):
        assert shape._replace(workload=other).key != shape.key
