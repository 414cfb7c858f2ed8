"""Counts the false alarms of the bounds for act(gate)·up: right forms, many seeds, every scale and dtype.

python bench/false_alarms.py --out bench/results/cpu-false-alarms.json    (a few minutes on a CPU; needs no GPU)

It prints two tables for docs/validate.md. Our kernel runs in Triton's interpreter.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import time
from typing import TYPE_CHECKING, Any, Final

from asked import result_file

os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels are imported, below

import torch
import torch.nn.functional as F
from mlpfusion_kernels import act_mul
from torch import Tensor

from mlpfusion.measure.interpreter import round_to_nearest_even
from mlpfusion.spec import DTYPES, Dtype
from mlpfusion.stages.validate.judge import bounds
from mlpfusion.stages.validate.judge.checks.values import MOST_BIAS_ULP

if TYPE_CHECKING:
    from collections.abc import Callable

    Form = Callable[[Tensor, Tensor], Tensor]

SCALES: Final = (0.01, 1.0, 10.0)
ELEMENTS: Final = 4096
C: Final = math.sqrt(2 / math.pi)
PLAIN: Final = "2^-22·|dy·u|, as in the forward"
CHOSEN: Final = "2^-21·|dy·u|·(1 + |g|)"
STORES: Final = "stores of y, d_gate and d_up"


def eager(gate: Tensor, up: Tensor) -> Tensor:
    """PyTorch's operators: rounds after the activation as well."""
    return F.gelu(gate, approximate="tanh") * up


def in_fp32(form: Form) -> Form:
    """A form computed in float32 and rounded once."""
    return lambda gate, up: form(gate.float(), up.float()).to(gate.dtype)


def by_tanh(g: Tensor, u: Tensor) -> Tensor:
    """0.5·g·(1 + tanh z)·u."""
    return 0.5 * g * (1 + torch.tanh(C * (g + 0.044715 * g * g * g))) * u


def by_exact_exp(g: Tensor, u: Tensor) -> Tensor:
    """The same with tanh from an exponential that cannot overflow."""
    z = C * (g + 0.044715 * g * g * g)
    e = torch.exp(-2 * z.abs())
    return 0.5 * g * (1 + torch.copysign((1 - e) / (1 + e), z)) * u


def by_sigmoid(g: Tensor, u: Tensor) -> Tensor:
    """g·sigmoid(2z)·u."""
    return g * torch.sigmoid(g * (1.5957691216057308 + 0.07135481627260025 * g * g)) * u


def forms() -> dict[str, Form]:
    """Right forms of tanh-GELU times up."""
    return {
        "eager": eager,
        "inductor": torch.compile(eager, fullgraph=True, dynamic=False),
        "tanh form": in_fp32(by_tanh),
        "exact exp form": in_fp32(by_exact_exp),
        "sigmoid form": in_fp32(by_sigmoid),
        "our kernel": lambda gate, up: act_mul(gate, up, "gelu_tanh"),
    }


def scored(form: Form, dtype: Dtype, scale: float, seed: int) -> dict[str, float]:
    """The worst score of y, d_up, and of d_gate by two bounds."""
    generator = torch.Generator().manual_seed(seed)
    narrow: torch.dtype = getattr(torch, dtype)
    gate = (torch.randn(ELEMENTS, generator=generator) * scale).to(narrow).requires_grad_()
    up, dy = (bounds.spread(torch.randn(ELEMENTS, generator=generator), generator).to(narrow) for _ in range(2))
    up.requires_grad_()
    y = form(gate, up)
    dgate, dup = torch.autograd.grad(y, (gate, up), dy)
    at = bounds.Point(gate.detach(), up.detach(), dy)
    right = bounds.gradients(at, "gelu_tanh")[0]
    plain = bounds.EPS[dtype] * right.abs() + bounds.INNER * (dy.double() * at.up.double()).abs() + bounds.TINY[dtype]
    return {
        "y": float(bounds.forward_scores(y.detach(), at.gate, at.up, "gelu_tanh", dtype).max()),
        "d_up": float(bounds.up_scores(dup, at, "gelu_tanh", dtype).max()),
        f"d_gate by {PLAIN}": float(((dgate.double() - right).abs() / plain).max()),
        f"d_gate by {CHOSEN}": float(bounds.gate_scores(dgate, at, "gelu_tanh", dtype).max()),
    }


def swept(form: Form, dtype: Dtype) -> int:
    """Gate values beyond the bound of the sweep, with up = 1 and with the next number."""
    gate = bounds.every_value(dtype)
    ups = (torch.full_like(gate, up) for up in (1.0, 1.0 + bounds.EPS[dtype]))
    return sum(int(bounds.beyond(form(gate, up), gate, up, "gelu_tanh", dtype).sum()) for up in ups)


def biased(form: Form, dtype: Dtype, seed: int) -> dict[str, float]:
    """The mean signed errors of y and of both gradients, in ulp, without their signs."""
    generator = torch.Generator().manual_seed(seed)
    narrow: torch.dtype = getattr(torch, dtype)
    gate = torch.randn(16384, generator=generator).to(narrow).requires_grad_()
    up, dy = (bounds.spread(torch.randn(16384, generator=generator), generator).to(narrow) for _ in range(2))
    y = form(gate, up.requires_grad_())
    dgate, dup = torch.autograd.grad(y, (gate, up), dy)
    at = bounds.Point(gate.detach(), up.detach(), dy)
    gradients = bounds.gradient_biases_in_ulp(dgate, dup, at, "gelu_tanh", dtype)
    return {
        "y": abs(bounds.bias_in_ulp(y.detach(), at.gate, at.up, "gelu_tanh", dtype).worst),
        "d_gate": abs(gradients.gate.worst),
        "d_up": abs(gradients.up.worst),
    }


def measured(form: Form, dtype: Dtype, seeds: int) -> dict[str, Any]:
    """The worst of every score over all seeds and scales, and how often one was above the limit."""
    by_scale = {}
    alarms: dict[str, int] = {}
    for scale in SCALES:
        found = [scored(form, dtype, scale, seed) for seed in range(seeds)]
        by_scale[str(scale)] = {name: max(one[name] for one in found) for name in found[0]}
        for one in found:
            for name, score in one.items():
                alarms[name] = alarms.get(name, 0) + (not score <= bounds.LIMIT)
    biases = [biased(form, dtype, seed) for seed in range(seeds)] if dtype != "float32" else []
    alarms[STORES] = sum(not bias <= MOST_BIAS_ULP for one in biases for bias in one.values())
    bias = {name: max(one[name] for one in biases) for name in ("y", "d_gate", "d_up")} if biases else None
    return {"worst": by_scale, "alarms": alarms, "beyond_in_sweep": swept(form, dtype), "worst_bias_ulp": bias}


def table(results: dict[str, dict[Dtype, Any]], names: list[str]) -> str:
    """Worst scores over scales, form by dtype, as Markdown."""
    heads = " | ".join(f"{name}, {dtype}" for name in names for dtype in DTYPES)
    lines = [f"| form | {heads} |", "|---" * (1 + len(names) * len(DTYPES)) + "|"]
    for form, by_dtype in results.items():
        cells = [
            f"{max(scale[name] for scale in by_dtype[dtype]['worst'].values()):.2f}"
            for name in names
            for dtype in DTYPES
        ]
        lines.append(f"| {form} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure all forms, print the tables, and write the result file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=result_file)
    parser.add_argument("--seeds", type=int, default=200)
    args = parser.parse_args()
    torch.set_num_threads(1)
    round_to_nearest_even()
    started = time.monotonic()
    results: dict[str, dict[Dtype, Any]] = {}
    for name, form in forms().items():
        results[name] = {dtype: measured(form, dtype, args.seeds) for dtype in DTYPES}
        print(f"{name}: {time.monotonic() - started:.0f} s", flush=True)
    print(table(results, ["y", "d_up"]), "", table(results, [f"d_gate by {PLAIN}", f"d_gate by {CHOSEN}"]), sep="\n")
    ours = ["y", "d_up", f"d_gate by {CHOSEN}", STORES]
    alarms = sum(one["alarms"][name] for form in results.values() for one in form.values() for name in ours)
    beyond = sum(one["beyond_in_sweep"] for form in results.values() for one in form.values())
    print(f"{alarms} false alarms in {args.seeds} seeds, {beyond} gate values beyond the bound of the sweep")
    if args.out is not None:
        facts = {"torch": torch.__version__, "python": platform.python_version(), "machine": platform.machine()}
        document = {
            "schema": 1,
            "kind": "false-alarms",
            "environment": facts,
            "seeds": args.seeds,
            "elements": ELEMENTS,
            "limit": bounds.LIMIT,
            "false_alarms": alarms,
            "beyond_in_sweep": beyond,
            "forms": results,
        }
        args.out.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
