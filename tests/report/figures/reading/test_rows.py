"""Labels of rows: the backend, and what tells its shape from others."""

from __future__ import annotations

from support.profiles_made import COMPILE, EAGER, TRITON, profile

from mlpfusion.report.figures.reading import rows, shapes
from mlpfusion.spec import Workload
from mlpfusion.storage.gathered import Gathered


def test_no_two_labels_are_alike() -> None:
    found = [
        profile(EAGER, COMPILE, TRITON, workload=Workload(spec=profile().workload.spec, batch=1, seq=n)) for n in (1, 8)
    ]
    every = shapes.of([Gathered(f"{at}.json", each, "") for at, each in enumerate(found)])
    made = rows.label([(shape, row) for shape in every for row in shape.rows], 178)
    assert made.labels[:3] == ("eager · 1 tok", "compile · 1 tok", "triton (emulated) · 1 tok")
    assert made.groups == (0, 0, 0, 1, 1, 1)
    assert len(set(made.labels)) == 6
    assert made.names == {"eager": "eager", "compile": "compile", "triton": "triton"}


def test_of_one_shape_the_backend_is_enough() -> None:
    (shape,) = shapes.of([Gathered("f.json", profile(EAGER, COMPILE), "")])
    made = rows.label([(shape, row) for row in shape.rows], 84)
    assert (made.labels, made.texts) == (("eager", "compile"), ("", ""))
