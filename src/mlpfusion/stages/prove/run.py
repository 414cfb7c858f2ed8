"""Proves what a swap, or the pass, changed: compares, times and traces a model with and without it."""

from __future__ import annotations

import contextlib
import copy
import sys
from collections.abc import Mapping
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec
import torch
from torch import Tensor, nn
from torch.nn import functional

from mlpfusion import limits
from mlpfusion.device import describe
from mlpfusion.environment import machine, provenance
from mlpfusion.errors import BackendUnavailableError, MlpfusionError, UsageError, first_line
from mlpfusion.records.profile import BASELINE
from mlpfusion.records.proof import (
    SCHEMA,
    Gradients,
    KernelCount,
    LayerProof,
    Layers,
    LeftAlone,
    Logits,
    Loss,
    Proof,
    Speed,
)
from mlpfusion.spec import MODES, one_of
from mlpfusion.stages.prove import compare, cost
from mlpfusion.stages.prove.change import Compiling
from mlpfusion.storage.redacted import redacted

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from mlpfusion.device import Device
    from mlpfusion.stages.prove.change import Change

Part = TypeVar("Part")

POLICY: Final = (
    "against fp64 the swapped model, its gradients and each of its MLPs may have at most twice the largest and twice "
    "the rms error of the unswapped one in the same dtype (four times below 10000 elements, where the largest of few "
    "errors is mostly luck). Source: right bf16 matrix products of four shapes and six seeds made 0.33 to 1.46 times "
    "eager's error, right backends on 10000 elements or more stayed within 2; a fixed tolerance passes wrong kernels "
    "or fails right ones"
)
ROUNDS: Final = 30
LAYER_ROWS: Final = 1024  # tokens of each MLP that are compared with fp64


class _Run(NamedTuple):
    """A model's logits [..., V] for one set of inputs, its loss, and the gradients of all parameters by name."""

    logits: Tensor
    loss: float | None
    gradients: dict[str, Tensor]


def prove(
    handle: Change,
    inputs: Mapping[str, Any] | Tensor,
    *,
    mode: str = "inference",
    rounds: int = ROUNDS,
    fp64: bool = True,
    trace: bool = True,
    seed: int = 0,
) -> Proof:
    """Compare a changed model with itself as it was, and both with fp64, on `inputs` (keyword arguments, or a tensor).

    `handle` is that of a swap, or a `Trial` of `mlpfusion.inductor`: a model compiled with its pass, which is compared
    with the model compiled without.

    Logits, loss and gradients are those of eval mode; in `mode` "training" the clocks time forward and backward. The
    loss is the cross entropy to random targets. `.grad` of no parameter is touched. With `fp64` false, or where it does
    not fit into memory, each MLP is still judged against its own fp64; `rounds` 0 leaves the clocks out, and `trace`
    false the kernels.

    Raises:
        UsageError: a bad argument, a handle that was restored, or a model that returns no logits.
        NothingSwappedError: the pass placed nothing.
    """
    one_of("mode", mode, MODES)
    gone = len(handle.swapped) - len(handle.parts) if handle.how == "swap" else 0
    if gone:
        raise UsageError(f"{gone} of the handle's {len(handle.swapped)} modules are not swapped now: it was restored")
    limits.whole("rounds", rounds, limits.ROUNDS_OR_NONE)
    limits.whole("seed", seed, limits.SEED)
    if not isinstance(inputs, Tensor | Mapping):
        raise UsageError(f"inputs must be a tensor or keyword arguments in a dict, got a {type(inputs).__name__}")
    made = _Proof(handle, inputs if not isinstance(inputs, Tensor) else {"": inputs}, mode, seed, {}, [])
    were = [(module, module.training) for module in handle.model.modules()]
    handle.model.eval()
    try:
        with made.started():
            return redacted(made.prove(rounds, fp64=fp64, trace=trace))
    except torch.OutOfMemoryError as error:
        raise MlpfusionError(f"too little memory for the proof: {first_line(error)}") from error
    finally:
        for module, training in were:  # each for itself: parts of a model in training may be in eval mode
            module.training = training


class _Proof(NamedTuple):
    """One proof under way: its options, the reasons for absent parts, and what breaks the policy."""

    change: Change
    inputs: Mapping[str, Any]
    mode: Any
    seed: int
    reasons: dict[str, str]
    failures: list[str]

    @property
    def device(self) -> Device:
        """Where the first changed module is."""
        first = next(iter(self.change.parts.values()), self.change.model)
        return describe(next(first.parameters()).device)

    def started(self) -> AbstractContextManager[None]:
        """The model compiled, for the time of a block, where this is what changes it."""
        if not isinstance(self.change, Compiling):
            return contextlib.nullcontext()
        return self.change.started(
            lambda: self._running(lambda: logits_of(self.change.call(self.change.model), self.inputs))
        )

    def prove(self, rounds: int, *, fp64: bool, trace: bool) -> Proof:
        """All parts, one after another."""
        change = self.change
        with change.paused():
            original, captured = self._original()
        swapped = self._run(change.model)
        wide = self._fp64() if fp64 else None
        if not fp64:
            self.reasons["fp64"] = cost.NOT_ASKED
        layers = self._layers(captured)
        for each in layers:
            self._judge(each.name, each.accuracy)
        call = self._call()
        emulated = cost.emulated(change, self.device)
        version = "transformers" in sys.modules and metadata.version("transformers")
        return Proof(
            schema=SCHEMA,
            kind="proof",
            mlpfusion=metadata.version("mlpfusion"),
            created=machine.now(),
            device=self.device,
            environment=machine.collect(self.device, provenance.of_backend(change.backend)),
            transformers=version or None,
            model=type(change.model).__name__,
            parameters=sum(value.numel() for value in change.model.parameters()),
            backend=change.swapped[0].backend,
            mode=self.mode,
            inputs={name: _described(value) for name, value in self.inputs.items()},
            swapped=tuple(
                Layers(name=one.name, kind=one.kind, spec=one.spec, layers=one.layers) for one in change.swapped
            ),
            refused=tuple(LeftAlone(name=one.name, kind=one.kind, reason=one.reason) for one in change.refused),
            logits=self._logits(original.logits, swapped.logits, wide and wide.logits),
            loss=self._loss(original, swapped, wide),
            gradients=self._gradients(original.gradients, swapped.gradients, wide and wide.gradients),
            layers=layers,
            speed=self._part("speed", lambda: self._speed(call, rounds, emulated)),
            memory=self._part("memory", lambda: cost.memory(change, call, self.device)),
            kernels=self._kernels(call, emulated, wanted=trace),
            policy=POLICY,
            failures=self._all_failures(captured),
            reasons=self.reasons,
            how=self.change.how,
        )

    # -- numbers

    def _original(self) -> tuple[_Run, dict[str, Tensor]]:
        """What the model computes as it was, and what its MLPs get."""
        return self._running(lambda: (self._run(self.change.model), self._capture()))

    @staticmethod
    def _running(call: Callable[[], Part]) -> Part:
        """What a call of the model as it was gives; what fails is not a proof's to judge."""
        try:
            return call()
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, IndexError, TypeError, ValueError) as error:
            if isinstance(error, UsageError):
                raise
            said = f"{type(error).__name__}: {first_line(error)}"
            raise UsageError(f"the model does not run on these inputs: {said}") from error

    def _run(self, model: nn.Module, inputs: Mapping[str, Any] | None = None) -> _Run:
        """Logits and, where the model can be differentiated, loss and gradients; with other inputs as it is."""
        given, call = (self.inputs, self.change.call(model)) if inputs is None else (inputs, model)
        parameters = {name: value for name, value in model.named_parameters() if value.requires_grad}
        try:
            with torch.enable_grad():
                logits = logits_of(call, given)
                if not parameters or not logits.requires_grad:
                    raise BackendUnavailableError("-", "no parameter of the model requires a gradient")
                loss = self._cross_entropy(logits)
                found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
        except BackendUnavailableError as error:
            self.reasons["gradients"] = error.reason
            with torch.no_grad():
                logits = logits_of(call, given)
                return _Run(logits, float(self._cross_entropy(logits)), {})
        gradients = {name: each.detach() for name, each in zip(parameters, found, strict=True) if each is not None}
        return _Run(logits.detach(), loss.item(), gradients)

    def _cross_entropy(self, logits: Tensor) -> Tensor:
        generator = torch.Generator("cpu").manual_seed(self.seed)
        rows = logits.flatten(0, -2)
        targets = torch.randint(rows.shape[-1], (rows.shape[0],), generator=generator).to(rows.device)
        return functional.cross_entropy(rows if rows.dtype == torch.float64 else rows.float(), targets)

    def _fp64(self) -> _Run | None:
        """The unswapped model in fp64, on a copy; None with the reason where that cannot be."""
        parameters = sum(value.numel() for value in self.change.model.parameters())
        free, needed = (
            self.device.free_bytes or 0,
            24 * parameters,
        )  # weights, gradients, and as much for what is between
        if needed > free:
            self.reasons["fp64"] = f"a copy in fp64 needs about {needed / 1e9:.3g} GB, and {free / 1e9:.3g} GB are free"
            return None
        try:
            with self.change.paused() as model:
                wide = copy.deepcopy(model).double()
            inputs = {
                name: value.double() if isinstance(value, Tensor) and value.is_floating_point() else value
                for name, value in self.inputs.items()
            }
            return self._run(wide, inputs)
        except (RuntimeError, TypeError, ValueError) as error:
            self.reasons["fp64"] = f"the model does not run in fp64: {type(error).__name__}: {first_line(error)}"
            return None

    def _logits(self, original: Tensor, swapped: Tensor, wide: Tensor | None) -> Logits:
        apart = compare.divergence(original, swapped)
        width = original.shape[-1]
        found = Logits(
            positions=original.numel() // width,
            vocabulary=width,
            difference=compare.errors(swapped, original).deviation,
            top1=apart.top1,
            kl_mean=apart.mean,
            kl_max=apart.largest,
        )
        if wide is None:
            return found
        accuracy = compare.judged(compare.errors(swapped, wide), compare.errors(original, wide), width=width)
        self._judge("logits", accuracy)
        return msgspec.structs.replace(
            found,
            accuracy=accuracy,
            top1_fp64=compare.divergence(wide, swapped).top1,
            top1_fp64_original=compare.divergence(wide, original).top1,
        )

    @staticmethod
    def _loss(original: _Run, swapped: _Run, wide: _Run | None) -> Loss | None:
        if original.loss is None or swapped.loss is None:
            return None
        return Loss(original=original.loss, swapped=swapped.loss, fp64=None if wide is None else wide.loss)

    def _gradients(
        self, original: dict[str, Tensor], swapped: dict[str, Tensor], wide: dict[str, Tensor] | None
    ) -> Gradients | None:
        if not original or not swapped:
            return None
        if original.keys() != swapped.keys():
            lost = ", ".join(sorted(original.keys() ^ swapped.keys())[:3])
            self.failures.append(f"gradients: not the same parameters get one: {lost}")
        names = [name for name in original if name in swapped]
        each = {name: compare.errors(swapped[name], original[name]) for name in names}
        worst = max(names, key=lambda name: _size(each[name]))
        accuracy = None
        if wide:
            accuracy = compare.judged(
                compare.total(compare.errors(swapped[name], wide[name]) for name in names),
                compare.total(compare.errors(original[name], wide[name]) for name in names),
                width=1,
            )
            self._judge("gradients", accuracy)
        return Gradients(
            tensors=len(names),
            difference=compare.total(each.values()).deviation,
            worst=worst,
            worst_difference=each[worst].deviation,
            accuracy=accuracy,
        )

    def _capture(self) -> dict[str, Tensor]:
        """The first rows of what each swapped module gets in the unswapped model, [rows, hidden_size]."""
        captured: dict[str, Tensor] = {}

        def keep(name: str) -> Callable[..., None]:
            def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
                x: Tensor = next(iter((*args, *kwargs.values())))
                captured.setdefault(name, x.detach().flatten(0, -2)[:LAYER_ROWS].clone())

            return hook

        parts = self.change.parts.items()
        hooks = [module.register_forward_pre_hook(keep(name), with_kwargs=True) for name, module in parts]
        try:
            with torch.no_grad():
                logits_of(self.change.model, self.inputs)
        finally:
            for hook in hooks:
                hook.remove()
        return captured

    def _layers(self, captured: dict[str, Tensor]) -> tuple[LayerProof, ...]:
        """Each swapped module against its own fp64, and the unswapped module as well."""
        found = []
        parts = self.change.parts
        for one in self.change.swapped:
            if one.name not in captured:
                alone = one.name in parts
                self.reasons[one.name] = "it was not called for these inputs" if alone else "it is a part of a module"
                continue
            x, module = captured[one.name], parts[one.name]
            with torch.no_grad():
                mine = self.change.call(module)(x)
                with self.change.paused():
                    theirs = self.change.call(module)(x)
                    wide = copy.deepcopy(module).double()(x.double())
            accuracy = compare.judged(compare.errors(mine, wide), compare.errors(theirs, wide), width=x.shape[-1])
            found.append(LayerProof(name=one.name, accuracy=accuracy))
        return tuple(found)

    def _call(self) -> Callable[[], object]:
        """One call of the model as it is timed and traced."""
        model = self.change.model
        parameters = [value for value in model.parameters() if value.requires_grad]

        def inference() -> object:
            with torch.no_grad():
                return logits_of(self.change.call(model), self.inputs)

        def training() -> object:
            with torch.enable_grad():
                loss = self._cross_entropy(logits_of(self.change.call(model), self.inputs))
                if not loss.requires_grad:  # a model that is one MLP, left out
                    return loss
                return torch.autograd.grad(loss, parameters, allow_unused=True)

        return inference if self.mode == "inference" else training

    def _part(self, name: str, measured: Callable[[], Part]) -> Part | None:
        """One part of what a model costs, or None and the reason."""
        try:
            return measured()
        except cost.NotMeasuredError as error:
            self.reasons[name] = str(error)
            return None

    def _speed(self, call: Callable[[], object], rounds: int, emulated: bool) -> Speed:
        return cost.speed(self.change, call, self.device, rounds=rounds, seed=self.seed, is_emulated=emulated)

    def _kernels(self, call: Callable[[], object], emulated: bool, *, wanted: bool) -> tuple[KernelCount, ...]:
        if not wanted:
            self.reasons["kernels"] = cost.NOT_ASKED
            return ()
        found = self._part("kernels", lambda: cost.kernels(self.change, call, emulated)) or ()
        backend = self.change.swapped[0].backend
        if found and BASELINE not in self._runs() and all(each.original == each.swapped for each in found):
            self.failures.append(f"kernels: the trace shows the same ones with {backend!r} as before")
        return found

    def _runs(self) -> tuple[str, ...]:
        """The backends of the swapped modules: one, or those of a choice."""
        made = cost.made(self.change)
        found: tuple[str, ...] = getattr(made, "backends", (self.change.swapped[0].backend,))
        return found

    def _all_failures(self, captured: dict[str, Tensor]) -> tuple[str, ...]:
        """What breaks the policy, and what the backend did not run at all; a compiler may compile once more for it."""
        call = self.change.call(self.change.model)
        with torch.no_grad():
            self.failures.extend(self.change.unrun(lambda: logits_of(call, self.inputs), captured))
        return tuple(self.failures)

    def _judge(self, what: str, accuracy: Any) -> None:
        if accuracy.ratio > accuracy.limit:
            self.failures.append(f"{what}: {accuracy.times('the unswapped model')}, limit {accuracy.limit:g} times")


def logits_of(model: Callable[..., Any], inputs: Mapping[str, Any]) -> Tensor:
    """The logits [..., V] that a model returns, or the one tensor; `inputs` under the name "" go by position.

    Raises:
        UsageError: it returns neither.
    """
    named = {name: value for name, value in inputs.items() if name}
    output = model(*([inputs[""]] if "" in inputs else []), **named)
    for name in ("logits", "last_hidden_state"):
        found = getattr(output, name, None)
        if isinstance(found, Tensor):
            return found
    if not isinstance(output, Tensor):
        raise UsageError(f"the model returns a {type(output).__name__}; valid: a tensor, or an output with logits")
    return output


def _size(errors: compare.Sum) -> float:
    rms = errors.deviation.rms_error
    return float("inf") if rms is None else rms


def _described(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{list(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    return type(value).__name__
