"""bench/sanitize.py: what is called for a card, and what is made of a sanitizer's text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import torch
from mlpfusion_kernels.gate_up.configs import Card
from mlpfusion_kernels.gate_up.limits import refusal, shipped
from support.bench import bench

from mlpfusion.storage import results

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

CARDS = (Card((8, 0), 108, 163 * 1024), Card((9, 0), 132, 227 * 1024), Card((10, 0), 148, 227 * 1024))
FAULT = """
========= Invalid __global__ write of size 4 bytes
=========     at gate_up_pointer_kernel+0x60 in kernels.py:34
========= ERROR SUMMARY: 1 error
"""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return bench("sanitize")


@pytest.mark.parametrize("card", CARDS, ids=lambda card: f"sm_{card.capability[0]}0")
def test_every_configuration_of_a_card_is_called_beyond_its_tiles(script: ModuleType, card: Card) -> None:
    found = list(script.cases(card))
    for dtype in script.DTYPES:
        for direction in script.DIRECTIONS:
            here = [case for case in found if (case.what, case.dtype) == (direction, dtype)]
            assert {case.config for case in here} == set(shipped(card, dtype, direction))
            for case in here:
                assert refusal(case.config, card, dtype, direction, case.d) is None
                assert case.m % case.config.block_m
                for size, tile in ((case.h, case.config.block_n), (case.d, case.config.block_k)):
                    assert size % tile or tile == 16, "sizes are multiples of 16"
                    assert not size % 16
    shared = [case for case in found if case.config is not None and case.config.split > 1]
    assert bool(shared) == (card.capability == (9, 0))
    for config in {case.config for case in shared}:
        whole = {
            config.shares(case.m, case.d, case.h, card.multiprocessors).whole
            for case in shared
            if case.config == config
        }
        assert whole == {0, card.multiprocessors}  # tiles that are all shared, and such as are left of a round
    assert {case.activation for case in found} == set(script.ACTIVATIONS)
    assert {case.what for case in found} == {*script.DIRECTIONS, "few tokens", "act·mul", "its backward"}
    assert len(set(map(str, found))) == len(found)


def test_a_call_runs_its_kernels(script: ModuleType) -> None:
    """In the interpreter, one of each kind."""
    found = [case for case in script.cases(Card((0, 0), 1, 0)) if case.dtype is torch.float32]
    for case in {case.what: case for case in found if case.what != "few tokens"}.values():
        script.call(case, "cpu")


@pytest.mark.parametrize(
    ("text", "code", "verdict", "places"),
    [
        ("mlpfusion called: 3 calls\n", 0, "pass", 0),
        (f"{FAULT}mlpfusion called: 3 calls\n", 1, "fail", 1),
        ("RuntimeError: no kernel\n", 1, "not decidable here", 0),
    ],
)
def test_what_a_tool_says_is_kept(
    script: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
    code: int,
    verdict: str,
    places: int,
) -> None:
    monkeypatch.setattr(script.sanitizer, "check", lambda kind: tmp_path / "compute-sanitizer")
    monkeypatch.setattr(script.sanitizer, "run", lambda command, time_limit_s: text)
    monkeypatch.setattr(script.launch, "card", lambda index: CARDS[1])
    out = tmp_path / "found.json"
    assert script.main(["--tools", "memcheck", "--out", str(out)]) == code
    found = json.loads(out.read_text())
    assert results.load_any(out).kind == "sanitized"
    assert [tool["verdict"] for tool in found["tools"]] == [verdict]
    assert len(found["tools"][0]["places"]) == places
    assert f"{verdict}: memcheck: " in capsys.readouterr().out


def test_without_a_sanitizer_it_is_one_line(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("a GPU is here")
    assert script.main([]) == 2
    said = capsys.readouterr().err
    assert said.startswith("needs an NVIDIA GPU")
    assert said.count("\n") == 1


def test_the_watched_process_makes_the_calls(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done: list[object] = []
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(script.launch, "card", lambda index: CARDS[0])
    monkeypatch.setattr(script, "call", done.append)
    assert script.main(["--watched"]) == 0
    assert done == list(script.cases(CARDS[0]))
    assert capsys.readouterr().out.endswith(f"mlpfusion called: {len(done)} calls\n")
