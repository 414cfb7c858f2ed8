"""How wrong predictions are: held-out products of measured tables, one card scaled to another, and recorded MLPs.

Writes bench/results/predict.md and predict.json. Needs the extra `tables`; no GPU. Some minutes on one core.
"""

from __future__ import annotations

import argparse
import json
from math import hypot
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec.structs import replace

from mlpfusion import units
from mlpfusion.device import KNOWN_CARDS
from mlpfusion.report.grid import tabulated
from mlpfusion.stages.predict import run, scaled, sources
from mlpfusion.stages.predict.products import Products, roofline_us
from mlpfusion.stages.predict.scaled import LAUNCH_US
from mlpfusion.stages.predict.shapes import is_library_product, shapes, steps
from mlpfusion.stages.predict.table import Table
from mlpfusion.storage import files, results

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from mlpfusion.records.profile import Profile, Row

RESULTS: Final = Path(__file__).parent / "results"
RANGES: Final = ((1, 16), (17, 256), (257, 2048), (2049, 8192))
SMALLEST: Final = 512  # of n and k; smaller ones are reported apart
HELD_OUT: Final = 60  # pairs of n and k that are left out of the whole rule, by card
MLP_BACKENDS: Final = ("eager", "compile", "liger", "triton", "packed")
LEAST_TOKENS: Final = 256
REFERENCE_HEADS: Final = ["backend", "predicted µs", "80% interval"]
HEADS: Final = [f"{low} ≤ M ≤ {high}" for low, high in RANGES]

# Published with the GeGLU tutorial for an NVIDIA A100-SXM4-80GB, in µs.
PUBLISHED: Final = {
    ("compile", "gate_gemm"): 190.0,
    ("compile", "up_gemm"): 190.0,
    ("compile", "act_mul"): 89.4,
    ("compile", "down_gemm"): 170.0,
    ("liger", "act_mul"): 92.8,
}


def held_out(card: str, table: Table) -> list[list[str]]:
    """Error of products whose n and k are left out: by rows of x, and whether n and k are large."""
    products = Products(KNOWN_CARDS[card], table)
    wrong = np.abs(np.expm1(products.residuals()))
    large = (products.pairs >= SMALLEST).all(axis=1)
    lines = []
    for name, columns in ((f"n, k ≥ {SMALLEST}", large), ("smaller", ~large)):
        cells = []
        for low, high in RANGES:
            rows = (products.knots >= low) & (products.knots <= high)
            found = wrong[np.ix_(rows, columns)]
            found = found[~np.isnan(found)]
            cells.append(f"{np.median(found):.1%} / {np.quantile(found, 0.9):.0%}" if len(found) else "–")
        lines.append([card.removeprefix("NVIDIA "), name, *cells])
    return lines


def covered(card: str, table: Table, seed: int = 0) -> list[str]:
    """The whole rule, pairs of n and k left out of the table: its errors, and how often the interval held."""
    rng = np.random.default_rng(seed)
    pairs = np.unique(table.shapes[:, 1:], axis=0)
    pairs = pairs[(pairs >= SMALLEST).all(axis=1)]
    wrong, inside = [], []
    for n, k in pairs[rng.choice(len(pairs), HELD_OUT, replace=False)].tolist():
        out = (table.shapes[:, 1] == n) & (table.shapes[:, 2] == k)
        rest = replace_rows(table, ~out)
        products = Products(KNOWN_CARDS[card], rest)
        for index in rng.choice(np.flatnonzero(out), 8):
            m, true = int(table.shapes[index, 0]), float(table.us[index])
            found = products.estimate(m, n, k)
            wrong.append(abs(found.us / true - 1))
            # Within the same collections: the error of other machines is no part of this.
            inside.append(abs(np.log(found.us / true)) <= hypot(found.own, table.spread))
    return [
        card.removeprefix("NVIDIA "),
        str(len(wrong)),
        f"{np.median(wrong):.1%} / {np.quantile(wrong, 0.9):.0%}",
        f"{np.mean(inside):.0%}",
    ]


def replace_rows(table: Table, kept: NDArray[np.bool_]) -> Table:
    """The table without some of its rows."""
    return Table(table.card, table.source, table.shapes[kept], table.us[kept], table.spread)


def scaled_from(here: Table, there: Table) -> list[str]:
    """Products of one card scaled to another by the datasheets: the 50th and 80th percentile of |log error|."""
    known = {tuple(shape): us for shape, us in zip(here.shapes.tolist(), here.us.tolist(), strict=True)}
    rows = [
        index
        for index, shape in enumerate(there.shapes.tolist())
        if tuple(shape) in known and min(shape[1:]) >= SMALLEST
    ]
    shapes = there.shapes[rows].astype(float)
    times = np.array([known[tuple(shape)] for shape in there.shapes[rows].tolist()])
    share = roofline_us(shapes, KNOWN_CARDS[there.card]) / roofline_us(shapes, KNOWN_CARDS[here.card])
    wrong = np.abs(np.log((LAUNCH_US + (times - LAUNCH_US) * share) / there.us[rows]))
    cells = []
    for low, high in RANGES:
        found = wrong[(shapes[:, 0] >= low) & (shapes[:, 0] <= high)]
        cells.append(f"{np.median(found):.2f} / {np.quantile(found, 0.8):.2f}")
    return [here.card.removeprefix("NVIDIA "), there.card.removeprefix("NVIDIA "), *cells]


def mlps(profiles: Sequence[tuple[str, Profile]], assumed: dict[str, Profile]) -> list[dict[str, object]]:
    """Recorded calls, predicted for their own card from its table: their own times are taken away first.

    The shares of the datasheet are those of another MLP's profile on that card.
    """
    found: list[dict[str, object]] = []
    for name, profile in profiles:
        there = run.card(profile.device.name)
        share = scaled.efficiency(assumed[name])
        blind = replace(profile, rows=tuple(without_times(row) for row in profile.rows))
        true = {row.backend: row.clocks.kernel_us for row in profile.rows if row.clocks is not None}
        for each in run.predict(blind, there, share):
            clock = true.get(each.backend)
            if clock is None or each.low_us is None or each.high_us is None:
                continue
            found.append(
                {
                    "result": name,
                    "tokens": profile.workload.tokens,
                    "backend": each.backend,
                    "predicted_us": each.predicted_us,
                    "low_us": each.low_us,
                    "high_us": each.high_us,
                    "kernel_us": clock.median,
                    "inside": each.low_us <= clock.median <= each.high_us,
                }
            )
    return found


def without_times(row: Row) -> Row:
    """A row whose launches were not timed."""
    if row.traffic is None:
        return row
    return replace(
        row, traffic=replace(row.traffic, steps=tuple(replace(step, time_us=None) for step in row.traffic.steps))
    )


def reference() -> list[list[str]]:
    """The calls of the reference workload on the reference card, from the rows recorded on an H200."""
    rows = run.predict(results.load(RESULTS / "h200-profile.json"), run.card(run.REFERENCE_CARD))
    return [
        [each.backend, units.plain(each.predicted_us), f"{units.plain(each.low_us)}–{units.plain(each.high_us)}"]
        for each in sorted(rows, key=lambda each: each.predicted_us)
        if each.low_us is not None and each.high_us is not None
    ]


def article() -> list[list[str]]:
    """The tutorial's MLP on an A100, part by part, from the rows recorded on an H200."""
    there = run.card(run.REFERENCE_CARD)
    rows = {each.backend: each for each in run.predict(results.load(RESULTS / "h200-profile.json"), there)}
    lines, total = [], 0.0
    for (backend, role), published in PUBLISHED.items():
        step = next(each for each in rows[backend].steps if each.role == role)
        total += published if backend == "compile" else 0.0
        lines.append(
            [backend, role, f"{published:g}", f"{step.predicted_us:.1f}", f"{step.predicted_us / published - 1:+.1%}"]
        )
    whole = rows["compile"].predicted_us
    return [*lines, ["compile", "all four", f"{total:g}", f"{whole:.1f}", f"{whole / total - 1:+.1%}"]]


def recorded() -> tuple[list[tuple[str, Profile]], dict[str, Profile]]:
    """The recorded calls of two MLPs on an H200, and for each the profile of the other that says what kernels reach."""
    folders = ("h200-choose-article", "h200-choose-gemma-2b")
    profiles, assumed = [], {}
    for mine, other in (folders, folders[::-1]):
        usual = results.load(RESULTS / other / "inference-8192.json")
        for path in sorted((RESULTS / mine).glob("inference-*.json")):
            name = f"{mine}/{path.name}"
            profiles.append((name, results.load(path)))
            assumed[name] = usual
    return profiles, assumed


def machine() -> list[str]:
    """How far the recorded library products lie from the table of their kind of card, by rows of x."""
    there = run.card("NVIDIA H200")
    assert there.products is not None
    wrong: list[tuple[int, float]] = []
    for profile in [results.load(RESULTS / "h200-profile.json"), *(profile for _, profile in recorded()[0])]:
        for row in profile.rows:
            for step in steps(row):
                if step.time_us and is_library_product(step, row):
                    (shape,) = shapes(step, profile.workload)
                    wrong.append((shape[0], abs(np.log(step.time_us / there.products.estimate(*shape).us))))
    cells = []
    for low, high in RANGES:
        found = [error for m, error in wrong if low <= m <= high]
        cells.append(f"{np.median(found):.3f} / {np.quantile(found, 0.8):.3f}")
    return [str(len(wrong)), *cells]


def text(found: dict[str, list[list[str]]], calls: list[dict[str, object]]) -> str:
    """The whole page."""
    judged = [each for each in calls if each["backend"] in MLP_BACKENDS and int(str(each["tokens"])) >= LEAST_TOKENS]
    wrong = [float(str(each["predicted_us"])) / float(str(each["kernel_us"])) - 1 for each in judged]
    inside = sum(bool(each["inside"]) for each in judged)
    rows = [
        [
            str(each["result"]).replace("h200-choose-", "").replace(".json", ""),
            str(each["backend"]),
            f"{float(str(each['kernel_us'])):.1f}",
            f"{float(str(each['predicted_us'])):.1f}",
            f"{float(str(each['low_us'])):.1f}–{float(str(each['high_us'])):.1f}",
            f"{error:+.1%}",
            "yes" if each["inside"] else "no",
        ]
        for each, error in zip(judged, wrong, strict=True)
    ]

    def table(lines: list[list[str]], heads: list[str], left: int) -> str:
        return tabulated(lines, heads, [index >= left for index in range(len(heads))], github=True)

    tables = results_line()
    return (
        "\n\n".join(
            [
                "# How wrong predictions are",
                f"Made by `python bench/predict.py`. Measured products: {tables}. M is the rows of x. Errors are "
                "median / 90th percentile of |predicted / measured - 1| unless said.",
                "## Products whose n and k are left out",
                table(found["held out"], ["card", "sizes", *HEADS], 2),
                f"## The whole rule and its 80% interval: {HELD_OUT} pairs of n, k ≥ {SMALLEST} left out",
                table(found["covered"], ["card", "products", "error", "inside the interval"], 1),
                "## Without a table: products scaled from card to card, 50th / 80th percentile of |log error|",
                table(found["scaled"], ["from", "to", *HEADS], 2),
                "## The tutorial's MLP on an A100-SXM4-80GB, µs",
                "Published figures against predictions from the rows that were recorded on an H200 "
                "(`bench/results/h200-profile.json`).",
                table(found["article"], ["backend", "kernel", "published", "predicted", "error"], 2),
                "All calls, predicted:",
                table(found["reference"], REFERENCE_HEADS, 1),
                f"## Whole MLPs on an H200, from {LEAST_TOKENS} tokens",
                "Recorded calls (`kernel_us`), predicted from the table of their card without their own times. "
                "Elementwise kernels take the share of the datasheet that those of the other MLP reach.",
                f"Within 10%: {sum(abs(each) <= 0.1 for each in wrong)} of {len(wrong)}; largest error "
                f"{max(map(abs, wrong)):.1%}; inside the interval {inside} of {len(wrong)}, {inside / len(wrong):.0%}.",
                table(rows, ["result", "backend", "measured", "predicted", "80% interval", "error", "inside"], 2),
                "## Library products on an H200 against the table, 50th / 80th percentile of |log(time / table)|",
                table(found["machine"], ["products", *HEADS], 0),
                "An H100 has not been recorded by this project yet.",
            ]
        )
        + "\n"
    )


def results_line() -> str:
    """The package whose tables were used."""
    from importlib.metadata import version

    return f"{sources.PACKAGE} {version(sources.PACKAGE)}"


def main() -> None:
    """Print the page and keep it with its figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="DIR", help="where predict.md and predict.json go")
    out = parser.parse_args().out
    tables = {card: table for card in KNOWN_CARDS if (table := sources.installed(card)) is not None}
    if not tables:
        raise SystemExit("predict.py needs measured products: pip install 'mlpfusion[tables]'")
    calls = mlps(*recorded())
    found = {
        "held out": [line for card, table in tables.items() for line in held_out(card, table)],
        "covered": [covered(card, table) for card, table in tables.items()],
        "scaled": [scaled_from(a, b) for a in tables.values() for b in tables.values() if a is not b],
        "article": article(),
        "reference": reference(),
        "machine": [machine()],
    }
    page = text(found, calls)
    files.write_whole("page", out / "predict.md", page.encode())
    kept = {"schema": 1, "kind": "prediction errors", "tables": results_line(), **found, "calls": calls}
    files.write_whole("figures", out / "predict.json", (json.dumps(kept, indent=1, ensure_ascii=False) + "\n").encode())
    print(page)


if __name__ == "__main__":
    main()
