"""Counts the round-trips and bytes of every backend on this card, derived and by hardware counters, at two shapes.

python bench/traffic.py                   (both shapes; writes bench/results/CARD-traffic.json after each)
python bench/traffic.py --shapes article  (one; the other stays in the file as it was)
"""

from __future__ import annotations

import argparse
import datetime
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from asked import result_file

from mlpfusion import backend, device
from mlpfusion.errors import MlpfusionError
from mlpfusion.records.profile import Profile
from mlpfusion.report.predict import prediction
from mlpfusion.report.profile import table
from mlpfusion.spec import MLPSpec, Workload
from mlpfusion.stages.predict import run as predict
from mlpfusion.stages.profile import run
from mlpfusion.storage import results

if TYPE_CHECKING:
    from mlpfusion.device import Device
    from mlpfusion.records.profile import Row

RESULTS: Final = Path(__file__).parent / "results"
SHAPES: Final = {
    "article": Workload(spec=MLPSpec(hidden_size=768, intermediate_size=3072), batch=64, seq=128),
    "large": Workload(spec=MLPSpec(hidden_size=2048, intermediate_size=16384), batch=64, seq=128),
}
# Values that go through memory and come back, by how each backend is built.
EXPECTED: Final = {
    "eager": 4,
    "compile": 3,
    "compile-max-autotune": 3,
    "liger": 3,
    "hub": 3,
    "triton": 3,
    "packed": 2,
    "fused": 1,
    # and the input and the output that a CUDA graph keeps for itself
    "compile-cudagraphs": 5,
    "fused-graph": 3,
}


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """What this script writes: the profile of each shape."""

    schema: int
    kind: str
    created: str
    profiles: dict[str, Profile]


def slug(here: Device) -> str:
    """`h200` for an NVIDIA H200."""
    words = here.name.removeprefix("NVIDIA ").split()
    return words[0].lower() if here.kind == "cuda" and words else "cpu"


def judged(row: Row) -> list[str]:
    """One backend's counts and bytes, and what they should be."""
    found = row.traffic
    if row.status != "ok" or found is None:
        return [row.backend, row.status, row.reason or "", *[""] * 4]
    expected = EXPECTED.get(row.backend)
    count = "unknown" if found.round_trips is None else str(found.round_trips)
    right = "" if expected is None else ("as built" if found.round_trips == expected else f"NOT {expected}")
    measured, derived = found.measured_bytes, found.derived_bytes
    ratio = "–" if measured is None or derived is None else f"{measured / derived:.3f}"
    alone = "–" if found.alone_bytes is None or derived is None else f"{found.alone_bytes / derived:.3f}"
    why = found.explained or found.reasons.get("measured_bytes") or found.reasons.get("round_trips") or ""
    return [row.backend, count, right, "–" if derived is None else f"{derived / 1e6:.0f}", ratio, alone, why]


def shown(profile: Profile) -> str:
    """The profile's tables, the judgement of each backend, and what the tutorial's card would do."""
    from tabulate import tabulate

    heads = ["backend", "round-trips", "", "derived MB", "measured / derived", "alone / derived", "why"]
    made: str = tabulate([judged(row) for row in profile.rows], heads, disable_numparse=True)
    parts = [table.render(profile, full=True), made]
    try:
        there = predict.card(predict.REFERENCE_CARD)
        parts.append(prediction.render(predict.predict(profile, there), "text", there.notes))
    except MlpfusionError as error:
        parts.append(f"no prediction: {error}")
    return "\n\n".join(parts)


def main() -> None:
    """Profile, print, and write after each shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", default="article,large", help="some of: article, large")
    parser.add_argument("--backends", help="by name, separated by commas; all")
    parser.add_argument("--rounds", type=int, default=20, help="samples of each clock; at least 20")
    parser.add_argument("--out", type=result_file, help="result file; bench/results/CARD-traffic.json")
    options = parser.parse_args()
    names = [name.strip() for name in options.shapes.split(",")]
    for name in names:
        if name not in SHAPES:
            parser.error(f"unknown shape {name!r}; valid: {', '.join(SHAPES)}")
    here = device.detect()
    out = options.out or RESULTS / f"{slug(here)}-traffic.json"
    backends = options.backends.split(",") if options.backends else backend.names()
    profiles: dict[str, Profile] = {}
    if out.exists():
        profiles = results.load_profiles(out)
    started = time.perf_counter()

    def tell(event: Any) -> None:
        who = f"{event.stage} {event.backend}" if event.backend else event.stage
        print(f"{time.perf_counter() - started:6.1f} s  {who}: {event.text}", file=sys.stderr, flush=True)

    for name in names:
        profile = run.profile(
            SHAPES[name], backends=backends, rounds=options.rounds, counters=True, time_limit_s=240, on_event=tell
        )
        profiles[name] = profile
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        written = Recorded(schema=1, kind="traffic", created=now, profiles=profiles)
        out.write_bytes(msgspec.json.format(msgspec.json.encode(written), indent=1) + b"\n")
        print(f"== {name} ==\n\n{shown(profile)}", flush=True)


if __name__ == "__main__":
    main()
