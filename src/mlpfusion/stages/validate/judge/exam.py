"""The examination of one target: makes inputs, requests results, and records findings."""

from __future__ import annotations

import shlex
import time
import zlib
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import torch
from torch import Tensor

from mlpfusion.errors import MlpfusionError
from mlpfusion.reference import activate
from mlpfusion.stages.validate.channel import BASELINES, Raised
from mlpfusion.stages.validate.judge import bounds
from mlpfusion.stages.validate.judge.sweeps import Sweeps, rows_of
from mlpfusion.stages.validate.judge.worker_handle import RaisedError, UndecidableError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from mlpfusion.device import DeviceKind
    from mlpfusion.records.validation import Kind, Status
    from mlpfusion.spec import Activation, Dtype
    from mlpfusion.stages.validate.channel import Facts, Loaded, Tensors
    from mlpfusion.stages.validate.judge.excuses import Excuse
    from mlpfusion.stages.validate.judge.worker_handle import Hired

# Shapes of gate, or rows of x, of which one at least must be differentiable in a target that is: none is special.
TRAINED: Final[dict[Kind, tuple[tuple[int, ...], ...]]] = {"act_mul": ((16, 256), (7, 127)), "mlp": ((16,), (3, 67))}
MANY: Final = 2**16  # elements from which on a shape is there for its many blocks alone
# Probes in which PyTorch's compiler runs, which changes settings itself.
COMPILING: Final = frozenset(("alone compiled", "compiled", "exact", "generated"))
FLAT: Final = 256  # columns of a flat tensor that is refused as such


class FaultError(MlpfusionError):
    """What a call gave is wrong whatever a check was looking for; the text says how."""


class BackwardError(RaisedError):
    """The forward gave a result, and its backward raised."""


class DetachedError(UndecidableError):
    """A call with gradients on gave a result that has none."""


class Lack(NamedTuple):
    """Why there are no gradients, and how: the result is "detached", or they are "refused", or a backward "fails"."""

    sentence: str
    how: Literal["detached", "refused", "fails"]


class Sizes(NamedTuple):
    """hidden_size and intermediate_size of the MLPs that are judged."""

    hidden: int
    intermediate: int


# The smaller is quick, also in an interpreter; a target that refuses it gets the other.
SIZES: Final = (Sizes(64, 128), Sizes(256, 512))


class Found(NamedTuple):
    """What a check found. `shape` is the smallest shape that shows a fault."""

    status: Status
    sentence: str
    hazard: bool = False
    shape: tuple[int, ...] | None = None
    figures: dict[str, float | None] | None = None


def passed(sentence: str, **figures: float | None) -> Found:
    """Right, as far as the check can see."""
    return Found("pass", sentence, figures=figures)


def failed(sentence: str, shape: tuple[int, ...] | None = None, **figures: float | None) -> Found:
    """Wrong."""
    return Found("fail", sentence, shape=shape, figures=figures)


def reported(sentence: str, **figures: float | None) -> Found:
    """Neither right nor wrong, but worth knowing."""
    return Found("reported", sentence, figures=figures)


def hazard(sentence: str, shape: tuple[int, ...] | None = None) -> Found:
    """Right unless one does what the sentence names."""
    return Found("reported", sentence, hazard=True, shape=shape)


def undecided(sentence: str) -> Found:
    """Not decidable here."""
    return Found("not decidable here", sentence)


class Asked(NamedTuple):
    """What the user requested; None is the default set, in which a target may refuse."""

    dtypes: tuple[Dtype, ...] | None = None
    shapes: tuple[tuple[int, ...], ...] | None = None
    only: tuple[str, ...] | None = None
    against: tuple[str, ...] = ()
    time_limit_s: float = 600.0
    rounds: int = 60
    until_failure: bool = False  # carry out no check after the first that fails
    sanitizer: Path | None = None  # the program under which it is run once as well
    quick: bool = False  # one shape of each kind, and no check that needs another process or a compiler


class Exam:
    """The target's name, what was loaded, and the worker that has it.

    `dtypes` are those it is judged in; the check named "runs" takes out what it refuses.
    """

    def __init__(
        self,
        target: str,
        activation: Activation,
        loaded: Loaded,
        worker: Hired,
        peers: Hired,
        *,
        dtypes: tuple[Dtype, ...],
        asked: Asked,
        seed: int,
        device: DeviceKind,
    ) -> None:
        self.target = target
        self.activation = activation
        self.loaded = loaded
        self.configurations = loaded.configurations  # and those of autotuners that are found when they run
        self.dtypes = dtypes
        self.asked = asked
        self.seed = seed
        self.device = device
        self.sizes = SIZES[0]
        self._worker = worker
        self._peers = peers
        self.sweeps = Sweeps(self)
        self.excuses: list[Excuse] = []  # of the check at hand
        self.largest: dict[str, int] = {}  # of the sizes that it has seen taken
        self.refused: dict[str, None] = {}  # shapes that the target has refused it, in their order
        self.left = dict(loaded.left)  # settings of its process that the target has changed, and how
        self.launched: dict[tuple[Dtype, tuple[int, ...]], int] = {}  # launches of a forward, by gate or x
        self.seconds: dict[tuple[Dtype, tuple[int, ...]], float] = {}  # that a forward took, likewise
        self.launches = 0  # in all calls
        self.after_timing: list[Found] = []  # what each race has shown of the values
        self.left_out: dict[str, None] = {}  # what a quick exam does not judge, in words and in its order
        self._lacks: dict[Dtype, Lack | None] = {}

    @property
    def kind(self) -> Kind:
        """Whether it is an act·mul or a whole MLP."""
        return self.loaded.kind

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its operands."""
        return ("gate", "up") if self.kind == "act_mul" else ("x", "wg", "wu", "wd")

    @property
    def plain(self) -> tuple[int, ...]:
        """The first requested shape, else one that every target accepts: rows of 256 columns."""
        for shape in self.asked.shapes or ():
            if torch.Size(shape).numel() >= 16:  # fewer elements may be equal by chance
                return shape
        return (8, 256) if self.kind == "act_mul" else (8, 16)

    @property
    def finest(self) -> Dtype:
        """The most precise dtype: float32 if it is taken."""
        return "float32" if "float32" in self.dtypes else self.dtypes[0]

    # -- inputs

    def some(self, shapes: Iterable[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
        """The shapes to judge: all, or of a quick exam the first of each kind; the others are noted as left out."""
        every = tuple(shapes)
        if not self.asked.quick:
            return every
        first: dict[tuple[object, ...], tuple[int, ...]] = {}
        for shape in every:
            first.setdefault(kind_of(shape), shape)
        self.left_out |= dict.fromkeys(shape_text(shape) for shape in every if shape not in first.values())
        return tuple(first.values())

    def generator(self, purpose: str) -> torch.Generator:
        """Random numbers of this run's seed for one purpose."""
        return torch.Generator().manual_seed(zlib.crc32(f"{self.seed} {purpose}".encode()))

    def operands(
        self, dtype: Dtype, shape: tuple[int, ...], purpose: str, *, scale: float = 1.0, sizes: Sizes | None = None
    ) -> Tensors:
        """Random operands and dy. act·mul: gate·scale and up of `shape`; MLP: x [*shape, hidden] and its weights."""
        generator = self.generator(f"{purpose} {dtype} {shape} {scale}")
        narrow: torch.dtype = getattr(torch, dtype)

        def normal(*sizes: int, times: float = 1.0) -> Tensor:
            return (torch.randn(sizes, generator=generator) * times).to(narrow)

        if self.kind == "act_mul":
            up, dy = (bounds.spread(torch.randn(shape, generator=generator), generator) for _ in range(2))
            return {"gate": normal(*shape, times=scale), "up": up.to(narrow), "dy": dy.to(narrow)}
        d, h = sizes or self.sizes
        return {
            "x": normal(*shape, d),
            "wg": normal(h, d, times=d**-0.5 * scale),
            "wu": normal(h, d, times=d**-0.5),
            "wd": normal(d, h, times=h**-0.5),
            "dy": normal(*shape, d),
        }

    def reference(self, given: Tensors, *, grad: bool = False) -> Tensors:
        """y and, with `grad`, the gradients d:NAME for dy, in fp64."""
        leaves = {name: given[name].double().requires_grad_(grad) for name in self.names}
        y = self.compute(leaves)
        if not grad:
            return {"y": y}
        grads = bounds.grads_for(y, tuple(leaves.values()), given["dy"].double())
        return {"y": y.detach()} | {f"d:{name}": value for name, value in zip(self.names, grads, strict=True)}

    def compute(self, leaves: Tensors) -> Tensor:
        """The function itself on fp64 operands, differentiable."""
        if self.kind == "act_mul":
            return activate(leaves["gate"], self.activation) * leaves["up"]
        gate, up = leaves["x"] @ leaves["wg"].T, leaves["x"] @ leaves["wu"].T
        return (activate(gate, self.activation) * up) @ leaves["wd"].T

    # -- results

    def ask(self, probe: str, given: Tensors, **options: Any) -> tuple[Tensors, Facts]:
        """What a probe of the worker gives.

        Raises:
            RaisedError: the target raised.
            DiedError: it took the worker down.
            UndecidableError: the interpreter's results say nothing here.
        """
        in_bf16 = any(tensor.dtype is torch.bfloat16 for tensor in given.values())
        if in_bf16 and self.loaded.unfit is not None:
            raise UndecidableError(f"not in bfloat16 in Triton's interpreter: {self.loaded.unfit}")
        if not self._worker.holds(self.target, self.activation):
            self._worker.load(self.target, self.activation, time_limit_s=self.asked.time_limit_s)
        sizes = sizes_of(given)
        started = time.monotonic()
        try:
            tensors, facts = self._worker.ask(probe, given, time_limit_s=self.asked.time_limit_s, **options)
        except RaisedError as error:
            if probe not in COMPILING:
                self.left = error.left | self.left
            if is_refusal(error):
                self.refused[_asked_text(probe, given, sizes, options)] = None
            raise
        self.largest |= {name: max(size, self.largest.get(name, 0)) for name, size in sizes.items()}
        self.configurations = max(self.configurations, facts["configurations"])
        self.launches += facts["launches"]
        if probe not in COMPILING:
            self.left = facts["left"] | self.left
        if probe == "forward":
            first = given[self.names[0]]
            dtype: Any = str(first.dtype).removeprefix("torch.")
            self.launched[dtype, tuple(first.shape)] = facts["launches"]
            self.seconds[dtype, tuple(first.shape)] = time.monotonic() - started
        if facts.get("bf16_arithmetic"):
            raise UndecidableError(
                "the kernel does arithmetic on bfloat16 values, which Triton's interpreter does on their bit patterns; "
                "on a GPU this can be judged"
            )
        return tensors, facts

    def ask_peer(
        self, peer: str, probe: str, given: Tensors, *, activation: Activation | None = None, **options: Any
    ) -> tuple[Tensors, Facts]:
        """The same of a baseline ("eager", "inductor" or a user's target), in a separate worker.

        `activation` is the exam's where it is None.
        """
        name, activation = peer_target(peer, self.kind), activation or self.activation
        if not self._peers.holds(name, activation):
            self._peers.load(name, activation, time_limit_s=self.asked.time_limit_s)
        return self._peers.ask(probe, given, time_limit_s=self.asked.time_limit_s, **options)

    def forward(self, given: Tensors, **options: Any) -> Tensor:
        """y alone."""
        return self.ask("forward", given, **options)[0]["y"]

    def backward(self, given: Tensors, **options: Any) -> tuple[Tensors, Facts]:
        """y, d:NAME and the facts of a backward.

        Raises:
            RaisedError: the forward or (`BackwardError`) the backward raised, which may be a refusal of this call.
            DetachedError: the result has no gradient.
            FaultError: a gradient is missing, or y or one of them is of another shape or dtype than its operand.
        """
        results, facts = self.ask("backward", given, **options)
        if "raised" in facts:
            exception, text = facts["raised"]
            raise BackwardError(Raised(why="refused", exception=exception, text=text))
        if "detached" in facts:
            raise DetachedError("its result has no gradient")
        if facts["missing"]:
            raise FaultError(f"there is no gradient for {' and '.join(facts['missing'])}")
        for name in ("y", *self.names):
            found, like = (results["y"], given["dy"]) if name == "y" else (results[f"d:{name}"], given[name])
            if found.shape != like.shape or found.dtype != like.dtype:
                what = "with gradients on, y" if name == "y" else f"the gradient of {name}"
                raise FaultError(f"{what} is {tuple(found.shape)} {found.dtype} for {tuple(like.shape)} {like.dtype}")
        return results, facts

    def lack(self, dtype: Dtype) -> Lack | None:
        """Why no gradient comes in a dtype, whichever shape is tried; None where they come.

        Raises:
            FaultError: one is missing, or of another shape or dtype than its operand.
        """
        if dtype not in self._lacks:
            self._lacks[dtype] = self._lack(dtype)
        return self._lacks[dtype]

    def _lack(self, dtype: Dtype) -> Lack | None:
        found = []
        for shape in dict.fromkeys((self.plain, *(self.asked.shapes or TRAINED[self.kind]))):
            try:
                self.backward(self.operands(dtype, shape, "gradients"))
            except DetachedError as error:
                found.append(Lack(str(error), "detached"))
            except RaisedError as error:
                if not is_refusal(error):
                    raise
                if isinstance(error, BackwardError):
                    found.append(Lack(f"its backward raises {error}", "refused" if error.is_unwritten else "fails"))
                else:
                    found.append(Lack(f"with gradients on it raises {error}", "refused"))
            else:
                return None
        return found[0]

    @property
    def forward_only(self) -> str | None:
        """Why no gradient comes in any dtype, or None."""
        lacks = []
        for dtype in sorted(self.dtypes, key=lambda each: each != self.finest):
            lack = self.lack(dtype)
            if lack is None:
                return None
            lacks.append(lack)
        return lacks[0].sentence

    def need_gradients(self, dtype: Dtype) -> None:
        """Raise an `UndecidableError` unless gradients come in a dtype."""
        lack = self.lack(dtype)
        if lack is not None:
            known = self.forward_only
            raise UndecidableError(f"forward only: {known}" if known else f"no gradient in {dtype}: {lack.sentence}")

    def gradients(self, given: Tensors, **options: Any) -> tuple[Tensors, Facts] | None:
        """`backward`, or None where this call does not give every gradient, which is for another check to say."""
        try:
            return self.backward(given, **options)
        except (DetachedError, FaultError):
            return None
        except RaisedError as error:
            if not is_refusal(error):
                raise
            return None

    def flat(self, given: Tensors, **options: Any) -> Tensor:
        """y [N] of an act·mul for operands [N]; a target that refuses one dimension gets them as rows of FLAT."""
        try:
            y = self.forward(given, **options)
        except RaisedError as error:
            if not is_refusal(error):
                raise
            n = given["gate"].numel()
            padded = {name: rows_of(tensor, FLAT) for name, tensor in given.items()}
            y = self.forward(padded, **options).reshape(-1)[:n]
        if y.shape != given["gate"].shape:
            raise UndecidableError(f"it returns {tuple(y.shape)} for {tuple(given['gate'].shape)}")
        return y

    def note(self, excuse: Excuse) -> None:
        """Keep what a check excuses until it is over."""
        self.excuses.append(excuse)

    # -- words

    def repro(self, check: str, dtype: Dtype | None, shape: tuple[int, ...] | None) -> str:
        """A command that runs one check again on the same inputs."""
        parts = ["mlpfusion validate", shlex.quote(self.target), f"--activation {self.activation}"]
        parts += [f"--device {self.device}"]
        parts += [f"--dtype {dtype}"] if dtype else []
        parts += ["--shapes " + shape_text(shape)] if shape is not None else []
        return " ".join([*parts, f"--only {check}", f"--seed {self.seed}"])


def peer_target(peer: str, kind: Kind) -> str:
    """The text by which a worker loads a peer."""
    return f"@{peer}:{kind}" if peer in BASELINES else peer


def grad_name(name: str) -> str:
    """A result in words: y as it is, d:gate as the gradient of gate."""
    return f"the gradient of {name[2:]}" if name.startswith("d:") else name


def shape_text(shape: tuple[int, ...]) -> str:
    """A shape as it is typed: 7x127, and "scalar" for no dimension."""
    return "x".join(map(str, shape)) or "scalar"


def kind_of(shape: tuple[int, ...]) -> tuple[object, ...]:
    """What distinguishes shapes for code: large, or the dimensions, one element or less, and whole vectors of 8."""
    elements = torch.Size(shape).numel()
    return ("large",) if elements >= MANY else (len(shape), elements <= 1, bool(shape) and shape[-1] % 8 == 0)


def sizes_of(given: Tensors) -> dict[str, int]:
    """Rows and columns of an act·mul's gate; rows of x and the sizes of an MLP's weights."""
    if "wg" in given:
        x, wg = given["x"], given["wg"]
        rows = torch.Size(x.shape[:-1]).numel()
        return {"M": rows, "hidden_size": wg.shape[1], "intermediate_size": wg.shape[0]}
    shape = given["gate"].shape
    return {"M": torch.Size(shape[:-1]).numel(), "N": shape[-1] if shape else 1}


def _asked_text(probe: str, given: Tensors, sizes: dict[str, int], options: dict[str, Any]) -> str:
    """A call that was refused, in words: its shape (rows and sizes of an MLP) and what is special about it."""
    shape = tuple(given["gate"].shape) if "gate" in given else tuple(sizes.values())
    layouts = (
        *dict.fromkeys(options.get("layouts", {}).values()),
        *(("packed",) if "packed" in options else ()),
        *((options["buffer"],) if "buffer" in options else ()),
    )
    named = (*layouts, *((f"in {probe}",) if probe != "forward" else ()))
    return " ".join((shape_text(shape), *named))


# What nobody refuses an operand with: the program asks to end, or calls itself without end.
NO_REFUSAL: Final = frozenset(("SystemExit", "KeyboardInterrupt", "GeneratorExit", "RecursionError"))


def is_refusal(error: RaisedError) -> bool:
    """Whether the target raised by itself to say no, rather than the interpreter, the memory or its own fault."""
    return error.why in {"refused", "misused"} and error.exception not in NO_REFUSAL
