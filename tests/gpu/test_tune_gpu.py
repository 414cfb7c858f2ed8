"""Tuning on a GPU: what is left out, what a race costs, and that a call runs with what the file says."""

from __future__ import annotations

import pytest
import torch
from mlpfusion_kernels import ACTIVATIONS, Weights, gated_mlp, reload_tuned
from mlpfusion_kernels.gate_up import launch, tuned
from mlpfusion_kernels.gate_up.choice import few_tokens
from mlpfusion_kernels.gate_up.configs import Config
from mlpfusion_kernels.gate_up.search import candidates

from mlpfusion.cli import main
from mlpfusion.device import detect
from mlpfusion.spec import MLPSpec
from mlpfusion.stages.tune import run
from mlpfusion.stages.tune.measure import Bench

CUDA = torch.device("cuda")
SPEC = MLPSpec(hidden_size=256, intermediate_size=512)


@pytest.fixture(autouse=True)
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("MLPFUSION_CACHE_DIR", str(tmp_path))
    reload_tuned()
    yield tmp_path / "tuned.json"
    reload_tuned()


def bench(tokens, direction=None, spec=SPEC, mode="inference"):
    device = detect("cuda")
    asked = run.questions(spec, [tokens], mode, device)
    question = next(one for one in asked if direction in (None, one.direction))
    return Bench(question, device)


@pytest.mark.parametrize(
    ("tokens", "direction", "mode"),
    [
        (4, "decode", "inference"),
        (300, "forward", "inference"),
        (300, "training", "training"),
        (300, "backward", "training"),
    ],
)
def test_the_shipped_configuration_and_its_neighbours_are_right(tokens, direction, mode):
    made = bench(tokens, direction, mode=mode)
    for config in made.candidates[:5]:
        reason = made.refusal(config)
        assert reason is None or "spills" in reason, (config, reason)
    assert made.refusal(made.shipped) is None
    assert made.refusal(made.shipped, heaviest=True) is None


def test_a_configuration_that_spills_is_left_out():
    reason = bench(300).refusal(Config("pointer", 128, 128, 32, 1, 4, 3))
    assert reason is not None
    assert reason.startswith("spills ")


def test_a_configuration_that_does_not_fit_is_left_out_and_the_next_one_runs():
    made = bench(300)
    reason = made.refusal(Config("pointer", 128, 128, 128, 2, 8, 5))
    assert reason is not None
    assert "shared memory" in reason
    assert made.refusal(made.shipped) is None


@pytest.mark.parametrize("fault", [lambda y: y * 1.05, lambda y: y.roll(1, 0), lambda y: torch.full_like(y, torch.nan)])
def test_a_configuration_that_is_wrong_is_left_out(fault):
    made = bench(300)
    made._right = {heaviest: tuple(map(fault, right)) for heaviest, right in made._right.items()}
    reason = made.refusal(made.shipped)
    assert reason is not None
    assert reason.startswith("wrong: ")


def test_a_race_samples_each_configuration_and_keeps_no_results():
    made = bench(4096, spec=MLPSpec(hidden_size=256, intermediate_size=8192))
    configs = [config for config in made.candidates[:12] if made.refusal(config) is None]
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_reserved()
    series = made.race(configs, 5)
    assert [one.backend for one in series] == [str(place) for place in range(len(configs))]
    for one in series:
        assert (one.clock, one.l2, len(one.values)) == ("graph_us", "cold", 5)
        assert all(value > 0 for value in one.values)
    product_bytes = 4096 * 8192 * 2
    flush_bytes = max(4 * (detect("cuda").l2_bytes or 0), 128 * 2**20)
    # Warming up on a stream of its own, the graphs' pool and a margin; twelve results would be 800 MB.
    assert torch.cuda.max_memory_reserved() - before < flush_bytes + 5 * product_bytes


@pytest.mark.parametrize("m", [3, 300])
def test_a_call_runs_with_what_the_file_says_and_stays_right(file, m):
    card, dtype = launch.card(0), torch.bfloat16
    direction = "decode" if m <= few_tokens(card.capability, dtype) else "forward"
    sizes = (SPEC.hidden_size, SPEC.intermediate_size)
    made = bench(m)
    other = next(config for config in made.candidates[1:] if made.refusal(config) is None)
    generator = torch.Generator(CUDA).manual_seed(0)
    x, gate, up, down = (
        torch.randn(shape, generator=generator, device=CUDA, dtype=dtype)
        for shape in ((m, sizes[0]), (sizes[1], sizes[0]), (sizes[1], sizes[0]), (sizes[0], sizes[1]))
    )
    weights = Weights(gate / 16, up / 16, down / 16)
    shipped = [gated_mlp(x, weights, activation) for activation in ACTIVATIONS]
    key = tuned.Key(card.name, card.capability, "bfloat16", direction, tuned.bucket(m), *sizes)
    entry = tuned.entry_to_json(tuned.Entry(key, tuned.kernels_version(), other))
    file.write_bytes(tuned.document_of([entry]))
    reload_tuned()
    choose = tuned.decode_config if direction == "decode" else tuned.forward_config
    for activation, before in zip(ACTIVATIONS, shipped, strict=True):
        after = gated_mlp(x, weights, activation)
        assert (after - before).float().norm() <= 2**-7 * before.float().norm()
    assert choose(card, dtype, m, *sizes) == other


def test_candidates_of_this_card_are_many():
    card = launch.card(0)
    for direction in ("decode", "forward", "training", "backward"):
        assert len(candidates(card, torch.bfloat16, direction, 8 if direction == "decode" else 512, 768, 3072)) >= 20


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_the_command_searches_and_keeps_what_is_faster(file, capsys, mode):
    args = (
        "tune",
        "--hidden-size",
        "256",
        "--intermediate-size",
        "512",
        "--tokens",
        "4,300",
        "--mode",
        mode,
        "--time-limit",
        "60",
    )
    assert main.main(args) == 0
    out, err = capsys.readouterr()
    directions = ("decode", "forward") if mode == "inference" else ("decode", "training", "backward")
    assert all(f"\n{direction} " in out for direction in directions)
    kept = out.count("  best\n")
    assert err.splitlines()[-1].startswith(f"{kept} faster configuration")
    if kept:
        assert len(tuned.parse(file.read_bytes())) == kept
