"""Makes result files with races whose order is known, for tests of the tables of them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from mlpfusion import stats
from mlpfusion.device import Peaks
from mlpfusion.models import known
from mlpfusion.records.prediction import Foreseen, ForeseenPoint, Foresight
from mlpfusion.spec import MLPSpec, Workload
from mlpfusion.stages.tabulate import races
from mlpfusion.stages.tabulate.sources import Source
from mlpfusion.storage import results
from support.comparisons_made import raced
from support.profiles_made import EAGER

if TYPE_CHECKING:
    from mlpfusion.records.clocks import Clock
    from mlpfusion.records.profile import Profile, Row
    from mlpfusion.stages.tabulate.races import Race
    from mlpfusion.storage.results import Result

SPEC = MLPSpec(hidden_size=768, intermediate_size=3072)
# Names that a third party may give to what we show: markup of every format, letters that steer, and a long one.
HOSTILE = (
    "<b>bold</b>",
    "'quoted' \"twice\"",
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "right\u202eto\u200fleft",
    f"kernel<{'float, ' * 1500}int>",
    r"back\slash \input{/etc/passwd} \\",
    "100% of_all #1 & more ~ ^ {braces} $x$ [x] -- ---",
    "a|b`c`*d*_e_",
    "µ × − ≥ é ñ 中 \N{PILE OF POO}",
    "[starts] with a bracket",
    "* starts with a star",
    "=1+1",
    "two\nlines",
)


def profile(factors: dict[str, float], tokens: int = 8192, *, mode: str = "inference", **options: Any) -> Profile:
    """A profile of eager and of rows that take these factors of its time, with their ratios to it."""
    clocks = options.pop("clocks", ("event_us",))
    work = Workload(spec=options.pop("spec", SPEC), batch=1, seq=tokens, mode=mode)  # type: ignore[arg-type]
    extra: tuple[Row, ...] = options.pop("extra", ())
    made = raced(factors, clocks=clocks, workload=work, **options)
    rows = (_with_ratios(replace(row, tokens=tokens), made.rows[0], clocks) for row in made.rows)
    return replace(made, rows=(*rows, *extra))


def _with_ratios(row: Row, eager: Row, clocks: tuple[str, ...]) -> Row:
    if row.backend == "eager" or row.clocks is None or eager.clocks is None:
        return row
    changed = {}
    for name in clocks:
        own, base = (getattr(each.clocks, name) for each in (row, eager))
        changed[name] = replace(own, ratio_to_eager=stats.paired(own, base, "eager"))
    return replace(row, clocks=replace(row.clocks, **changed))


def without_rounds(clock: Clock) -> Clock:
    """The clock of a file that keeps a summary alone."""
    return replace(clock, rounds=())


def source(result: Result, name: str = "a.json") -> Source:
    """A result as if it had been read from a file."""
    return Source(name, name, hashlib.sha256(results.encode(result).encode()).hexdigest(), result)  # type: ignore[arg-type]


def race(factors: dict[str, float], tokens: int = 8192, name: str = "a.json", **options: Any) -> Race:
    """The one race of such a profile."""
    (found,) = races.of_sources([source(profile(factors, tokens, **options), name)])
    return found


def failed(name: str = "hub", reason: str = "wrong: 41 times eager's error") -> Row:
    """A row that did not pass."""
    return replace(
        EAGER, backend=name, status="failed", reason=reason, clocks=None, kernels=(), launches=None, traffic=None
    )


def emulated(name: str = "triton") -> Row:
    """A row of Triton's interpreter."""
    return replace(EAGER, backend=name, emulated=True, tokens=8, clocks=None, reason="emulated: 8 tokens")


def foresight(tokens: int = 8192) -> Foresight:
    """A prediction of three backends, one of which could not be predicted."""
    spread = {"fused": (90.0, 100.0, 110.0), "eager": (140.0, 150.0, 165.0)}
    backends = [
        Foreseen(backend=name, verdict="least", predicted_us=middle, low_us=low, high_us=high, ratio=1.0)
        for name, (low, middle, high) in spread.items()
    ]
    backends.append(Foreseen(backend="odd", verdict="not predicted", reason="it has no ledger"))
    point = ForeseenPoint(
        mode="inference",
        tokens=tokens,
        measured_on="NVIDIA H200",
        efficiency=None,
        least="fused",
        backends=tuple(backends),
    )
    return Foresight(
        schema=1,
        kind="prediction",
        model=known.of_sizes(SPEC),
        tp=1,
        spec=SPEC,
        card="NVIDIA Z1",
        peaks=Peaks(flops_16bit=1e15, bandwidth=3e12, source="its datasheet"),
        points=(point,),
    )
