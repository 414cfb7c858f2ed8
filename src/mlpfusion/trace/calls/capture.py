"""Finds the launches that a stream captured into a graph, which ran nothing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mlpfusion.trace.calls.call import Rows
    from mlpfusion.trace.read.kineto import Trace

_BEGIN: Final = re.compile(r"(cuda|cu|hip)StreamBeginCapture\w*$")
_END: Final = re.compile(r"(cuda|cu|hip)StreamEndCapture\w*$")


def captured(trace: Trace, launches: Rows) -> NDArray[np.bool_]:
    """Which of the launches lie between the begin and the end of a capture on their thread."""
    import numpy as np

    begins, ends = _rows(trace, _BEGIN), _rows(trace, _END)
    found = np.zeros(len(launches), dtype=np.bool_)
    for place in np.unique(trace.place[begins]).tolist():
        here = trace.place[launches] == place
        at = trace.start[launches[here]]
        begun = np.searchsorted(trace.start[begins[trace.place[begins] == place]], at, side="right")
        ended = np.searchsorted(trace.start[ends[trace.place[ends] == place]], at, side="right")
        found[here] = begun > ended
    return found


def _rows(trace: Trace, name: re.Pattern[str]) -> Rows:
    import numpy as np

    kinds = [kind.category == "api" and name.match(kind.name) is not None for kind in trace.kinds]
    return np.flatnonzero(np.array(kinds, dtype=np.bool_)[trace.kind])
