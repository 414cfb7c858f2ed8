"""The verbs for traces: read, explain, diff, trace, scrub, open."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlpfusion import limits
from mlpfusion.cli.streams import write_out
from mlpfusion.cli.text import FAILED, OK, USAGE, Format, Text, complain, path_in, say, seconds, size
from mlpfusion.errors import MlpfusionError, UsageError
from mlpfusion.storage import files, inputs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.report.trace.page import Told
    from mlpfusion.trace.perfetto import Served

Call = Annotated[
    Text, typer.Option(metavar="NAME", help="Annotation that delimits a call, or ProfilerStep; else one is found.")
]
DeviceKind = Annotated[
    Text, typer.Option("--device", metavar="cuda|cpu", help="Device of the calls, if not in the trace.")
]
Json = Annotated[Text, typer.Option("--json", metavar="FILE|-", help="Everything as JSON; - for stdout, and only it.")]
MaxBytes = Annotated[Text, typer.Option(metavar="N", help="Most bytes that a decompressed trace may have; 8 GiB.")]

Rank = Annotated[Text, typer.Option(metavar="N", help="Only the trace of this rank, in full.")]
All = Annotated[bool, typer.Option("--all", help="Every row of every table.")]


def add_to(app: typer.Typer) -> None:
    """Give the command line these verbs."""
    app.command("read")(_read)
    app.command("explain")(_explain)
    app.command("diff")(_diff)
    app.command("trace")(_trace)
    app.command("scrub")(_scrub)
    app.command("open")(_open)


def _read(
    traces: Annotated[
        list[str],
        typer.Argument(
            metavar="TRACE...", help=".json, .json.gz, archive, archive.zip:member, directory, pattern, or - (stdin)."
        ),
    ],
    *,
    call: Call = None,
    rank: Rank = None,
    everything: All = False,
    json: Json = None,
    device: DeviceKind = None,
    max_bytes: MaxBytes = None,
    fmt: Format = "text",
) -> int:
    """Report what is in traces of torch.profiler.

    Whoever recorded them; torch is not needed. Traces of several ranks (a directory, a pattern, an archive, files of
    different ranks, or one file of several processes) are one job: a summary, and a line for each rank.
    """
    from mlpfusion.report import job as job_report
    from mlpfusion.report.trace import page

    json_file = _checked(json, fmt, "readings", traces)
    options = _reading_options(call, device, max_bytes)
    number = size("--rank", rank, limits.RANK)
    from mlpfusion.records.job import Job
    from mlpfusion.stages.trace.read import results
    from mlpfusion.trace.findings.host import findings
    from mlpfusion.trace.job.ranks import Untold

    told: list[Told] = []
    jobs: list[Job] = []
    code = OK
    for found in results(traces, rank=number, **options):
        if isinstance(found, Untold):  # the others may be good
            code = complain(_in_options(found.error), USAGE)
            continue
        if isinstance(found, Job):
            for refused in found.damaged:
                code = complain(_as_option(refused.reason), USAGE)
        text = ""
        if isinstance(found, Job):
            text = job_report.render(found, fmt, everything=everything) if fmt != "json" and found.ranks else ""
        else:
            one = found.reading, findings(found.reading)
            text = page.render([one], fmt, everything=everything) if fmt in ("text", "github") else ""
        if json != "-" and text:
            write_out(("\n\n" if (told or jobs) and fmt != "csv" else "") + text)
        if isinstance(found, Job):
            jobs.append(found)
        else:
            told.append(one)
    if (told or jobs) and json != "-" and (fmt == "json" or (fmt == "csv" and told)):
        write_out(page.render(told, fmt, jobs=jobs))
    if (told or jobs) and json is not None:
        _write(json_file, page.render(told, "json", jobs=jobs))
    return code


def _explain(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Kernel names as a trace has them, quoted.")],
    *,
    fmt: Format = "text",
) -> int:
    """Explain kernel names token by token.

    Each meaning comes with how sure it is.
    """
    from mlpfusion import spec
    from mlpfusion.report import explain as explain_report
    from mlpfusion.report import grid

    spec.one_of("format", fmt, grid.FORMATS)
    from mlpfusion.trace.names.explain import explain

    for name in names:
        if not name.strip():
            raise UsageError(f"a kernel's name is empty: {name!r}")
    write_out(explain_report.render([explain(name) for name in names], fmt))
    return OK


def _diff(
    a: Annotated[
        str, typer.Argument(metavar="A", help="A trace or RESULT.json:backend; - or stdin:backend for stdin.")
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="The same, to be compared with it.")],
    *,
    call: Call = None,
    rank: Rank = None,
    everything: All = False,
    json: Json = None,
    device: DeviceKind = None,
    max_bytes: MaxBytes = None,
    fmt: Format = "text",
) -> int:
    """Compare two calls kernel by kernel.

    Also their operators, launches and times. Two jobs are compared rank by rank, or in full in one rank of both.
    """
    from mlpfusion.report import diff, job_diff

    json_file = _checked(json, fmt, "difference", [a, b])
    options = _reading_options(call, device, max_bytes)
    if all(side in ("-", "stdin") or side.startswith(("-:", "stdin:")) for side in (a, b)):
        raise UsageError("A and B are both stdin; only one of them can be '-'")
    number = size("--rank", rank, limits.RANK)
    from mlpfusion.records.job import JobDifference
    from mlpfusion.stages.trace import run

    try:
        found = run.diff_any(a, b, rank=number, **options)
    except MlpfusionError as error:
        return complain(_in_options(error), USAGE)

    def rendered(form: str) -> str:
        if isinstance(found, JobDifference):
            return job_diff.render(found, form, everything=everything)
        return diff.render(found, form, everything=everything)

    try:
        if json is not None:
            _write(json_file, rendered("json"))
    finally:
        if json != "-":
            write_out(rendered(fmt))
    return OK


def _trace(
    target: Annotated[str, typer.Argument(metavar="SCRIPT.py:FUNCTION", help="What to call, without arguments.")],
    *,
    out: Annotated[Text, typer.Option(metavar="FILE", help="Where the trace goes; FUNCTION.trace.json.gz.")] = None,
    calls: Annotated[str, typer.Option(metavar="N", help="Calls to record, after five that are not.")] = "20",
    time_limit: Annotated[str, typer.Option(metavar="S", help="Seconds that all of it may take.")] = "600",
) -> int:
    """Record a trace of a Python function.

    `mlpfusion read` reports what is in it.
    """
    script, colon, function = target.rpartition(":")
    if not colon or not script or not function.isidentifier():
        raise UsageError(f"give a script and a function in it as SCRIPT.py:FUNCTION, got {target!r}")
    number, limit = size("--calls", calls, limits.CALLS), seconds("--time-limit", time_limit)
    file = path_in("--out", out) if out is not None else Path(f"{function}.trace.json.gz")
    from mlpfusion.stages.trace import run

    reason = run.record_script(script, function, calls=number, out=file, time_limit_s=limit)
    if reason is not None:
        return complain(f"{target} could not be traced: {reason}", FAILED)
    say(str(file))
    return OK


def _scrub(
    trace: Annotated[
        str, typer.Argument(metavar="TRACE", help="A .json, .json.gz, archive.zip:member, or - for stdin.")
    ],
    *,
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="Where it goes; gzipped if it ends in .gz.")],
) -> int:
    """Remove a user's own words from a trace.

    For a trace that is to be shared: it reads as before, with placeholders for names of annotations, modules and Python
    frames, and without paths, host names and environment.
    """
    from mlpfusion.stages.trace import run

    run.scrub(trace, path_in("--out", out))
    say(out)
    return OK


def _open(
    trace: Annotated[str, typer.Argument(metavar="TRACE", help="The file to show; - for stdin.")],
    *,
    browser: Annotated[bool, typer.Option("--browser", help="Open the link in a browser as well.")] = False,
    timeout: Annotated[str, typer.Option(metavar="S", help="Seconds to wait for the UI to fetch it.")] = "300",
    port: Annotated[str, typer.Option(metavar="N", help="Other ports than 9001 need a UI of your own.")] = "9001",
) -> int:
    """Show a trace in the Perfetto UI.

    Prints the link and serves the trace from this machine until the UI has fetched it. Without a display it prints the
    `ssh -L` command that brings the port to the machine with the browser.
    """
    limit = seconds("--timeout", timeout)
    number = size("--port", port, limits.PORT)
    from mlpfusion.trace import perfetto

    def ready(served: Served) -> None:
        command = perfetto.tunnel(served.port)
        if command is not None:
            say(f"no display here: run this on your own machine first, then open the link there: {command}", sys.stderr)
        say(served.link)
        if browser:
            import webbrowser

            webbrowser.open(served.link)

    name = trace if inputs.is_stdin(trace) else path_in("TRACE", trace)
    with inputs.on_disk("trace", name) as file:
        if perfetto.serve(file, timeout_s=limit, ready=ready, port=number):
            return OK
    return complain(f"no browser fetched {trace!r} within {limit:g} s", FAILED)


# ---- what the verbs share --------------------------------------------------------------------------------------------


def _checked(json: str | None, fmt: str, kind: str, sources: Sequence[str]) -> Path | None:
    """The file for JSON, if there is to be one, before anything is read; it is none of what is to be read."""
    from mlpfusion import spec
    from mlpfusion.report import grid
    from mlpfusion.storage import results

    spec.one_of("format", fmt, grid.FORMATS)
    if json is None or json == "-":
        return None
    path = path_in("--json", json)
    from mlpfusion.trace.read.source import file_of

    for source in sources:
        if source != "-" and files.is_same(path, file_of(source)):
            raise UsageError(f"--json {json!r} would overwrite {source!r}, which is to be read; name another file")
    return results.check_file(path, kind=kind)


def _reading_options(call: str | None, device: str | None, max_bytes: str | None) -> dict[str, Any]:
    from mlpfusion import device as devices
    from mlpfusion import spec

    options: dict[str, Any] = {"call": call}
    if device is not None:
        options["device"] = spec.one_of("device", device, devices.DEVICE_KINDS)
    if max_bytes is not None:
        options["max_bytes"] = size("--max-bytes", max_bytes, limits.BYTES)
    return options


def _in_options(error: MlpfusionError) -> str:
    """The error's text, which names the option instead of the parameter."""
    from mlpfusion.trace.read.source import TooLargeError

    return _as_option(str(error)) if isinstance(error, TooLargeError) else str(error)


def _as_option(text: str) -> str:
    return f"{text.removesuffix('max_bytes')}--max-bytes" if text.endswith("; allow more with max_bytes") else text


def _write(file: Path | None, text: str) -> None:
    """Write JSON to the file, whole or not at all, or to stdout."""
    if file is None:
        write_out(text)
        return
    files.write_whole("file", file, text.encode("utf-8", "backslashreplace"))
