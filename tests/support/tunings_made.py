"""Makes files of tuned configurations, calls that ask them, and searches whose times are known."""

from __future__ import annotations

import json
import random
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
from mlpfusion_kernels import reload_tuned
from mlpfusion_kernels.gate_up import tuned
from mlpfusion_kernels.gate_up.choice import choose
from mlpfusion_kernels.gate_up.configs import Card, Config
from mlpfusion_kernels.gate_up.decode import DecodeConfig, StreamTile
from mlpfusion_kernels.gate_up.tuned import Entry, Key, kernels_version

from mlpfusion.device import Device
from mlpfusion.records.clocks import Samples
from mlpfusion.spec import MLPSpec
from mlpfusion.stages.tune import run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from mlpfusion.records import tuning

CARDS = {
    "H100": Card((9, 0), 132, 227 * 1024, "NVIDIA H100 80GB HBM3"),
    "A100": Card((8, 0), 108, 163 * 1024, "NVIDIA A100-SXM4-80GB"),
    "A40": Card((8, 6), 84, 99 * 1024, "NVIDIA A40"),
    "B200": Card((10, 0), 148, 227 * 1024, "NVIDIA B200"),
}
HERE = CARDS["A100"]
GPU = Device(kind="cuda", name=HERE.name, runtime="cuda", capability=(8, 0))
BF16 = torch.bfloat16
SHAPE = (8192, 768, 3072)
# Runs on HERE, and is shipped for no shape.
OTHER = Config("pointer", 64, 128, 32, 2, 8, 2)
STREAM = DecodeConfig(16, StreamTile(32, 64, 3, 4), StreamTile(32, 256, 4, 4), overlap=False)
SPEC = MLPSpec(hidden_size=768, intermediate_size=3072)


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file that this process reads, which does not exist yet."""
    monkeypatch.setenv("MLPFUSION_CACHE_DIR", str(tmp_path / "cache"))
    reload_tuned()
    yield tmp_path / "cache" / "tuned.json"
    reload_tuned()


def entry(config: Config | DecodeConfig = OTHER, *, version: str | None = None, **key: Any) -> dict[str, Any]:
    made = {
        "device": HERE.name,
        "capability": HERE.capability,
        "dtype": "bfloat16",
        "direction": "decode" if isinstance(config, DecodeConfig) else "forward",
        "tokens": 8192,
        "hidden_size": 768,
        "intermediate_size": 3072,
    }
    found = tuned.entry_to_json(Entry(Key(**(made | key)), version or kernels_version(), config))
    decoded: dict[str, Any] = json.loads(json.dumps(found))
    return decoded


def write(file: Path, *entries: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(tuned.document_of(list(entries)))
    reload_tuned()


def forward(card: Card = HERE, m: int = 8192, **options: Any) -> Config:
    return tuned.forward_config(card, BF16, m, *SHAPE[1:], **options)


def warned(ask: Any = forward) -> tuple[Any, list[str]]:
    """What a call gets, and what it warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = ask()
    return found, [str(one.message) for one in caught]


FAST, SLOW, WRONG, EVEN = (OTHER._replace(group=group) for group in (2, 4, 16, 32))
QUESTION = run.questions(SPEC, [8192], "inference", GPU)[0]


class Fake:
    """Measures nothing: each configuration has its time, which spreads by a percent."""

    card = HERE

    def __init__(self, times: dict[Any, float], refused: dict[Any, str] | None = None, noise: float = 0.0) -> None:
        self.candidates = list(times)
        self.times, self.noise, self.seconds = times, noise, 0.0
        self.refused = refused or {}
        self.fits_no_other_activation: set[Any] = set()
        self.raced: list[tuple[Any, ...]] = []
        self.interrupt: BaseException | None = None

    def refusal(self, config: Any, *, heaviest: bool = False) -> str | None:
        self.seconds += 1
        if heaviest:
            return "spills 8 registers" if config in self.fits_no_other_activation else None
        return self.refused.get(config)

    def race(self, configs: Sequence[Any], rounds: int) -> list[Samples]:
        if self.interrupt is not None:
            raise self.interrupt
        self.raced.append(tuple(configs))
        chance = [random.Random(f"{len(self.raced)} {place}") for place in range(len(configs))]
        return [
            Samples(
                backend=str(place),
                clock="graph_us",
                l2="cold",
                values=tuple(
                    self.times[config] * (1 + (turn % 3 - 1) / 100 + chance[place].gauss(0, self.noise))
                    for turn in range(rounds)
                ),
            )
            for place, config in enumerate(configs)
        ]


SHIPPED = choose(HERE, BF16, *SHAPE)


def searched(file: Path, *benches: Fake, asked: Sequence[tuning.Question] = (QUESTION,), **options: Any) -> list[Any]:
    left = list(benches)
    file.parent.mkdir(exist_ok=True)
    return list(run.search(asked, GPU, file, bench=lambda *_: left.pop(0), **options))
