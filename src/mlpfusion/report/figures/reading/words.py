"""The words of captions and labels: what was measured, where, with what; and how one shape is told from another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from mlpfusion.report.figures.drawing.names import shown
from mlpfusion.report.grid import middle_out
from mlpfusion.storage import inputs
from mlpfusion.storage.letters import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mlpfusion.records.clocks import Clock
    from mlpfusion.report.figures.shape import Shape
    from mlpfusion.spec import MLPSpec

CLOCKS: Final = {
    "event_us": "device events around a plain call",
    "graph_us": "replay of a CUDA graph",
    "wall_us": "host time of a call, synchronised",
    "kernel_us": "kernel time in the trace",
}
_MOST: Final = 60  # letters of a name in a caption
_NOTE: Final = 200  # letters of a note
_FILES: Final = 4  # that a caption names


def mlp(spec: MLPSpec) -> str:
    """An MLP by its figures."""
    bias = ", bias" if spec.bias else ""
    return f"{spec.hidden_size}×{spec.intermediate_size} {spec.activation} {spec.dtype}{bias}"


def labels(shapes: Sequence[Shape], width: int, *, tokens: bool = True) -> tuple[str, ...]:
    """What tells each shape from the others, nothing where there is one: its MLP, mode, `tokens`, card, file."""
    parts: list[list[str]] = [
        [shown(shape.model, width) if shape.model else mlp(shape.workload.spec) for shape in shapes],
        [shape.workload.mode for shape in shapes],
        [f"{shape.workload.tokens} tok" if tokens else "" for shape in shapes],
        [shown(shape.device.name, width) for shape in shapes],
    ]
    if len({shape.workload.spec for shape in shapes}) > len(set(parts[0])):  # one name for two MLPs
        parts[0] = [mlp(shape.workload.spec) for shape in shapes]
    told = [part for part in parts if len(set(part)) > 1]
    found = [" ".join(each) for each in zip(*told, strict=True)] if told else [""] * len(shapes)
    if len(set(found)) < len(shapes):
        found = [
            " ".join([*([text] if text else []), shown(name, width)])
            for text, name in zip(found, _files(shapes), strict=True)
        ]
    return tuple(
        f"{text} ({found[:at].count(text) + 1})" if text in found[:at] else text for at, text in enumerate(found)
    )


def _files(shapes: Sequence[Shape]) -> list[str]:
    """The file of each shape: its name alone where that tells them apart."""
    names = [Path(shape.path).name for shape in shapes]
    paths = [shape.path for shape in shapes]
    return names if len(set(names)) == len(set(paths)) else paths


def measured(shapes: Sequence[Shape], clocks: Sequence[Clock] = ()) -> str:
    """The second half of a caption: what was measured where, with what, how often by these clocks, from which files."""
    return " ".join(
        f"{sentence}."
        for sentence in (_workload(shapes), _machine(shapes), _rounds(clocks), f"Source: {sources(shapes)}")
        if sentence
    )


def sources(shapes: Sequence[Shape]) -> str:
    """The names of the files, a few of them."""
    names = list(dict.fromkeys("stdin" if inputs.is_stdin(shape.path) else Path(shape.path).name for shape in shapes))
    more = [f"and {len(names) - _FILES} more"] if len(names) > _FILES else []
    return ", ".join([*(caption_name(name) for name in names[:_FILES]), *more])


def caption_name(text: str) -> str:
    """A name of a file as captions have it: on one line, its middle gone where it is long."""
    return printable(middle_out(text, _MOST))


def note(text: str) -> str:
    """A line on what a figure leaves out: kernels' names in it may be long."""
    return printable(middle_out(text, _NOTE))


def listed(values: Iterable[object], most: int = 6) -> str:
    """Values one after the other, each once; more than a few are counted."""
    found = list(dict.fromkeys(str(value) for value in values))
    return (
        ", ".join(found) if len(found) <= most else f"{', '.join(found[: most - 1])} and {len(found) - most + 1} more"
    )


def _workload(shapes: Sequence[Shape]) -> str:
    models = listed(
        f"{caption_name(shape.model)} ({mlp(shape.workload.spec)})" if shape.model else mlp(shape.workload.spec)
        for shape in shapes
    )
    tokens = listed(sorted({shape.workload.tokens for shape in shapes}), 16)
    modes = listed(shape.workload.mode for shape in shapes)
    return f"{models}; {tokens} tokens; {modes}"


def _machine(shapes: Sequence[Shape]) -> str:
    cards = listed(caption_name(shape.device.name) for shape in shapes)
    versions = listed(
        ", ".join(
            f"{name} {caption_name(version)}"
            for name, version in (
                ("torch", shape.environment.torch),
                ("triton", shape.environment.triton),
                ("driver", shape.environment.driver),
            )
            if version
        )
        for shape in shapes
        if shape.environment is not None
    )
    dates = sorted({caption_name(shape.created)[:10] for shape in shapes if shape.created})
    when = "" if not dates else dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return "; ".join(part for part in (cards, versions, when) if part)


def _rounds(clocks: Sequence[Clock]) -> str:
    """How often it was measured: rounds and processes, and the state of the last-level cache."""
    if not clocks:
        return ""
    samples = [clock.n for clock in clocks]
    count = f"{min(samples)}" if min(samples) == max(samples) else f"{min(samples)} to {max(samples)}"
    processes = [_processes(clock) for clock in clocks]
    if not all(processes):
        return f"{count} rounds; L2 {listed(clock.l2 for clock in clocks)}"
    most = max(processes)
    return f"{count} rounds in {most} process{'es' if most > 1 else ''}; L2 {listed(clock.l2 for clock in clocks)}"


def _processes(clock: Clock) -> int:
    return sum(1 for rounds in clock.rounds if any(time is not None for time in rounds))


def lacking(shapes: Sequence[Shape]) -> str:
    """What the files have instead: how a refusal ends."""
    if not shapes:
        return "the files hold no measured rows"
    rows = [
        f"{row.backend} {row.status}{' (emulated)' if row.emulated else ''}" for shape in shapes for row in shape.rows
    ]
    return f"{sources(shapes)} has " + (caption_name(listed(rows, 4)) or "no rows")
