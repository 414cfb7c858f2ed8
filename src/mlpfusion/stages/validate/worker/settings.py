"""Reads what a call may leave changed in its process: settings, modes, hooks and generators of random numbers."""

from __future__ import annotations

import collections
import contextlib
import gc
import itertools
import logging
import multiprocessing
import os
import random
import signal
import socket
import sys
import threading
import warnings
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
import torch.multiprocessing
from torch.nn.modules import module as modules

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from types import FrameType

# What Inductor sets when it compiles.
INDUCTOR: Final = frozenset(
    {
        "CUBLAS_WORKSPACE_CONFIG",
        "KMP_DUPLICATE_LIB_OK",
        "TORCHINDUCTOR_CACHE_DIR",
        "TORCH_WARM_POOL",
        "TRITON_CACHE_DIR",
        "TRITON_LIBDEVICE_PATH",
        "TRITON_PTXAS_PATH",
        "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR",
    }
)
POOLS: Final = ("ThreadPoolExecutor", "tqdm_monitor")  # threads of a compilation, which wait
_INDUCTOR_FOLDER: Final = f"{os.sep}torch{os.sep}_inductor{os.sep}"  # where the code of more of them is, by any name
# The generators, which a call that draws or seeds changes for whoever draws next.
GENERATORS: Final = (
    "torch's generator of random numbers",
    "torch's generator of random numbers on the GPU",
    "the generator of the module random",
    "the generator of numpy.random",
)
_CUDA: Final[Any] = torch.cuda
_PRINTED: Final[Any] = torch._tensor_str.PRINT_OPTS
_COMPILER: Final = ("torch._dynamo.config", "torch._inductor.config", "torch._functorch.config")
# What the worker sets itself before it serves a request.
_OURS: Final = frozenset(
    ("recompile_limit", "accumulated_recompile_limit", "cache_size_limit", "accumulated_cache_size_limit")
)
_HOOKS: Final = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks")


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # it is gone
        return ""


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in INDUCTOR}


def _tf32() -> tuple[object, ...]:
    backends: Any = torch.backends
    return (
        torch.get_float32_matmul_precision(),
        backends.cuda.matmul.allow_tf32,
        backends.cudnn.allow_tf32,
        getattr(backends, "fp32_precision", None),
        getattr(backends.cuda.matmul, "fp32_precision", None),
    )


def _sums() -> tuple[bool, bool]:
    matmul: Any = torch.backends.cuda.matmul
    return matmul.allow_fp16_reduced_precision_reduction, matmul.allow_bf16_reduced_precision_reduction


def _flushes() -> bool:
    return bool(torch.tensor([1e-39], device="cpu", dtype=torch.float32).mul_(0.5) == 0)


def _silenced() -> tuple[object, ...]:
    """The filters that hide every warning, whoever shows them, and the level below which nothing is logged."""
    broad = [each for each in warnings.filters if each[0] == "ignore" and each[1] is None and each[3] is None]
    categories = tuple(each[2].__name__ for each in broad if each[2] in {Warning, UserWarning})
    return categories, id(warnings.showwarning), logging.root.manager.disable


def _modes() -> tuple[int, int]:
    core: Any = torch._C
    of_device = getattr(getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None), "device_context", None)  # a mode of its own
    return core._len_torch_function_stack() - (of_device is not None), core._len_torch_dispatch_stack()


def _hooks() -> tuple[int, ...]:
    return tuple(len(getattr(modules, name, ())) for name in _HOOKS)


def _signals() -> tuple[object, ...]:
    return tuple(signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM))


def _numpy() -> tuple[object, ...]:
    state: Any = np.random.get_state()
    return state[1].tobytes(), *state[2:]


def _on_the_gpu() -> bytes | None:
    return _CUDA.get_rng_state().numpy().tobytes() if _CUDA.is_initialized() else None


def _threads() -> tuple[str, ...]:
    frames = sys._current_frames()
    found = (each for each in threading.enumerate() if not each.name.startswith(POOLS))
    left = (each for each in found if each.ident is None or not _compiles(frames.get(each.ident)))
    return tuple(sorted(f"{each.name} ({each.ident})" for each in left))


def _compiles(frame: FrameType | None) -> bool:
    """Whether a thread was started by Inductor: it reads what subprocesses that compile for a GPU answer."""
    files = []
    while frame is not None:
        files.append(frame.f_code.co_filename)
        frame = frame.f_back
    started = [each for each in files if each != threading.__file__]
    return bool(started) and _INDUCTOR_FOLDER in started[-1]


def _compiler() -> tuple[str, ...]:
    """The settings of PyTorch's compiler that somebody set; none while nobody has imported it.

    They are read as a difference to its defaults, since what changes them may be what imports it.
    """
    found = []
    for name in _COMPILER:
        entries: dict[str, Any] = getattr(sys.modules.get(name), "_config", {})
        for key, entry in entries.items():
            override = getattr(entry, "user_override", None)
            set_to = override.get() if isinstance(override, ContextVar) else override
            if key not in _OURS and type(set_to) in {bool, int, float, str} and set_to != entry.default:
                found.append(f"{name.removeprefix('torch.')}.{key} = {set_to}")
    return tuple(found)


def _hooks_of_saved_tensors() -> tuple[str, ...]:
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True) or ()  # None, or a tuple made anew
    return tuple(f"{hook.__module__}.{hook.__qualname__}" for hook in hooks)


def _handlers() -> tuple[str, ...]:
    return tuple(f"{type(each).__name__} ({id(each)})" for each in logging.root.handlers)


def _start_method() -> str:
    """How processes are started; whoever asks for the default makes it the one that is set."""
    return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]


def _printing() -> tuple[object, ...]:
    return tuple(vars(_PRINTED).values())


def _attention() -> tuple[bool, ...]:
    backend: Any = torch.backends.cuda
    return backend.flash_sdp_enabled(), backend.mem_efficient_sdp_enabled(), backend.math_sdp_enabled()


AUTOCAST_DTYPES: Final = "the dtypes of autocast on a CPU and on a GPU"
AUTOCAST_DEVICES: Final = ("cpu", "cuda")
# What calls left changed within a mode that a probe set and that has been put back, by their names, and how.
LEFT_WITHIN: Final[dict[str, str]] = {}
CONFIG: Final = "the config that its constructor is given"
CONFIG_CHANGES: Final[collections.Counter[str]] = collections.Counter()  # by constructors, and how often
CONSTRUCTOR: Final = "its constructor"
SEEDED: Final[collections.Counter[str]] = collections.Counter()  # generators, by constructors, and how often

_READERS: Final[dict[str, Callable[[], object]]] = {
    "the default dtype": torch.get_default_dtype,
    "the default device": torch.get_default_device,
    "grad mode": torch.is_grad_enabled,
    "inference mode": torch.is_inference_mode_enabled,
    "hooks of saved tensors": _hooks_of_saved_tensors,
    "anomaly detection": torch.is_anomaly_enabled,
    "autocast": lambda: (torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")),
    AUTOCAST_DTYPES: lambda: tuple(torch.get_autocast_dtype(each) for each in AUTOCAST_DEVICES),
    "autocast's cache": torch.is_autocast_cache_enabled,
    "TF32": _tf32,
    "16-bit sums of matrix products": _sums,
    "deterministic algorithms": torch.get_deterministic_debug_mode,
    "cudnn.benchmark": lambda: torch.backends.cudnn.benchmark,
    "cudnn.deterministic": lambda: torch.backends.cudnn.deterministic,
    "oneDNN": lambda: torch.backends.mkldnn.enabled,
    "PyTorch's compiler": _compiler,
    "kernels of attention": _attention,
    "errors of NumPy": lambda: tuple(np.geterr().items()),
    "the level of logging": lambda: (logging.root.level, logging.getLogger("torch").level),
    "the handlers of logging": _handlers,
    "how processes are started": _start_method,
    "how processes share tensors": torch.multiprocessing.get_sharing_strategy,
    "torch's print options": _printing,
    "the timeout of sockets": socket.getdefaulttimeout,
    "the switching of threads": sys.getswitchinterval,
    "the number of threads": torch.get_num_threads,
    "flushing of subnormals": _flushes,
    "modes of torch": _modes,
    "global hooks of modules": _hooks,
    "silenced warnings": _silenced,
    "the working directory": _folder,
    "the environment": _environment,
    "handlers of signals": _signals,
    "stdout and stderr": lambda: (id(sys.stdout), id(sys.stderr)),
    "the collector": lambda: (gc.isenabled(), gc.get_threshold()),
    # Not how many: those of a forked worker are freed one by one when nobody needs them any more.
    "frozen objects": lambda: gc.get_freeze_count() > 0,
    CONFIG: lambda: dict(CONFIG_CHANGES),
    CONSTRUCTOR: lambda: dict(SEEDED),
    "the recursion limit": sys.getrecursionlimit,
    "the tracing of Python": lambda: (sys.gettrace(), sys.getprofile()),
    "its threads": _threads,
    GENERATORS[0]: lambda: torch.get_rng_state().numpy().tobytes(),
    GENERATORS[1]: _on_the_gpu,
    GENERATORS[2]: random.getstate,
    GENERATORS[3]: _numpy,
}
ALL: Final = tuple(_READERS)
# To see whether objects are frozen is to count them, 70 ms for the million of a forked worker: not with each call.
OF_CONSTRUCTORS: Final = (CONFIG, CONSTRUCTOR)
COUNTED: Final = ("frozen objects", *OF_CONSTRUCTORS)
EACH: Final = tuple(name for name in ALL if name not in COUNTED)
_SHOWN: Final = 60  # characters of a value


def read(names: Collection[str] = ALL) -> dict[str, object]:
    """Settings by their names, as values that can be compared."""
    return {name: _value(_READERS[name]) for name in names}


def _value(reader: Callable[[], object]) -> object:
    try:
        return reader()
    except RuntimeError as error:  # old and new ways to set TF32 were mixed, which PyTorch then refuses to read
        return str(error).partition("\n")[0]


@contextlib.contextmanager
def own_generators(seed: int | None = None) -> Iterator[None]:
    """Afterwards every generator is as it was before; within, each starts from `seed` if there is one."""
    kept = torch.get_rng_state(), random.getstate(), np.random.get_state()
    on_the_gpu = _CUDA.get_rng_state() if _CUDA.is_initialized() else None
    if seed is not None:
        stir(seed)
    try:
        yield
    finally:
        torch.set_rng_state(kept[0])
        random.setstate(kept[1])
        np.random.set_state(kept[2])
        if on_the_gpu is not None:
            _CUDA.set_rng_state(on_the_gpu)


@contextlib.contextmanager
def autocast_to(dtype: torch.dtype) -> Iterator[None]:
    """Within, autocast computes in `dtype` where nobody names another; whether somebody sets that is noted.

    What a call sets it to may be what it is already.
    """
    kept = [(device, torch.get_autocast_dtype(device)) for device in AUTOCAST_DEVICES]
    try:
        for device in AUTOCAST_DEVICES:
            torch.set_autocast_dtype(device, dtype)
        set_here = read((AUTOCAST_DTYPES,))
        yield
        LEFT_WITHIN.update(changed(set_here))
    finally:
        for device, before in kept:
            torch.set_autocast_dtype(device, before)


class Construction:
    """Notes which generators a constructor seeds: two begin from other states and leave one in the same."""

    def __init__(self) -> None:
        self._seeds = itertools.count(1)
        self._last: tuple[object, dict[str, object]] | None = None

    @contextlib.contextmanager
    def watched(self, what: object) -> Iterator[None]:
        """While `what` is made; every generator is then as it was before."""
        with own_generators(next(self._seeds)):
            yield
            ends = read(GENERATORS)
        if self._last is not None and self._last[0] == what:
            before = self._last[1]
            SEEDED.update(name for name, end in ends.items() if end is not None and end == before[name])
        self._last = what, ends


CONSTRUCTION: Final = Construction()


def stir(seed: int | None = None) -> None:
    """Have every generator start from `seed`, or from where no target left it, so that one that seeds is noticed."""
    seed = random.SystemRandom().randrange(2**32) if seed is None else seed
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def changed(before: dict[str, object]) -> dict[str, str]:
    """What differs now, by its name, in words."""
    now = read(before)
    return {name: _told(name, value, now[name]) for name, value in before.items() if now[name] != value}


def _told(name: str, before: Any, now: Any) -> str:
    if name in GENERATORS:
        return "is drawn from or seeded"
    if isinstance(before, dict) and isinstance(now, dict):
        keys = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
        return ("seeds " if name == CONSTRUCTOR else "is changed: ") + ", ".join(keys)
    if isinstance(before, tuple) and isinstance(now, tuple):
        if len(before) == len(now):
            pairs = [(old, new) for old, new in zip(before, now, strict=True) if old != new]
            before, now = (tuple(each) if len(each) > 1 else each[0] for each in zip(*pairs, strict=True))
        else:
            before, now = (tuple(e for e in one if e not in other) for one, other in ((before, now), (now, before)))
    old, new = (_short(each) for each in (before, now))
    return "is changed" if isinstance(now, int) and now > 10**6 else f"was {old} and is {new}"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
