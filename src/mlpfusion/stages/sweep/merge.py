"""Puts the folders of one study together: every cell once, what was measured twice as further processes of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from mlpfusion import limits
from mlpfusion.errors import UsageError
from mlpfusion.records.clocks import Clock, Clocks, Samples
from mlpfusion.records.profile import BASELINE
from mlpfusion.stages.sweep import folder
from mlpfusion.stages.sweep.outcome import outcome
from mlpfusion.stats import of_processes
from mlpfusion.storage import files, results

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mlpfusion.records.choice import Conditions
    from mlpfusion.records.profile import Profile, Row
    from mlpfusion.records.sweep.study import Kept, State, Study

_CLOCKS: Final = ("wall_us", "event_us", "kernel_us", "graph_us")
_BEST: Final[tuple[State, ...]] = ("finished", "failed", "refused", "waiting")


class Part(NamedTuple):
    """One folder of a study."""

    path: Path
    study: Study


def merge(names: Sequence[str], out: Path) -> Study:
    """The study of several folders, written to `out`; a study that is there already is one of them.

    A cell found twice with the same content is one. If only times differ, its processes are those of both files;
    nothing is averaged.

    Raises:
        UsageError: a folder is no study's, is damaged, or of another definition; or two files of one cell differ in
            more than times, or have too many processes together.
    """
    parts = [_part(Path(name)) for name in names]
    for each in parts[1:]:  # before a folder is made
        _check_same(parts[0], each)
    with folder.held(out):
        if (out / folder.STUDY_NAME).exists():  # the first of all: its files are those that are replaced
            parts = [_part(out), *[each for each in parts if not files.is_same(each.path, out)]]
            _check_same(parts[0], parts[-1])
        nodes: dict[str, Conditions] = {}
        found: dict[str, Kept] = {}
        for each in parts:
            renamed = _renamed(nodes, each.study)
            for kept in each.study.cells:
                _take(found, _with_nodes(kept, renamed), each, out)
        first = parts[0].study
        shared = any(each.study.host_clocks == "shared" for each in parts)
        made = replace(
            first,
            cells=tuple(found.values()),
            nodes=nodes,
            created=min(each.study.created for each in parts),
            host_clocks="shared" if shared else "exclusive",
        )
        results.save(made, out / folder.STUDY_NAME)
    return made


def _part(path: Path) -> Part:
    if not (path / folder.STUDY_NAME).is_file():
        raise UsageError(f"{str(path)!r} is no study's folder: it holds no {folder.STUDY_NAME}")
    return Part(path, results.load_study(path / folder.STUDY_NAME))


def _check_same(one: Part, other: Part) -> None:
    if one.study.definition != other.study.definition:
        raise UsageError(
            f"{str(one.path)!r} and {str(other.path)!r} are of different studies, {one.study.name!r} and "
            f"{other.study.name!r}: their cells, backends, rounds or processes differ"
        )


# ---- nodes -----------------------------------------------------------------------------------------------------------


def _renamed(nodes: dict[str, Conditions], study: Study) -> dict[str, str]:
    """The name of each node of a study among all.

    Equal conditions in two studies are one node, as far as anybody can tell; in one study they are two.
    """
    found: dict[str, str] = {}
    for name, holds in study.nodes.items():
        known = [each for each, other in nodes.items() if other == holds and each not in found.values()]
        found[name] = known[0] if known else f"node {len(nodes) + 1}"
        nodes[found[name]] = holds
    return found


def _with_nodes(kept: Kept, renamed: Mapping[str, str]) -> Kept:
    attempts = tuple(replace(each, node=renamed.get(each.node, each.node)) for each in kept.attempts)
    return replace(kept, attempts=attempts, node=renamed.get(kept.node or "", kept.node))


# ---- cells -----------------------------------------------------------------------------------------------------------


def _take(found: dict[str, Kept], kept: Kept, part: Part, out: Path) -> None:
    """Put a cell of a folder among those that were found, and its result into `out`."""
    before = found.get(kept.digest)
    if kept.state == "finished":
        kept = _written(kept, before, part, out)
    if before is None:
        found[kept.digest] = kept
        return
    best = min(kept, before, key=lambda each: _BEST.index(each.state))
    attempts = tuple(dict.fromkeys((*before.attempts, *kept.attempts)))
    found[kept.digest] = replace(best, attempts=attempts)


def _written(kept: Kept, before: Kept | None, part: Part, out: Path) -> Kept:
    assert kept.file is not None
    source = part.path / folder.CELLS / kept.file
    data = files.read_whole(results.RESULT, source, 2**28)
    profile = results.load(source)  # what is damaged is refused before anything is written
    name = kept.file
    if before is not None and before.state == "finished" and before.file is not None:
        name = before.file
        there = out / folder.CELLS / name
        if there.read_bytes() == data:
            return before
        profile = together(results.load(there), profile, str(there), str(source))
        data = results.encode(profile).encode("utf-8", "backslashreplace")
    target = out / folder.CELLS / name
    if not (target.exists() and target.read_bytes() == data):
        files.write_whole(results.RESULT, target, data)
    return replace(kept, file=name, stamp=folder.stamp(target), outcome=outcome(profile))


def together(a: Profile, b: Profile, name_a: str, name_b: str) -> Profile:
    """Two results of one cell as one, with the processes of both; a process that both have is one.

    Raises:
        UsageError: more than times differs, or the processes are too many.
    """
    theirs = _facts(b)
    other = [name for name, value in _facts(a).items() if value != theirs.get(name)]
    if other:
        raise UsageError(f"{name_a!r} and {name_b!r} are of one cell and differ in more than times: {', '.join(other)}")
    new = [place for place, process in enumerate(b.processes) if process not in a.processes]
    if not new:
        return a
    if len(a.processes) + len(new) > limits.PROCESSES.most:
        raise UsageError(
            f"{name_a!r} and {name_b!r} have {len(a.processes) + len(new)} processes together; "
            f"at most {limits.PROCESSES.most} can be compared"
        )
    rows = {row.backend: row for row in b.rows}
    series = {(row.backend, name): _series(row, rows[row.backend], name, new, a) for row in a.rows for name in _CLOCKS}
    return replace(
        a,
        rows=tuple(_row(row, rows[row.backend], series) for row in a.rows),
        processes=(*a.processes, *[b.processes[place] for place in new]),
        itself=(),
    )


def _facts(found: Profile) -> dict[str, Any]:
    """All of a result that is no time and no reading, by name."""
    here = found.environment
    facts: dict[str, Any] = {
        "workload": found.workload,
        "device": (found.device.name, found.device.capability, found.device.multiprocessors),
        "versions": (here.python, here.torch, here.triton, here.cuda, here.driver, here.distributions),
        "flags": (here.flags, here.float32_matmul_precision),
        "host clocks": found.host_clocks,
        "backends": sorted(row.backend for row in found.rows),
    }
    for row in found.rows:
        facts[f"status of {row.backend}"] = (row.status, row.emulated, row.tokens)
        facts[f"kernels of {row.backend}"] = [(each.name, each.role) for each in row.kernels]
        facts[f"launches of {row.backend}"] = row.launches
        facts[f"accuracy of {row.backend}"] = row.accuracy
        facts[f"memory of {row.backend}"] = row.memory
        facts[f"versions of {row.backend}"] = row.distributions
        facts[f"clocks of {row.backend}"] = [name for name in _CLOCKS if getattr(row.clocks, name, None) is not None]
        if row.traffic is not None:
            facts[f"traffic of {row.backend}"] = (row.traffic.derived_bytes, row.traffic.round_trips)
    return facts


def _series(a: Row, b: Row, name: str, new: Sequence[int], profile: Profile) -> list[Samples] | None:
    """One clock by process, those of both files; None where it has no rounds, or is of no process of a race."""
    one: Clock | None = getattr(a.clocks, name, None)
    other: Clock | None = getattr(b.clocks, name, None)
    if one is None or other is None or len(one.rounds) != len(profile.processes) or not one.rounds:
        return None
    if name == "kernel_us" and len(one.rounds) == 1:  # of the trace that qualified the row
        return None
    rounds = (*one.rounds, *[other.rounds[place] for place in new])
    return [Samples(backend=a.backend, clock=name, l2=one.l2, values=each) for each in rounds]


def _row(a: Row, b: Row, series: Mapping[tuple[str, str], list[Samples] | None]) -> Row:
    if a.clocks is None or b.clocks is None:
        return a
    changed: dict[str, Clock] = {}
    for name in _CLOCKS:
        mine, base = series[a.backend, name], series.get((BASELINE, name))
        if mine is not None:
            changed[name] = of_processes(mine, base if name != "kernel_us" else None)
    loads = [each for each in (a.clocks.neighbours, b.clocks.neighbours) if each is not None]
    clocks: Clocks = msgspec.structs.replace(a.clocks, neighbours=max(loads, default=None), **changed)
    return replace(a, clocks=clocks)
