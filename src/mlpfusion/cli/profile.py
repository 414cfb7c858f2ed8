"""The verbs of the command line that deal in profiles: profile, backends."""

from __future__ import annotations

import contextlib
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from mlpfusion import limits
from mlpfusion.cli import streams
from mlpfusion.cli.renamed import with_old_names
from mlpfusion.cli.text import (
    ACTIVATIONS,
    DTYPES,
    FAILED,
    OK,
    Format,
    HiddenSize,
    IntermediateSize,
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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mlpfusion.device import Device
    from mlpfusion.records.profile import Profile
    from mlpfusion.spec import MLPSpec, Workload
    from mlpfusion.stages.profile import settings
    from mlpfusion.stages.profile.run import Progress

Activation = Annotated[Text, typer.Option(metavar=ACTIVATIONS, help="Activation; Hugging Face names work too.")]
Dtype = Annotated[Text, typer.Option(metavar=DTYPES, help="Element type; bf16, fp16 and fp32 work too.")]
Bias = Annotated[bool, typer.Option("--bias/--no-bias", help="Whether the three projections have biases.")]
DeviceKind = Annotated[Text, typer.Option(metavar="cuda|cpu", help="Where to run; the GPU if there is one.")]
Counters = Annotated[
    bool, typer.Option("--counters", help="Nsight Compute's counters too, and Inductor's own account.")
]
Full = Annotated[bool, typer.Option("--full", help="Every column, kernel and note, not one table.")]


# Parameters of `profile` that `--like` takes from a result.
_SETTLED: Final = (
    "batch", "seq", "hidden_size", "intermediate_size", "activation", "dtype", "bias", "mode", "backends", "rounds",
    "processes", "publish",
)  # fmt: skip


def add_to(app: typer.Typer) -> None:
    """Give the command line these verbs."""
    app.command("profile")(with_old_names(_profile))
    app.command("backends")(with_old_names(_backends))


def _profile(
    *,
    batch: Annotated[Text, typer.Option(metavar="N", help="Sequences in a batch.")] = None,
    seq: Annotated[Text, typer.Option(metavar="N", help="Tokens in a sequence.")] = None,
    hidden_size: HiddenSize = None,
    intermediate_size: IntermediateSize = None,
    activation: Activation = None,
    dtype: Dtype = None,
    bias: Bias = False,
    mode: Annotated[Text, typer.Option(metavar="inference|training", help="Forward alone, or with backward.")] = None,
    backends: Annotated[Text, typer.Option(metavar="A,B", help="Backends by name or ./file.py:Class; all.")] = None,
    device: DeviceKind = None,
    out: Annotated[Text, typer.Option(metavar="DIR", help="Folder for the result file and the traces.")] = None,
    json: Annotated[Text, typer.Option(metavar="FILE", help="Result file.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run's files in DIR.")] = False,
    rounds: Annotated[Text, typer.Option(metavar="N", help="Interleaved rounds of the race; 60.")] = None,
    processes: Annotated[Text, typer.Option(metavar="N", help="Fresh processes to race in, one by one; 1.")] = None,
    publish: Annotated[bool, typer.Option("--publish", help="5 processes of 60 rounds.")] = False,
    like: Annotated[Text, typer.Option(metavar="RESULT", help="What that result file measured, measured here.")] = None,
    time_limit: Annotated[str, typer.Option(metavar="S", help="Seconds that one backend may take to qualify.")] = "600",
    counters: Counters = False,
    full: Full = False,
    fmt: Format = "text",
) -> int:
    """Measure backends on one workload."""
    given = locals()
    from mlpfusion import backend as registry
    from mlpfusion import spec
    from mlpfusion.report import grid
    from mlpfusion.report.profile import table
    from mlpfusion.storage import results

    sizes = {"batch": size("--batch", batch), "seq": size("--seq", seq)}
    spec_changes = _spec_changes(hidden_size, intermediate_size, activation, dtype, bias=bias)
    asked_mode = None if mode is None else spec.one_of("mode", mode, spec.MODES)
    names = None if backends is None else [registry.check_name(name) for name in names_in("--backends", backends)]
    spec.one_of("format", fmt, grid.FORMATS)
    limit = seconds("--time-limit", time_limit)
    races = _races(rounds, processes, publish=publish)
    json_file = None if json is None else results.check_file(path_in("--json", json)) and Path(json)
    out_folder = None if out is None else results.check_directory(path_in("--out", out), overwrite=overwrite)
    saved = [path for path in (json_file, out_folder and out_folder / results.RESULT_NAME) if path is not None]
    example = _example(like, saved, given)
    found = _device(device if example is None or device is not None else example.device)
    from mlpfusion.stages.profile import run

    if example is None:
        workload = _changed(run.default_workload(found), sizes, spec_changes, asked_mode)
    else:
        workload, names = example.workload, [registry.check_name(name) for name in example.backends]
        races = _Races(example.rounds, example.processes)
    before = _stamps(saved)
    try:
        with _progress() as on_event:
            result = run.profile(
                workload,
                backends=names,
                device=found.kind,
                out=out_folder,
                json=json_file,
                overwrite=overwrite,
                rounds=races.rounds,
                processes=races.processes,
                time_limit_s=limit,
                counters=counters,
                command=_typed(_profile, given),
                on_event=on_event,
            )
    except KeyboardInterrupt:
        raise InterruptedRunError(_what_was_saved(saved, before)) from None
    if saved:
        say(f"saved in {_joined(saved)}", sys.stderr)
    from mlpfusion.storage.redacted import redacted

    streams.write_out(table.render(redacted(result), fmt, full=full, source=str(saved[0]) if saved else None))
    return _judge(result)


def _backends(
    *,
    hidden_size: HiddenSize = None,
    intermediate_size: IntermediateSize = None,
    activation: Activation = None,
    dtype: Dtype = None,
    bias: Bias = False,
    device: DeviceKind = None,
) -> int:
    """List what `profile` does with each backend.

    Available ones are raced. On a CPU the Triton kernels are emulated where the interpreter is right. Those that are
    unavailable are left out; the reason names what to install, if that is it.
    """
    changes = _spec_changes(hidden_size, intermediate_size, activation, dtype, bias=bias)
    found = _device(device)
    from mlpfusion import backend as registry
    from mlpfusion.stages.profile import plan as plan_profile
    from mlpfusion.stages.profile import run

    asked: MLPSpec = _changed(run.default_workload(found), {}, changes, None).spec
    plans = [plan_profile.planned_in_time(name, asked, found) for name in registry.names()]
    width = max((len(plan.backend) for plan in plans), default=0)
    for plan in plans:
        reason = "" if plan.reason is None else f": {one_line(plan.reason)}"
        say(f"{plan.backend:<{width}}  {plan.status}{reason}")
    counts = {status: sum(plan.status == status for plan in plans) for status in ("available", "emulated")}
    rest = len(plans) - sum(counts.values())
    say(
        f"`mlpfusion profile` races {counts['available']} of {len(plans)} in {asked.dtype} on {found.name}, "
        f"emulates {counts['emulated']} and leaves out {rest}"
    )
    return OK


# ---- reading what was typed ------------------------------------------------------------------------------------------


def _typed(verb: Callable[..., int], given: dict[str, Any]) -> tuple[str, ...]:
    """The command line that says what was given, with file names in the place of paths."""
    from mlpfusion.storage.private import last_part

    found = ["mlpfusion", verb.__name__.lstrip("_")]
    for name, parameter in inspect.signature(verb).parameters.items():
        value = given[name]
        if value not in (None, False, parameter.default):
            option = f"--{'format' if name == 'fmt' else name.replace('_', '-')}"
            found += [option] if value is True else [option, last_part(str(value))]
    return tuple(found)


class _Races(NamedTuple):
    """How often the backends are raced."""

    rounds: int
    processes: int


def _races(rounds: Text, processes: Text, *, publish: bool) -> _Races:
    from mlpfusion.stages.profile import settings

    if publish and (rounds, processes) != (None, None):
        option = "--rounds" if rounds is not None else "--processes"
        means = f"--processes {settings.PUBLISHED_PROCESSES} --rounds {settings.ROUNDS}"
        raise UsageError(f"--publish is {means}; leave {option} out, or --publish")
    usual = settings.PUBLISHED_PROCESSES if publish else 1
    return _Races(
        size("--rounds", rounds, limits.ROUNDS) or settings.ROUNDS,
        size("--processes", processes, limits.PROCESSES) or usual,
    )


def _example(path: Text, saved: Sequence[Path], given: dict[str, Any]) -> settings.Settings | None:
    """What `--like` measures, if it is there; nothing that it settles may be given beside it."""
    from mlpfusion.stages.profile import settings
    from mlpfusion.storage import files, results

    if path is None:
        return None
    for name in _SETTLED:
        if given[name] not in (None, False):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"--like measures what {path!r} did; leave {option} out, or --like")
    for each in saved:
        if files.is_same(Path(path), each):
            raise UsageError(f"--like reads {path!r}, which the result would replace; name another file or folder")
    return settings.of(results.load(path))


def _spec_changes(
    hidden_size: Text, intermediate_size: Text, activation: Text, dtype: Text, *, bias: bool
) -> dict[str, Any]:
    """The fields of an `MLPSpec` that the options set, checked."""
    from mlpfusion import spec

    given = {
        "hidden_size": size("--hidden-size", hidden_size),
        "intermediate_size": size("--intermediate-size", intermediate_size),
        "activation": None if activation is None else spec.parse_activation(activation),
        "dtype": None if dtype is None else spec.parse_dtype(dtype),
        "bias": bias,
    }
    return {name: value for name, value in given.items() if value is not None}


def _changed(workload: Workload, sizes: dict[str, int | None], spec: dict[str, Any], mode: str | None) -> Workload:
    """A workload with the user's values in place of the defaults."""
    from msgspec.structs import replace

    given: dict[str, Any] = {name: value for name, value in (*sizes.items(), ("mode", mode)) if value is not None}
    return replace(workload, spec=replace(workload.spec, **spec), **given)


def _device(kind: str | None) -> Device:
    from mlpfusion import device

    return device.detect(kind)


# ---- saying what happened --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[Progress], None]]:
    """A callback that reports to stderr: a live line on a terminal, plain lines elsewhere."""

    def line(event: Progress) -> str:
        who = f"{event.stage} {event.backend}" if event.backend else event.stage
        return f"{who}: {one_line(event.text)}"

    if not sys.stderr.isatty():
        yield lambda event: say(line(event), sys.stderr)
        return
    from rich.console import Console
    from rich.text import Text as RichText

    console = Console(stderr=True, highlight=False)
    with console.status("starting") as status:

        def show(event: Progress) -> None:
            console.print(RichText(line(event)))
            status.update(RichText(f"{event.stage} {event.backend or ''}".rstrip()))

        yield show


def _judge(result: Profile) -> int:
    """1 if a row failed, or if none is there to look at; a backend that is merely unavailable fails nothing."""
    from mlpfusion.report.profile.row import verdict

    words = {verdict(row)[0] for row in result.rows}
    return FAILED if "failed" in words or not words & {"ok", "emulated"} else OK


# ---- saying what is left of an interrupted run ---------------------------------------------------------------------


def _stamps(paths: Sequence[Path]) -> dict[Path, tuple[int, int]]:
    """Inode and time of change in ns of each file that is there: another one: the file was written since."""
    found = {}
    for path in paths:
        with contextlib.suppress(OSError):
            status = path.stat()
            found[path] = (status.st_ino, status.st_mtime_ns)
    return found


def _what_was_saved(paths: Sequence[Path], before: dict[Path, tuple[int, int]]) -> str:
    """One phrase on the result files that this run wrote; one left from an earlier run does not count."""
    from mlpfusion.storage import results

    if not paths:
        return "nothing was saved: neither --json nor --out was given"
    now = _stamps(paths)
    written = [path for path in paths if path in now and now[path] != before.get(path)]
    if not written:
        return "nothing was saved: no backend had finished"
    rows = len(results.load(written[0]).rows)
    return f"{rows} finished row{'' if rows == 1 else 's'} saved in {_joined(written)}"


def _joined(paths: Sequence[Path]) -> str:
    """The paths, one after the other."""
    return " and ".join(map(str, paths))
