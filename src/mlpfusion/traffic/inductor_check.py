"""Cross-checks the ledger of compiled rows against Inductor's scheduler.

The scheduler speaks only while it compiles, so a worker compiles the backend once more, with empty caches, and keeps
the ledger of that very code beside it. Both are compared graph by graph: how many kernels, and the bytes of each value
that one kernel of the graph writes and another reads. Where they differ, the row has no count any more.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from mlpfusion.records.traffic import COPIES, ScheduledGraph
from mlpfusion.traffic import row as row_traffic
from mlpfusion.traffic.round_trips import flow
from mlpfusion.workers import supervise, tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from mlpfusion.device import Device
    from mlpfusion.records.profile import Row, Traffic
    from mlpfusion.records.traffic import Launch, Ledger, Step
    from mlpfusion.spec import Workload


def is_compiled(row: Row) -> bool:
    """Whether a row has a count, with kernels in it that Inductor generated."""
    return row.traffic is not None and any(step.source == "inductor" for step in row.traffic.steps)


def checked(
    rows: Sequence[Row],
    workload: Workload,
    here: Device,
    *,
    folder: Path,
    seed: int,
    time_limit_s: float,
    tell: Callable[[str, str], None],
) -> list[Row]:
    """The rows, the compiled ones with the scheduler's account, or why there is none."""
    found = []
    for row in rows:
        if is_compiled(row):
            tell("schedule", f"{row.backend}: compiled once more, with empty caches")
            task = tasks.Schedule(
                backend=row.backend, workload=workload, device=here.kind, seed=seed, folder=str(folder)
            )
            answer = supervise.run(task, folder=folder, name="schedule", time_limit_s=time_limit_s)
            found.append(compared(row, workload, answer))
        else:
            found.append(row)
    return found


def compared(row: Row, workload: Workload, answer: tasks.Answer) -> Row:
    """The row with the scheduler's figures, and without a count where the ledger of the same code has others."""
    traffic = row.traffic
    if traffic is None:
        return row
    pairs, reason = _pairs(traffic.steps, answer)
    wrong = [(mine, said) for mine, said in pairs if mine != said]
    changed = _withdrawn(traffic, workload, wrong) if wrong else traffic
    reasons = {field: why for field, why in changed.reasons.items() if field != "scheduled"}
    if reason is not None:
        reasons["scheduled"] = reason
    said = tuple(said for _, said in pairs)
    return msgspec.structs.replace(row, traffic=msgspec.structs.replace(changed, scheduled=said, reasons=reasons))


def _pairs(
    steps: Sequence[Step], answer: tasks.Answer
) -> tuple[list[tuple[ScheduledGraph, ScheduledGraph]], str | None]:
    """For each graph of the call what its ledger and what its scheduler say, and why one or all are not there."""
    if isinstance(answer, tasks.Broken):
        return [], f"its compilation with empty caches failed: {answer.reason}"
    assert isinstance(answer, tasks.Scheduled)
    ledger = answer.ledger
    if ledger is None:
        return [], answer.no_ledger or "the worker kept no ledger"
    lost = [*ledger.faults, *(f"{one.op}: {one.unknown}" for one in ledger.launches if one.unknown)]
    if lost:
        return [], f"compiled with empty caches, its ledger is not complete: {lost[0]}"
    if _generated(steps) != _generated(flow(ledger).steps):
        return [], "compiled with empty caches, it has other kernels than the row"
    said = {graph.code: graph for graph in answer.graphs}
    codes = dict.fromkeys(launch.code for launch in ledger.launches if launch.code is not None)
    undecided = {code: why for code in codes if (why := _undecidable(code, ledger, said.get(code))) is not None}
    pairs = [(_account(code, ledger), _sorted(said[code])) for code in codes if code not in undecided]
    return pairs, next(iter(undecided.values()), None if codes else "no launch of the call comes from Inductor's code")


def _undecidable(code: str, ledger: Ledger, said: ScheduledGraph | None) -> str | None:
    """Why a graph's ledger cannot be compared with what its scheduler says, or None."""
    if said is None:
        return "part of its code came from a cache, or from elsewhere: no scheduler ran for that"
    if said.unknown is not None:
        return f"not decidable from Inductor's scheduler: {said.unknown}"
    ops = [launch.op for launch in ledger.launches if launch.code == code]
    times = _account(code, ledger).kernels // max(1, said.kernels)
    if times > 1 and ops == ops[: len(ops) // times] * times:
        return "the call runs one graph several times, and the scheduler does not know the values between its runs"
    return None


def _generated(steps: Sequence[Step]) -> Counter[tuple[str, int, int]]:
    """The kernels that Inductor generated, by name and bytes."""
    return Counter((one.op, one.read_bytes, one.write_bytes) for one in steps if one.source == "inductor")


def _account(code: str, ledger: Ledger) -> ScheduledGraph:
    """The ledger's account of one graph. To the scheduler a custom operator is one kernel, whatever runs inside."""
    launches: dict[object, Launch] = {}
    for index, launch in enumerate(ledger.launches):
        if launch.code != code or (ledger.captured and launch.op in COPIES):  # those go around a graph's replay
            continue
        key = index if launch.inside is None else launch.inside
        known = launches.get(key)
        launches[key] = (
            launch
            if known is None
            else msgspec.structs.replace(
                known, reads=(*known.reads, *launch.reads), writes=(*known.writes, *launch.writes)
            )
        )
    values = flow(msgspec.structs.replace(ledger, launches=tuple(launches.values()))).intermediates
    sizes = tuple(value.bytes for value in values)
    return _sorted(ScheduledGraph(code=code, kernels=len(launches), intermediates=sizes))


def _sorted(graph: ScheduledGraph) -> ScheduledGraph:
    return msgspec.structs.replace(graph, intermediates=tuple(sorted(graph.intermediates)))


def _withdrawn(traffic: Traffic, workload: Workload, wrong: Sequence[tuple[ScheduledGraph, ScheduledGraph]]) -> Traffic:
    """Without a count; at least those round-trips remain that both know of."""
    reason = "; ".join(f"Inductor's scheduler has {_said(said)}, the ledger {_said(mine)}" for mine, said in wrong)
    doubtful = sum((Counter(mine.intermediates) - Counter(said.intermediates)).total() for mine, said in wrong)
    return msgspec.structs.replace(
        row_traffic.without_ledger(workload, reason),
        round_trips_at_least=max(0, (traffic.round_trips or 0) - doubtful),
        other=traffic.other,
        captured=traffic.captured,
    )


def _said(graph: ScheduledGraph) -> str:
    """`4 kernels and 3 values through memory (2.4 MB)`."""
    values, size = len(graph.intermediates), sum(graph.intermediates)
    return f"{graph.kernels} kernels and {values} values through memory ({size / 1e6:.3g} MB)"
