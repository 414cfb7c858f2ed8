"""`mlpfusion read` of every recorded trace, without torch: its values are those that are committed.

`PYTHONPATH=tests python tests/report/trace/test_page_recorded.py` writes them anew; a change is to be looked
at, and explained where it is committed.
"""

from __future__ import annotations

import gzip
import json
import statistics
import subprocess
import sys
from typing import Any, get_args

import pytest
from support.paths import DATA

from mlpfusion.trace.analysis.pre_ops import Part

EXPECTED = DATA / "expected"
NAMES = sorted(path.name.removesuffix(".json.gz") for path in DATA.glob("*.json.gz"))
CODE = "import sys; sys.modules['torch'] = None; from mlpfusion.cli.main import main; sys.exit(main(sys.argv[1:]))"
DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")


def read(*args: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", CODE, "read", *args], cwd=DATA, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def values() -> dict[str, Any]:
    traces = json.loads(read("--json", "-", *(f"{name}.json.gz" for name in NAMES)))["traces"]
    return {name: condensed(trace) for name, trace in zip(NAMES, traces, strict=True)}


def condensed(trace: dict[str, Any]) -> dict[str, Any]:
    analysis = trace["analysis"]
    return {
        "calls": [trace["call"]["by"], trace["call"]["name"], trace["call"]["count"], analysis["calls"]],
        "device": trace["gpu"] or trace["device"],
        "kernels": [[one["role"], one["name"], round(one["time_us"], 3)] for one in analysis["kernels"]],
        "launches": analysis["launches"],
        "kernel_us": [round(value, 3) for value in analysis["kernel_us"]],
        "pre_ops": rounded(analysis["pre_ops"]),
        "idle_share": rounded(trace["idle_share"]),
        "graphs": trace["graphs"],
        "regions": [region["id"] for region in trace["regions"]],
        "faults": analysis["faults"],
        "findings": [finding["id"] for finding in trace["findings"]],
    }


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return round(value, 3) if isinstance(value, float) else value


def test_each_trace_has_expected_values() -> None:
    assert sorted(path.stem for path in EXPECTED.glob("*.json")) == NAMES


def test_values_are_as_expected() -> None:
    for name, found in values().items():
        assert found == json.loads((EXPECTED / f"{name}.json").read_text(encoding="utf-8")), name


def block(page: str, marker: str) -> str:
    """The code between two markers of a page."""
    text = (DATA.parents[1] / page).read_text(encoding="utf-8")
    return text.split(f"<!-- {marker} -->\n```\n", 1)[1].split(f"```\n<!-- /{marker} -->", 1)[0]


def test_the_pages_show_what_is_printed() -> None:
    page = read("h200_compile.json.gz").split("\n\nFindings\n")[0] + "\n"  # whose wording is no measurement
    assert block("docs/traces.md", "read") == page
    command = [sys.executable, "-c", CODE, "diff", "h200_eager.json.gz", "h200_compile.json.gz"]
    done = subprocess.run(command, cwd=DATA, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(block("docs/traces.md", "diff"))


# ---- the same figures, counted in another way ------------------------------------------------------------------------


def by_hand(name: str) -> tuple[list[str], list[float], list[float]]:
    """Kernels of a call in device order, the median of each one's durations, and the busy time of each call.

    From the plain JSON: launches by their instant in the call, device work by its correlation.
    """
    events = json.loads(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))["traceEvents"]
    timed = [event for event in events if event.get("ph") == "X"]
    calls = [one for one in timed if one["cat"] == "user_annotation" and one["name"] == "mlpfusion.call"]
    host = [one for one in timed if one["cat"] in ("cuda_runtime", "cuda_driver")]
    device = [one for one in timed if one["cat"] in DEVICE_WORK]
    per_call = []
    for call in sorted(calls, key=lambda one: one["ts"]):
        asked = {one["args"]["correlation"] for one in host if call["ts"] <= one["ts"] < call["ts"] + call["dur"]}
        per_call.append(
            sorted((one for one in device if one["args"]["correlation"] in asked), key=lambda one: one["ts"])
        )
    names = [[one["name"] for one in work] for work in per_call]
    assert all(each == names[0] for each in names)
    medians = [statistics.median(one["dur"] for one in same) for same in zip(*per_call, strict=True)]
    busy = [sum(one["dur"] for one in work) for work in per_call]  # one stream: nothing overlaps
    return names[0], medians, busy


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("h200")])
def test_expected_values_agree_with_a_count_by_hand(name: str) -> None:
    expected = json.loads((EXPECTED / f"{name}.json").read_text(encoding="utf-8"))
    names, medians, busy = by_hand(name)
    assert [kernel[1] for kernel in expected["kernels"]] == names
    assert [kernel[2] for kernel in expected["kernels"]] == pytest.approx(medians, abs=0.002)
    assert expected["kernel_us"] == pytest.approx(busy, abs=0.02)
    launches = expected["launches"]
    assert launches["kernels"] + launches["memcpys"] + launches["memsets"] == len(names)
    parts = expected["pre_ops"]
    whole = parts["time_to_first_launch"]
    owners = [parts[part] for part in parts if part in get_args(Part) and parts[part] is not None]
    assert sum(owners) == pytest.approx(whole, abs=0.01)


def write() -> None:
    EXPECTED.mkdir(exist_ok=True)
    for name, found in values().items():
        text = json.dumps(found, indent=1, ensure_ascii=False)
        (EXPECTED / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
