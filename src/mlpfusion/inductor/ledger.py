"""Keeps what the pass met in each graph, for `report()` and the log of torch.compile."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any, Final, Literal

from mlpfusion.inductor.operator import LOG
from mlpfusion.records.base import Record

if TYPE_CHECKING:
    from torch.fx import Node

Outcome = Literal["placed", "kept", "near miss"]
_NONE: Final = (
    "no graph seen: only Inductor runs the pass (not the backends eager and aot_eager, not torch.export), and only for "
    "what is compiled after enable(); torch._dynamo.reset() forgets what was compiled before"
)


class Entry(Record, frozen=True, kw_only=True):
    """One gated MLP of a graph, or what is like one: what became of it and why.

    `placed`: our operator runs it, by `backends`, for their numbers of `tokens`. `kept`: it is a gated MLP, and stays
    as Inductor compiles it. `near miss`: it is not known to be one.
    """

    graph: int
    module: str
    node: str
    outcome: Outcome
    backends: tuple[str, ...] = ()
    tokens: int | str | None = None
    activation: str | None = None
    hidden_size: int | None = None
    intermediate_size: int | None = None
    dtype: str | None = None
    bias: bool | None = None
    training: bool | None = None
    reason: str | None = None

    def __str__(self) -> str:
        where = f"graph {self.graph}, {self.module or 'the function itself'} ({self.node})"
        if self.activation is None:
            return f"{self.outcome}: {where}: {self.reason}"
        shape = f"{self.activation} {self.hidden_size} x {self.intermediate_size} {self.dtype}, {self.tokens} tokens"
        by = f" by {', '.join(self.backends)}" if self.backends else ""
        return f"{self.outcome}{by}: {where}: {shape}{f': {self.reason}' if self.reason else ''}"


class Report(Record, frozen=True, kw_only=True):
    """What the pass met since it was enabled: the number of graphs, an entry for each MLP, and its own time."""

    graphs: int
    entries: tuple[Entry, ...]
    pass_ms: float

    @property
    def placed(self) -> tuple[Entry, ...]:
        """The gated MLPs that our operator runs."""
        return tuple(each for each in self.entries if each.outcome == "placed")

    @property
    def kept(self) -> tuple[Entry, ...]:
        """The gated MLPs that stay as Inductor compiles them."""
        return tuple(each for each in self.entries if each.outcome == "kept")

    @property
    def near_misses(self) -> tuple[Entry, ...]:
        """What is like a gated MLP, with the reason why it is not replaced."""
        return tuple(each for each in self.entries if each.outcome == "near miss")

    def __str__(self) -> str:
        if not self.graphs:
            return _NONE
        counted = f"{len(self.placed)} placed, {len(self.kept)} kept, {len(self.near_misses)} near misses"
        head = f"{self.graphs} graphs in {self.pass_ms:.0f} ms: {counted}"
        return "\n".join((head, *map(str, self.entries)))


class Ledger:
    """Where passes of all threads write down what they met."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._graphs, self._entries, self._ms = 0, list[Entry](), 0.0

    def graph(self) -> int:
        """The number of a graph that is met now, from 0."""
        with self._lock:
            self._graphs += 1
            return self._graphs - 1

    def add(self, entries: list[Entry], ms: float) -> None:
        """Write down what one graph had, and how long the pass took for it."""
        with self._lock:
            self._entries += entries
            self._ms += ms
        for each in entries:
            LOG.info("%s", each)

    def report(self) -> Report:
        """All of it until now."""
        with self._lock:
            return Report(graphs=self._graphs, entries=tuple(self._entries), pass_ms=self._ms)


LEDGER: Final = Ledger()


def module_of(node: Node) -> str:
    """The module whose layer a node is, as Python would write it below the compiled one; "" if it is in none."""
    stack: Any = node.meta.get("nn_module_stack") or {}
    if not stack:
        return ""
    path, kind = list(stack.values())[-1]
    if getattr(kind, "__name__", str(kind)).rpartition(".")[2] == "Linear":
        path = path.rpartition(".")[0]  # of the module that has the layer
    path = re.sub(r"_fsdp_wrapped_module\.|_checkpoint_wrapped_module\.|_orig_mod\.", "", path)
    path = re.sub(r"L\['args'\]\[0\]\.?|L\['\w+'\]\.?", "", path)  # a decorated forward has its module in `args`
    return path.removeprefix("self.")
