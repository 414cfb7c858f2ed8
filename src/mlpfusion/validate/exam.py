"""One target under examination: what checks get to make inputs with, to ask for results, and to say what they found."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor

from mlpfusion.errors import MlpfusionError
from mlpfusion.validate import bounds
from mlpfusion.validate.diagnose import diagnose
from mlpfusion.validate.hired import RaisedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlpfusion.device import DeviceKind
    from mlpfusion.spec import Activation, Dtype
    from mlpfusion.validate.channel import Facts, Loaded, Tensors
    from mlpfusion.validate.diagnose import Diagnosis
    from mlpfusion.validate.hired import Hired
    from mlpfusion.verdicts import Kind, Status

FLAT: Final = 256  # columns of a flat tensor that is refused as such


class UndecidableError(MlpfusionError):
    """A check cannot be decided here; the text says why."""


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
    """Right as long as nobody does what the sentence says."""
    return Found("reported", sentence, hazard=True, shape=shape)


def undecided(sentence: str) -> Found:
    """Not decidable here."""
    return Found("not decidable here", sentence)


class Asked(NamedTuple):
    """What the user asked for; None is the default set, in which a target may refuse."""

    dtypes: tuple[Dtype, ...] | None = None
    shapes: tuple[tuple[int, ...], ...] | None = None
    only: tuple[str, ...] | None = None
    against: tuple[str, ...] = ()
    time_limit_s: float = 120.0
    rounds: int = 60
    until_failure: bool = False  # carry out no check after the first that fails


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
        self.dtypes = dtypes
        self.asked = asked
        self.seed = seed
        self.device = device
        self.sizes = SIZES[0]
        self.forward_only: str | None = None
        self._worker = worker
        self._peers = peers
        self._sweeps: dict[Dtype, list[Swept]] = {}
        self._diagnoses: dict[Dtype, Diagnosis | None] = {}

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
        """The first shape that was asked for, else one that every target takes that takes any: rows of 256 columns."""
        for shape in self.asked.shapes or ():
            if torch.Size(shape).numel() >= 16:  # fewer elements may be equal by chance
                return shape
        return (8, 256) if self.kind == "act_mul" else (8, 16)

    @property
    def finest(self) -> Dtype:
        """The dtype in which most can be seen: float32 if it is taken."""
        return "float32" if "float32" in self.dtypes else self.dtypes[0]

    # -- inputs

    def generator(self, purpose: str) -> torch.Generator:
        """Random numbers of this run's seed for one purpose."""
        return torch.Generator().manual_seed(zlib.crc32(f"{self.seed} {purpose}".encode()))

    def operands(self, dtype: Dtype, shape: tuple[int, ...], purpose: str, *, scale: float = 1.0) -> Tensors:
        """Random operands and dy. act·mul: gate·scale and up of `shape`; MLP: x [*shape, hidden] and its weights."""
        generator = self.generator(f"{purpose} {dtype} {shape} {scale}")
        narrow: torch.dtype = getattr(torch, dtype)

        def normal(*sizes: int, times: float = 1.0) -> Tensor:
            return (torch.randn(sizes, generator=generator) * times).to(narrow)

        if self.kind == "act_mul":
            up, dy = (bounds.spread(torch.randn(shape, generator=generator), generator) for _ in range(2))
            return {"gate": normal(*shape, times=scale), "up": up.to(narrow), "dy": dy.to(narrow)}
        d, h = self.sizes
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
        grads = torch.autograd.grad(y, tuple(leaves.values()), given["dy"].double())
        return {"y": y.detach()} | {f"d:{name}": value for name, value in zip(self.names, grads, strict=True)}

    def compute(self, leaves: Tensors) -> Tensor:
        """The function itself on fp64 operands, differentiable."""
        if self.kind == "act_mul":
            return bounds.activate(leaves["gate"], self.activation) * leaves["up"]
        gate, up = leaves["x"] @ leaves["wg"].T, leaves["x"] @ leaves["wu"].T
        return (bounds.activate(gate, self.activation) * up) @ leaves["wd"].T

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
        tensors, facts = self._worker.ask(probe, given, time_limit_s=self.asked.time_limit_s, **options)
        if facts.get("bf16_arithmetic"):
            raise UndecidableError(
                "the kernel does arithmetic on bfloat16 values, which Triton's interpreter does on their bit patterns; "
                "on a GPU this can be judged"
            )
        return tensors, facts

    def ask_peer(self, peer: str, probe: str, given: Tensors, **options: Any) -> tuple[Tensors, Facts]:
        """The same of a peer ("eager", "inductor" or a target of the user's), in a worker of its own."""
        name = peer_target(peer, self.kind)
        if not self._peers.holds(name, self.activation):
            self._peers.load(name, self.activation, time_limit_s=self.asked.time_limit_s)
        return self._peers.ask(probe, given, time_limit_s=self.asked.time_limit_s, **options)

    def forward(self, given: Tensors, **options: Any) -> Tensor:
        """y alone."""
        return self.ask("forward", given, **options)[0]["y"]

    def backward(self, given: Tensors, **options: Any) -> tuple[Tensors, Facts]:
        """y, d:NAME and the facts of a backward.

        Raises:
            UndecidableError: the target is forward only.
        """
        if self.forward_only is not None:
            raise UndecidableError(f"forward only: {self.forward_only}")
        results, facts = self.ask("backward", given, **options)
        if "forward_only" in facts:
            self.forward_only = facts["forward_only"]
            raise UndecidableError(f"forward only: {self.forward_only}")
        return results, facts

    def flat(self, given: Tensors) -> Tensor:
        """y [N] of an act·mul for operands [N]; a target that refuses one dimension gets them as rows of FLAT."""
        try:
            y = self.forward(given)
        except RaisedError as error:
            if not is_refusal(error):
                raise
            n = given["gate"].numel()
            padded = {name: _rows_of(tensor, FLAT) for name, tensor in given.items()}
            y = self.forward(padded).reshape(-1)[:n]
        if y.shape != given["gate"].shape:
            raise UndecidableError(f"it returns {tuple(y.shape)} for {tuple(given['gate'].shape)}")
        return y

    def sweep(self, dtype: Dtype) -> list[Swept]:
        """y over every gate value, with up = 1 and with the next number after it; an MLP through one-hot weights."""
        if dtype not in self._sweeps:
            gate = bounds.every_value(dtype)
            ups = (1.0, 1.0 + bounds.EPS[dtype])
            if self.kind == "mlp":
                self._sweeps[dtype] = [_through_mlp(gate, up, self.sizes, self.forward) for up in ups]
            else:
                constants = [torch.full_like(gate, up) for up in ups]
                self._sweeps[dtype] = [Swept(self.flat({"gate": gate, "up": up}), gate, up) for up in constants]
        return self._sweeps[dtype]

    def diagnosis(self, dtype: Dtype) -> Diagnosis | None:
        """What the sweep says is wrong with the function, or None."""
        if dtype not in self._diagnoses:
            found = (diagnose(*swept, self.activation, dtype) for swept in self.sweep(dtype))
            self._diagnoses[dtype] = next((each for each in found if each is not None), None)
        return self._diagnoses[dtype]

    # -- words

    def repro(self, check: str, dtype: Dtype | None, shape: tuple[int, ...] | None) -> str:
        """A command that runs one check again on the same inputs."""
        parts = ["mlpfusion validate", self.target, f"--activation {self.activation}", f"--device {self.device}"]
        parts += [f"--dtype {dtype}"] if dtype else []
        parts += ["--shapes " + shape_text(shape)] if shape is not None else []
        return " ".join([*parts, f"--only {check}", f"--seed {self.seed}"])


class Swept(NamedTuple):
    """y for gate values and a constant up, each [N]."""

    y: Tensor
    gate: Tensor
    up: Tensor


def _rows_of(tensor: Tensor, columns: int) -> Tensor:
    rows = torch.zeros(-(-tensor.numel() // columns) * columns, dtype=tensor.dtype)
    rows[: tensor.numel()] = tensor
    return rows.view(-1, columns)


def _through_mlp(gate: Tensor, up: float, sizes: Sizes, run: Callable[[Tensors], Tensor]) -> Swept:
    """Gate values as x of an MLP whose weights pass them on unchanged: products with ones and zeros are exact.

    The last column carries up.
    """
    d, h = sizes
    largest = torch.finfo(gate.dtype).max
    size = gate.double().abs()
    inside = size * up < largest * (1 - torch.finfo(gate.dtype).eps)  # inf·0 would spoil its row
    if gate.dtype is not torch.float16:  # a matrix product may take subnormals, those of float32's exponent, for 0
        inside &= (size >= 4 * torch.finfo(gate.dtype).tiny) | (size == 0)
    gate = gate[inside]
    values = _rows_of(gate, d - 1)
    x = torch.cat((values, torch.full((values.shape[0], 1), up, dtype=gate.dtype)), dim=1)
    passes = torch.zeros(h, d, dtype=gate.dtype)
    passes[:d] = torch.eye(d, dtype=gate.dtype)
    ones = torch.zeros(h, d, dtype=gate.dtype)
    ones[:, -1] = 1.0
    y = run({"x": x, "wg": passes, "wu": ones, "wd": passes.T.contiguous()})
    if y.shape != x.shape:
        raise UndecidableError(f"it returns {tuple(y.shape)} for x of {tuple(x.shape)}")
    kept = y[:, : d - 1].reshape(-1)[: gate.numel()]
    return Swept(kept, gate, torch.full_like(gate, up))


def peer_target(peer: str, kind: Kind) -> str:
    """The text by which a worker loads a peer."""
    return f"@{peer}:{kind}" if peer in {"eager", "inductor"} else peer


def grad_name(name: str) -> str:
    """A result in words: y as it is, d:gate as the gradient of gate."""
    return f"the gradient of {name[2:]}" if name.startswith("d:") else name


def shape_text(shape: tuple[int, ...]) -> str:
    """A shape as it is typed: 7x127, and "scalar" for no dimension."""
    return "x".join(map(str, shape)) or "scalar"


def is_refusal(error: RaisedError) -> bool:
    """Whether the target raised by itself, rather than the interpreter or the memory."""
    return error.why in {"refused", "misused"}
