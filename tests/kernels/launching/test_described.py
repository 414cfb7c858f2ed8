"""The direct launch of a kernel with tensor descriptors: what it passes on, what it keeps, and when it is not taken."""

from __future__ import annotations

import gc
import inspect
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from mlpfusion_kernels.launching import cached
from mlpfusion_kernels.launching.cached import CACHE_LIMIT
from mlpfusion_kernels.launching.described import Box, Described, DescribedKernel, box_of
from support.launched import Pointer, streams
from triton import knobs
from triton.backends.nvidia import driver
from triton.compiler import CompiledKernel
from triton.runtime import driver as drivers

# From Triton 3.8 on a descriptor is encoded for a launch. There, as in any unread release, each is Triton's own.
ENCODES_ALONE = len(inspect.signature(driver.make_tensordesc_arg).parameters) == 2
direct = pytest.mark.skipif(not ENCODES_ALONE, reason="in this Triton every launch is its own")

METAS = ["meta of x", "meta of y"]


class Kernel:
    """A JIT kernel: compiles to Triton's own launcher class around a C launcher that only writes its arguments down."""

    def __init__(self) -> None:
        self.pre_run_hooks: list[Any] = []
        self.compiled = 0
        self.metas: Any = METAS
        self.launched: list[tuple[Any, ...]] = []
        self.seen: list[tuple[Any, ...]] = []
        self.options: list[dict[str, Any]] = []

    def __getitem__(self, grid: tuple[int]) -> Any:
        def launch(*arguments: Any, **options: Any) -> CompiledKernel:
            self.compiled += 1
            self.seen.append(arguments)
            self.options.append(options)
            compiled: Any = object.__new__(CompiledKernel)
            compiled.function, compiled.packed_metadata = "function", "packed"
            compiled.module = None  # nothing to unload
            compiled.metadata = SimpleNamespace(tensordesc_meta=self.metas)
            compiled._run = self.launcher(arguments)
            hooks = cached.launch_hooks()
            stream = torch._C._cuda_getCurrentRawStream(arguments[0].base.device)
            compiled.run(*grid, 1, 1, stream, "function", "packed", None, *hooks, *arguments)
            made: CompiledKernel = compiled
            return made

        return launch

    def launcher(self, arguments: tuple[Any, ...]) -> Any:
        """A launcher as Triton makes it, without the machine code."""
        kinds = ["tensordesc<fp16[64,64]>" if isinstance(each, SimpleNamespace) else "i32" for each in arguments]
        made = object.__new__(driver.CudaLauncher)
        made.num_ctas, made.launch_cooperative_grid, made.launch_pdl = 1, False, False
        made.global_scratch_size = made.profile_scratch_size = 0
        made.global_scratch_align = made.profile_scratch_align = 1
        made.gsan_enabled = False  # since Triton 3.8
        made.arg_annotations, made.kernel_signature = "annotations", "signature"
        made.launch = driver.wrap_handle_tensordesc(self.write_down, dict(enumerate(kinds)), self.metas or [])
        return made

    def write_down(self, *arguments: Any) -> None:
        flat = [*arguments[:-1], *arguments[-1]] if isinstance(arguments[-1], list | tuple) else arguments
        self.launched.append(tuple(each.data_ptr() if isinstance(each, Pointer) else each for each in flat))


def describe(box: Box) -> Any:
    return SimpleNamespace(base=box.tensor, shape=list(box.shape), strides=list(box.strides), padding="zero")


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was encoded, in order: the part of Triton that asks the CUDA driver."""
    found: list[Any] = []

    def encode(descriptor: Any, meta: Any) -> list[Any]:
        found.append((descriptor.base.data_ptr(), *descriptor.shape, *descriptor.strides, meta))
        return [("tensor map", found[-1]), *descriptor.shape, *descriptor.strides]

    def encode_for(descriptor: Any, meta: Any, _launch: Any) -> list[Any]:
        return encode(descriptor, meta)

    monkeypatch.setattr(driver, "make_tensordesc_arg", encode if ENCODES_ALONE else encode_for)
    return found


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch, encoded: list[Any]) -> Kernel:
    streams(monkeypatch)
    monkeypatch.setattr(cached, "DIRECT_LAUNCH", ENCODES_ALONE)
    monkeypatch.setattr(drivers, "_active", object())  # looked up at each launch since Triton 3.8, not used
    return Kernel()


def described(kernel: Kernel) -> DescribedKernel:
    launcher = DescribedKernel(kernel, describe)
    launcher.interpreted = False
    return launcher


def box(address: int, *, shape: tuple[int, int] = (96, 64), stride: int = 64, device: int = 0) -> Box:
    tensor: Any = Pointer(address, device)
    return Box(tensor, shape, (stride, 1), (64, 64))


def described_by(*boxes: Box) -> Described:
    """Boxes as a launch is told of them."""
    tensors = tuple(each.tensor for each in boxes)
    return Described(tensors, tuple(size for each in boxes for size in (*each.shape, *each.strides)), lambda: boxes)


X, Y = box(1024), box(4096)
XY, XX = described_by(X, Y), described_by(X, X)
BIAS: tuple[Any, ...] = (Pointer(256),)


@direct
def test_the_second_launch_under_a_key_gives_the_driver_what_tritons_own_launch_gives(kernel: Kernel) -> None:
    launch = described(kernel)
    for _ in range(3):
        launch(("key",), 5, XY, BIAS, (96, "silu"), {"num_warps": 8, "maxnreg": 168})
    assert kernel.compiled == 1
    assert kernel.options == [{"num_warps": 8, "maxnreg": 168}]
    by_triton, *direct = kernel.launched
    assert direct == [by_triton] * 2
    assert by_triton[-3:] == (256, 96, "silu")


@direct
def test_a_descriptor_is_encoded_once_for_each_address_shape_and_strides(kernel: Kernel, encoded: list[Any]) -> None:
    launch = described(kernel)
    launch(("key",), 5, XY, BIAS, (), {})
    encoded.clear()
    others = [X, box(2048), box(1024, shape=(95, 64)), box(1024, stride=72), X, box(2048)]
    for other in others:
        launch(("key",), 5, described_by(other, Y), BIAS, (), {})
        found = next(each for each in kernel.launched[-1] if isinstance(each, tuple) and each[0] == "tensor map")
        assert found[1] == (other.tensor.data_ptr(), *other.shape, *other.strides, METAS[0])
    assert [each[:4] for each in encoded if each[-1] == METAS[0]] == [
        (1024, 96, 64, 64),
        (2048, 96, 64, 64),
        (1024, 95, 64, 64),
        (1024, 96, 64, 72),
    ]
    assert [each for each in encoded if each[-1] == METAS[1]] == [(4096, 96, 64, 64, 1, METAS[1])]
    assert kernel.compiled == 1


@direct
def test_boxes_are_made_for_new_places_alone(kernel: Kernel) -> None:
    """Six of them take as long as the launch itself."""
    launch, made = described(kernel), []

    def told(*boxes: Box) -> Described:
        return described_by(*boxes)._replace(boxes=lambda: made.append(boxes) or boxes)  # type: ignore[func-returns-value]

    moved = box(2048)
    order = [(X, Y), (X, Y), (X, Y), (moved, Y), (X, Y), (moved, Y), (Y, X), (X, Y)]
    for boxes in order:
        launch(("key",), 5, told(*boxes), BIAS, (), {})
        assert [each[1][0] for each in kernel.launched[-1] if isinstance(each, tuple)] == [
            each.tensor.data_ptr() for each in boxes
        ]
    assert made == [(X, Y), (X, Y), (moved, Y), (Y, X)]  # the first of all by Triton's own launch


@direct
def test_one_tensor_in_two_places_is_encoded_for_each(kernel: Kernel, encoded: list[Any]) -> None:
    launch = described(kernel)
    for _ in range(2):
        launch(("key",), 5, XX, BIAS, (), {})
    assert [each[-1] for each in encoded[2:]] == METAS


@direct
def test_another_key_compiles_again_and_encodes_for_itself(kernel: Kernel, encoded: list[Any]) -> None:
    """Two keys may stand for blocks of two sizes, which are part of what is encoded."""
    launch = described(kernel)
    for key in ("a", "b", "a", "b"):
        launch((key,), 5, XY, BIAS, (), {})
    assert kernel.compiled == 2
    assert len(encoded) == 8


@direct
def test_both_caches_are_bounded(kernel: Kernel) -> None:
    launch = described(kernel)
    for number in range(CACHE_LIMIT + 5):
        launch((number,), 1, XY, BIAS, (), {})
    assert len(launch._direct) <= CACHE_LIMIT
    for number in range(2 * CACHE_LIMIT + 5):
        launch((CACHE_LIMIT + 4,), 1, described_by(box(16 * number + 16), Y), BIAS, (), {})
        assert kernel.launched[-1] != kernel.launched[-2]
    kept = launch._direct[CACHE_LIMIT + 4,]
    assert 0 < len(kept.encoded) <= CACHE_LIMIT
    assert 0 < len(kept.launches) <= CACHE_LIMIT


def test_no_tensor_is_kept(kernel: Kernel, encoded: list[Any]) -> None:
    launch = described(kernel)
    x, y, bias = Pointer(1024), Pointer(4096), Pointer(256)
    watched = [weakref.ref(each) for each in (x, y, bias)]
    for _ in range(3):
        boxes: Any = (Box(x, (96, 64), (64, 1), (64, 64)), Box(y, (96, 64), (64, 1), (64, 64)))  # type: ignore[arg-type]
        launch(("key",), 5, described_by(*boxes), (bias,), (), {})  # type: ignore[arg-type]
    kernel.seen.clear()
    del x, y, bias, boxes
    gc.collect()
    assert len(kernel.launched) == 3
    assert [each() for each in watched] == [None] * 3


@direct
@pytest.mark.parametrize("first", [True, False])
def test_a_misaligned_pointer_goes_by_triton_and_is_never_remembered(kernel: Kernel, first: bool) -> None:
    launch = described(kernel)
    odd: Any = (Pointer(264),)
    for tensors in (odd, BIAS, odd, BIAS) if first else (BIAS, odd, BIAS, odd):
        launch(("key",), 5, XY, tensors, (), {})
    assert kernel.compiled == 3
    assert [each[-1] for each in kernel.launched] == ([264, 256, 264, 256] if first else [256, 264, 256, 264])


@direct
@pytest.mark.parametrize("which", ["launch_enter_hook", "launch_exit_hook"])
def test_hooks_see_every_launch(kernel: Kernel, which: str) -> None:
    launch = described(kernel)
    for _ in range(2):
        launch(("key",), 5, XY, BIAS, (), {})
    hook, seen = getattr(knobs.runtime, which), []
    hook.add(seen.append)
    try:
        launch(("key",), 5, XY, BIAS, (), {})
    finally:
        hook.remove(seen.append)
    assert kernel.compiled == 2  # Triton's own launch, which makes the metadata and calls the hooks
    assert any(each is hook for each in kernel.launched[-1])
    launch(("key",), 5, XY, BIAS, (), {})
    assert kernel.compiled == 2


@pytest.mark.parametrize("reason", ["version", "debug", "instrumentation", "stages", "pre_run_hooks", "metadata"])
def test_whatever_needs_tritons_own_launcher_gets_it(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    launch = described(kernel)
    launch(("key",), 5, XY, BIAS, (), {})
    if reason == "version":
        monkeypatch.setattr(cached, "DIRECT_LAUNCH", False)
    elif reason == "debug":
        monkeypatch.setattr(knobs.runtime, "debug", True)
    elif reason == "instrumentation":
        monkeypatch.setattr(knobs.compilation, "instrumentation_mode", "fpsan")
    elif reason == "stages":
        monkeypatch.setattr(knobs.runtime, "add_stages_inspection_hook", lambda *_: ("", ""))
    elif reason == "metadata":
        monkeypatch.setattr(CompiledKernel, "launch_metadata", lambda *_: "metadata")
    else:
        kernel.pre_run_hooks.append(print)
    launch(("key",), 5, XY, BIAS, (), {})
    assert kernel.compiled == 2


@pytest.mark.parametrize("metas", [None, []])
def test_a_kernel_that_was_compiled_without_tma_goes_by_triton(kernel: Kernel, metas: Any) -> None:
    """Below compute capability 9.0 a descriptor is taken apart into a pointer, sizes and strides."""
    kernel.metas = metas
    launch = described(kernel)
    for _ in range(2):
        launch(("key",), 5, XY, BIAS, (), {})
    assert kernel.compiled == 2
    assert launch._direct == {}


def test_a_launcher_of_another_make_goes_by_triton(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    write_down = kernel.write_down
    monkeypatch.setattr(driver, "wrap_handle_tensordesc", lambda *_: lambda *given: write_down(*given))  # noqa: PLW0108
    launch = described(kernel)
    for _ in range(2):
        launch(("key",), 5, XY, BIAS, (), {})
    assert kernel.compiled == 2
    assert launch._direct == {}


def test_a_compilation_that_is_not_finished_is_not_remembered(kernel: Kernel) -> None:
    launch = described(kernel)
    launch._keep(("key",), object())
    assert launch._direct == {}


def test_a_tensor_of_another_device_gets_a_guard(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[int] = []

    class Guard:
        def __init__(self, index: int) -> None:
            self.index = index

        def __enter__(self) -> None:
            entered.append(self.index)

        def __exit__(self, *_: object) -> None:
            entered.append(-1)

    monkeypatch.setattr(torch.cuda, "device", Guard)
    launch = described(kernel)
    there = described_by(box(1024, device=1), box(4096, device=1))
    for _ in range(2):
        launch(("key", 1), 5, there, (), (), {})
    assert entered == [1, -1, 1, -1]
    assert [each[3] for each in kernel.launched] == [701, 701]


def test_a_cpu_tensor_outside_the_interpreter_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached, "is_interpreted", lambda _kernel: False)
    with pytest.raises(RuntimeError, match="cannot run on a CPU tensor; move it to a GPU, or set TRITON_INTERPRET=1"):
        DescribedKernel(Kernel(), describe)((), 1, described_by(box_of(torch.zeros(64, 64), 64, 64)), (), (), {})


def test_the_box_of_a_view_is_the_view() -> None:
    view = torch.zeros(64, 80)[8:40, 16:]
    assert box_of(view, 16, 32) == Box(view, (32, 64), (80, 1), (16, 32))
