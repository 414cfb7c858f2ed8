"""The verb that predicts times on a card that is not here."""

from __future__ import annotations

from typing import Annotated

import typer

from mlpfusion.cli import streams
from mlpfusion.cli.text import OK, Text


def add_to(app: typer.Typer) -> None:
    """Give the command line this verb."""
    app.command("predict")(_predict)


def _predict(
    result: Annotated[str, typer.Argument(metavar="RESULT", help="Result file of `mlpfusion profile`; - for stdin.")],
    card: Annotated[Text, typer.Option(metavar="NAME", help="One of the known cards, by its whole name.")] = None,
    table: Annotated[Text, typer.Option(metavar="FILE", help="Products timed on that card: CSV or result.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show the measured products behind it.")] = False,
    fmt: Annotated[str, typer.Option("--format", metavar="text|github|json", help="What stdout gets.")] = "text",
) -> int:
    """Predict times on a card that is not here.

    RESULT has bfloat16 or float16 rows, inference or training. Each row that was raced is predicted from the ledger of
    its launches: matrix products from products that were timed on that card, if the extra `tables` is installed or FILE
    has some, everything else from the datasheets and the times in RESULT. Each time has an interval and a source.

    FILE is a CSV with the columns m,n,k,dtype,us for x [m, k] by the transpose of w [n, k], or a result measured there.

    \b
    Known cards:
      NVIDIA A100-SXM4-80GB (the default, the tutorial's)
      NVIDIA A100-SXM4-40GB
      NVIDIA A100 80GB PCIe
      NVIDIA H100 80GB HBM3
      NVIDIA H100 PCIe
      NVIDIA H200
      NVIDIA L40S
      NVIDIA B200
      NVIDIA GB200
    """
    from mlpfusion import spec
    from mlpfusion.report.predict import prediction
    from mlpfusion.stages.predict import foreseen, run
    from mlpfusion.storage import results
    from mlpfusion.storage.redacted import redacted

    spec.one_of("format", fmt, ("text", "github", "json"))
    there = run.card(run.REFERENCE_CARD if card is None else card, table)
    profile = results.load(result)
    made = run.predict(profile, there)
    if fmt == "json":
        streams.write_out(results.encode(redacted(foreseen.foresight(profile, made, there))))
        return OK
    streams.write_out(prediction.render(made, fmt, there.notes, explain=explain))
    return OK
