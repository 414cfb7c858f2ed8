"""Lists the figures by name, with what each needs and which options it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from mlpfusion.errors import UsageError
from mlpfusion.report.figures import accuracy, bytes, compare, flow, lanes, ratios, roofline, tokens, winners
from mlpfusion.report.figures.figure import Options
from mlpfusion.spec import one_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mlpfusion.report.figures.figure import Figure
    from mlpfusion.storage.gathered import Gathered


class Kind(NamedTuple):
    """One kind of figure: what makes it, what it shows, and the options that it takes besides the width."""

    make: Callable[[Sequence[Gathered], Options], Figure]
    shows: str
    takes: tuple[str, ...] = ()


FIGURES: Final = {
    "ratios": Kind(ratios.make, "the speedup over a baseline with its interval", ("clock", "baseline")),
    "tokens": Kind(tokens.make, "time or TFLOP/s over the number of tokens", ("clock", "value")),
    "roofline": Kind(roofline.make, "every launch under the card's ceilings"),
    "bytes": Kind(bytes.make, "the device memory traffic: minimum, derived, measured"),
    "lanes": Kind(lanes.make, "one call: host by cause, device by role, on one axis"),
    "flow": Kind(flow.make, "the values that go through device memory"),
    "winners": Kind(winners.make, "the fastest backend by tokens and model", ("clock",)),
    "accuracy": Kind(accuracy.make, "the error over eager's, with the limit"),
    "compare": Kind(compare.make, "what changed between two results"),
}
NAMES: Final = tuple(FIGURES)


def make(name: str, files: Sequence[Gathered], options: Options | None = None) -> Figure:
    """The figure of this name from these files.

    Raises:
        UsageError: there is no such figure, it does not take an option that is not at its default, or the files lack
            what it needs.
    """
    kind = FIGURES[one_of("figure", name, NAMES)]
    chosen = options or Options()
    plain = Options()
    for field in Options._fields[1:]:
        if field not in kind.takes and getattr(chosen, field) != getattr(plain, field):
            valid = ", ".join(f"--{each}" for each in (*kind.takes, "width"))
            raise UsageError(f"figure {name!r} takes no --{field}; valid for it: {valid}")
    return kind.make(files, chosen)
