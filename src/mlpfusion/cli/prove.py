"""The verb `prove`: swaps or compiles a backend into a model and proves what changes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from mlpfusion import limits
from mlpfusion.cli.streams import write_out
from mlpfusion.cli.text import DTYPES, FAILED, OK, Format, Text, path_in, say, size
from mlpfusion.errors import UsageError

if TYPE_CHECKING:
    from mlpfusion.spec import Dtype, Mode
    from mlpfusion.stages.prove.change import Change


def add_to(app: typer.Typer) -> None:
    """Give the command line this verb."""
    app.command("prove")(_prove)


def _prove(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model's directory, or its config.json.")],
    *,
    backend: Annotated[str, typer.Option(metavar="NAME", help="Backend by name or ./file.py:Class.")],
    batch: Annotated[str, typer.Option(metavar="N", help="Sequences in a batch.")] = "1",
    seq: Annotated[str, typer.Option(metavar="N", help="Tokens in a sequence.")] = "128",
    layers: Annotated[Text, typer.Option(metavar="N", help="Build only the first layers, with random weights.")] = None,
    dtype: Annotated[Text, typer.Option(metavar=DTYPES, help="Element type; the config's.")] = None,
    mode: Annotated[str, typer.Option(metavar="inference|training", help="What is timed and traced.")] = "inference",
    rounds: Annotated[str, typer.Option(metavar="N", help="Interleaved rounds of the clocks; 0 for none.")] = "30",
    fp64: Annotated[bool, typer.Option("--fp64/--no-fp64", help="Compare with the whole model in fp64.")] = True,
    trace: Annotated[
        bool, typer.Option("--trace/--no-trace", help="Trace a call of the model for its kernels.")
    ] = True,
    how: Annotated[
        str, typer.Option(metavar="swap|inductor", help="Swap modules, or compile with mlpfusion.inductor.")
    ] = "swap",
    where: Annotated[Text, typer.Option(metavar="PATTERN", help="Swap only modules whose names match.")] = None,
    device: Annotated[Text, typer.Option(metavar="cuda|cpu", help="Where to run; the GPU if there is one.")] = None,
    json: Annotated[Text, typer.Option(metavar="FILE", help="Result file.")] = None,
    fmt: Format = "text",
) -> int:
    """Swap a backend into a model and compare.

    Logits, gradients, time, memory and kernels, with and without it.
    With --how inductor both are compiled, and no module is swapped.
    """
    from mlpfusion import backend as registry
    from mlpfusion import device as devices
    from mlpfusion import spec
    from mlpfusion.records import proof as records
    from mlpfusion.report import grid
    from mlpfusion.report import proof as report
    from mlpfusion.storage import files, results

    spec.one_of("format", fmt, grid.FORMATS)
    registry.check_name(backend)
    asked: Dtype | None = None if dtype is None else spec.parse_dtype(dtype)
    asked_how = spec.one_of("how", how, records.HOW)
    if asked_how == "inductor" and where is not None:
        raise UsageError("--where is for --how swap: the pass takes every gated MLP that it meets")
    asked_mode: Mode = spec.one_of("mode", mode, spec.MODES)
    sizes = {"batch": size("--batch", batch), "seq": size("--seq", seq)}
    number_of_layers = size("--layers", layers, limits.LAYERS)
    number_of_rounds = size("--rounds", rounds, limits.ROUNDS_OR_NONE)
    target = None if json is None else results.check_file(path_in("--json", json), kind="proof")
    here = devices.detect(device)
    from mlpfusion.models import load, swap
    from mlpfusion.stages.prove.run import prove

    made = load.load_model(path_in("MODEL", model), device=here.kind, dtype=asked, layers=number_of_layers, seed=0)
    say(f"prove: built {type(made).__name__} on {here.name}", sys.stderr)
    handle: Change
    if asked_how == "inductor":
        from mlpfusion.inductor import Trial

        handle = Trial(made, backend)
    else:
        handle = swap.swap(made, backend, where=where)
        say(f"prove: {len(handle.swapped)} swapped, {len(handle.refused)} refused", sys.stderr)
    inputs = load.random_inputs(made, **sizes, device=here.kind, seed=0)
    found = prove(handle, inputs, mode=asked_mode, rounds=number_of_rounds, fp64=fp64, trace=trace)
    try:
        if target is not None:
            files.write_whole("result file", target, report.render(found, "json").encode())
            say(f"saved in {json}", sys.stderr)
    finally:  # it took long, so that it is printed at least
        write_out(report.render(found, fmt))
    return OK if found.holds else FAILED
