"""Turns records of every kind that can be compared into groups of rows."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from mlpfusion.errors import UsageError
from mlpfusion.records.choice import Choice
from mlpfusion.records.profile import Profile
from mlpfusion.records.proof import Proof
from mlpfusion.records.validation import SelfTest, Validation
from mlpfusion.stages.compare import facts, settings
from mlpfusion.stages.compare.subjects import Fact, Group, Subject, Timed
from mlpfusion.storage import contradictions

if TYPE_CHECKING:
    from mlpfusion.records.choice import Point
    from mlpfusion.records.clocks import Clock
    from mlpfusion.records.profile import Row
    from mlpfusion.records.validation import Judged, Verdict
    from mlpfusion.spec import MLPSpec
    from mlpfusion.storage.results import Result

CLOCKS: Final = ("graph_us", "kernel_us", "event_us", "wall_us")
HOST_CLOCKS: Final = ("event_us", "wall_us")  # on a CPU all clocks are the host's
COMPARED: Final = ("profile", "choice", "proof", "validation", "self-test")  # kinds of files
_WORDS: Final = {"valid": 0, "valid with hazards": 1, "not decidable here": 2, "not valid": 3}
# Of a backend at a point of a choice: it is right and was timed or not, or it cannot be used.
_USABLE: Final = {"won": 0, "tied": 0, "slower": 0, "untimed": 0, "unavailable": 1, "failed": 2}


def of_record(record: Result, file: str) -> tuple[Group, ...]:
    """The groups of what was read from a file.

    Raises:
        UsageError: nothing in a record of its kind can be compared.
    """
    if isinstance(record, Profile):
        return (_of_profile(record, file),)
    if isinstance(record, Choice):
        return tuple(_of_point(record, point, file) for point in record.points)
    if isinstance(record, Proof):
        return (_of_proof(record, file),)
    if isinstance(record, Validation):
        return (_of_verdicts(record, "verdicts", {name: _judged(each) for name, each in _targets(record)}, file),)
    if isinstance(record, SelfTest):
        rows = {each.control.name: _control(each) for each in record.judged}
        return (_of_verdicts(record, "controls", rows, file),)
    raise UsageError(f"{file!r} holds a {record.kind!r}; can be compared: {', '.join(map(repr, COMPARED))}")


# ---- profiles --------------------------------------------------------------------------------------------------------


def _of_profile(found: Profile, file: str) -> Group:
    work = found.workload
    rows = {row.backend: _subject(found, row) for row in found.rows}
    return Group(
        file=file,
        key=("profile", work.spec, work.tokens, work.mode),
        title=title(work.spec, work.tokens, work.mode),
        rows=rows,
        settings=settings.of_result(found.device, found.environment, found.mlpfusion),
        spec=work.spec,
        tokens=work.tokens,
        mode=work.mode,
        device=found.device.name,
        damage=contradictions.first(found, file),
        itself=found.itself,
    )


def title(spec: MLPSpec, tokens: int, mode: str) -> str:
    """What a group of rows ran."""
    bias = ", bias" if spec.bias else ""
    sizes = f"hidden_size {spec.hidden_size}, intermediate_size {spec.intermediate_size}"
    return f"{tokens} tokens, {sizes}, {spec.activation}, {spec.dtype}{bias}, {mode}"


def _subject(profile: Profile, row: Row) -> Subject:
    loads = [process.neighbours for process in profile.processes]
    if row.clocks is not None and row.clocks.neighbours is not None:
        loads.append(row.clocks.neighbours)
    known = [each for each in loads if each is not None]
    load = max(known) if known and len(known) == len(loads) else None
    clocks = {}
    for name in CLOCKS if row.status == "ok" and row.clocks is not None and not row.emulated else ():
        clock: Clock | None = getattr(row.clocks, name)
        if clock is not None:
            clocks[name] = _timed(clock, load, has_host=name in HOST_CLOCKS or profile.device.kind == "cpu")
    ran = tuple(kernel.name for kernel in row.kernels)
    raced = Counter(process.kernels.get(row.backend, ran) for process in profile.processes)
    most = max(raced, key=raced.__getitem__, default=ran)
    timed = [facts.names([(name, 1) for name in most], facts.RACED)] if most else []
    return Subject(
        name=row.backend,
        clocks=clocks,
        facts=(*facts.of_row(row), *timed),
        tokens=row.tokens,
        versions=row.distributions,
        ran=row.status == "ok",
        others=raced.total() - raced[most],
        raced_others=bool(ran) and most != ran,
    )


def _timed(clock: Clock, load: float | None, *, has_host: bool) -> Timed:
    return Timed(clock.median, clock.rounds, clock.is_paired, load, has_host, clock.l2)


# ---- the other kinds -------------------------------------------------------------------------------------------------


def _of_point(found: Choice, point: Point, file: str) -> Group:
    rows = {}
    for one in point.contenders:
        known = [Fact("status", one.verdict, _USABLE[one.verdict], one.verdict)]
        if one.memory is not None and one.memory.peak_bytes is not None:
            known.append(facts.size("peak memory", one.memory.peak_bytes))
        rows[one.backend] = Subject(one.backend, facts=tuple(known), ran=_USABLE[one.verdict] == 0)
    chosen = Fact("chosen", point.chosen or "none", None, point.chosen)
    rows["(choice)"] = Subject("(choice)", facts=(chosen,))
    return Group(
        file=file,
        key=("choice", found.spec, point.tokens, point.mode),
        title=f"choice: {title(found.spec, point.tokens, point.mode)}",
        rows=rows,
        settings=settings.of_result(found.device, found.environment, found.mlpfusion),
        spec=found.spec,
        tokens=point.tokens,
        mode=point.mode,
    )


def _of_verdicts(found: Validation | SelfTest, title: str, rows: dict[str, Subject], file: str) -> Group:
    return Group(
        file=file,
        key=(title,),
        title=title,
        rows=rows,
        settings=settings.of_result(found.device, found.environment, found.mlpfusion),
    )


def _targets(found: Validation) -> list[tuple[str, Verdict]]:
    return [(f"{each.target} ({each.activation})", each) for each in found.verdicts]


def _control(found: Judged) -> Subject:
    """A control of the self-test: whether its verdict is the known one."""
    text = f"skipped: {found.skipped}" if found.skipped else f"wrong: {found.wrong}" if found.wrong else "right"
    rank = None if found.skipped else float(found.wrong is not None)
    known = [Fact("verdict is", facts.clipped(text), rank, text)]
    if found.verdict is not None:
        known.append(Fact("word", found.verdict.word, None, found.verdict.word))
    return Subject(found.control.name, facts=tuple(known), ran=found.skipped is None)


def _judged(found: Verdict) -> Subject:
    known = [Fact("verdict", found.word, _WORDS[found.word], found.word)]
    for name, checks in (("failed checks", found.failed), ("hazards", found.hazards)):
        each = tuple(sorted(f"{check.name} [{check.dtype}]" if check.dtype else check.name for check in checks))
        known.append(Fact(name, facts.clipped(", ".join(each)) or "none", len(each), each))
    if found.kernels:
        known.append(facts.names([(kernel.name, 1) for kernel in found.kernels]))
        known.append(facts.count("kernel launches", len(found.kernels)))
    return Subject(f"{found.target} ({found.activation})", facts=tuple(known))


def _of_proof(found: Proof, file: str) -> Group:
    specs = frozenset(layers.spec for layers in found.swapped)
    known = [
        Fact("proof", "holds" if found.holds else "fails: " + facts.clipped("; ".join(found.failures)), *_held(found))
    ]
    known.append(Fact("modules swapped", str(len(found.swapped)), -len(found.swapped), len(found.swapped)))
    if found.memory is not None:
        known.append(facts.size("peak memory", found.memory.swapped))
    if found.kernels:
        ran = [(kernel.name, kernel.swapped) for kernel in found.kernels if kernel.swapped]
        known += [facts.names(ran), facts.count("kernel launches", sum(number for _, number in ran))]
    clocks: dict[str, Timed] = {}
    controls: dict[str, Timed] | None = None
    if found.speed is not None:
        clocks = {found.speed.clock: _timed(found.speed.swapped, None, has_host=True)}
        controls = {found.speed.clock: _timed(found.speed.original, None, has_host=True)}
    return Group(
        file=file,
        # A set, in which no spec is taken for one of another dtype.
        key=("proof", found.model, found.parameters, found.mode, tuple(sorted(found.inputs.items())), specs),
        title=f"proof: {facts.clipped(found.model)}, {found.mode}",
        rows={found.backend: Subject(found.backend, clocks, tuple(known))},
        settings=settings.of_result(found.device, found.environment, found.mlpfusion),
        mode=found.mode,
        controls=controls,
    )


def _held(found: Proof) -> tuple[float, tuple[str, ...]]:
    """Rank and value of a proof's outcome: one more failure is worse."""
    return len(found.failures), found.failures
