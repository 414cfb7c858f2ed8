"""Shows predictions apart from what was measured: a table of their own, marked, without a rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlpfusion.records.prediction import Foresight
from mlpfusion.report.page.cells import of_model
from mlpfusion.report.table import document

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mlpfusion.report.page.cells import Table
    from mlpfusion.report.page.sources import Source


def tables(sources: Sequence[Source]) -> list[Table]:
    """The table of all predictions as `mlpfusion table` has it, none where no file has any."""
    found = [each.read for each in sources if isinstance(each.result, Foresight)]
    made = document.document(found, document.Options())
    return [of_model(each, f"predicted-{number}") for number, each in enumerate(made.tables)]


def sentences(sources: Sequence[Source]) -> Iterator[str]:
    """What a reader must know of predictions before any number."""
    for each in sources:
        if isinstance(each.result, Foresight):
            yield (
                f"Predicted for {each.result.card}, not measured there: {each.name}. Its rows stand apart, marked, "
                "with intervals of 80%; they are never ranked with measured ones."
            )
