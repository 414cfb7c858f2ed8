"""The file of tuned configurations: what a call takes from it, and for which cards, types and shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlpfusion_kernels import reload_tuned
from mlpfusion_kernels.gate_up import launch, tuned
from mlpfusion_kernels.gate_up.choice import choose
from mlpfusion_kernels.gate_up.configs import Config
from mlpfusion_kernels.gate_up.tuned import bucket, cache_file
from support import tunings_made
from support.tunings_made import BF16, CARDS, HERE, OTHER, SHAPE, STREAM, entry, forward, warned, write

file = tunings_made.file  # a fixture


def test_without_a_file_the_shipped_configuration_runs_and_nothing_is_said(file: Path) -> None:
    assert warned() == (choose(HERE, BF16, *SHAPE), [])
    assert not file.parent.exists()


def test_a_tuned_configuration_comes_before_the_shipped(file: Path) -> None:
    shipped = forward()
    assert shipped != OTHER
    write(file, entry())
    assert warned() == (OTHER, [])


def test_the_launcher_asks_for_it() -> None:
    assert launch.forward_config is tuned.forward_config
    assert launch.backward_config is tuned.backward_config
    assert launch.decode_config is tuned.decode_config


def test_a_bucket_is_up_to_the_next_power_of_two(file: Path) -> None:
    write(file, entry(tokens=256))
    assert [m for m in range(100, 300) if forward(m=m) == OTHER] == list(range(129, 257))


@given(st.integers(1, 2**40))
def test_every_number_of_tokens_is_in_one_bucket(m: int) -> None:
    assert bucket(m) // 2 < m <= bucket(m)
    assert bucket(bucket(m)) == bucket(m)


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": "float16"},
        {"direction": "training"},
        {"direction": "backward"},
        {"tokens": 4096},
        {"hidden_size": 784},
        {"intermediate_size": 3088},
    ],
    ids=str,
)
def test_it_is_for_one_dtype_direction_and_shape(file: Path, change: dict[str, Any]) -> None:
    write(file, entry(**change))
    assert warned() == (choose(HERE, BF16, *SHAPE), [])


def test_training_backward_and_a_few_tokens_have_their_own(file: Path) -> None:
    training, backward = OTHER._replace(stages=3), OTHER._replace(stages=4)
    few = entry(STREAM, tokens=4)
    write(file, entry(), entry(training, direction="training"), entry(backward, direction="backward"), few)
    assert forward(training=True) == training
    assert tuned.backward_config(HERE, BF16, *SHAPE) == backward
    assert tuned.decode_config(HERE, BF16, 3, *SHAPE[1:]) == STREAM
    assert tuned.decode_config(HERE, BF16, 2, *SHAPE[1:]) != STREAM


def test_without_descriptors_only_a_pointer_configuration_will_do(file: Path) -> None:
    card = CARDS["H100"]
    wide = Config("wide", 64, 64, 64, 2, 4, 3, 2)
    write(file, entry(wide, device=card.name, capability=card.capability))
    assert forward(card) == wide
    assert forward(card, descriptors=False) == choose(card, BF16, *SHAPE, descriptors=False)


def test_the_file_is_read_once_until_it_is_asked_for_anew(file: Path) -> None:
    shipped = forward()
    file.parent.mkdir()
    file.write_bytes(tuned.document_of([entry()]))
    assert forward() == forward(m=8191) == shipped
    reload_tuned()
    assert forward() == OTHER


def test_the_interpreter_never_asks_the_file(file: Path) -> None:
    file.parent.mkdir()
    file.write_bytes(b"no JSON")
    assert warned(lambda: forward(launch.card(-1))) == (choose(launch.card(-1), BF16, *SHAPE), [])


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({"MLPFUSION_CACHE_DIR": "/here"}, "/here/tuned.json"),
        ({"MLPFUSION_CACHE_DIR": "", "XDG_CACHE_HOME": "/caches"}, "/caches/mlpfusion/tuned.json"),
        ({"XDG_CACHE_HOME": "caches"}, "/home/me/.cache/mlpfusion/tuned.json"),
        ({}, "/home/me/.cache/mlpfusion/tuned.json"),
    ],
)
def test_where_the_file_lies(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], place: str) -> None:
    for name in ("MLPFUSION_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/me")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert cache_file() == Path(place)
