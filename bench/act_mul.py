"""Times act·mul forward and backward against copies of the same traffic and baselines, with the host cost.

python bench/act_mul.py --out act_mul.json    (about a minute on an H100; `--device cpu` only tries the script out)
"""

from __future__ import annotations

import argparse
import gc
import importlib.metadata
import json
import random
import statistics
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from asked import result_file
from mlpfusion_kernels import act_mul
from mlpfusion_kernels.elementwise.autograd import _act_mul_op
from mlpfusion_kernels.elementwise.kernels import act_mul_flat_kernel
from mlpfusion_kernels.elementwise.launch import FORWARD_TILE, Tile, act_mul_backward, act_mul_forward
from mlpfusion_kernels.sources import DIGEST

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPES = ((8192, 3072), (8192, 16384))
TILES = (Tile(512, 2), Tile(512, 4), Tile(1024, 2), Tile(1024, 8), Tile(2048, 4), Tile(2048, 8), Tile(4096, 8))
COPY = "limit: "  # begins the names in result files of kernels that move the same bytes with the least arithmetic
FLUSH_BYTES = 256 * 2**20  # five times the L2 of an H100 or H200


@triton.jit  # type: ignore[untyped-decorator]
def five_stream_copy_kernel(a, b, c, d, e, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Read three streams and write two, with the least arithmetic that uses all three."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offsets = start + tl.arange(0, BLOCK)
    x, y, z = tl.load(a + offsets), tl.load(b + offsets), tl.load(c + offsets)
    tl.store(d + offsets, x + y)
    tl.store(e + offsets, x + z)


class Candidate(NamedTuple):
    """One thing to time; `prepare` runs before each execution, outside the time."""

    name: str
    run: Callable[[], object]
    prepare: Callable[[], object] | None = None
    grad: bool = False


def five_stream_copy(tensors: tuple[torch.Tensor, ...], tile: Tile) -> Callable[[], object]:
    """The backward's traffic without its arithmetic."""
    n = tensors[0].numel()

    def run() -> None:
        five_stream_copy_kernel[(n // tile.elements,)](*tensors, n, BLOCK=tile.elements, num_warps=tile.warps)

    return run


def forward_candidates(gate: torch.Tensor, up: torch.Tensor) -> list[Candidate]:
    """The copy, ours, every tile of ours, ours on packed halves, and the installed baselines."""
    out = torch.empty_like(gate)
    halves = torch.cat([gate, up], dim=-1).chunk(2, dim=-1)
    compiled = torch.compile(lambda g, u: F.gelu(g, approximate="tanh") * u)
    candidates = [
        Candidate(f"{COPY}torch.add", lambda: torch.add(gate, up, out=out)),
        Candidate("act_mul", lambda: act_mul(gate, up, "gelu_tanh")),
        Candidate("act_mul packed halves", lambda: act_mul(halves[0], halves[1], "gelu_tanh")),
        Candidate("act_mul gelu", lambda: act_mul(gate, up, "gelu")),
        Candidate("act_mul silu", lambda: act_mul(gate, up, "silu")),
        Candidate("inductor", lambda: compiled(gate, up)),
    ]
    for tile in TILES:
        name = f"act_mul tile {tile.elements} w{tile.warps}"
        candidates.append(Candidate(name, lambda tile=tile: act_mul_forward(gate, up, "gelu_tanh", tile)))  # type: ignore[misc]
    liger = liger_geglu()
    if liger is not None and gate.is_cuda:
        candidates.append(Candidate("liger", lambda: liger.geglu_forward(gate, up)))
    return candidates


def backward_candidates(gate: torch.Tensor, up: torch.Tensor, dy: torch.Tensor) -> list[Candidate]:
    """The same for the backward, which reads dy, gate and up and writes two gradients."""
    outputs = torch.empty_like(gate), torch.empty_like(up)

    def formula(v: torch.Tensor, g: torch.Tensor, u: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.ops.aten.gelu_backward(v * u, g, approximate="tanh"), v * F.gelu(g, approximate="tanh")

    compiled = torch.compile(formula)
    copies = [
        Candidate(f"{COPY}copy tile {tile.elements} w{tile.warps}", five_stream_copy((dy, gate, up, *outputs), tile))
        for tile in (Tile(1024, 4), Tile(2048, 4), Tile(2048, 8), Tile(4096, 8))
    ]
    candidates = [
        *copies,
        Candidate("act_mul", lambda: act_mul_backward(dy, gate, up, "gelu_tanh", True, True)),
        Candidate("act_mul gelu", lambda: act_mul_backward(dy, gate, up, "gelu", True, True)),
        Candidate("inductor", lambda: compiled(dy, gate, up)),
    ]
    for tile in TILES:
        name = f"act_mul tile {tile.elements} w{tile.warps}"

        def run(tile: Tile = tile) -> object:
            return act_mul_backward(dy, gate, up, "gelu_tanh", True, True, tile)

        candidates.append(Candidate(name, run))
    liger = liger_geglu()
    if liger is not None and gate.is_cuda:
        # Its backward overwrites its operands; gradients of gradients tend to zeros, which run faster than real data.
        own = gate.clone(), up.clone()
        candidates.append(
            Candidate(
                "liger",
                lambda: liger.geglu_backward(own[0], own[1], dy),
                lambda: (own[0].copy_(gate), own[1].copy_(up)),
            )
        )
    return candidates


def liger_geglu() -> Any:
    """Liger's module of raw launches, or None where it is not installed."""
    try:
        from liger_kernel.ops import geglu
    except ImportError:
        return None
    return geglu


def summary(samples: list[float]) -> dict[str, float]:
    """n, median and the 20% and 80% quantiles."""
    cuts = statistics.quantiles(samples, n=5, method="inclusive")
    return {"n": len(samples), "median_us": statistics.median(samples), "p20_us": cuts[0], "p80_us": cuts[3]}


def on_events(candidates: list[Candidate], rounds: int) -> dict[str, dict[str, float]]:
    """Device events around one execution, L2 flushed before the first event, candidates in a new order each round."""
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    spans: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {each.name: [] for each in candidates}
    for _ in range(rounds):
        for candidate in random.sample(candidates, len(candidates)):
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            # The pause lets the host run ahead: without it a short kernel's time would be the host's.
            torch.cuda._sleep(200_000)  # type: ignore[no-untyped-call]
            if candidate.prepare is not None:
                candidate.prepare()
            flush.zero_()
            start.record()
            held = candidate.run()
            stop.record()
            spans[candidate.name].append((start, stop))
            del held
        torch.cuda.synchronize()
    return {name: summary([1e3 * start.elapsed_time(stop) for start, stop in pairs]) for name, pairs in spans.items()}


def captured(candidate: Candidate) -> Candidate:
    """The candidate as one CUDA graph."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(side):
        for _ in range(3):
            candidate.run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        held = candidate.run()

    def replay() -> object:
        graph.replay()
        return held

    return Candidate(candidate.name, replay, candidate.prepare)


def on_wall(candidates: list[Candidate], rounds: int) -> dict[str, dict[str, float]]:
    """Host time of one execution on the CPU, to try the script out."""
    samples: dict[str, list[float]] = {candidate.name: [] for candidate in candidates}
    for _ in range(rounds):
        for candidate in random.sample(candidates, len(candidates)):
            start = time.perf_counter()
            candidate.run()
            samples[candidate.name].append(1e6 * (time.perf_counter() - start))
    return {name: summary(times) for name, times in samples.items()}


def measure(candidates: list[Candidate], *, cuda: bool, rounds: int) -> dict[str, Any]:
    """Every clock this device has, with each median over the fastest copy's."""
    for candidate in candidates:
        candidate.run()
    if cuda:
        torch.cuda.synchronize()
        clocks = {"event": on_events(candidates, rounds)}
        clocks["graph"] = on_events([captured(candidate) for candidate in candidates], rounds)
    else:
        clocks = {"wall": on_wall(candidates, rounds)}
    for rows in clocks.values():
        copy = min(row["median_us"] for name, row in rows.items() if name.startswith(COPY))
        for row in rows.values():
            row["to_limit"] = row["median_us"] / copy
    return clocks


def host_candidates(device: str) -> list[Candidate]:
    """One token through the article's MLP (768 -> 3072 -> 768), and its parts."""
    x = torch.randn(1, 768, device=device, dtype=torch.bfloat16)
    wg, wu = (torch.randn(3072, 768, device=device, dtype=torch.bfloat16).requires_grad_() for _ in range(2))
    wd = torch.randn(768, 3072, device=device, dtype=torch.bfloat16).requires_grad_()
    gate, up = (torch.randn(1, 3072, device=device, dtype=torch.bfloat16) for _ in range(2))
    grad_gate, grad_up = (tensor.clone().requires_grad_() for tensor in (gate, up))
    out = torch.empty_like(gate)
    tile = FORWARD_TILE

    def eager(g: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        return F.gelu(g, approximate="tanh") * u

    def ours(g: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        return act_mul(g, u, "gelu_tanh")

    def mlp(middle: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> torch.Tensor:
        return F.linear(middle(F.linear(x, wg), F.linear(x, wu)), wd)

    def by_jit() -> None:
        act_mul_flat_kernel[(-(-3072 // tile.elements),)](
            gate, up, out, 3072, "gelu_tanh", tile.elements, num_warps=tile.warps
        )

    def backward(middle: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        mlp(middle).sum().backward()  # type: ignore[no-untyped-call]

    plain = {
        "act_mul": lambda: ours(gate, up),
        "custom operator": lambda: _act_mul_op(gate, up, "gelu_tanh", DIGEST),
        "kernel[grid]": by_jit,
        "F.gelu * up": lambda: eager(gate, up),
        "MLP eager": lambda: mlp(eager),
        "MLP act_mul": lambda: mlp(ours),
    }
    with_grad = {
        "act_mul": lambda: ours(grad_gate, grad_up),
        "custom operator": lambda: _act_mul_op(grad_gate, grad_up, "gelu_tanh", DIGEST),
        "F.gelu * up": lambda: eager(grad_gate, grad_up),
        "MLP eager": lambda: mlp(eager),
        "MLP act_mul": lambda: mlp(ours),
        "MLP eager forward+backward": lambda: backward(eager),
        "MLP act_mul forward+backward": lambda: backward(ours),
    }
    return [
        *(Candidate(name, run) for name, run in plain.items()),
        *(Candidate(f"{name}, grad", run, grad=True) for name, run in with_grad.items()),
    ]


def host_cost(candidates: list[Candidate], *, cuda: bool, rounds: int, calls: int) -> dict[str, dict[str, float]]:
    """Time until a call returns, per call of short unsynchronised runs that cannot fill the launch queue."""
    samples: dict[str, list[float]] = {candidate.name: [] for candidate in candidates}
    gc.disable()
    for turn in range(rounds + 1):
        for candidate in random.sample(candidates, len(candidates)):
            with torch.set_grad_enabled(candidate.grad):
                if cuda:
                    torch.cuda.synchronize()
                start = time.perf_counter()
                for _ in range(calls):
                    candidate.run()
                if turn > 0:  # the first turn compiles
                    samples[candidate.name].append(1e6 * (time.perf_counter() - start) / calls)
    gc.enable()
    return {name: summary(times) for name, times in samples.items()}


def environment(*, cuda: bool) -> dict[str, str | None]:
    """What the numbers depend on."""
    try:
        liger: str | None = importlib.metadata.version("liger-kernel")
    except importlib.metadata.PackageNotFoundError:
        liger = None
    return {
        "gpu": torch.cuda.get_device_name() if cuda else None,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "liger": liger,
    }


def show(title: str, rows: dict[str, dict[str, float]]) -> None:
    """Print one table, fastest first."""
    compared = any("to_limit" in row for row in rows.values())
    over = "; x: fastest copy of the same traffic / this, above 1 is faster" if compared else ""
    print(f"\n{title}{over}")
    for name, row in sorted(rows.items(), key=lambda item: item[1]["median_us"]):
        speedup = f"  {1 / row['to_limit']:.3f}x" if "to_limit" in row else ""
        shown = name.replace(COPY, "same traffic: ")
        print(f"  {shown:32s} {row['median_us']:9.2f} us  [{row['p20_us']:.2f}, {row['p80_us']:.2f}]{speedup}")


def main() -> None:
    """Measure everything, print tables, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=result_file, help="write the numbers here as JSON")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    cuda = options.device == "cuda"
    torch.manual_seed(0)
    random.seed(0)
    result: dict[str, Any] = {"schema": 1, "kind": "act-mul", "environment": environment(cuda=cuda)}
    for rows, columns in SHAPES if cuda else ((64, 256),):
        gate, up, dy = (torch.randn(rows, columns, device=options.device).bfloat16() for _ in range(3))
        candidates = {"forward": forward_candidates(gate, up), "backward": backward_candidates(gate, up, dy)}
        for direction, each in candidates.items():
            clocks = measure(each, cuda=cuda, rounds=options.rounds)
            result[f"{direction} {rows}x{columns}"] = clocks
            for clock, table in clocks.items():
                show(f"{direction} {rows}x{columns}, {clock} clock", table)
    result["host"] = host_cost(
        host_candidates(options.device), cuda=cuda, rounds=options.rounds, calls=50 if cuda else 2
    )
    show("host cost per call, M = 1", result["host"])
    if options.out is not None:
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
