"""The verb `choose`: chooses a backend for a model."""

from __future__ import annotations

import contextlib
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypedDict

import typer

from mlpfusion import limits
from mlpfusion.cli.renamed import with_old_names
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
    path_in,
    say,
    seconds,
    size,
)
from mlpfusion.errors import UsageError
from mlpfusion.storage import files

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mlpfusion.records.choice import Model
    from mlpfusion.spec import Mode
    from mlpfusion.stages.profile.run import Progress

FOLDER: Final = "choices"
_TOKENS: Final = "1,16,256,2048,8192"
_CLOCKS: Final = "event_us|graph_us|wall_us"

HiddenSize = Annotated[Text, typer.Option(metavar="N", help="Width of the model, in place of MODEL.")]
IntermediateSize = Annotated[Text, typer.Option(metavar="N", help="Width inside the MLP, in place of MODEL.")]
DeviceOrCard = Annotated[
    Text, typer.Option(metavar="cuda|cpu|CARD", help="Where to run; a known card that is not here is predicted.")
]


def add_to(app: typer.Typer) -> None:
    """Give the command line this verb."""
    app.command("choose")(with_old_names(_choose))


def _choose(
    model: Annotated[
        Text, typer.Argument(metavar="MODEL", help="A known name, a config.json, its directory, or - (stdin).")
    ] = None,
    *,
    hidden_size: HiddenSize = None,
    intermediate_size: IntermediateSize = None,
    activation: Annotated[Text, typer.Option(metavar=ACTIVATIONS, help="Activation, in place of MODEL.")] = None,
    dtype: Annotated[Text, typer.Option(metavar=DTYPES, help="Element type; the model's.")] = None,
    tokens: Annotated[str, typer.Option(metavar="N,N", help="Numbers of tokens to measure.")] = _TOKENS,
    mode: Annotated[str, typer.Option(metavar="A,B", help="inference, training or both.")] = "inference",
    tp: Annotated[str, typer.Option(metavar="N", help="Cards that share the intermediate size.")] = "1",
    backends: Annotated[Text, typer.Option(metavar="A,B", help="Backends by name or ./file.py:Class; all.")] = None,
    device: DeviceOrCard = None,
    clock: Annotated[Text, typer.Option(metavar=_CLOCKS, help="What decides; event_us, on a CPU wall_us.")] = None,
    out: Annotated[Text, typer.Option(metavar="DIR", help=f"Folder for choice and rows; {FOLDER}/MODEL.")] = None,
    rounds: Annotated[str, typer.Option(metavar="N", help="Interleaved rounds for each number of tokens.")] = "60",
    time_limit: Annotated[str, typer.Option(metavar="S", help="Seconds that one backend may take to qualify.")] = "600",
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure again what is in the folder already.")] = False,
    table: Annotated[Text, typer.Option(metavar="FILE", help="Products timed on a card that is not here.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show the products behind a prediction.")] = False,
    study: Annotated[Text, typer.Option("--from", metavar="STUDY", help="Folder of a study that decides.")] = None,
    fmt: Format = "text",
) -> int:
    """Choose the backends for a model.

    Measures every backend on its MLP, and writes which one is for how many tokens.

    Rows that are finished are kept: the same command goes on where it was interrupted. For a card that is not here it
    predicts from those rows, and writes no choice.

    With --from nothing is measured: a choice is made of each model of a study, or of MODEL.

    Known models: article, gemma-2b, gemma-7b, gemma-2-2b, gemma-2-9b, gemma-2-27b, gemma-3-1b, gemma-3-4b, gemma-3-12b,
    gemma-3-27b, t5-v1.1-xl, flan-t5-xxl, llama-3.2-1b, llama-3.2-3b, llama-3.1-8b, llama-3.1-70b, qwen2.5-0.5b,
    qwen2.5-7b, qwen3-0.6b, qwen3-8b, qwen3-32b, mistral-7b, phi-4-mini, smollm2-1.7b.
    """
    given = locals()
    from mlpfusion import backend as registry
    from mlpfusion import spec
    from mlpfusion.report import grid

    spec.one_of("format", fmt, grid.FORMATS)
    if study is not None:
        return _of_study(study, given)
    asked = _model(model, hidden_size, intermediate_size, activation, dtype)
    parts = size("--tp", tp, limits.CARDS)
    folder = path_in("--out", out) if out is not None else Path(FOLDER) / _folder_name(asked, parts)
    modes: list[spec.Mode] = [spec.one_of("mode", name, spec.MODES) for name in names_in("--mode", mode)]
    counts = [size("--tokens", text, limits.TOKENS) for text in names_in("--tokens", tokens)]
    names = None if backends is None else [registry.check_name(name) for name in names_in("--backends", backends)]
    number, limit = size("--rounds", rounds, limits.ROUNDS), seconds("--time-limit", time_limit)
    how: _How = {
        "tokens": counts,
        "modes": modes,
        "tp": parts,
        "backends": names,
        "out": folder,
        "rounds": number,
        "time_limit_s": limit,
        "fresh": fresh,
        "on_event": _report,
    }
    try:
        return _made(asked, device, clock, fmt, how, away=_Away(table, explain))
    except KeyboardInterrupt:
        raise InterruptedRunError(_kept(folder)) from None


def _of_study(study: str, given: dict[str, Any]) -> int:
    """Write a choice for each model of a study, in a folder of its own; its cells have settled everything else."""
    from mlpfusion import spec
    from mlpfusion.report import choice as report
    from mlpfusion.stages.choose import run
    from mlpfusion.stages.sweep import choices
    from mlpfusion.storage import results
    from mlpfusion.storage.redacted import redacted

    for name, parameter in inspect.signature(_choose).parameters.items():
        if given[name] != parameter.default and name not in ("study", "model", "clock", "out", "fmt"):
            raise UsageError(f"--{name.replace('_', '-')} does not go with --from: the study has settled it")
    model, clock, out, fmt = (given[name] for name in ("model", "clock", "out", "fmt"))
    by = None if clock is None else spec.one_of("clock", clock, run.CLOCKS)
    folder = Path(FOLDER) if out is None else path_in("--out", out)
    made = choices.choices(str(path_in("--from", study)), model=model, clock=by)
    several = len({each.device.name for each in made}) > 1
    for each in made:
        kind = f"-{each.device.name.replace(' ', '-')}" if several else ""
        place = folder / f"{_folder_name(each.model, each.tp)}{kind}"
        files.check_directory("output directory", place).mkdir(parents=True, exist_ok=True)
        results.check_file(place / "choice.json", kind="choice", what=results.CHOICE)
        results.save(each, place / "choice.json")
        say(f"saved in {place / 'choice.json'}", sys.stderr)
    shown = [(each.model.name, report.render(redacted(each), fmt)) for each in made]
    write_out("\n".join(text for _, text in shown) if fmt != "json" or len(shown) == 1 else _listed(shown))
    return OK if any(each.ranges for each in made) else FAILED


def _listed(shown: Sequence[tuple[str, str]]) -> str:
    """Several choices as one JSON list."""
    return "[\n" + ",\n".join(text.rstrip("\n") for _, text in shown) + "\n]\n"


class _How(TypedDict):
    """The options that choosing and predicting share."""

    tokens: list[int]
    modes: list[Mode]
    tp: int
    backends: list[str] | None
    out: Path
    rounds: int
    time_limit_s: float
    fresh: bool
    on_event: Callable[[Progress], None]


class _Away(NamedTuple):
    """The options for a card that is not here."""

    table: Text
    explain: bool


def _made(asked: Model, device: Text, clock: Text, fmt: str, how: _How, *, away: _Away) -> int:
    """Choose by what is measured here, or foresee for a card that is not."""
    from mlpfusion import spec
    from mlpfusion.report import choice as report
    from mlpfusion.stages.choose import run
    from mlpfusion.storage.redacted import redacted

    by = None if clock is None else spec.one_of("clock", clock, run.CLOCKS)
    cards = run.card_away(device)
    if cards and by is not None:
        raise UsageError(f"--clock {by} does not go with --device {device}: no clock ran on a card that is not here")
    if cards:
        return _foresee(asked, cards, fmt, how, away)
    for option, given in (("--table", away.table is not None), ("--explain", away.explain)):
        if given:
            raise UsageError(f"{option} is for a card that is not here: give it with --device CARD")
    made = run.choose(asked, device=device, clock=by, **how)
    say(f"saved in {how['out'] / 'choice.json'}", sys.stderr)
    write_out(report.render(redacted(made), fmt))
    return OK if made.ranges else FAILED


def _foresee(asked: Model, cards: Sequence[str], fmt: str, how: _How, away: _Away) -> int:
    """Predict for the first of the cards that are meant, and say so."""
    from mlpfusion.report.predict import foresight
    from mlpfusion.stages.choose import foresee
    from mlpfusion.storage.redacted import redacted

    found = foresee.foresee(asked, cards[0], table=away.table, **how)
    also = f"; the name also fits {' and '.join(cards[1:])}" if cards[1:] else ""
    say(f"no choice.json is written: a choice is for the card it was measured on, not for {cards[0]}{also}", sys.stderr)
    write_out(foresight.render(redacted(found), fmt, explain=away.explain))
    return OK


def _model(model: Text, hidden_size: Text, intermediate_size: Text, activation: Text, dtype: Text) -> Model:
    from mlpfusion import spec
    from mlpfusion.models import known

    kind = None if dtype is None else spec.parse_dtype(dtype)
    width, inner = size("--hidden-size", hidden_size), size("--intermediate-size", intermediate_size)
    sizes = {"--hidden-size": width, "--intermediate-size": inner, "--activation": activation}
    given = [name for name, value in sizes.items() if value is not None]
    if model is not None:
        if given:
            raise UsageError(f"{given[0]} does not go with a model: its configuration determines it")
        return known.find(model, dtype=kind)
    if not given:
        raise UsageError(
            "no model: give a config.json, its directory, --hidden-size and --intermediate-size, "
            f"or {', '.join(known.models())}"
        )
    if width is None or inner is None:
        lacking = "--intermediate-size" if width is not None else "--hidden-size"
        raise UsageError(f"{given[0]} needs {lacking} too, or name a model")
    made = spec.MLPSpec(
        hidden_size=width,
        intermediate_size=inner,
        activation="gelu_tanh" if activation is None else spec.parse_activation(activation),
        dtype=kind or "bfloat16",
    )
    return known.of_sizes(made)


def _folder_name(model: Model, tp: int) -> str:
    """The model's name as one part of a path, with what else distinguishes its rows."""
    name = (
        "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in model.name).strip(".-") or "model"
    )
    return f"{name}-{model.spec.dtype}{f'-tp{tp}' if tp > 1 else ''}"


def _kept(folder: Path) -> str:
    rows = 0
    with contextlib.suppress(OSError):
        rows = sum(1 for mode in ("inference", "training") for _ in folder.glob(f"{mode}-*.json"))
    if not rows:
        return "nothing was saved: no backend had finished"
    return f"what was finished is in {folder}; the same command goes on from there"


def _report(event: Progress) -> None:
    who = f"{event.stage} {event.backend}" if event.backend else event.stage
    say(f"{who}: {one_line(event.text)}", sys.stderr)
