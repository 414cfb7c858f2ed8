"""`fused-graph`: `fused`, captured as a CUDA graph for each kind of input and replayed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.nn import Linear

from mlpfusion.backend import not_captured
from mlpfusion.backends.bypass import GLOBAL, refuse_bypassed
from mlpfusion.backends.fused import Fused
from mlpfusion.errors import BackendUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlpfusion.backend import Backend, GatedLayers
    from mlpfusion.device import Device
    from mlpfusion.spec import MLPSpec

# Graphs kept for one module, the oldest given up first: each holds its input, its output and its intermediates.
LIMIT: Final = 16
WARMUP_CALLS: Final = 3  # PyTorch's recipe: what is compiled or tuned is so before the capture

Key = tuple[torch.Size, torch.dtype, int, str | None]  # shape, dtype, stream and how float32 products are computed
Place = tuple[int, torch.Size, tuple[int, ...], torch.dtype]  # address, shape, strides and dtype

_CAPTURE: Final = threading.Lock()  # one capture at a time in a process, whatever its thread


class Site(NamedTuple):
    """Where all graphs of a device and stream are captured: on a stream where nothing else runs, from one pool.

    cuBLAS has a workspace for each stream that it ever ran on, 32 MiB on Hopper by PyTorch's default, which recorded
    kernels go on using. PyTorch frees it when torch.compile records CUDA graphs or, in later versions, another graph of
    the stream ends (its issue 193402). As no call is made on `side` but to record it, the workspace is in the pool, and
    what is freed there goes to none but graphs that run one after another.
    """

    side: torch.cuda.Stream
    pool: Any
    kept: torch.cuda.CUDAGraph  # of nothing much: a pool that no graph is left of cannot be used again
    lock: threading.Lock  # threads may share a stream, and copy, replay and copy belong together


_SITES: Final[dict[tuple[int, int], Site]] = {}


class Graph(NamedTuple):
    """One recorded call: where it reads x and writes y, and the places of the weights, which it reads there."""

    x: Tensor
    y: Tensor
    replay: Callable[[], None]
    weights: list[Place]


class FusedGraph:
    """`fused` without its host cost, for inference with few kinds of input: a copy in, a replay and a copy out.

    The first call with a new shape, dtype, stream or precision of float32 products captures, and so does one after a
    weight has moved; the device is idle meanwhile. The result is the caller's own. Calls under a compiler, under
    autocast or within somebody else's capture run as `fused` does. A call that would need gradients is refused.
    """

    name = "fused-graph"
    replays_graphs = True

    def __init__(self, inner: Backend | None = None) -> None:
        self._inner: Backend = Fused() if inner is None else inner

    def unsupported(self, spec: MLPSpec, device: Device) -> str | None:
        """As `fused`, and CUDA graphs need a GPU that runs the kernels itself."""
        if device.kind == "cpu":
            return "CUDA graphs need a GPU; this run is on the CPU"
        if device.interpreted:
            return "a CUDA graph records no kernel that runs in Triton's interpreter (TRITON_INTERPRET=1)"
        return self._inner.unsupported(spec, device)

    def bind(self, mlp: GatedLayers) -> Callable[[Tensor], Tensor]:
        """x [..., hidden_size] -> y [..., hidden_size]; captures at a call, not here.

        Raises:
            BackendUnavailableError: as `fused`. Later, from a call: gradients would be needed, a projection has a hook,
                another class or a weight that is no parameter, or the capture fails.
        """
        plain = self._inner.bind(mlp)
        projections = (mlp.gate_proj, mlp.up_proj, mlp.down_proj)
        # The dicts themselves, which live as long as their modules: nn.Module finds attributes at a microsecond each.
        tables = tuple(projection._parameters for projection in projections)
        hooks = tuple(
            getattr(projection, name)
            for projection in projections
            for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
        )
        hooks += tuple(GLOBAL.values())
        gate, up, down = projections
        gates, ups, downs = (projection.__dict__ for projection in projections)
        index = mlp.gate_proj.weight.get_device()
        graphs: dict[Key, Graph] = {}
        sites: dict[int, Site] = {}

        def forward(x: Tensor) -> Tensor:
            if torch.compiler.is_compiling() or x.get_device() != index or _elsewhere():
                return plain(x)
            if (
                any(hooks)
                or not (type(gate) is type(up) is type(down) is Linear)
                or ("forward" in gates or "forward" in ups or "forward" in downs)
            ):
                refuse_bypassed(FusedGraph.name, projections)
            if torch.is_grad_enabled() and (x.requires_grad or _trainable(tables)):
                raise BackendUnavailableError(
                    FusedGraph.name,
                    "it is for inference, and this call would need gradients; use torch.no_grad(), or `fused`",
                )
            weights = _places(tables)
            stream = _stream(index)
            # As `fused` asks at each call; other dtypes need not pay for it.
            precision = torch.backends.cuda.matmul.fp32_precision if x.dtype is torch.float32 else None
            key = (x.shape, x.dtype, stream, precision)
            site = sites.get(stream)
            if site is None:
                site = sites[stream] = _site(index, stream)
            with site.lock:
                graph = graphs.get(key)
                if graph is None or graph.weights != weights:
                    _refuse_loose(tables)
                    if not x.numel():
                        return plain(x)
                    _make_room(graphs, key, x.device)
                    graph = graphs[key] = _captured(plain, x, weights, site)
                else:
                    graph.x.copy_(x)
                graph.replay()
                return graph.y.clone()

        return forward


def _elsewhere() -> bool:
    """Whether the call belongs to a capture already, or its dtypes to autocast."""
    return torch.is_autocast_enabled() or torch.cuda.is_current_stream_capturing()


def _stream(index: int) -> int:
    """The current stream of a device. A graph has one input and one output, so two streams must not share it."""
    return torch._C._cuda_getCurrentRawStream(index)


def _site(index: int, stream: int) -> Site:
    """Where what is replayed on a stream of a device is captured; made once.

    Raises:
        BackendUnavailableError: nothing can be captured.
    """
    with _CAPTURE, torch.cuda.device(index):
        if (index, stream) not in _SITES:
            side: torch.cuda.Stream = torch.cuda.Stream(index)  # type: ignore[no-untyped-call]
            pool, kept = torch.cuda.graph_pool_handle(), torch.cuda.CUDAGraph()
            try:
                with torch.cuda.graph(kept, pool=pool, stream=side, capture_error_mode="thread_local"):
                    torch.zeros(1, device=torch.device("cuda", index))
            except RuntimeError as error:
                raise BackendUnavailableError(FusedGraph.name, not_captured(error)) from error
            _SITES[index, stream] = Site(side, pool, kept, threading.Lock())
        return _SITES[index, stream]


def _trainable(tables: tuple[dict[str, torch.nn.Parameter | None], ...]) -> bool:
    return any(one is not None and one.requires_grad for table in tables for one in table.values())


def _places(tables: tuple[dict[str, torch.nn.Parameter | None], ...]) -> list[Place]:
    """Addresses and layouts of the weights and biases: one address may have a transposed, cut or cast one."""
    return [
        (one.data_ptr(), one.shape, one.stride(), one.dtype)
        for table in tables
        for one in table.values()
        if one is not None
    ]


def _refuse_loose(tables: tuple[dict[str, torch.nn.Parameter | None], ...]) -> None:
    """Refuse a weight that has left the tables, whose moves no later call would see."""
    for projection, table in zip(("gate_proj", "up_proj", "down_proj"), tables, strict=True):
        for name in ("weight", "bias"):
            if name not in table:
                reason = f"{projection}.{name} is no parameter, so a later call could not detect whether it has moved"
                raise BackendUnavailableError(FusedGraph.name, reason)


def _make_room(graphs: dict[Key, Graph], key: Key, device: torch.device) -> None:
    """Give up the graph of this key, whose weights have moved, or the oldest one of too many."""
    given_up = [key] if key in graphs else list(graphs)[: max(0, len(graphs) + 1 - LIMIT)]
    if given_up and device.type == "cuda":
        torch.cuda.synchronize(device)  # a replay that still runs needs its memory
    for each in given_up:
        del graphs[each]


def _captured(plain: Callable[[Tensor], Tensor], x: Tensor, weights: list[Place], site: Site) -> Graph:
    """Captures `plain` with x as the static input.

    Graphs of one stream run one after another, so what they need between input and output comes from one pool.
    """
    # Neither mode of the caller's may stick to the buffers: an inference tensor cannot be written outside of it.
    with _CAPTURE, torch.inference_mode(False), torch.no_grad(), torch.cuda.device(x.device):
        held = torch.empty(x.shape, dtype=x.dtype, device=x.device).copy_(x)
        for _ in range(WARMUP_CALLS):
            plain(held)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=site.pool, stream=site.side, capture_error_mode="thread_local"):
                y = plain(held)
        except RuntimeError as error:
            raise BackendUnavailableError(FusedGraph.name, not_captured(error)) from error
    return Graph(held, y, graph.replay, weights)
