"""bench/plugin.py: parts are raced, counted, kept in one file that `table` reads, and not measured twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import torch
from support.bench import bench
from support.profiles_made import clock, ratio

from mlpfusion.device import detect
from mlpfusion.environment.machine import collect
from mlpfusion.storage import results

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return bench("plugin")


def part(script: ModuleType, name: str) -> Any:
    shape, _, mode = name.partition("/")
    ways = tuple(
        script.Timed(
            way=way,
            clock=clock(100.0),
            speedup=ratio(1.05),
            compile_s=12.0 if way in script.COMPILED else None,
            pass_ms=30.0 if way == "pass" else None,
            graphs=1 if way in script.COMPILED else None,
            recompiled=0 if way in script.COMPILED else None,
        )
        for way in script.WAYS
    )
    return script.Part(
        shape=shape, mode=mode, layers=6, dtype="bfloat16", batch=4, seq=2048, ways=ways, pass_to_swap=ratio(0.999)
    )


def test_each_way_has_a_line_with_what_its_compilation_took(script: ModuleType) -> None:
    text = script.render(part(script, "gemma-2b/inference"))
    assert "gemma-2b/inference, 6 layers, bfloat16, 4 x 2048 tokens" in text
    assert "compiled in 12.0 s, 1 graphs, 0 later, the pass took 30 ms" in text
    assert "pass / swap-compile: 0.9990" in text
    assert len(text.splitlines()) == 7


def test_a_part_that_is_there_is_not_measured_again(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = []

    def measured(shape: str, mode: str, _: Any) -> Any:
        done.append(f"{shape}/{mode}")
        return part(script, done[-1])

    monkeypatch.setattr(script, "measured", measured)
    path = tmp_path / "plugin.json"
    script.main(["--json", str(path), "--only", "tiny/inference"])
    script.main(["--json", str(path), "--only", "tiny/inference", "gemma-2b/training"])
    assert done == ["tiny/inference", "gemma-2b/training"]
    found = results.load_any(path)
    assert found.kind == "plugin"
    assert [each["shape"] for each in found.content["parts"]] == ["tiny", "gemma-2b"]


def test_the_parts_are_the_three_shapes_in_both_modes(script: ModuleType) -> None:
    recording = script.Recording(
        created="2026-01-02T03:04:05+00:00",
        device=detect("cpu"),
        environment=collect(detect("cpu"), {}),
        backend="fused",
        clock="event_us",
        parts=(part(script, "768x3072/training"),),
    )
    assert msgspec.json.decode(msgspec.json.encode(recording), type=script.Recording) == recording
    assert {name: (each.hidden_size, each.intermediate_size) for name, each in script.SHAPES.items()}.items() >= {
        "gemma-2b": (2048, 16384),
        "llama-8b": (4096, 14336),
        "768x3072": (768, 3072),
    }.items()


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("name", ["tiny", "llama-8b"])
def test_a_call_is_a_prefill_or_a_step_of_training(script: ModuleType, name: str, mode: str) -> None:
    shape = script.SHAPES[name]._replace(hidden_size=32, intermediate_size=48, heads=2, key_value_heads=1, layers=1)
    model = script.built(shape, "float32", torch.device("cpu"))
    before = next(model.parameters()).detach().clone()
    found = script.called(model, torch.randint(64, (1, 8)), mode)()
    assert found.isfinite().all()
    assert found.shape == ((1, 1, script.VOCABULARY) if mode == "inference" else ())
    assert model.training == (mode == "training") == (not torch.equal(before, next(model.parameters())))
