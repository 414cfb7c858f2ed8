"""Draws marks of a few kinds on the rows of a figure, each kind of its own shape and colour, with a legend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mlpfusion.report.figures.drawing import style

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class Kind(NamedTuple):
    """One kind of mark: what the legend calls it, its shape and colour, and whether it is drawn hollow."""

    name: str
    shape: str
    colour: str
    hollow: bool = False


def present(kinds: Sequence[Kind], values: Iterable[Mapping[str, Any]]) -> tuple[Kind, ...]:
    """Those of the kinds that occur."""
    found = {each["kind"] for each in values}
    return tuple(kind for kind in kinds if kind.name in found)


TICK: Final = "M0,-1.1L0,1.1"


def layer(kinds: Sequence[Kind], row: dict[str, Any], x: dict[str, Any], width: int) -> dict[str, Any]:
    """A layer of points: the field `kind` says of which of these kinds each is."""
    names = [kind.name for kind in kinds]

    def scale(values: list[str]) -> dict[str, Any]:
        return {"field": "kind", "type": "nominal", "scale": {"domain": names, "range": values}}

    legend = style.legend(names, width, row["scale"]["domain"])
    return {
        "mark": {"type": "point", "opacity": 1, "strokeWidth": 1.6, "size": 40},
        "encoding": {
            "y": row,
            "x": x,
            "shape": {**scale([kind.shape for kind in kinds]), "legend": legend},
            "stroke": {**scale([kind.colour for kind in kinds]), "legend": legend},
            "fill": {**scale(["white" if kind.hollow else kind.colour for kind in kinds]), "legend": legend},
        },
    }
