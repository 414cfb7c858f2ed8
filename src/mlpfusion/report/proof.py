"""Renders a proof as text, Markdown, CSV or JSON: verdict, errors by part, time with the MLPs' share, kernels."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mlpfusion import units
from mlpfusion.report import speedup
from mlpfusion.report.grid import FORMATS, Grid, csv_text, shorten, tabulated, titled
from mlpfusion.spec import one_of
from mlpfusion.storage.letters import escaped, markdown, printable
from mlpfusion.units import ABSENT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlpfusion.records.clocks import Clock
    from mlpfusion.records.profile import Accuracy
    from mlpfusion.records.proof import Deviation, How, Proof, Speed

_SHOWN: Final = 4  # parts that the verdict names
# What the model is called without the backend and with it.
_WORDS: Final[dict[How, tuple[str, str]]] = {"swap": ("unswapped", "swapped"), "inductor": ("without", "with the pass")}

# What a row of the CSV may say beside whose it is: `value` with the backend, `value_without` as the model was.
_FIGURES: Final = (
    "elements", "max_error", "max_error_without", "rms_error", "rms_error_without", "ratio", "limit", "value",
    "value_without", "value_fp64", "clock", "us", "us_p20", "us_p80", "n", "speedup_vs_without",
    "speedup_vs_without_low", "speedup_vs_without_high",
)  # fmt: skip


def render(proof: Proof, fmt: str = "text") -> str:
    """A proof in one of `grid.FORMATS`; ends with a newline.

    Raises:
        UsageError: no such format.
    """
    one_of("format", fmt, FORMATS)
    if fmt == "json":
        return escaped(json.dumps(msgspec.to_builtins(proof), indent=1, ensure_ascii=False, allow_nan=False)) + "\n"
    if fmt == "csv":
        return csv_text(_rows(proof))
    github = fmt == "github"
    blocks = [_pairs(_header(proof), github), _verdict(proof, github)]
    found = errors(proof)
    if found.cells:
        blocks.append(titled(found.title, found.text(github=github), github=github))
    without, changed = _WORDS[proof.how]
    blocks.append(titled(f"{changed.capitalize()} against {without}", _pairs(_apart(proof), github), github=github))
    if proof.speed is not None:
        timed = times(proof.speed, proof.how)
        said = f"{timed.text(github=github)}\n\n{_share(proof.speed)}"
        blocks.append(titled(timed.title, said, github=github))
    if proof.kernels:
        blocks.append(titled("Kernels of one call whose number changed", _kernels(proof, github), github=github))
    notes = [f"{each.name} ({each.kind}) was left as it was: {each.reason}" for each in proof.refused]
    notes += [f"no {part}: {reason}" for part, reason in proof.reasons.items()]
    if notes:
        blocks.append("\n".join(f"- {markdown(note)}" if github else note for note in notes))
    return printable("\n\n".join(blocks) + "\n")


def errors(proof: Proof) -> Grid:
    """The errors of each part that was compared with fp64; no cells if none was."""
    without, _ = _WORDS[proof.how]
    heads = ["part", "elements", "max error", without, "rms error", without, "ratio", "limit"]
    rows = [_error(name, accuracy) for name, accuracy in _judged(proof)]
    return Grid("Errors against fp64", heads, rows, [False] + [True] * 7)


def _header(proof: Proof) -> list[tuple[str, str]]:
    where = proof.environment
    specs = {
        (one.spec.hidden_size, one.spec.intermediate_size, one.spec.activation, one.spec.dtype): one
        for one in proof.swapped
    }
    shapes = "; ".join(f"{d} x {h}, {act}, {dtype}" for d, h, act, dtype in specs)
    inputs = ", ".join(f"{name} {text}".strip() for name, text in proof.inputs.items())
    versions = f"mlpfusion {proof.mlpfusion}, torch {where.torch}, triton {where.triton}"
    if proof.transformers is not None:
        versions += f", transformers {proof.transformers}"
    return [
        ("model", f"{proof.model}, {proof.parameters:,} parameters"),
        _placed(proof, shapes),
        ("inputs", f"{inputs}; {proof.mode}"),
        ("device", proof.device.name),
        ("versions", f"{versions}, driver {where.driver or 'unknown'}"),
        ("measured", proof.created),
        ("policy", proof.policy),
    ]


def _placed(proof: Proof, shapes: str) -> tuple[str, str]:
    number = f"{len(proof.swapped)} gated MLP{'' if len(proof.swapped) == 1 else 's'}"
    if proof.how == "inductor":
        return "placed", f"{number} by {proof.backend}, the model compiled with the pass and without: {shapes}"
    return "swapped", f"{number} to {proof.backend}: {shapes}"


def _verdict(proof: Proof, github: bool) -> str:
    if proof.holds:
        judged = len(_judged(proof))
        return f"holds: {judged} part{'' if judged == 1 else 's'} judged, none beyond its limit{_not_judged(proof)}"
    lines = [f"fails: {failure}" for failure in proof.failures]
    return "\n".join(f"- {markdown(line)}" if github else line for line in lines)


def _not_judged(proof: Proof) -> str:
    """Which parts there was nothing to hold against; why is in the notes."""
    found = ["logits"] if proof.logits.accuracy is None else []
    found += ["gradients"] if proof.gradients is None or proof.gradients.accuracy is None else []
    judged = {each.name for each in proof.layers}
    found += [each.name or "the model itself" for each in proof.swapped if each.name not in judged]
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"; not judged: {', '.join(found[:_SHOWN])}{more}" if found else ""


def _judged(proof: Proof) -> list[tuple[str, Accuracy]]:
    """Every part that was compared with fp64, the layer with the largest share of its limit marked."""
    found = [("logits", proof.logits.accuracy)]
    found.append(("gradients", None if proof.gradients is None else proof.gradients.accuracy))
    if proof.layers:
        worst = max(proof.layers, key=lambda each: each.accuracy.ratio / each.accuracy.limit)
        found += [(f"{each.name}{' (worst)' if each is worst else ''}", each.accuracy) for each in proof.layers]
    return [(name, accuracy) for name, accuracy in found if accuracy is not None]


def _error(name: str, accuracy: Accuracy) -> list[str]:
    return [
        name,
        str(accuracy.elements),
        _small(accuracy.max_error),
        _small(accuracy.eager_max_error),
        _small(accuracy.rms_error),
        _small(accuracy.eager_rms_error),
        _worst_ratio(accuracy),
        f"{accuracy.limit:g}x",
    ]


def _worst_ratio(accuracy: Accuracy) -> str:
    """`1.02x`, or in words where there is none."""
    if math.isfinite(accuracy.ratio):
        return units.times(accuracy.ratio)
    return "nan or inf" if accuracy.is_broken else "no error before"


def _apart(proof: Proof) -> list[tuple[str, str]]:
    logits, loss, gradients = proof.logits, proof.loss, proof.gradients
    without, _ = _WORDS[proof.how]
    lines = [
        ("logits", f"{_deviation(logits.difference)}, {logits.positions} positions of {logits.vocabulary}"),
        ("top-1", f"{logits.top1:.2%} of positions agree{_against_fp64(proof)}"),
        ("KL", f"mean {_small(logits.kl_mean)}, max {_small(logits.kl_max)} nats"),
    ]
    if loss is not None:
        wide = "" if loss.fp64 is None else f", {loss.fp64:.7g} in fp64"
        lines.append(("loss", f"{loss.swapped:.7g}, {without} {loss.original:.7g}{wide}"))
    if gradients is not None:
        lines.append(("gradients", f"{_deviation(gradients.difference)}, {gradients.tensors} tensors"))
        lines.append(("most apart", f"{gradients.worst}: {_deviation(gradients.worst_difference)}"))
    if proof.memory is not None:
        peaks = proof.memory
        lines.append(("peak memory", f"{units.megabytes(peaks.swapped)}, {without} {units.megabytes(peaks.original)}"))
    return lines


def _against_fp64(proof: Proof) -> str:
    mine, theirs = proof.logits.top1_fp64, proof.logits.top1_fp64_original
    return "" if mine is None or theirs is None else f"; with fp64 {mine:.2%}, {_WORDS[proof.how][0]} {theirs:.2%}"


def times(speed: Speed, how: How = "swap") -> Grid:
    """The time of the whole model with the backend, without, and with MLPs that do nothing."""
    without, changed = _WORDS[how]
    heads = ["model", f"{speed.clock.removesuffix('_us')} µs [p20–p80]", f"speedup vs {without}"]
    rows = [
        [without, _time(speed.original), "baseline"],
        [changed, _time(speed.swapped), speedup.cell(speed.swapped.ratio_to_eager)],
        ["MLPs that do nothing", _time(speed.without), speedup.cell(speed.without.ratio_to_eager)],
    ]
    return Grid("Time of the whole model", heads, rows, [False, True, True])


def _share(speed: Speed) -> str:
    """What the best possible MLP would give, by Amdahl: one that takes no time at all."""
    share, rounds = speed.share, speed.original.n
    if share is None:
        return f"n = {rounds}: too few rounds for an interval, so no share of the MLPs is given"
    part = f"{100 * share.median:.1f}% [{100 * share.low:.1f}–{100 * share.high:.1f}]"
    if share.low <= 0:
        return f"the MLPs' share of the time, {part}, is within the noise of {rounds} rounds"
    best = units.ratio(1 / (1 - share.median), 1 / (1 - share.low), 1 / (1 - share.high))
    return (
        f"the MLPs take {part} of the time, so that the best possible MLP would make the model {best} as fast; "
        f"{rounds} interleaved rounds, {share.confidence:.0%} intervals"
    )


def _kernels(proof: Proof, github: bool) -> str:
    changed = [each for each in proof.kernels if each.original != each.swapped]
    same = [each for each in proof.kernels if each.original == each.swapped]
    rows = [[shorten(each.name), str(each.original), str(each.swapped)] for each in changed]
    table = tabulated(rows, ["kernel", *_WORDS[proof.how]], [False, True, True], github=github)
    return f"{table}\n\n{sum(each.swapped for each in same)} more, of {len(same)} names, are the same in both"


def _pairs(lines: list[tuple[str, str]], github: bool) -> str:
    if github:
        return "\n".join(f"- **{markdown(name)}**: {markdown(text)}" for name, text in lines)
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in lines)


def _deviation(deviation: Deviation) -> str:
    return f"max {_small(deviation.max_error)}, rms {_small(deviation.rms_error)} of the values' own rms"


def _small(value: float | None) -> str:
    """A relative error: three digits with an exponent."""
    return "nan or inf" if value is None else units.small(value)


def _time(clock: Clock) -> str:
    if clock.p20 is None or clock.p80 is None:
        return ABSENT
    return units.with_spread(clock.median, clock.p20, clock.p80)


# ---- CSV -------------------------------------------------------------------------------------------------------------


def _rows(proof: Proof) -> list[dict[str, object]]:
    """All rows with the same keys, None where a row has no such figure.

    `what` is error (against fp64), difference (to the model as it was), value, time (µs), or kernel (how often it ran).
    """
    shared = {
        "model": proof.model,
        "device": proof.device.name,
        "torch": proof.environment.torch,
        "triton": proof.environment.triton,
        "created": proof.created,
        "backend": proof.backend,
        "how": proof.how,
        "mode": proof.mode,
        "holds": proof.holds,
    }
    kinds = (_csv_errors, _csv_differences, _csv_values, _csv_times, _csv_kernels)
    empty = dict.fromkeys(("what", "part", *_FIGURES))
    return [{**shared, **empty, **part} for kind in kinds for part in kind(proof)]


def _csv_errors(proof: Proof) -> Iterator[dict[str, Any]]:
    judged = [("logits", proof.logits.accuracy)]
    judged += [("gradients", proof.gradients.accuracy)] if proof.gradients is not None else []
    judged += [(each.name, each.accuracy) for each in proof.layers]
    for name, accuracy in judged:
        if accuracy is not None:
            yield {"what": "error", "part": name, **_csv_accuracy(accuracy)}


def _csv_accuracy(accuracy: Accuracy) -> dict[str, object]:
    return {
        "elements": accuracy.elements,
        "max_error": accuracy.max_error,
        "max_error_without": accuracy.eager_max_error,
        "rms_error": accuracy.rms_error,
        "rms_error_without": accuracy.eager_rms_error,
        "ratio": accuracy.ratio,
        "limit": accuracy.limit,
    }


def _csv_differences(proof: Proof) -> Iterator[dict[str, Any]]:
    logits, gradients = proof.logits, proof.gradients
    yield {"what": "difference", "part": "logits", **_csv_deviation(logits.difference)}
    if gradients is not None:
        yield {"what": "difference", "part": "gradients", **_csv_deviation(gradients.difference)}
        yield {"what": "difference", "part": gradients.worst, **_csv_deviation(gradients.worst_difference)}


def _csv_deviation(found: Deviation) -> dict[str, object]:
    return {"max_error": found.max_error, "rms_error": found.rms_error}


def _csv_values(proof: Proof) -> Iterator[dict[str, Any]]:
    logits, loss, memory = proof.logits, proof.loss, proof.memory
    yield {"what": "value", "part": "top1", "value": logits.top1}
    if logits.top1_fp64 is not None:
        fp64 = {"value": logits.top1_fp64, "value_without": logits.top1_fp64_original}
        yield {"what": "value", "part": "top1_fp64", **fp64}
    yield {"what": "value", "part": "kl_mean", "value": logits.kl_mean}
    yield {"what": "value", "part": "kl_max", "value": logits.kl_max}
    if loss is not None:
        both = {"value": loss.swapped, "value_without": loss.original}
        yield {"what": "value", "part": "loss", **both, "value_fp64": loss.fp64}
    if memory is not None:
        yield {
            "what": "value",
            "part": "peak_bytes",
            "value": memory.swapped,
            "value_without": memory.original,
        }


def _csv_times(proof: Proof) -> Iterator[dict[str, Any]]:
    speed = proof.speed
    if speed is None:
        return
    clocks = {"original": speed.original, "swapped": speed.swapped, "MLPs that do nothing": speed.without}
    for name, clock in clocks.items():
        yield {"what": "time", "part": name, "clock": speed.clock, **_csv_clock(clock)}


def _csv_clock(clock: Clock) -> dict[str, object]:
    return {
        "us": clock.median,
        "us_p20": clock.p20,
        "us_p80": clock.p80,
        "n": clock.n,
        **speedup.fields("speedup_vs_without", clock.ratio_to_eager),
    }


def _csv_kernels(proof: Proof) -> Iterator[dict[str, Any]]:
    for each in proof.kernels:
        if each.original != each.swapped:
            yield {"what": "kernel", "part": each.name, "value": each.swapped, "value_without": each.original}
