"""Makes what choosing is tested with: profiles whose times are known, choices from them, a bench without a clock."""

from __future__ import annotations

import statistics

from msgspec.structs import replace

from mlpfusion.device import detect
from mlpfusion.environment import conditions
from mlpfusion.models import known
from mlpfusion.records.choice import SCHEMA, Choice, Range
from mlpfusion.records.clocks import Clock, Clocks
from mlpfusion.records.profile import Accuracy, Memory, Row
from mlpfusion.spec import MLPSpec, Workload
from mlpfusion.stages.choose import decide
from mlpfusion.stages.profile import run
from mlpfusion.storage import results
from support import profiles_made

SPEC = MLPSpec(hidden_size=16, intermediate_size=32, dtype="float32")
GOOD = Accuracy(max_error=1.0, rms_error=1.0, eager_max_error=1.0, eager_rms_error=1.0, rows=1, elements=16)
HERE = replace(detect("cpu"), interpreted=False)


def clock_of(*values):
    return Clock(n=len(values), median=statistics.median(values), p20=min(values), p80=max(values), l2="cold",
                 rounds=(values,))  # fmt: skip


def around(middle, wobble=0.01, n=25):
    return tuple(middle * (1 + wobble * ((7 * i) % 5 - 2) / 2) for i in range(n))


def row(name, values=None, **changes):
    if values is None:
        return Row(backend=name, status=changes.pop("status", "unavailable"), **changes)
    clocks = Clocks(event_us=clock_of(*values), wall_us=clock_of(*values))
    return Row(backend=name, **{"status": "ok", "accuracy": GOOD, "clocks": clocks, **changes})


def profile(*found, tokens=16, mode="inference", spec=SPEC, complete=True):
    return profiles_made.profile(
        *found,
        workload=Workload(spec=spec, batch=1, seq=tokens, mode=mode),
        device=HERE,
        environment=run.machine.collect(HERE, {}),
        complete=complete,
    )


def point_of(*found, wrong=None, **options):
    return decide.point(profile(*found, **options), "event_us", wrong or {})


def by_name(point):
    return {each.backend: each for each in point.contenders}


class Bench:
    """Stands in for `profile`: writes its rows as that does, and can be interrupted after some of them."""

    def __init__(self, monkeypatch, stop_after=None):
        self.asked, self.stop_after = [], stop_after
        monkeypatch.setattr(run, "profile", self)

    def __call__(self, work, *, backends, json, finished, on_event, **options):
        kept = {each.backend: each for each in finished}
        self.asked.append((work.mode, work.tokens, sorted(set(backends) - set(kept))))
        done = []
        for name in backends:
            on_event(run.Progress("qualify", name, "…"))
            done.append(kept.get(name) or row(name, around(100 if name == "eager" else 150 - work.tokens)))
            on_event(run.Progress("qualify", name, "ok"))
            found = profile(*done, tokens=work.tokens, mode=work.mode, spec=work.spec, complete=False)
            if json is not None:
                results.save(found, json)
            if self.stop_after == (work.tokens, name):
                raise KeyboardInterrupt
        on_event(run.Progress("race", None, "done"))
        if json is not None:
            results.save(replace(found, complete=True), json)
        return replace(found, complete=True)


def a_choice(*ranges, spec=SPEC, backends=("eager",)):
    points = (point_of(row("eager", around(100)), row("compile", around(130), memory=Memory(peak_bytes=10**6))),)
    return Choice(
        schema=SCHEMA,
        kind="choice",
        mlpfusion="0.1.0",
        created="2026-01-01T00:00:00+00:00",
        model=known.of_sizes(spec),
        tp=1,
        spec=spec,
        clock="event_us",
        rounds=25,
        device=HERE,
        environment=run.machine.collect(HERE, {}),
        holds=conditions.conditions(HERE, backends),
        points=points,
        ranges=ranges or (part("eager"),),
    )


def part(backend, first=1, last=None, mode="inference"):
    return Range(mode=mode, first=first, last=last, backend=backend, phase="decode", measured=(first,), tie=False)
