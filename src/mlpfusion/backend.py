"""Defines the Backend protocol and finds backends by name."""

from __future__ import annotations

import functools
import hashlib
import sys
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, runtime_checkable

from mlpfusion.errors import BackendUnavailableError, UnknownBackendError, UsageError, first_line
from mlpfusion.storage import private

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from mlpfusion_kernels import Weights
    from torch import Tensor, nn

    from mlpfusion.device import Device
    from mlpfusion.spec import Activation, MLPSpec

GROUP: Final = "mlpfusion.backends"

# The distribution whose backends are the built-in ones.
OURS: Final = "mlpfusion"

# The order of a table: alternatives first, then ours. Built-in backends that are not listed here follow, then those of
# third parties, each in alphabetical order.
ORDER: Final = (
    "eager",
    "compile",
    "compile-max-autotune",
    "compile-cudagraphs",
    "liger",
    "hub",
    "triton",
    "packed",
    "fused",
    "fused-graph",
    "quack",
)

# Built in as well, but of a file that its name ends with, `auto:choices/x.json`; `names` leaves them out.
OF_A_FILE: Final = ("auto",)


class GatedLayers(Protocol):
    """What `bind` gets: the layers of a gated MLP and what it computes; `GatedMLP` is one.

    A `PackedGatedMLP` is one as well: its `projections` are two layers, and only backends that take it get it.
    """

    activation: Activation
    gate_proj: nn.Linear
    up_proj: nn.Linear
    down_proj: nn.Linear

    @property
    def projections(self) -> dict[str, nn.Module]:
        """The layers that hold the weights, by name."""
        ...

    @property
    def spec(self) -> MLPSpec:
        """What the module computes, read from its live weights."""
        ...


class OnTensors(NamedTuple):
    """A gated MLP as functions of tensors, without a module: what `mlpfusion.inductor` can put into a graph.

    - `forward(x, weights, activation, keep) -> (y, gate, up)`: x and y [..., D]; gate and up [M, H], before the
      activation, are for the backward, and None unless `keep`.
    - `backward(dy, x, gate, up, weights, activation, wanted)`: the wanted gradients of (x, *weights), else None. Those
      of gate and up may be the halves of one tensor, which saves a copy.
    - `unreadable(weights, addresses=…)`: why these cannot be read where they lie, or None; without addresses as far as
      shapes and strides say.
    - `middle(dy, x, gate, up, weights, activation) -> (dgate_up [M, 2H], product [M, H])`, for dy and x [M, D]: the
      gradients of gate and up side by side, and what the down projection got, each contiguous and in new memory of its
      own. With it a compiled graph has the products of the backward as PyTorch's own; without it `backward` runs there.

    `weights` are `mlpfusion_kernels.Weights`. The functions run below autograd, so that both write down what they
    compute; none may keep or return its operands.
    """

    forward: Callable[[Tensor, Weights, str, bool], tuple[Tensor, Tensor | None, Tensor | None]]
    backward: Callable[..., tuple[Tensor | None, ...]]
    unreadable: Callable[..., str | None]
    middle: Callable[..., tuple[Tensor, Tensor]] | None = None


@runtime_checkable
class Backend(Protocol):
    """One implementation of the gated MLP.

    `bind` does the one-time work; what happens inside the callable that it returns is what gets measured. One that also
    runs a `PackedGatedMLP`, whose gate and up are one layer, says so by an attribute `takes_packed = True`. By
    `compiles = True` it says that torch.compile makes its calls: its row fails where that compiled nothing; by
    `replays_graphs = True` that they replay CUDA graphs: its row has a note where none was launched. By an attribute
    `on_tensors`, an `OnTensors`, it can stand in a graph of torch.compile without a module.

    Results name the version of the package that a backend comes from, of what that requires, of every package that is
    imported for it, and of those that an attribute `distributions`, a tuple of names, adds. After `bind` an attribute
    `loaded` may name what was loaded from elsewhere and in which version: `{"owner/name": "revision"}`.
    """

    name: str

    def unsupported(self, spec: MLPSpec, device: Device) -> str | None:
        """None if this backend can run `spec` on `device`, else the reason that the user reads."""
        ...

    def bind(self, mlp: GatedLayers) -> Callable[[Tensor], Tensor]:
        """A callable from x [..., hidden_size] to y [..., hidden_size] on the module's own weights.

        Raises:
            BackendUnavailableError: this module cannot be run, with the reason.
        """
        ...


def names() -> list[str]:
    """Every registered backend: the built-in ones in table order, then third parties by name."""
    ours = built_in()
    return ours + sorted({point.name for point, _ in _registered()} - {*ours, *OF_A_FILE})


def built_in() -> list[str]:
    """The backends that our own distribution registers, in table order."""
    found = {point.name for point, ours in _registered() if ours} - set(OF_A_FILE)
    return [name for name in ORDER if name in found] + sorted(found - set(ORDER))


def check_name(name: str) -> str:
    """`name` if it can be loaded (registered, `file.py:Class`, or `auto:FILE` of a choice), else a `UsageError`."""
    if _is_loose(name):
        path = Path(name.rpartition(":")[0])
        if not _is_text(name):
            raise UsageError(f"backend {name!r} is no text in this locale; valid: one of UTF-8, as by LC_ALL=C.UTF-8")
        if not path.is_file():
            raise UsageError(f"backend file {str(path)!r} does not exist")
        return name
    if of_a_file(name):
        _of_a_file(name)
        return name
    known = names()
    if name not in known:
        raise UnknownBackendError(
            f"unknown backend {name!r}; known: {', '.join(known)} (or ./file.py:Class, or auto:choice.json)"
        )
    return name


def of_a_file(name: str) -> bool:
    """Whether a name is that of a backend of a file, whether or not it names one."""
    return name.partition(":")[0] in OF_A_FILE


def held(backend: str | Backend) -> str | Backend:
    """A backend as a module keeps it: its name, or the backend itself if it is of a file, which is read now."""
    return load(backend) if isinstance(backend, str) and of_a_file(backend) else backend


def is_built_in(name: str) -> bool:
    """Whether a backend is one of ours, so that its class says what stands behind it."""
    return of_a_file(name) or any(ours for point, ours in _registered() if point.name == name)


def load(name: str) -> Backend:
    """The backend called `name`: a registered one, one of a file, or the class in a loose file, `./mine.py:Mine`.

    Raises:
        UnknownBackendError: nothing has this name.
        UsageError: the file of `auto:FILE` is missing, or holds no choice.
        BackendUnavailableError: it exists but cannot be imported, or is no backend; the reason says which.
    """
    if of_a_file(name):
        return _of_a_file(name)
    check_name(name)
    try:
        made: object = _load_loose(name)() if _is_loose(name) else points(name)[0].load()()
    except (Exception, SystemExit) as error:  # a third-party plugin may raise anything; its row has the reason
        reason = f"cannot be loaded: {type(error).__name__}: {private.text(first_line(error))}"
        raise BackendUnavailableError(name, reason) from error
    if not isinstance(made, Backend):
        missing = [part for part in ("name", "unsupported", "bind") if not hasattr(made, part)]
        raise BackendUnavailableError(name, f"{type(made).__name__} is no backend: it lacks {', '.join(missing)}")
    return made


def release(version: str) -> tuple[int, int]:
    """The first two numbers of a version: (2, 11) of "2.11.0+cu130"."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def both(device: str | None, absent: Callable[[], str | None]) -> str | None:
    """The reason of a device that is none for a backend, and with it what would not be installed either; or None."""
    return device and "; ".join(filter(None, (device, absent())))


def not_captured(error: RuntimeError) -> str:
    """Why there is no CUDA graph of a call: the error inside it, not the one that ending its capture raised over it."""
    inside = error.__context__
    return f"capturing a CUDA graph failed: {first_line(inside if isinstance(inside, RuntimeError) else error)}"


def _of_a_file(name: str) -> Backend:
    registered, _, file = name.partition(":")
    if not file:
        raise UsageError(
            f"backend {registered!r} needs a file that `mlpfusion choose` wrote, as in {registered}:choice.json"
        )
    found = points(registered)
    if not found:
        raise BackendUnavailableError(name, "mlpfusion was installed without it; install it again")
    made: Backend = found[0].load()(file)
    return made


def _is_loose(name: str) -> bool:
    path, separator, _ = name.rpartition(":")
    return bool(separator) and path.endswith(".py")


def _is_text(name: str) -> bool:
    """Whether a name can be written down: bytes of a path that the locale does not know are lone surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def points(name: str) -> list[metadata.EntryPoint]:
    """The entry points of a name, best first. Another package cannot take the name of a built-in backend."""
    wanted = name.partition(":")[0] if of_a_file(name) else name
    found = [(point, ours) for point, ours in _registered() if point.name == wanted]
    return [point for point, ours in found if ours] or [point for point, _ in found]


def _registered() -> tuple[tuple[metadata.EntryPoint, bool], ...]:
    """The entry points of our group, and whether each is of our distribution."""
    return _read(tuple((folder, _changed(folder)) for folder in sys.path))


@functools.cache
def _read(_state: tuple[tuple[str, int], ...]) -> tuple[tuple[metadata.EntryPoint, bool], ...]:
    """As `_registered`, for one state of the folders of packages: a file of every package is read for it."""
    points = metadata.entry_points(group=GROUP)
    return tuple((point, point.dist is not None and point.dist.name == OURS) for point in points)


def _changed(folder: str) -> int:
    """When something was installed in a folder, or taken away, last: in ns, 0 if there is no such folder."""
    try:
        return Path(folder).stat().st_mtime_ns
    except (OSError, ValueError):  # no path has a null character in it
        return 0


def _load_loose(name: str) -> type:
    path, _, attribute = name.rpartition(":")
    location = Path(path).resolve()
    # Run once for each state of the file: a second run would register its operators twice, for example.
    state = f"{location}:{location.stat().st_mtime_ns}"
    digest = hashlib.sha256(state.encode("utf-8", "surrogateescape")).hexdigest()  # in the C locale a path is bytes
    module_name = f"mlpfusion_loose_{location.stem}_{digest[:12]}"
    if module_name in sys.modules:
        return _attribute(sys.modules[module_name], path, attribute)
    spec = util.spec_from_file_location(module_name, location)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not an importable file")
    module = util.module_from_spec(spec)
    sys.modules[module_name] = module  # pickling and Triton look a module up by name
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[module_name]
        raise
    return _attribute(module, path, attribute)


def _attribute(module: ModuleType, path: str, attribute: str) -> type:
    if not hasattr(module, attribute):
        raise ImportError(f"{path} has no {attribute!r}")
    loaded: type = getattr(module, attribute)
    return loaded
