"""The verb `validate`: judges kernels."""

from __future__ import annotations

import contextlib
import shutil
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlpfusion import limits, spec
from mlpfusion.cli.streams import write_err, write_out
from mlpfusion.cli.text import (
    ACTIVATIONS,
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
from mlpfusion.errors import StoppedError, UnsavedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from mlpfusion.records.validation import SelfTest, Since, Validation
    from mlpfusion.stages.validate.judge.examine import Tell
    from mlpfusion.stages.validate.progress import Step


def add_to(app: typer.Typer) -> None:
    """Give the command line this verb."""
    app.command("validate")(_validate)


def _validate(
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="TARGET...", help="file.py:name, module:name, a backend, or a Hub kernel directory."),
    ] = None,
    *,
    activation: Annotated[Text, typer.Option(metavar=ACTIVATIONS, help="What it should compute; gelu_tanh.")] = None,
    dtype: Annotated[
        Text,
        typer.Option(metavar="A,B", help="Of bfloat16, float16, float32: those that it must take; else all are tried."),
    ] = None,
    shapes: Annotated[Text, typer.Option(metavar="7x127,64", help="Shapes of gate, or of the rows of x.")] = None,
    device: Annotated[Text, typer.Option(metavar="cuda|cpu", help="Where to run; the GPU if there is one.")] = None,
    against: Annotated[
        Text, typer.Option(metavar="A,B|none", help="Baselines: eager, inductor or targets; the first two.")
    ] = None,
    only: Annotated[Text, typer.Option(metavar="A,B", help="Only these checks, by name.")] = None,
    seed: Annotated[Text, typer.Option(metavar="N", help="Seed of the inputs; random by default.")] = None,
    json: Annotated[Text, typer.Option(metavar="FILE", help="Result file; Inductor's code goes beside it.")] = None,
    since: Annotated[Text, typer.Option(metavar="FILE", help="Result file; say what changed since.")] = None,
    rounds: Annotated[Text, typer.Option(metavar="N", help="Interleaved rounds against each baseline; 60.")] = None,
    time_limit: Annotated[Text, typer.Option(metavar="S", help="Seconds that one call may take; 600.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One shape of each kind, and no baseline.")] = False,
    sanitize: Annotated[bool, typer.Option("--sanitize", help="One call under compute-sanitizer as well.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="A hazard is a failure too.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Show the table of all checks, and what follows.")] = False,
    self_test: Annotated[bool, typer.Option("--self-test", help="Judge the controls that ship with this.")] = False,
    fmt: Format = "text",
) -> int:
    """Judge custom kernels: numbers and speed.

    The right function, as exact as it should be, right gradients, no hazards, and how fast.
    """
    from mlpfusion.report import grid, validation

    spec.one_of("format", fmt, grid.FORMATS)
    json_file = None if json is None else path_in("--json", json)
    if self_test:
        others = {
            "--activation": activation,
            "--dtype": dtype,
            "--shapes": shapes,
            "--against": against,
            "--only": only,
            "--since": since,
            "--rounds": rounds,
            "--time-limit": time_limit,
            "--strict": strict or None,
            "--quick": quick or None,
            "--sanitize": sanitize or None,
            "--all": everything or None,
        }
        _asks_nothing_else(targets or [], [name for name, value in others.items() if value is not None])
        return _self_test(device, json_file, size("--seed", seed, limits.SEED), fmt)
    from mlpfusion.stages.validate.run import validate

    before = _earlier(since, targets or [], activation, fmt)

    def show(found: Validation) -> None:
        write_out(validation.render(_to_show(found, fmt), fmt, everything=everything, since=_since(before, found)))

    with _shown_anyway(show) as tell:
        found = validate(
            targets or [],
            activation=activation,
            dtypes=None if dtype is None else names_in("--dtype", dtype),
            shapes=None if shapes is None else [shape(text) for text in names_in("--shapes", shapes)],
            device=device,
            against=() if against == "none" else _baselines(against, quick=quick),
            only=None if only is None else names_in("--only", only),
            seed=size("--seed", seed, limits.SEED),
            time_limit_s=seconds("--time-limit", "600" if time_limit is None else time_limit),
            rounds=size("--rounds", "60" if rounds is None else rounds, limits.ROUNDS),
            quick=quick,
            sanitize=sanitize,
            json=json_file,
            on_event=tell,
        )
    show(found)
    return _judge(found, strict=strict)


def _baselines(against: str | None, *, quick: bool) -> Sequence[str]:
    from mlpfusion.stages.validate.channel import BASELINES

    return names_in("--against", against) if against is not None else () if quick else BASELINES


def _earlier(file: str | None, targets: list[str], activation: str | None, fmt: str) -> Validation | None:
    """The validation that this one is compared with; it is refused before anything is judged."""
    if file is None:
        return None
    from pathlib import Path

    from mlpfusion.stages.validate.judge.examine import DEFAULT
    from mlpfusion.stages.validate.since import earlier

    if fmt not in {"text", "github"}:
        raise UsageError(f"--since says in words what changed; it goes with --format text or github, not {fmt}")
    found = [target for target in targets if Path(target).is_dir()]  # what it holds says which function it is
    path = path_in("--since", file)
    earlier(path, found, activation)
    return earlier(path, [target for target in targets if target not in found], activation or DEFAULT)


def _to_show(found: Validation, fmt: str) -> Validation:
    """What may be published is as in the result file; the text has paths as typed, so that its commands run again."""
    from mlpfusion.storage.redacted import redacted

    return found if fmt == "text" else redacted(found)


def _since(before: Validation | None, found: Validation) -> Since | None:
    from mlpfusion.stages.validate.since import since

    return None if before is None else since(before, found)


def _asks_nothing_else(targets: list[str], options: list[str]) -> None:
    if targets:
        raise UsageError(f"--self-test judges its own controls; it takes no target, got {targets[0]!r}")
    if options:
        raise UsageError(
            f"--self-test does not take {', '.join(options)}: the options of each control are fixed; valid beside it: "
            "--device, --seed, --json, --format"
        )


def _self_test(device: str | None, json: Path | None, seed: int | None, fmt: str) -> int:
    from mlpfusion.report import self_test as self_test_report
    from mlpfusion.stages.validate.run import self_test
    from mlpfusion.storage.redacted import redacted

    def show(found: SelfTest) -> None:
        write_out(self_test_report.render(redacted(found), fmt))

    with _shown_anyway(show) as tell:
        found = self_test(device=device, seed=seed, json=json, on_event=tell)
    show(found)
    return OK if found.passed else FAILED


def _judge(found: Validation, *, strict: bool) -> int:
    return OK if all(verdict.is_accepted(strict=strict) for verdict in found.verdicts) else FAILED


@contextlib.contextmanager
def _shown_anyway(show: Callable[[Any], None]) -> Iterator[Tell]:
    """Within, progress is told; what a run that ends early, or cannot be saved, has reached is shown: it took long."""
    try:
        with _progress() as tell:
            yield tell
    except UnsavedError as error:
        show(error.result)
        raise
    except StoppedError as stopped:
        show(stopped.result)
        raise InterruptedRunError(str(stopped)) from None


@contextlib.contextmanager
def _progress() -> Iterator[Tell]:
    """Says on stderr what is judged: on a terminal in one line that is written over, else in one for each result."""
    if not sys.stderr.isatty():
        yield lambda step: say(one_line(step.line), sys.stderr) if step.found is not None else None
        return
    from mlpfusion.report.grid import clipped
    from mlpfusion.storage.letters import printable

    columns = shutil.get_terminal_size().columns - 1

    def write_over(step: Step) -> None:
        write_err(f"\r{clipped(printable(one_line(step.line)), columns):{columns}}")

    try:
        yield write_over
    finally:
        write_err(f"\r{'':{columns}}\r")


def shape(text: str) -> tuple[int, ...]:
    """A shape as it is typed: 7x127, 64, 0x8, or "scalar"."""
    if text == "scalar":
        return ()
    try:
        return tuple(size("--shapes", part, limits.SHAPE) for part in text.split("x"))
    except UsageError:
        raise UsageError(
            f"--shapes needs sizes such as 7x127, 64 or scalar, each {limits.SHAPE}, got {text!r}"
        ) from None
