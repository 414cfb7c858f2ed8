"""Measures the fused gate/up kernel against its targets, row by row, beside cuBLAS and its baselines.

python bench/fused.py     (under nine minutes on an H100 or H200; `--rows` for some rows, `--show FILE` to print again)
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import gc
import io
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import fused_peers
import fused_rows as rows
import fused_text
import msgspec
import torch

from mlpfusion import backend, device, reference
from mlpfusion.environment import machine, provenance
from mlpfusion.errors import BackendUnavailableError, UnknownBackendError, UsageError, first_line
from mlpfusion.measure.clocks import Contender, capture, race, race_replays
from mlpfusion.measure.memory import saved_bytes
from mlpfusion.stats import QUANTILE_SAMPLES
from mlpfusion.storage import files, private

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from mlpfusion.records.base import Record
    from mlpfusion.records.clocks import Samples

RESULTS: Final = Path(__file__).parent / "results"
KEPT: Final = ("event_us", "graph_us", "host_us", "wall_us")
MOST_BYTES: Final = 2**26  # of a result file that is read
SEED: Final = 0
NO_GRAPH: Final = "no CUDA graphs on a CPU"
OWN_GRAPH: Final = "replays a graph itself, which its event clock has"


class Prepared(NamedTuple):
    """A baseline that is set up, and its contender; None where it cannot run."""

    peer: rows.Peer
    contender: Contender | None


def tell(text: str) -> None:
    """Progress, with the seconds since the start of this process."""
    print(f"{time.perf_counter() - START:6.1f} s  {text}", file=sys.stderr, flush=True)


START: Final = time.perf_counter()


def elapsed_s() -> float:
    """Seconds since the start of this process."""
    return time.perf_counter() - START


# ---- one row ---------------------------------------------------------------------------------------------------------


def measure(
    planned: rows.Planned, here: device.Device, *, peers: Sequence[str], rounds: int, replays_alone: bool = False
) -> rows.Row:
    """Set up the baselines in `peers`, race them, and record the outcome of each.

    With `replays_alone` a GPU takes the graph clock and no other, in half the time.
    """
    started = time.perf_counter()
    place = torch.device(here.kind, here.index) if here.kind == "cuda" else torch.device("cpu")
    case = reference.make_case(planned.workload, place, seed=SEED)
    fused_peers.settle(case.mlp)
    # While a result holds its graph, gradients wait for the stream that it was made on, which no capture survives.
    eager = tuple(one.detach() for one in reference.step(fused_peers.bind("eager", case, here), case)())
    exact = reference.oracle(case)
    prepared = [_prepared(name, case, here, eager, exact) for name in peers]
    del eager, exact
    able = [one for one in prepared if one.contender is not None]
    found = _replayed(able, here, rounds) if replays_alone and here.kind == "cuda" else _raced(able, here, rounds)
    absent = [one.peer for one in prepared if one.contender is None]
    return rows.Row(
        key=planned.key,
        workload=planned.workload,
        created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        seconds=round(time.perf_counter() - started, 1),
        peers=(*found, *absent),
    )


def _prepared(
    name: str, case: reference.Case, here: device.Device, eager: tuple[Tensor, ...], exact: tuple[Tensor, ...]
) -> Prepared:
    started = time.perf_counter()
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # tuners print tables and tracebacks of what they reject
            peer, run = _set_up(name, case, here, eager, exact)
            peer = msgspec.structs.replace(peer, setup_s=round(time.perf_counter() - started, 2))
            contender = _contender(name, run, here)
    except (BackendUnavailableError, UnknownBackendError) as error:
        return Prepared(rows.Peer(name=name, status="unavailable", reason=_reason(error)), None)
    except Exception as error:  # whatever a baseline raises is reported in its own row
        if here.kind == "cuda":
            torch.cuda.synchronize()  # an error that stays would poison the others: it ends the run here
        return Prepared(rows.Peer(name=name, status="failed", reason=_reason(error)), None)
    if contender.no_graph_reason is not None:
        peer = msgspec.structs.replace(peer, reasons={**peer.reasons, rows.GRAPH: contender.no_graph_reason})
    tell(f"  {name}: {time.perf_counter() - started:.1f} s")
    return Prepared(peer, contender)


def _set_up(
    name: str, case: reference.Case, here: device.Device, eager: tuple[Tensor, ...], exact: tuple[Tensor, ...]
) -> tuple[rows.Peer, Callable[[], object]]:
    if name == rows.PRODUCTS:
        run = fused_peers.products_alone(case)
        run()
        return rows.Peer(name=name, status="ok"), run
    call = fused_peers.bind(name, case, here)
    step = reference.step(call, case)
    verdict = reference.judge(step(), eager, exact)
    if verdict.ratio > verdict.limit:
        raise ArithmeticError(f"wrong: its error is {verdict.ratio:.3g}x eager's, {verdict.limit:g}x is allowed")
    saved = None if case.dy is None else saved_bytes(call, case)
    return rows.Peer(name=name, status="ok", error=verdict.ratio, saved_bytes=saved), step


def _contender(name: str, run: Callable[[], object], here: device.Device) -> Contender:
    if here.kind == "cpu":
        return Contender(name, run, None, NO_GRAPH)
    if name == "fused-graph":
        return Contender(name, run, None, OWN_GRAPH)
    return capture(name, run)


def _raced(prepared: list[Prepared], here: device.Device, rounds: int) -> list[rows.Peer]:
    """The baselines with their samples; one that fails in the race is named, and the others race again."""
    current = [""]
    failed: list[rows.Peer] = []

    def before(name: str) -> None:
        current[0] = name

    while prepared:
        contenders = [one.contender for one in prepared if one.contender is not None]
        try:
            samples = race(contenders, here, rounds=rounds, seed=SEED, before=before, after=lambda _: None)
        except Exception as error:
            culprit = next(one.peer for one in prepared if one.peer.name == current[0])
            failed.append(msgspec.structs.replace(culprit, status="failed", reason=f"in the race: {_reason(error)}"))
            prepared = [one for one in prepared if one.peer.name != current[0]]
            if here.kind == "cuda":
                torch.cuda.synchronize()
            continue
        return [*(_with_samples(one.peer, samples) for one in prepared), *failed]
    return failed


def _replayed(prepared: list[Prepared], here: device.Device, rounds: int) -> list[rows.Peer]:
    """The baselines with samples of the graph clock, of those that have a graph."""
    contenders = [one.contender for one in prepared if one.contender is not None and one.contender.replay is not None]
    samples = race_replays(contenders, here, rounds=rounds, seed=SEED)
    return [_with_samples(one.peer, samples) for one in prepared]


def _with_samples(peer: rows.Peer, samples: list[Samples]) -> rows.Peer:
    kept = {
        one.clock: tuple(None if value is None else round(value, 3) for value in one.values)
        for one in samples
        if one.backend == peer.name and one.clock in KEPT
    }
    return msgspec.structs.replace(peer, samples=kept)


def _reason(error: BaseException) -> str:
    text = error.reason if isinstance(error, BackendUnavailableError) else first_line(error)
    own = isinstance(error, (BackendUnavailableError, UnknownBackendError, ArithmeticError))
    return private.text(text if own else f"{type(error).__name__}: {text}")


# ---- all rows --------------------------------------------------------------------------------------------------------


def run(
    chosen: Sequence[rows.Planned], result: rows.Result, out: Path, *, only: frozenset[str], options: Any
) -> rows.Result:
    """Measure the chosen rows in turn; the file has each as soon as it is finished."""
    here, known = result.device, set(backend.names())
    for place, planned in enumerate(chosen):
        left_s = options.budget_s - (time.perf_counter() - START)
        asked = [one for one in (*planned.wanted, *planned.optional) if not only or one in only]
        missing = [one for one in asked if one in (*rows.OURS, "quack") and one not in known]
        peers, left_out = [], []
        for one in asked:
            if one in missing:
                continue
            if one in only or rows.worth_it(planned, one, tuple(chosen[place + 1 :]), left_s, options.rounds):
                peers.append(one)
                left_s -= rows.setup_s(planned, one)
            else:
                left_out.append(one)
        tell(f"{planned.key}: {', '.join(peers)}")
        if not peers:
            continue
        row = measure(planned, here, peers=peers, rounds=options.rounds)
        absent = [
            *(rows.Peer(name=one, status="unavailable", reason="this version has no such backend") for one in missing),
            *(rows.Peer(name=one, status="left out", reason=_no_time(planned, one)) for one in left_out),
        ]
        result = merged(result, msgspec.structs.replace(row, peers=(*row.peers, *absent)))
        files.write_whole("result file", out, encode(result).encode())
        print(fused_text.page(msgspec.structs.replace(result, rows=(result_row(result, planned.key),))), flush=True)
        gc.collect()
        torch.compiler.reset()
        if here.kind == "cuda":
            torch.cuda.empty_cache()
    return result


def _no_time(planned: rows.Planned, peer: str) -> str:
    return f"no time left in this run: it takes about {rows.setup_s(planned, peer):g} s (--rows, --budget-s)"


def result_row(result: rows.Result, key: str) -> rows.Row:
    """The row of this key."""
    return next(row for row in result.rows if row.key == key)


def merged(result: rows.Result, row: rows.Row) -> rows.Result:
    """The result with one more row, or a newer one in place of an older, in the order of the plan."""
    order = {planned.key: place for place, planned in enumerate(rows.ROWS)}
    others = [one for one in result.rows if one.key != row.key]
    placed = sorted((*others, row), key=lambda one: order.get(one.key, len(order)))
    return msgspec.structs.replace(result, rows=tuple(placed))


def encode(result: Record) -> str:
    """The JSON text of a record with `rows`, a line for each baseline."""
    plain = msgspec.to_builtins(result)

    def text(value: object) -> str:
        return msgspec.json.encode(value).decode()

    head = [f"{text(key)}: {text(value)}," for key, value in plain.items() if key != "rows"]
    made = []
    for row in plain["rows"]:
        fields = ", ".join(f"{text(key)}: {text(value)}" for key, value in row.items() if key != "peers")
        made.append("{" + fields + ', "peers": [\n' + ",\n".join(map(text, row["peers"])) + "\n]}")
    return "\n".join(["{", *head, '"rows": [', ",\n".join(made), "]}"]) + "\n"


def card(name: str) -> str:
    """The short name of a device, for a file's name: `NVIDIA H100 80GB HBM3` -> `h100`."""
    return name.removeprefix("NVIDIA ").replace("-", " ").split()[0].lower()


def earlier(out: Path, fresh: rows.Result) -> rows.Result:
    """What the file holds already, if it is of this kind, card and software; a fresh result if there is no file.

    Raises:
        UsageError: the file holds something else, which would be lost or mixed.
    """
    files.check_file("result file", out)
    if not out.exists() or not out.stat().st_size:
        return fresh
    try:
        held = msgspec.json.decode(files.read_whole("result file", out, MOST_BYTES), type=rows.Result)
    except msgspec.MsgspecError as error:
        raise UsageError(f"{str(out)!r} exists and is no result of this script ({error}); name another --out") from None
    there = (held.device.name, held.environment.torch, held.environment.triton)
    here = (fresh.device.name, fresh.environment.torch, fresh.environment.triton)
    if there != here:
        raise UsageError(f"{str(out)!r} was measured with {there}, here is {here}; name another --out")
    # Baselines that are no longer installed have rows all the same.
    return msgspec.structs.replace(fresh, rows=held.rows, packages={**held.packages, **fresh.packages})


def packages() -> dict[str, str]:
    """Versions of what only some baselines need."""
    found = {}
    for name in ("quack-kernels", "nvidia-cutlass-dsl"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def tiny(planned: rows.Planned) -> rows.Planned:
    """The row with sizes that a CPU can try."""
    work = planned.workload
    spec = msgspec.structs.replace(work.spec, hidden_size=64, intermediate_size=128)
    small = msgspec.structs.replace(work, spec=spec, seq=min(work.seq, 16))
    return msgspec.structs.replace(planned, workload=small)


def parse() -> argparse.Namespace:
    """The command line."""
    keys = ", ".join(planned.key for planned in rows.ROWS)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", default=[], metavar="ROW", help=f"only these rows: {keys}")
    parser.add_argument(
        "--peers", nargs="+", default=[], metavar="PEER", help="only these baselines, however long they take"
    )
    parser.add_argument("--rounds", type=int, default=40, help=f"samples of each clock; at least {QUANTILE_SAMPLES}")
    parser.add_argument(
        "--budget-s", type=float, default=520.0, help="seconds in which to finish; what does not fit is reported"
    )
    parser.add_argument(
        "--out", type=Path, help="the result file; default: results/<card>-fused.json beside this script"
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], help="a CPU only tries the script out, with small sizes")
    parser.add_argument("--show", type=Path, metavar="FILE", help="measure nothing: print this result file")
    parser.add_argument("--markdown", action="store_true", help="print GitHub tables at the end")
    parser.add_argument(
        "--summary", action="store_true", help="with --show: one line for each row, as in docs/kernels.md"
    )
    return parser.parse_args()


def main() -> None:
    """Measure, print, and write JSON."""
    options = parse()
    if options.show is not None:
        held = msgspec.json.decode(files.read_whole("result file", options.show, MOST_BYTES), type=rows.Result)
        print(fused_text.summary(held) if options.summary else fused_text.page(held, markdown=options.markdown))
        return
    known = {planned.key: planned for planned in rows.ROWS}
    peers = (rows.PRODUCTS, *rows.PEERS, *rows.OURS)
    for kind, given, valid in (("row", options.rows, known), ("peer", options.peers, peers)):
        for one in given:
            if one not in valid:
                sys.exit(f"unknown {kind} {one!r}; valid: {', '.join(valid)}")
    if options.rounds < QUANTILE_SAMPLES:
        sys.exit(f"--rounds must be at least {QUANTILE_SAMPLES}, got {options.rounds}")
    here = device.detect(options.device)
    chosen = [planned for key, planned in known.items() if not options.rows or key in options.rows]
    chosen = [tiny(planned) for planned in chosen] if here.kind == "cpu" else chosen
    out = options.out or RESULTS / f"{card(here.name) if here.kind == 'cuda' else 'cpu'}-fused.json"
    fresh = rows.Result(
        device=here, environment=machine.collect(here, provenance.behind(rows.OURS)), packages=packages(), rows=()
    )
    try:
        result = earlier(out, fresh)
    except UsageError as error:
        sys.exit(str(error))
    lacking = [name for name in rows.OURS if name not in backend.names()]
    if lacking:
        tell(f"this version has no backend {' or '.join(lacking)}: left out")
    only = frozenset((*options.peers, rows.PRODUCTS, "eager")) if options.peers else frozenset()
    torch._dynamo.config.automatic_dynamic_shapes = False  # each row is compiled for its own number of tokens
    result = run(chosen, result, out, only=only, options=options)
    if options.markdown:
        print(fused_text.page(result, markdown=True))
    tell(f"written to {out.name}")


if __name__ == "__main__":
    main()
