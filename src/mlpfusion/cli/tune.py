"""The verb `tune`: searches for faster configurations of the fused kernels."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from mlpfusion import limits
from mlpfusion.cli.renamed import OLD_LIMIT, OLD_SIZES, with_old_names
from mlpfusion.cli.streams import write_out
from mlpfusion.cli.text import (
    ACTIVATIONS,
    DTYPES,
    FAILED,
    OK,
    Format,
    InterruptedRunError,
    Text,
    names_in,
    one_line,
    say,
    seconds,
    size,
)
from mlpfusion.errors import MlpfusionError

if TYPE_CHECKING:
    from mlpfusion.records.tuning import Answer

_TOKENS = "1,256,8192"


def add_to(app: typer.Typer) -> None:
    """Give the command line this verb."""
    app.command("tune")(with_old_names(_tune, {**OLD_SIZES, **OLD_LIMIT}))


def _tune(
    *,
    hidden_size: Annotated[Text, typer.Option(metavar="N", help="Width of the model; 768.")] = None,
    intermediate_size: Annotated[Text, typer.Option(metavar="N", help="Width inside the MLP; 3072.")] = None,
    activation: Annotated[str, typer.Option(metavar=ACTIVATIONS, help="Activation to tune with.")] = "gelu_tanh",
    dtype: Annotated[str, typer.Option(metavar=DTYPES, help="Element type.")] = "bfloat16",
    tokens: Annotated[str, typer.Option(metavar="N,N", help="Numbers of tokens, one for each power of two.")] = _TOKENS,
    mode: Annotated[str, typer.Option(metavar="inference|training", help="Which kernels.")] = "inference",
    device: Annotated[Text, typer.Option(metavar="cuda", help="Where to run; only a GPU will do.")] = None,
    time_limit: Annotated[Text, typer.Option(metavar="S", help="Seconds that all of it may take, about; 600.")] = None,
    fmt: Format = "text",
) -> int:
    """Tune the fused kernels for this GPU.

    Searches for faster configurations and saves them for later calls. Other calls never tune.
    """
    from mlpfusion import spec
    from mlpfusion.report import grid

    spec.one_of("format", fmt, grid.FORMATS)
    asked_spec = spec.MLPSpec(
        hidden_size=size("--hidden-size", hidden_size) or 768,
        intermediate_size=size("--intermediate-size", intermediate_size) or 3072,
        activation=spec.parse_activation(activation),
        dtype=spec.parse_dtype(dtype),
    )
    counts = [size("--tokens", text, limits.TUNED_TOKENS) for text in names_in("--tokens", tokens)]
    asked_mode: spec.Mode = spec.one_of("mode", mode, spec.MODES)
    limit_s = seconds("--time-limit", "600" if time_limit is None else time_limit)
    from mlpfusion import device as devices
    from mlpfusion.report import tuning
    from mlpfusion.stages.tune import run
    from mlpfusion.workers import interrupts

    here = devices.detect(device)
    run.check_device(asked_spec, here)
    questions = run.questions(asked_spec, counts, asked_mode, here)
    path = run.check_file()
    answers: list[Answer] = []
    stopped: BaseException | None = None
    try:
        with interrupts.stoppable():
            for answer in run.search(questions, here, path, limit_s=limit_s, on_event=_report):
                answers.append(answer)
    except (KeyboardInterrupt, Exception) as error:  # whatever it is, the finished answers took long
        stopped = error
    if answers:
        write_out(tuning.render(run.record(answers, here, path), fmt))
    if stopped is not None:
        done = f"{len(answers)} of {len(questions)} searches had finished; {_kept(answers)} in {path}"
        if isinstance(stopped, KeyboardInterrupt):
            raise InterruptedRunError(done)
        if isinstance(stopped, MlpfusionError):
            raise MlpfusionError(f"{stopped}; {done}") from stopped
        raise stopped
    say(f"{_kept(answers)} in {path}", sys.stderr)
    return FAILED if any(answer.reason is not None for answer in answers) else OK


def _kept(answers: list[Answer]) -> str:
    number = sum(answer.kept for answer in answers)
    return f"{number} faster configuration{'' if number == 1 else 's'} saved"


def _report(text: str) -> None:
    say(f"tune: {one_line(text)}", sys.stderr)
