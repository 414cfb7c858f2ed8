"""The pass that Inductor runs over each graph before autograd, subgraphs first."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace as changed
from torch._inductor.custom_graph_pass import CustomGraphPass

from mlpfusion.device import describe
from mlpfusion.errors import UsageError, first_line
from mlpfusion.inductor.ledger import LEDGER, Entry, module_of
from mlpfusion.inductor.match import cones
from mlpfusion.inductor.operands import operands
from mlpfusion.inductor.prove import prove
from mlpfusion.inductor.refuse import foreign, refusal
from mlpfusion.inductor.replace import decided, fits, replace
from mlpfusion.spec import MLPSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.fx import Graph

    from mlpfusion.backend import OnTensors
    from mlpfusion.inductor.match import Cone
    from mlpfusion.inductor.operands import Operands
    from mlpfusion.inductor.prove import Proved
    from mlpfusion.inductor.settings import Settings

# Whatever graph asks: what a cone computes does not depend on whose it is.
_PROVED: Final[dict[str, Proved | str]] = {}


class Pass(CustomGraphPass):
    """Runs the passes that were set before it, then puts operators in place; without settings it does nothing more."""

    def __init__(self, settings: Settings | None, before: tuple[Callable[[Graph], None], ...] = ()) -> None:
        self.settings = settings
        self.before = before

    def uuid(self) -> Any:
        """A digest of all that decides what a graph becomes, and those of the passes before it; None if one has none.

        The operators carry it too: torch 2.11 does not ask for it.
        """
        others = [each.uuid() if isinstance(each, CustomGraphPass) else None for each in self.before]
        if None in others:
            return None
        return ("mlpfusion.inductor", self.settings.digest() if self.settings else "", *others)

    def __call__(self, graph: Graph) -> None:
        """Replace in `graph` what is proved; the report has the rest."""
        for each in self.before:
            each(graph)
        if self.settings is None:
            return
        started, number = time.perf_counter(), LEDGER.graph()
        here = _Graph(graph, number, foreign(graph), self.settings.digest())
        entries = [_treated(cone, here, self.settings) for cone in cones(graph)]
        LEDGER.add(entries, (time.perf_counter() - started) * 1e3)

    def __deepcopy__(self, memo: Any) -> Pass:
        return self  # configurations are copied with all that is in them


class _Graph(NamedTuple):
    """A graph that is passed: its number, what it is that no cone of it may be replaced in, and the digest for it."""

    graph: Graph
    number: int
    foreign: str | None
    digest: str


def _treated(cone: Cone, here: _Graph, settings: Settings) -> Entry:
    """What becomes of one cone."""
    entry = Entry(graph=here.number, module=module_of(cone.down), node=cone.down.name, outcome="near miss")
    try:
        found = here.foreign or _judged(cone)
    except Exception as error:  # a graph that nobody thought of must not end the compilation; nothing is changed yet
        found = f"it could not be judged: {type(error).__name__}: {first_line(error)}"
    if isinstance(found, str):
        return changed(entry, reason=found)
    known, proved, spec = found
    training = bool(cone.down.meta["example_value"].requires_grad)
    tokens = known.tokens if isinstance(known.tokens, int) else str(known.tokens)
    entry = changed(
        entry,
        outcome="kept",
        tokens=tokens,
        activation=spec.activation,
        hidden_size=spec.hidden_size,
        intermediate_size=spec.intermediate_size,
        dtype=spec.dtype,
        bias=spec.bias,
        training=training,
    )
    reason = _unfit(known, spec, settings)
    if reason is not None:
        return changed(entry, reason=reason)
    rules = decided(settings.rules(training), known.tokens)
    if not rules:
        said = (
            settings.kept(training, known.tokens) if isinstance(known.tokens, int) else "no number of tokens is for it"
        )
        return changed(entry, reason=said)
    replace(here.graph, cone, known, proved, rules=rules, digest=here.digest)
    return changed(entry, outcome="placed", backends=tuple(dict.fromkeys(rule.backend for rule in rules)))


def _judged(cone: Cone) -> tuple[Operands, Proved, MLPSpec] | str:
    """What a cone is, or why it is no gated MLP that may be replaced."""
    reason = refusal(cone)
    if reason is not None:
        return reason
    known = operands(cone)
    if isinstance(known, str):
        return known
    proved = prove(cone, known, _PROVED) if cone.inner else "nothing lies between its products"
    if isinstance(proved, str):
        return proved
    reason = fits(cone)
    if reason is not None:
        return reason
    try:
        spec = MLPSpec(
            hidden_size=known.hidden_size,
            intermediate_size=known.intermediate_size,
            activation=proved.activation,
            dtype=str(known.dtype).removeprefix("torch."),  # type: ignore[arg-type]  # refused if it is none
            bias=known.down_bias is not None or known.biases[0] is not None,
        )
    except UsageError as error:
        return first_line(error)
    return known, proved, spec


def _unfit(known: Operands, spec: MLPSpec, settings: Settings) -> str | None:
    """Why the backends do not take this gated MLP, or None."""
    from mlpfusion_kernels import Weights

    reason = settings.unsupported(spec, describe(known.device))
    if reason is not None:
        return f"{settings.backend}: {reason}"
    gate, up = (each.meta["example_value"] for each in (known.weights * 2)[:2])
    if known.packed:
        gate, up = gate[: known.intermediate_size], gate[known.intermediate_size :]
    weights = Weights(gate, up, known.down_weight.meta["example_value"])
    for made in settings.placed():
        on: OnTensors = made.on_tensors
        reason = on.unreadable(weights, addresses=False)
        if reason is not None:
            return f"{made.name}: {reason}"
    return None
