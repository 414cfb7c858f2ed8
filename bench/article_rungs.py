"""The steps of the tutorial: what each runs, its trace as mlpfusion reads it, its unprofiled clocks."""

from __future__ import annotations

import platform
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import torch
import triton

from mlpfusion import backend as registry
from mlpfusion import reference
from mlpfusion.backends.eager import forward_of
from mlpfusion.device import Device
from mlpfusion.errors import BackendUnavailableError, first_line
from mlpfusion.measure import clocks
from mlpfusion.measure.tracer import WARMUPS, record_scheduled
from mlpfusion.records.base import Record
from mlpfusion.records.clocks import Clock
from mlpfusion.records.trace import Reading
from mlpfusion.spec import MLPSpec, Workload
from mlpfusion.stats import summarise
from mlpfusion.trace.analysis.summary import read
from mlpfusion.trace.read import kineto

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

CALLS = 20
BACKENDS = ("eager", "compile", "liger", "hub", "triton")


class Sizes(Record, frozen=True, kw_only=True):
    """The shapes of the ladder; `other_batches` are the MLP's with another batch, each a shape of its own."""

    small: int
    large: int
    linear: tuple[int, int, int]  # rows, in, out
    mlp: Workload
    other_batches: tuple[int, ...]


TUTORIAL = Sizes(
    small=64,
    large=4096,
    linear=(1024, 32, 64),
    mlp=Workload(spec=MLPSpec(hidden_size=768, intermediate_size=3072), batch=64, seq=128),
    other_batches=(32, 48, 16, 56, 8),
)
TINY = Sizes(
    small=16,
    large=64,
    linear=(64, 32, 64),
    mlp=Workload(spec=MLPSpec(hidden_size=32, intermediate_size=64), batch=4, seq=16),
    other_batches=(2, 3, 6, 5),
)


class Footprint(Record, frozen=True, kw_only=True):
    """What a kernel occupies as the profiler saw it: registers of a thread, bytes of shared memory, grid and block."""

    kernel: str
    registers: int | None = None
    shared_bytes: int | None = None
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()


class Rung(Record, frozen=True, kw_only=True):
    """One thing that was run: its reading, or the reason why it did not run, and its clocks without a profiler.

    `host_us` is the time until a call returns in a row of calls, `idle_host_us` the same with an idle device,
    `event_us` the device's between events around a call. The L2 is flushed before each.
    """

    name: str
    reason: str | None = None
    reading: Reading | None = None
    footprints: tuple[Footprint, ...] = ()
    clocks: dict[str, Clock] = msgspec.field(default_factory=dict)


class Compilations(Record, frozen=True, kw_only=True):
    """Graphs that torch.compile, and specialisations that Liger's kernel, had made in all after each new batch."""

    batches: tuple[int, ...]
    graphs: tuple[int, ...]
    liger: tuple[int, ...] | None = None
    liger_reason: str | None = None


class Ladder(Record, frozen=True, kw_only=True):
    """Everything that was measured, where, and on which shapes."""

    device: Device
    versions: dict[str, str]
    sizes: Sizes
    rungs: tuple[Rung, ...]
    compilations: Compilations


class Variant(NamedTuple):
    """How to make the call of one rung; `warmups` are the calls before its trace."""

    name: str
    make: Callable[[], Callable[[], object]]
    warmups: int = WARMUPS


def climb(here: Device, sizes: Sizes, *, rounds: int, keep: Path | None, tell: Callable[[str], None]) -> Ladder:
    """Run all rungs from the bottom up. With `keep`, a folder, each trace is kept there, scrubbed."""
    rungs: list[Rung] = []
    with tempfile.TemporaryDirectory(prefix="article-") as scratch, torch.no_grad():
        for family in _families(here, sizes):
            torch.compiler.reset()  # else a second size of one function would be compiled with dynamic shapes
            rungs += _measured(family, here, rounds=rounds, folder=Path(scratch), keep=keep, tell=tell)
        torch.compiler.reset()
        tell("new shapes")
        case = reference.make_case(sizes.mlp, torch.device(here.kind), seed=0)
        compiled = torch.compile(forward_of(case.mlp))
        found = _compilations(case, compiled, here, sizes)
        if here.kind == "cuda":
            torch.compiler.reset()  # else the kernel that was compiled for this one shape would serve it
            for batch in sizes.other_batches[:2]:  # the second one makes the shape dynamic
                compiled(torch.randn(batch, *case.x.shape[1:], device="cuda", dtype=case.x.dtype))
        dynamic = Variant("mlp.dynamic", lambda: lambda: compiled(case.x))
        rungs += _measured([dynamic], here, rounds=rounds, folder=Path(scratch), keep=keep, tell=tell)
    return Ladder(device=here, versions=_versions(), sizes=sizes, rungs=tuple(rungs), compilations=found)


# ---- what is run -----------------------------------------------------------------------------------------------------


def _families(here: Device, sizes: Sizes) -> Iterator[list[Variant]]:
    """Rungs that are timed against each other. The first one finds a process that has done nothing yet."""
    dtype, device = torch.bfloat16, here.kind

    def matmul_add(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.add(torch.matmul(x, w), b)

    def called(*shape: int, mode: str | None = None, compiled: bool = False) -> Callable[[], object]:
        if mode == "reduce-overhead" and device == "cpu":
            raise BackendUnavailableError(mode, "CUDA graphs need a GPU; this run is on the CPU")
        x, w, b = (torch.randn(*shape, device=device, dtype=dtype) for _ in range(3))
        function = torch.compile(matmul_add, mode=mode) if compiled else matmul_add
        return lambda: function(x, w, b)

    small, large = sizes.small, sizes.large
    yield [Variant("small.cold", lambda: called(small, small), warmups=0)]
    yield [
        Variant("small.eager", lambda: called(small, small)),
        Variant("small.compile", lambda: called(small, small, compiled=True)),
        Variant("small.cudagraphs", lambda: called(small, small, compiled=True, mode="reduce-overhead")),
    ]
    yield [Variant("batched.eager", lambda: called(small, small, small))]
    yield [
        Variant("large.eager", lambda: called(large, large)),
        Variant("large.compile", lambda: called(large, large, compiled=True)),
    ]
    rows, features, outputs = sizes.linear
    linear = torch.nn.Linear(features, outputs, bias=True, device=device, dtype=dtype)
    x = torch.randn(rows, features, device=device, dtype=dtype)
    compiled_linear = torch.compile(linear)
    yield [
        Variant("linear.eager", lambda: lambda: linear(x)),
        Variant("linear.compile", lambda: lambda: compiled_linear(x)),
    ]
    yield [Variant(f"mlp.{name}", lambda name=name: _mlp(name, here, sizes.mlp)) for name in BACKENDS]  # type: ignore[misc]


def _mlp(name: str, here: Device, workload: Workload) -> Callable[[], object]:
    """A backend's call on its own copy of the same weights.

    Raises:
        BackendUnavailableError: it cannot run here.
    """
    made = registry.load(name)
    reason = made.unsupported(workload.spec, here)
    if reason is not None:
        raise BackendUnavailableError(name, reason)
    case = reference.make_case(workload, torch.device(here.kind), seed=0)
    call = made.bind(case.mlp)
    call(case.x)
    return lambda: call(case.x)


def _compilations(
    case: reference.Case, compiled: Callable[[torch.Tensor], object], here: Device, sizes: Sizes
) -> Compilations:
    """What each new batch makes torch.compile and Liger compile. The MLP's own batch comes last."""
    from torch._dynamo.utils import counters

    batches = (*sizes.other_batches, sizes.mlp.batch)
    inputs = [torch.randn(batch, *case.x.shape[1:], device=case.x.device, dtype=case.x.dtype) for batch in batches]
    before = counters["stats"]["unique_graphs"]
    graphs = []
    for x in inputs:
        compiled(x)
        graphs.append(int(counters["stats"]["unique_graphs"] - before))
    liger, reason = None, None
    try:
        liger = _specialisations(case, inputs, here)
    except BackendUnavailableError as error:
        reason = error.reason
    return Compilations(batches=batches, graphs=tuple(graphs), liger=liger, liger_reason=reason)


def _specialisations(case: reference.Case, inputs: Sequence[torch.Tensor], here: Device) -> tuple[int, ...]:
    """How many specialisations of its GeGLU kernel Liger had needed after each input."""
    made = registry.load("liger")
    reason = made.unsupported(case.mlp.spec, here)
    if reason is not None:
        raise BackendUnavailableError("liger", reason)
    call = made.bind(case.mlp)
    if not hasattr(triton.knobs.runtime, "jit_post_compile_hook") or not _forget_geglu():
        raise BackendUnavailableError("liger", "this Triton keeps its specialisations where they cannot be counted")
    seen: list[str] = []
    runtime = triton.knobs.runtime
    previous = runtime.jit_post_compile_hook
    runtime.jit_post_compile_hook = lambda **facts: seen.append(str(facts.get("repr")))
    try:
        counts = []
        for x in inputs:
            call(x)
            counts.append(sum("geglu" in name for name in seen))
    finally:
        runtime.jit_post_compile_hook = previous
    return tuple(counts)


def _forget_geglu() -> bool:
    """Make Liger's kernel specialise anew, as in a fresh process; whether that could be done."""
    from liger_kernel.ops import geglu

    caches = getattr(geglu._geglu_tanh_forward_kernel, "device_caches", None)
    if caches is None:
        return False
    caches.clear()
    return True


# ---- how it is measured ----------------------------------------------------------------------------------------------


def _measured(
    family: list[Variant], here: Device, *, rounds: int, folder: Path, keep: Path | None, tell: Callable[[str], None]
) -> list[Rung]:
    """Trace each variant, then race those that ran against each other."""
    calls: dict[str, Callable[[], object]] = {}
    rungs = []
    for variant in family:
        tell(variant.name)
        try:
            call = variant.make()
            if variant.warmups:
                call()
            rungs.append(_traced(variant, call, here, folder, keep))
            calls[variant.name] = call
        except BackendUnavailableError as error:
            rungs.append(Rung(name=variant.name, reason=error.reason))
        except Exception as error:  # whatever one rung runs into, the others are worth having
            said = f"{type(error).__name__}: {first_line(error)}"
            rungs.append(Rung(name=variant.name, reason=said))
    clocked = _raced(calls, here, rounds) if family[0].warmups else {}
    return [msgspec.structs.replace(rung, clocks=clocked.get(rung.name, {})) for rung in rungs]


def _traced(variant: Variant, call: Callable[[], object], here: Device, folder: Path, keep: Path | None) -> Rung:
    path = folder / f"{variant.name}.json"
    record_scheduled(call, path, calls=CALLS, warmups=variant.warmups)
    reading = msgspec.structs.replace(read(path, device=here.kind), source=variant.name)
    footprints = _footprints(path)
    if keep is not None:
        kineto.scrub(path, keep / f"{variant.name}.trace.json.gz")
    path.unlink()
    return Rung(name=variant.name, reading=reading, footprints=footprints)


def _raced(calls: dict[str, Callable[[], object]], here: Device, rounds: int) -> dict[str, dict[str, Clock]]:
    contenders = [clocks.Contender(name, call, None, "not captured here") for name, call in calls.items()]
    found: dict[str, dict[str, Clock]] = {}

    def quiet(_: str) -> None: ...

    for samples in clocks.race(contenders, here, rounds=rounds, seed=0, before=quiet, after=quiet):
        found.setdefault(samples.backend, {})[samples.clock] = summarise(samples)
    return found


class _Args(msgspec.Struct):
    registers: int | None = msgspec.field(default=None, name="registers per thread")
    shared: int | None = msgspec.field(default=None, name="shared memory")
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()


class _Event(msgspec.Struct):
    cat: str = ""
    name: str = ""
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _File(msgspec.Struct):
    traceEvents: list[_Event]


def _footprints(path: Path) -> tuple[Footprint, ...]:
    """The footprint of each kernel of a trace, by name, in the order of their appearance; none if it tells none."""
    try:
        return tuple(_occupied(path).values())
    except msgspec.DecodeError:
        return ()


def _occupied(path: Path) -> dict[str, Footprint]:
    found: dict[str, Footprint] = {}
    for event in msgspec.json.decode(path.read_bytes(), type=_File).traceEvents:
        if event.cat == "kernel" and event.name not in found:
            args = msgspec.json.decode(event.args, type=_Args)
            found[event.name] = Footprint(
                kernel=event.name,
                registers=args.registers,
                shared_bytes=args.shared,
                grid=args.grid,
                block=args.block,
            )
    return found


def _versions() -> dict[str, str]:
    from importlib import metadata

    found = {"python": platform.python_version(), "torch": str(torch.__version__), "triton": triton.__version__}
    for package in ("liger-kernel", "kernels"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found
