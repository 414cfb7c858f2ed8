"""Choosing on a GPU: the file that it writes runs, right at every number of tokens, and is refused elsewhere."""

from __future__ import annotations

import pytest
import torch
from msgspec.structs import replace

from mlpfusion import GatedMLP, MLPSpec
from mlpfusion.backends.auto import Auto
from mlpfusion.errors import BackendUnavailableError
from mlpfusion.stages.choose import run
from mlpfusion.storage import results

TOKENS = (1, 256, 2048)
BACKENDS = ("eager", "triton", "packed", "fused", "fused-graph")
SPEC = MLPSpec(hidden_size=768, intermediate_size=3072)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("choice")
    return run.choose(SPEC, tokens=TOKENS, backends=BACKENDS, rounds=20, out=out), out / "choice.json"


def test_each_point_has_a_winner_with_times_and_memory(made):
    choice, _ = made
    assert choice.clock == "event_us"
    for point in choice.points:
        assert point.chosen in BACKENDS
        timed = [each for each in point.contenders if each.clock is not None]
        assert len(timed) >= 3
        assert all(each.ratio is not None for each in timed if each.backend != point.winner)


def test_a_module_runs_by_it_and_is_right(made):
    choice, path = made
    assert results.load_choice(path) == choice
    eager = GatedMLP(SPEC, device="cuda")
    mlp = GatedMLP(SPEC, device="cuda")
    mlp.load_state_dict(eager.state_dict())
    mlp.set_backend(f"auto:{path}")
    with torch.no_grad():
        for tokens in (*TOKENS, 17, 700, 9000):
            x = torch.randn(tokens, SPEC.hidden_size, device="cuda", dtype=torch.bfloat16)
            torch.testing.assert_close(mlp(x), eager(x), rtol=2e-2, atol=2e-2)


def test_every_backend_can_be_bound_beside_the_others(made):
    choice, _ = made
    (first,) = [each for each in choice.ranges if each.first == 1][:1]
    parts = tuple(
        replace(first, first=1 + 100 * place, last=100 * (place + 1), backend=name)
        for place, name in enumerate(BACKENDS)
    )
    mlp = GatedMLP(SPEC, device="cuda")
    with torch.no_grad():
        x = torch.randn(len(BACKENDS) * 100, SPEC.hidden_size, device="cuda", dtype=torch.bfloat16)
        expected = {rows: mlp(x[:rows]) for rows in range(50, len(x), 100)}
        mlp.set_backend(Auto(replace(choice, ranges=parts)))
        for rows, y in expected.items():
            torch.testing.assert_close(mlp(x[:rows]), y, rtol=2e-2, atol=2e-2)


def test_it_is_refused_on_the_cpu(made):
    _, path = made
    with pytest.raises(BackendUnavailableError, match="measured elsewhere"):
        GatedMLP(SPEC, backend=f"auto:{path}")
