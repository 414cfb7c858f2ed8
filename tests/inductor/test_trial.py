"""A proof of the pass: a model compiled with it and without, in which a right operator holds and a wrong one fails."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
import torch
from support.plain_mlp import Plain
from support.rings import only_first
from torch import nn
from torch.nn import functional

from mlpfusion.backend import OnTensors
from mlpfusion.backends import products
from mlpfusion.errors import NothingSwappedError, UsageError
from mlpfusion.inductor import operator
from mlpfusion.inductor.trial import Trial
from mlpfusion.records.proof import Proof
from mlpfusion.report.proof import render
from mlpfusion.stages.prove.run import prove


def compiler(call: Any, using: dict[str, Any] | None) -> Any:
    """Dynamo with the pass, without Inductor's code."""

    def compile_graph(gm: torch.fx.GraphModule, _: list[Any]) -> Any:
        if using is not None:
            using["pre_grad_custom_pass"](gm.graph)
            gm.recompile()
        return gm

    return torch.compile(call, backend=compile_graph)


def model(*more: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(Plain(bias=True), nn.LayerNorm(32), Plain(), *more)


def proved(made: nn.Module, backend: str = "eager", **options: Any) -> Proof:
    x = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(1))
    return prove(Trial(made, backend, compiler=compiler), x, **{"rounds": 0, "trace": False, **options})


def test_a_right_operator_holds_and_the_model_stays_as_it_was() -> None:
    made = model()
    made.train()
    before = [type(each) for each in made.modules()]
    proof = proved(made)
    assert proof.holds, proof.failures
    assert (proof.how, proof.backend) == ("inductor", "eager")
    assert [(each.name, each.kind, each.spec.bias) for each in proof.swapped] == [
        ("0", "Plain", True),
        ("2", "Plain", False),
    ]
    assert [each.name for each in proof.layers] == ["0", "2"]
    assert proof.gradients is not None
    assert proof.gradients.accuracy is not None
    assert proof.gradients.tensors == 11
    assert [type(each) for each in made.modules()] == before
    assert made.training
    text = render(proof)
    assert "2 gated MLPs by eager, the model compiled with the pass and without" in text
    assert "unswapped" not in text.split("Errors")[1]
    assert msgspec.json.decode(render(proof, "json"), type=Proof) == proof


def _times(factor: float) -> Any:
    """A forward whose y is wrong."""

    def forward(*given: Any) -> Any:
        y, *kept = products.forward(*given)
        return y * factor, *kept

    return forward


def _doubled(*given: Any) -> Any:
    x, *gradients = products.backward(*given)
    return x, *(None if each is None else 2 * each for each in gradients)


WRONG = {
    "a factor": OnTensors(_times(1 + 1e-4), products.backward, products.unreadable),
    "nan": OnTensors(_times(math.nan), products.backward, products.unreadable),
    "gradients alone": OnTensors(products.forward, _doubled, products.unreadable),
}


@pytest.mark.parametrize("what", only_first(WRONG))
def test_a_wrong_operator_fails_by_the_part_that_is_wrong(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator, "_of", lambda backend: WRONG[what])
    proof = proved(model())
    failed = " ".join(proof.failures)
    assert "gradients: " in failed
    assert ("0: " in failed and "2: " in failed and "logits: " in failed) == (what != "gradients alone")


class Clamped(Plain):
    """A gated MLP that clamps."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.c(functional.silu(self.a(x)).clamp(max=3.0) * self.b(x))
        return y


def test_near_misses_are_refused_by_name_and_nothing_placed_is_an_error() -> None:
    proof = proved(model(Clamped()))
    assert [(each.name, each.kind) for each in proof.refused] == [("3", "Clamped")]
    assert "clamp" in proof.refused[0].reason
    with pytest.raises(NothingSwappedError, match=r"nothing was placed: 0 \(Clamped\): .*clamp"):
        proved(nn.Sequential(Clamped()))
    with pytest.raises(NothingSwappedError, match="nothing was placed: no graph has a gated MLP"):
        proved(nn.Sequential(nn.Linear(32, 32)))
    with pytest.raises(UsageError, match=r"model must be a torch\.nn\.Module, got a str"):
        Trial("model")  # type: ignore[arg-type]


def test_a_model_that_does_not_run_is_one_line() -> None:
    with pytest.raises(UsageError, match="the model does not run on these inputs"):
        proved(nn.Sequential(Plain(), nn.Linear(5, 5)))


class Within(nn.Module):
    """A block that holds an MLP's layers itself, beside others."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp = Plain()
        self.a, self.b, self.c = nn.Linear(32, 48), nn.Linear(32, 48), nn.Linear(48, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = x + self.c(functional.silu(self.a(x)) * self.b(x))
        return self.mlp(y)  # type: ignore[no-any-return]


@pytest.mark.full
def test_an_mlp_that_is_no_module_by_itself_is_judged_with_the_model_alone() -> None:
    proof = proved(nn.Sequential(Within()))
    assert proof.holds, proof.failures
    assert {each.name for each in proof.swapped} == {"0", "0.mlp"}
    assert [each.name for each in proof.layers] == ["0.mlp"]
    assert proof.reasons["0"] == "it is a part of a module"
    assert "not judged: 0" in render(proof)


def test_each_state_is_compiled_once_and_runs_what_it_says() -> None:
    made, x = model(), torch.randn(3, 32)
    trial = Trial(made, "eager", compiler=compiler)
    expected = made(x)
    with trial.started(lambda: trial.call(made)(x)):
        with trial.paused():
            plain = trial.call(made)
            with trial.skipped():
                assert torch.equal(trial.call(made)(x), made[1](x))
            assert trial.call(made) is plain
        assert trial.call(made) is not plain
        for call in (plain, trial.call(made)):
            assert torch.allclose(call(x), expected, atol=1e-6)
    assert trial.pass_ms > 0


@pytest.mark.full
@pytest.mark.parametrize("mode", ["inference", "training"])
def test_time_and_kernels_of_both(mode: str) -> None:
    proof = proved(model(), rounds=6, trace=True, mode=mode)
    assert proof.speed is not None
    assert proof.speed.without.n == 6
    assert proof.kernels
    assert proof.holds, proof.failures


@pytest.mark.parametrize(
    ("misplaced", "min_tokens", "said"),
    [(False, 0, None), (True, 0, "gate_weight must start at a multiple of 16 bytes"), (False, 100, operator.UNCHOSEN)],
)
def test_it_fails_where_the_operator_does_not_run_the_backend(
    misplaced: bool, min_tokens: int, said: str | None
) -> None:
    made = model()
    if misplaced:
        values = (torch.randn(48 * 32 + 1) * 32**-0.5)[1:].view(48, 32)
        made[0].a.weight = nn.Parameter(values)  # type: ignore[union-attr]

    def dynamic(call: Any, using: dict[str, Any] | None) -> Any:
        return torch.compile(call, options=using, dynamic=True)

    torch.compiler.reset()
    trial = Trial(made, "fused", min_tokens=min_tokens, compiler=dynamic)
    found = prove(trial, torch.randn(2, 5, 32), rounds=0, trace=False)
    assert found.holds is (said is None), found.failures
    assert said is None or any(
        each.startswith(f"PyTorch's products ran in the operator, and not the backend: {said}")
        for each in found.failures
    )
