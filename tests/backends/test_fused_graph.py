"""The `fused-graph` backend without a GPU: its refusals, and which calls record, replay or run plainly."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.bypassed import CHANGES, Doubled, Tripled, change_a_layer
from torch import nn
from torch.nn.utils import parametrize
from torch.utils.flop_counter import FlopCounterMode

from mlpfusion.backend import Backend
from mlpfusion.backends import fused_graph
from mlpfusion.backends.eager import Eager
from mlpfusion.backends.fused_graph import LIMIT, FusedGraph, Graph
from mlpfusion.device import Device
from mlpfusion.errors import BackendUnavailableError
from mlpfusion.module import GatedMLP
from mlpfusion.spec import MLPSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

SPEC = MLPSpec(hidden_size=16, intermediate_size=32, dtype="float32")
H100 = Device(kind="cuda", name="NVIDIA H100 80GB HBM3", runtime="cuda", capability=(9, 0))


class Recorder:
    """Stands in for CUDA: a graph that runs the call anew when it is replayed, and a count of what happened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.captures, self.replays, self.stream, self.capturing = 0, 0, 0, False
        monkeypatch.setattr(fused_graph, "_captured", self.captured)
        monkeypatch.setattr(fused_graph, "_site", self.site)
        monkeypatch.setattr(fused_graph, "_stream", lambda index: self.stream)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: self.capturing)

    def site(self, index: int, stream: int) -> Any:
        return SimpleNamespace(lock=threading.Lock())

    def captured(self, plain: Callable[[Tensor], Tensor], x: Tensor, weights: list[Any], site: Any) -> Graph:
        self.captures += 1
        held = x.clone()
        y = plain(held)

        def replay() -> None:
            self.replays += 1
            y.copy_(plain(held))

        return Graph(held, y, replay, weights)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    return Recorder(monkeypatch)


def bound(mlp: GatedMLP) -> Callable[[Tensor], Tensor]:
    return FusedGraph(Eager()).bind(mlp)


def test_it_is_a_backend() -> None:
    assert isinstance(FusedGraph(), Backend)
    assert FusedGraph.name == "fused-graph"


def test_it_needs_a_gpu_and_what_it_wraps() -> None:
    class Never(Eager):
        def unsupported(self, spec: MLPSpec, device: Device) -> str | None:
            return "never"

    assert "need a GPU" in (FusedGraph(Eager()).unsupported(SPEC, Device(kind="cpu", name="a CPU")) or "")
    interpreted = Device(kind="cuda", name="NVIDIA H100", runtime="cuda", capability=(9, 0), interpreted=True)
    assert "TRITON_INTERPRET" in (FusedGraph(Eager()).unsupported(SPEC, interpreted) or "")
    assert FusedGraph(Never()).unsupported(SPEC, H100) == "never"
    assert FusedGraph(Eager()).unsupported(SPEC, H100) is None


@torch.no_grad()
def test_one_capture_for_each_shape_and_stream(recorder: Recorder) -> None:
    mlp = GatedMLP(SPEC)
    call = bound(mlp)
    for stream in (0, 7):
        recorder.stream = stream
        for shape in ((1, 16), (4, 16), (2, 2, 16), (1, 16), (4, 16)):
            x = torch.randn(shape)
            torch.testing.assert_close(call(x), mlp(x))
    assert (recorder.captures, recorder.replays) == (6, 10)


@torch.no_grad()
def test_a_result_is_the_callers_own_and_inputs_of_any_strides_are_read(recorder: Recorder) -> None:
    mlp = GatedMLP(SPEC)
    call, x = bound(mlp), torch.randn(16, 4).T
    kept = call(x)
    expected = mlp(x)
    call(torch.randn(4, 16))
    assert torch.equal(kept, expected)
    assert recorder.captures == 1


@torch.no_grad()
def test_a_weight_that_moved_is_captured_again_and_one_that_changed_is_not(recorder: Recorder) -> None:
    mlp, x = GatedMLP(SPEC), torch.randn(1, 16)
    call = bound(mlp)
    call(x)
    mlp.up_proj.weight.mul_(2)
    torch.testing.assert_close(call(x), mlp(x))
    assert recorder.captures == 1
    held = mlp.up_proj.weight.data
    mlp.up_proj.weight.data = 3 * held
    torch.testing.assert_close(call(x), mlp(x))
    assert recorder.captures == 2
    mlp.down_proj.weight = nn.Parameter(5 * mlp.down_proj.weight)
    call(x)
    assert recorder.captures == 3
    mlp.down_proj.bias = nn.Parameter(torch.ones(16))
    call(x)
    assert recorder.captures == 4


def turned(mlp: GatedMLP) -> None:
    mlp.up_proj.weight.data = mlp.up_proj.weight.data.t()


def cut(mlp: GatedMLP) -> None:
    for part in (mlp.gate_proj, mlp.up_proj):
        part.weight.data, part.bias.data = part.weight.data[:8], part.bias.data[:8]
    mlp.down_proj.weight.data = mlp.down_proj.weight.data[:, :8]


def bias_repeated(mlp: GatedMLP) -> None:
    mlp.down_proj.bias.data = mlp.down_proj.bias.data.as_strided((16,), (0,))


@torch.no_grad()
@pytest.mark.parametrize("change", [turned, cut, bias_repeated])
def test_the_same_address_is_not_the_same_weight(recorder: Recorder, change: Callable[[GatedMLP], None]) -> None:
    mlp = GatedMLP(MLPSpec(hidden_size=16, intermediate_size=16, dtype="float32", bias=True))
    call, x = bound(mlp), torch.randn(2, 16)
    call(x)
    change(mlp)
    torch.testing.assert_close(call(x), mlp(x))
    call(x)
    assert (recorder.captures, recorder.replays) == (2, 3)


@torch.no_grad()
def test_a_weight_read_as_another_dtype_is_not_replayed(recorder: Recorder) -> None:
    mlp = GatedMLP(MLPSpec(hidden_size=16, intermediate_size=32, dtype="float16"))
    call, x = bound(mlp), torch.randn(2, 16).half()
    call(x)
    mlp.down_proj.weight.data = mlp.down_proj.weight.data.view(torch.bfloat16)
    with pytest.raises(RuntimeError, match="dtype"):  # what the call itself says of it
        call(x)
    assert recorder.replays == 1


PRECISIONS = {
    "allow_tf32": (lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", True)),
    "set_float32_matmul_precision": (lambda: torch.set_float32_matmul_precision("high")),
    "fp32_precision": (lambda: setattr(torch.backends.cuda.matmul, "fp32_precision", "tf32")),
    "for all": (lambda: setattr(torch.backends, "fp32_precision", "tf32")),
}


@pytest.fixture
def precision() -> Iterator[None]:
    """PyTorch's settings of float32 products as they were, afterwards."""
    matmul, everywhere = torch.backends.cuda.matmul.fp32_precision, torch.backends.fp32_precision
    high = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(high)
    torch.backends.fp32_precision, torch.backends.cuda.matmul.fp32_precision = everywhere, matmul


@torch.no_grad()
@pytest.mark.usefixtures("precision")
@pytest.mark.parametrize("how", PRECISIONS)
@pytest.mark.parametrize(("dtype", "captures"), [("float32", 2), ("bfloat16", 1)])
def test_float32_products_follow_the_precision_of_the_moment(
    recorder: Recorder, how: str, dtype: str, captures: int
) -> None:
    mlp = GatedMLP(MLPSpec(hidden_size=16, intermediate_size=32, dtype=dtype))
    call, x = bound(mlp), torch.randn(2, 16).to(getattr(torch, dtype))
    before = torch.backends.cuda.matmul.fp32_precision
    call(x)
    PRECISIONS[how]()
    assert torch.backends.cuda.matmul.fp32_precision == "tf32" != before
    call(x)
    call(x)
    assert (recorder.captures, recorder.replays) == (captures, 3)


@torch.no_grad()
def test_graphs_are_bounded_and_the_oldest_goes_first(recorder: Recorder) -> None:
    mlp = GatedMLP(SPEC)
    call = bound(mlp)
    for rows in range(1, LIMIT + 2):
        call(torch.randn(rows, 16))
    assert recorder.captures == LIMIT + 1
    call(torch.randn(LIMIT + 1, 16))
    call(torch.randn(2, 16))
    assert recorder.captures == LIMIT + 1
    call(torch.randn(1, 16))  # given up
    assert recorder.captures == LIMIT + 2


def test_a_call_that_needs_gradients_is_refused(recorder: Recorder) -> None:
    mlp, x = GatedMLP(SPEC), torch.randn(2, 16)
    call = bound(mlp)
    with pytest.raises(BackendUnavailableError, match=r"'fused-graph'.*no_grad"):
        call(x)
    mlp.requires_grad_(False)
    call(x)
    with pytest.raises(BackendUnavailableError, match=r"'fused-graph'.*no_grad"):
        call(x.requires_grad_())
    with torch.inference_mode():
        assert call(x).is_inference()
    assert recorder.captures == 1


@torch.no_grad()
def test_calls_within_a_capture_a_compiler_or_autocast_run_plainly(recorder: Recorder) -> None:
    mlp, x = GatedMLP(SPEC), torch.randn(2, 16)
    call = bound(mlp)
    recorder.capturing = True
    torch.testing.assert_close(call(x), mlp(x))
    recorder.capturing = False
    torch.set_autocast_enabled("cuda", True)
    try:
        torch.testing.assert_close(call(x), mlp(x))
    finally:
        torch.set_autocast_enabled("cuda", False)
    compiled = torch.compile(call, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x), mlp(x))
    assert call(x[:0]).shape == (0, 16)
    assert recorder.captures == 0


@torch.no_grad()
@pytest.mark.parametrize("kind", ["forward", "forward_pre", "full_backward", "full_backward_pre"])
def test_a_replay_that_would_bypass_a_global_hook_is_refused(recorder: Recorder, kind: str) -> None:
    mlp, x = GatedMLP(SPEC), torch.randn(2, 16)
    call = bound(mlp)
    expected = call(x)
    hook = getattr(torch.nn.modules.module, f"register_module_{kind}_hook")(lambda *_: None)
    try:
        with pytest.raises(BackendUnavailableError, match=r"'fused-graph'.*has a global .*hook, which this backend"):
            call(x)
    finally:
        hook.remove()
    with FlopCounterMode(display=False):
        assert torch.equal(call(x), expected)
    assert (recorder.captures, recorder.replays) == (1, 2)


@torch.no_grad()
@pytest.mark.parametrize("change", CHANGES)
def test_what_a_replay_would_bypass_is_refused(recorder: Recorder, change: str) -> None:
    mlp, x = GatedMLP(SPEC), torch.randn(2, 16)
    call = bound(mlp)
    call(x)
    change_a_layer(mlp, change)
    with pytest.raises(BackendUnavailableError, match=r"'fused-graph'.*would bypass"):
        call(x)
    assert recorder.replays == 1


@torch.no_grad()
@pytest.mark.parametrize("called", [True, False])
@pytest.mark.parametrize("part", ["gate_proj", "up_proj", "down_proj"])
def test_a_layer_of_another_class_is_refused(recorder: Recorder, part: str, called: bool) -> None:
    for change in ("class", "weight", "bias"):
        mlp, x = GatedMLP(MLPSpec(hidden_size=16, intermediate_size=32, dtype="float32", bias=True)), torch.randn(2, 16)
        call, layer = bound(mlp), getattr(mlp, part)
        if called:
            call(x)
        before = recorder.captures
        if change == "class":
            layer.__class__ = Tripled
        else:
            parametrize.register_parametrization(layer, change, Doubled())
        with pytest.raises(BackendUnavailableError, match=r"'fused-graph'.*has become a \w+, which this backend would"):
            call(x)
        assert recorder.captures == before


@torch.no_grad()
@pytest.mark.parametrize("called", [True, False])
@pytest.mark.parametrize("name", ["weight", "bias"])
def test_a_weight_that_is_no_parameter_is_refused(recorder: Recorder, name: str, called: bool) -> None:
    mlp, x = GatedMLP(MLPSpec(hidden_size=16, intermediate_size=32, dtype="float32", bias=True)), torch.randn(2, 16)
    call = bound(mlp)
    if called:
        call(x)
    value = getattr(mlp.up_proj, name).detach().clone()
    delattr(mlp.up_proj, name)
    setattr(mlp.up_proj, name, value)
    with pytest.raises(BackendUnavailableError, match=f"'fused-graph'.*up_proj.{name} is no parameter"):
        call(x)
    assert recorder.replays == called
