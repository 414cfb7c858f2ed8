"""Tuned configurations: what a call takes from the file, what it ignores and why, and what the search keeps there."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mlpfusion_kernels import gate_up_launch, gate_up_search, gate_up_tuned, reload_tuned
from mlpfusion_kernels.gate_up_configs import Card, Config, choose, choose_backward
from mlpfusion_kernels.gate_up_decode import DecodeConfig, StreamTile
from mlpfusion_kernels.gate_up_limits import DIRECTIONS, decode_refusal, refusal
from mlpfusion_kernels.gate_up_tuned import Entry, Key, bucket, cache_file, kernels_version

from mlpfusion import cli, tune, tunings
from mlpfusion.device import Device
from mlpfusion.errors import MeasurementError, UsageError
from mlpfusion.measure import clocks, tuner
from mlpfusion.records import Environment, Samples
from mlpfusion.report import tuning as report
from mlpfusion.spec import MLPSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).parents[1]
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
    found = gate_up_tuned.entry_to_json(Entry(Key(**(made | key)), version or kernels_version(), config))
    decoded: dict[str, Any] = json.loads(json.dumps(found))
    return decoded


def write(file: Path, *entries: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gate_up_tuned.document_of(list(entries)))
    reload_tuned()


def forward(card: Card = HERE, m: int = 8192, **options: Any) -> Config:
    return gate_up_tuned.forward_config(card, BF16, m, *SHAPE[1:], **options)


def warned(ask: Any = forward) -> tuple[Any, list[str]]:
    """What a call gets, and what it warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = ask()
    return found, [str(one.message) for one in caught]


# ---- what a call takes -----------------------------------------------------------------------------------------------


def test_without_a_file_the_shipped_configuration_runs_and_nothing_is_said(file: Path) -> None:
    assert warned() == (choose(HERE, BF16, *SHAPE), [])
    assert not file.parent.exists()


def test_a_tuned_configuration_comes_before_the_shipped(file: Path) -> None:
    shipped = forward()
    assert shipped != OTHER
    write(file, entry())
    assert warned() == (OTHER, [])


def test_the_launcher_asks_for_it() -> None:
    assert gate_up_launch.forward_config is gate_up_tuned.forward_config
    assert gate_up_launch.backward_config is gate_up_tuned.backward_config
    assert gate_up_launch.decode_config is gate_up_tuned.decode_config


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
    assert gate_up_tuned.backward_config(HERE, BF16, *SHAPE) == backward
    assert gate_up_tuned.decode_config(HERE, BF16, 3, *SHAPE[1:]) == STREAM
    assert gate_up_tuned.decode_config(HERE, BF16, 2, *SHAPE[1:]) != STREAM


def test_without_descriptors_only_a_pointer_configuration_will_do(file: Path) -> None:
    card = CARDS["H100"]
    wide = Config("wide", 64, 64, 64, 2, 4, 3, 2)
    write(file, entry(wide, device=card.name, capability=card.capability))
    assert forward(card) == wide
    assert forward(card, descriptors=False) == choose(card, BF16, *SHAPE, descriptors=False)


def test_the_file_is_read_once_until_it_is_asked_for_anew(file: Path) -> None:
    shipped = forward()
    file.parent.mkdir()
    file.write_bytes(gate_up_tuned.document_of([entry()]))
    assert forward() == forward(m=8191) == shipped
    reload_tuned()
    assert forward() == OTHER


def test_the_interpreter_never_asks_the_file(file: Path) -> None:
    file.parent.mkdir()
    file.write_bytes(b"no JSON")
    assert warned(lambda: forward(gate_up_launch.card(-1))) == (choose(gate_up_launch.card(-1), BF16, *SHAPE), [])


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


# ---- what a call ignores, and says so --------------------------------------------------------------------------------


def ignored(file: Path, *reasons: str, ask: Any = forward) -> None:
    """A call gets what is shipped, and one warning that names the file and the reasons; the next one gets none."""
    found, texts = warned(ask)
    assert found == choose(HERE, BF16, *SHAPE)
    assert len(texts) == 1
    assert repr(str(file)) in texts[0]
    for reason in reasons:
        assert reason in texts[0]
    assert warned(lambda: forward(m=8000))[1] == []


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is no JSON"),
        (b"\xff\xfe", "it is no JSON"),
        (b'{"kind": "tuned', "it is no JSON"),
        (b"[" * 100_000, "it is no JSON"),
        (b"[]", "it has no kind"),
        (b'{"kind": "profile", "schema": 1}', "it has no kind"),
        (b'{"kind": "tuned configurations of mlpfusion_kernels", "schema": 2, "entries": []}', "its schema is 2"),
        (b'{"kind": "tuned configurations of mlpfusion_kernels", "schema": 1, "entries": {}}', "no list of entries"),
        (b"[" + b"9" * 5000 + b"]", "it "),
        (b" " * (16 * 2**20 + 1), "it is larger than 16 MiB"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_file_that_is_none_is_ignored_whole(file: Path, content: bytes, reason: str) -> None:
    file.parent.mkdir()
    file.write_bytes(content)
    ignored(file, reason)


def test_a_directory_in_its_place_is_ignored(file: Path) -> None:
    file.mkdir(parents=True)
    ignored(file, "Is a directory")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"kernels": "0123456789abcdef"}, "found for other kernels ('0123456789abcdef', these are "),
        ({"kernels": 7}, "kernels must be a text, got 7"),
        ({"device": "NVIDIA A40"}, f"1 of other cards than {HERE.name}: NVIDIA A40"),
        ({"capability": [8, 6]}, "of other cards"),
        ({"capability": [8]}, "capability must be two integers, got [8]"),
        ({"capability": [True, 0]}, "capability must be two integers"),
        ({"dtype": "int8"}, "dtype 'int8' is none of bfloat16, float16, float32"),
        ({"direction": "sideways"}, "direction 'sideways' is none of forward, training, backward, decode"),
        ({"direction": "decode"}, "config must have the fields tokens, gate_up, down, overlap"),
        ({"tokens": 8000}, "tokens a power of two"),
        ({"tokens": 0}, "sizes must be positive"),
        ({"hidden_size": 2**80}, "hidden_size must be an integer of 32 bits"),
        ({"config": None}, "config must have the fields form, block_m"),
        ({"config": "fast"}, "config must have the fields form, block_m"),
    ],
    ids=str,
)
def test_an_entry_that_is_not_for_here_is_ignored(file: Path, change: dict[str, Any], reason: str) -> None:
    one = entry() | change
    write(file, one | {"digest": gate_up_tuned.digest(one)})
    ignored(file, reason)


def test_a_tile_that_could_run_but_is_not_the_one_that_was_written_is_ignored(file: Path) -> None:
    one = entry()
    one["config"]["stages"] += 1
    write(file, one)
    ignored(file, "entry 0: its digest is not that of its fields, so it is damaged")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"form": "narrow"}, "form 'narrow' is none of pointer, wide, hopper"),
        ({"form": "wide", "resident": 1}, "the wide form needs compute capability 9.0 or later"),
        ({"form": "hopper", "resident": 1}, "the hopper form is for compute capability 9.0"),
        ({"resident": 1}, "the pointer form has no resident programs, got 1"),
        ({"block_m": 96}, "block_m must be a power of two from 16 to 256, got 96"),
        ({"block_n": 512}, "block_n must be a power of two from 16 to 256, got 512"),
        ({"block_k": 8}, "block_k must be a power of two from 16 to 256, got 8"),
        ({"block_k": -64}, "block_k must be a power of two"),
        ({"parts": 3}, "parts of the pointer form cannot be 3"),
        ({"parts": 0}, "parts of the pointer form cannot be 0"),
        ({"warps": 3}, "warps must be 4 or 8, got 3"),
        ({"stages": 99}, "stages must be from 1 to 8, got 99"),
        ({"group": 0}, "group must be from 1 to 64, got 0"),
        ({"block_k": 256, "stages": 4}, "bytes of shared memory, and a program has at most 166912 there"),
        ({"block_m": 256, "block_n": 256, "block_k": 16}, "sums for each thread are more than its registers hold"),
        ({"warps": True}, "warps must be an integer of 32 bits, got True"),
        ({"warps": 8.0}, "warps must be an integer of 32 bits, got 8.0"),
        ({"form": 1}, "form must be a text, got 1"),
        ({"more": 1}, "config must have the fields"),
    ],
    ids=str,
)
def test_a_configuration_that_the_kernels_cannot_run_is_ignored(
    file: Path, change: dict[str, Any], reason: str
) -> None:
    one = entry()
    one["config"] |= change
    one["digest"] = gate_up_tuned.digest(one)
    write(file, one)
    ignored(file, "entry 0: ", reason)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (STREAM._replace(tokens=20), "tokens 20 is none of 16, 32, 64"),
        (STREAM._replace(overlap=True), "overlap needs compute capability 9.0 or later"),
        (STREAM._replace(gate_up=StreamTile(24, 64, 3, 4)), "gate_up: rows must be a power of two"),
        (STREAM._replace(down=StreamTile(16, 32, 3, 4)), "down: columns must be a power of two from 64"),
        (STREAM._replace(down=StreamTile(64, 1024, 16, 4)), "down: it needs 2621440 bytes of shared memory"),
        (STREAM._replace(gate_up=StreamTile(64, 64, 1, 4)), "gate_up: stages must be from 2 to 16, got 1"),
    ],
)
def test_the_same_for_a_few_tokens(file: Path, config: DecodeConfig, reason: str) -> None:
    def ask() -> Config:
        gate_up_tuned.decode_config(HERE, BF16, 1, *SHAPE[1:])
        return forward()

    write(file, entry(config, tokens=1))
    ignored(file, reason, ask=ask)


def test_a_good_entry_is_used_beside_bad_ones_which_are_counted(file: Path) -> None:
    bad = [entry() | {"dtype": f"int{place}"} for place in range(5)]
    write(file, *bad, entry())
    found, (text,) = warned()
    assert found == OTHER
    assert "entry 2: dtype 'int2'" in text
    assert text.endswith("; and 2 more")


def test_entries_of_other_cards_are_no_fault_where_this_one_has_its_own(file: Path) -> None:
    write(file, entry(device="NVIDIA A40", capability=(8, 6)), entry())
    assert warned() == (OTHER, [])


def test_a_hopper_tile_is_one_that_is_shipped_with_no_more_stages() -> None:
    card = CARDS["H100"]
    shipped = choose(card, BF16, *SHAPE)
    assert shipped.form == "hopper"
    for config, fine in [
        (shipped._replace(group=16), True),
        (shipped._replace(stages=2), True),
        (shipped._replace(stages=8), False),
        (shipped._replace(block_k=128), False),
        (shipped._replace(warps=8), False),
    ]:
        assert (refusal(config, card, BF16, "forward", 768) is None) == fine
    assert "needs more steps" in str(refusal(shipped, card, BF16, "forward", 64))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
DAMAGE = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def whole_or_not_at_all(file: Path, content: bytes) -> None:
    """Whatever the file holds: no exception, and configurations that the kernels of that direction can run."""
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)
    reload_tuned()
    found, texts = warned()
    assert len(texts) <= 1
    assert refusal(found, HERE, BF16, "forward", 768) is None
    few, texts = warned(lambda: gate_up_tuned.decode_config(HERE, BF16, 1, *SHAPE[1:]))
    assert texts == []  # the file was read before
    assert decode_refusal(few, HERE, BF16, 1) is None


@DAMAGE
@given(data=st.data())
def test_bytes_that_are_lost_or_changed_never_raise(file: Path, data: st.DataObject) -> None:
    content = bytearray(gate_up_tuned.document_of([entry(), entry(STREAM, tokens=1)]))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    whole_or_not_at_all(
        file, bytes(content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content)
    )


@DAMAGE
@given(data=st.data())
def test_fields_of_other_kinds_never_raise(file: Path, data: st.DataObject) -> None:
    damaged = [entry(), entry(STREAM, tokens=1)]
    for one in damaged:
        places = [one, one["config"], *(tile for tile in one["config"].values() if isinstance(tile, dict))]
        where = data.draw(st.sampled_from(places))
        where[data.draw(st.sampled_from(sorted(where)))] = data.draw(json_values)
        one["digest"] = gate_up_tuned.digest(one) if data.draw(st.booleans()) else one["digest"]
    whole_or_not_at_all(file, json.dumps({"kind": gate_up_tuned.KIND, "schema": 1, "entries": damaged}).encode())


@DAMAGE
@given(document=json_values, wrapped=st.booleans())
def test_any_json_never_raises(file: Path, document: Any, wrapped: bool) -> None:
    entries = document if isinstance(document, list) else [document]
    whole = {"kind": gate_up_tuned.KIND, "schema": 1, "entries": entries} if wrapped else document
    whole_or_not_at_all(file, json.dumps(whole).encode())


@given(
    numbers=st.tuples(*[st.integers(1, 2**20)] * 2),
    dtype=st.sampled_from(["bfloat16", "float16", "float32"]),
    config=st.builds(Config, st.text(), *[st.integers(-(2**31) + 1, 2**31 - 1)] * 8),
    device=st.text(),
)
def test_an_entry_survives_the_file(numbers: tuple[int, int], dtype: str, config: Config, device: str) -> None:
    made = Entry(Key(device, (9, 0), dtype, "forward", 64, *numbers), "v", config)
    try:
        data = gate_up_tuned.document_of([gate_up_tuned.entry_to_json(made)])
        (raw,) = gate_up_tuned.parse(data)
    except UnicodeError:
        return
    if not any("\ud800" <= letter <= "\udfff" for letter in config.form + device):  # those are spelled out
        assert gate_up_tuned.entry_of(raw) == made


def test_the_version_follows_the_sources_and_not_the_process() -> None:
    script = "from mlpfusion_kernels.gate_up_tuned import kernels_version; print(kernels_version())"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "7"}
    other = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == kernels_version.__wrapped__()


def test_another_line_of_a_kernel_is_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = Path(gate_up_tuned.__file__).parent
    for path in package.glob("*.py"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(gate_up_tuned, "__file__", str(tmp_path / "gate_up_tuned.py"))
    fresh = kernels_version.__wrapped__
    for name, follows in [("layers.py", False), ("gate_up_tuned.py", False), ("gate_up_kernels.py", True)]:
        before = fresh()
        (tmp_path / name).write_text((tmp_path / name).read_text() + "\n# more\n")
        assert (fresh() != before) == follows, name
    (tmp_path / "activations.py").unlink()
    with pytest.raises(OSError, match="activations"):
        fresh()


# ---- what is tried ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_candidates_can_run_and_the_shipped_one_is_first(card: str, direction: str, dtype: torch.dtype) -> None:
    here = CARDS[card]
    for m in (1, 16) if direction == "decode" else (17, 64, 100, 256, 8192):
        found = gate_up_search.candidates(here, dtype, direction, m, *SHAPE[1:])
        assert len(found) == len(set(found))
        assert 10 <= len(found) <= 100
        if direction == "decode":
            assert found[0] == gate_up_tuned.shipped_decode(here, dtype, m, *SHAPE[1:])
            assert all(decode_refusal(each, here, dtype, m) is None for each in found)
            continue
        if direction == "backward":
            assert found[0] == choose_backward(here, dtype, m, *SHAPE[1:])
        else:
            assert found[0] == choose(here, dtype, m, *SHAPE[1:], training=direction == "training")
        assert [refusal(each, here, dtype, direction, 768) for each in found] == [None] * len(found)


def test_the_best_tiles_of_both_kernels_are_put_together() -> None:
    first = STREAM._replace(gate_up=StreamTile(64, 128, 4, 4))
    gate_up, down = STREAM._replace(gate_up=StreamTile(128, 64, 4, 4)), first._replace(down=StreamTile(16, 128, 6, 4))
    assert gate_up_search.crossed([gate_up, down, first]) == gate_up._replace(down=down.down)
    assert gate_up_search.crossed([OTHER]) is None


# ---- the search, with times that are known ---------------------------------------------------------------------------

FAST, SLOW, WRONG, EVEN = (OTHER._replace(group=group) for group in (2, 4, 16, 32))
QUESTION = tune.questions(SPEC, [8192], "inference")[0]


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


def searched(file: Path, *benches: Fake, asked: Sequence[tunings.Question] = (QUESTION,), **options: Any) -> list[Any]:
    left = list(benches)
    file.parent.mkdir(exist_ok=True)
    return list(tune.search(asked, GPU, file, bench=lambda *_: left.pop(0), **options))


def test_what_is_faster_is_kept_and_in_use_at_once(file: Path) -> None:
    assert forward() == SHIPPED
    bench = Fake({SHIPPED: 100.0, SLOW: 120.0, FAST: 90.0, WRONG: 1.0}, {WRONG: "wrong"})
    said: list[str] = []
    (answer,) = searched(file, bench, on_event=said.append)
    assert (answer.kept, answer.best, answer.shipped) == (True, tune.describe(FAST), tune.describe(SHIPPED))
    assert answer.ratio.median == pytest.approx(0.9)
    assert answer.ratio.high < 1
    assert [(one.config, one.reason) for one in answer.left_out] == [(tune.describe(WRONG), "wrong")]
    assert f"left out: {tune.describe(WRONG)}: wrong" in said
    assert warned() == (FAST, [])
    assert all(WRONG not in configs for configs in bench.raced)
    assert bench.raced[-1] == (SHIPPED, FAST)  # fresh rounds for these two alone


def test_what_is_within_the_noise_is_not(file: Path) -> None:
    (answer,) = searched(file, Fake({SHIPPED: 100.0, EVEN: 99.5}, noise=0.03))
    assert (answer.best, answer.kept) == (tune.describe(EVEN), False)
    assert answer.ratio.low < 1 < answer.ratio.high
    assert not file.exists()


def test_where_the_shipped_one_is_fastest_its_earlier_rival_leaves_the_file(file: Path) -> None:
    others = entry(device="NVIDIA A40", capability=(8, 6))
    write(file, others, entry(), entry(tokens=256))
    (answer,) = searched(file, Fake({SHIPPED: 100.0, SLOW: 120.0}))
    assert (answer.best, answer.kept, answer.ratio) == (None, False, None)
    assert answer.shipped_us.median == pytest.approx(100.0)
    assert gate_up_tuned.parse(file.read_bytes()) == [others, entry(tokens=256)]
    assert forward() == SHIPPED


def test_what_is_there_stays_and_what_is_stale_or_no_entry_goes(file: Path) -> None:
    others = entry(device="NVIDIA A40", capability=(8, 6), version="another")
    write(file, others, {"no": "entry"}, entry(EVEN, version="stale"))
    searched(file, Fake({SHIPPED: 100.0, FAST: 90.0}))
    first, second = gate_up_tuned.parse(file.read_bytes())
    assert first == others
    assert gate_up_tuned.entry_of(second).config == FAST
    assert second["found"]["time_ratio"] == pytest.approx([0.9] * 3)


def test_what_fits_one_activation_alone_is_not_kept(file: Path) -> None:
    bench = Fake({SHIPPED: 100.0, FAST: 80.0, EVEN: 90.0})
    bench.fits_no_other_activation = {FAST}
    (answer,) = searched(file, bench)
    assert answer.best == tune.describe(EVEN)
    assert forward() == EVEN


def test_without_time_the_rest_is_not_tried_and_counted(file: Path) -> None:
    times = {SHIPPED: 100.0} | {OTHER._replace(group=group): 90.0 + group for group in range(1, 41)}
    bench = Fake(times)
    (answer,) = searched(file, bench, limit_s=10.0, now=lambda: bench.seconds)
    assert answer.untried == 40 - 7
    assert answer.kept


def test_time_that_one_search_leaves_is_the_next_ones(file: Path) -> None:
    asked = tune.questions(SPEC, [256, 8192], "inference")
    first = Fake({SHIPPED: 100.0, FAST: 90.0})
    second = Fake({SHIPPED: 100.0} | {OTHER._replace(group=group): 90.0 + group for group in range(1, 41)})
    _, answer = searched(file, first, second, asked=asked, limit_s=40, now=lambda: first.seconds + second.seconds)
    assert answer.untried == 40 - 27  # seven tenths of 38 s


def test_a_search_that_fails_says_so_and_the_next_goes_on(file: Path) -> None:
    asked = tune.questions(SPEC, [256, 8192], "inference")
    broken = Fake({SHIPPED: 100.0, FAST: 90.0})
    broken.interrupt = MeasurementError("no graph")
    failed, answer = searched(file, broken, Fake({SHIPPED: 100.0, FAST: 90.0}), asked=asked)
    assert (failed.reason, failed.kept) == ("no graph", False)
    assert answer.kept


def test_an_interrupt_leaves_what_is_finished(file: Path) -> None:
    asked = tune.questions(SPEC, [256, 8192], "inference")
    late = Fake({SHIPPED: 100.0, FAST: 90.0})
    late.interrupt = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        searched(file, Fake({SHIPPED: 100.0, FAST: 90.0}), late, asked=asked)
    assert forward(m=256) == FAST
    assert forward() == SHIPPED


def test_a_few_tokens_get_the_best_of_both_kernels(file: Path) -> None:
    gate_up, down = STREAM._replace(gate_up=StreamTile(64, 64, 3, 4)), STREAM._replace(down=StreamTile(16, 256, 4, 4))
    both = gate_up._replace(down=down.down)
    bench = Fake({STREAM: 10.0, gate_up: 9.0, down: 9.5, both: 8.0})
    bench.candidates.remove(both)
    (answer,) = searched(file, bench, asked=tune.questions(SPEC, [4], "inference"))
    assert answer.best == tune.describe(both)
    assert gate_up_tuned.decode_config(HERE, BF16, 4, *SHAPE[1:]) == both


def test_what_is_asked_for_which_tokens_and_mode() -> None:
    def asked(*tokens: int, mode: Any) -> list[tuple[str, int]]:
        return [(one.direction, one.tokens) for one in tune.questions(SPEC, tokens, mode)]

    assert asked(1, 256, mode="inference") == [("decode", 1), ("forward", 256)]
    assert asked(16, 17, mode="training") == [("decode", 16), ("backward", 16), ("training", 17), ("backward", 17)]
    with pytest.raises(UsageError, match="tokens 200 and 256 share one configuration, that of 129 to 256"):
        asked(200, 256, mode="inference")
    assert tunings.DIRECTIONS == DIRECTIONS


# ---- what is measured ------------------------------------------------------------------------------------------------


def products(dtype: torch.dtype, *, seed: int = 0, order: Any = lambda parts: parts.sum(0)) -> tuple[torch.Tensor, ...]:
    """(product, gate, up) of random operands, with sums over 512 terms in eight parts that `order` adds up."""
    generator = torch.Generator().manual_seed(seed)
    x, gate, up = (torch.randn(shape, generator=generator).to(dtype) for shape in ((64, 512), (96, 512), (96, 512)))
    sums = [
        order(torch.stack([a @ b.T for a, b in zip(x.float().chunk(8, 1), weight.float().chunk(8, 1), strict=True)]))
        for weight in (gate, up)
    ]
    g, u = (total.mul(512**-0.5).to(dtype) for total in sums)
    return (torch.nn.functional.gelu(g.float(), approximate="tanh") * u.float()).to(dtype), g, u


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("seed", range(5))
def test_sums_in_another_order_are_no_fault(dtype: torch.dtype, seed: int) -> None:
    right = products(dtype, seed=seed)
    other = products(dtype, seed=seed, order=lambda parts: parts.flip(0).cumsum(0)[-1])
    assert tuner.difference(other, right, 512) is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize(
    "fault",
    [
        lambda product, gate, up: (product, up, gate),
        lambda product, gate, up: (product * 1.05, gate, up),
        lambda product, gate, up: (product, gate, torch.where(torch.arange(96) == 95, 0, up)),
        lambda product, gate, up: (product.index_fill(0, torch.tensor(63), float("nan")), gate, up),
        lambda product, gate, up: ((torch.nn.functional.silu(gate.float()) * up.float()).to(gate.dtype), gate, up),
    ],
    ids=["swapped", "scaled", "last column", "nan", "activation"],
)
def test_other_values_are(dtype: torch.dtype, fault: Any) -> None:
    right = products(dtype)
    assert str(tuner.difference(fault(*right), right, 512)).startswith("wrong: off by ")


def test_a_sum_without_its_last_terms_is_a_fault() -> None:
    right = products(torch.bfloat16)
    assert tuner.difference(products(torch.bfloat16, order=lambda parts: parts[:-1].sum(0)), right, 512) is not None


def test_replays_alone_are_sampled_in_new_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    monkeypatch.setattr(clocks, "L2Flush", lambda device: "flush")
    monkeypatch.setattr(clocks, "_last_of_a_row", lambda replay, flush: (replay(flush), 0.0))
    contenders = [
        clocks.Contender(name, lambda: None, lambda flush, name=name: log.append(f"{name} {flush}") or 7.0, None)
        for name in "abc"
    ]
    found = clocks.race_replays(contenders, GPU, rounds=20, seed=0)
    rounds = [log[place : place + 3] for place in range(0, 60, 3)]
    assert all(sorted(one) == ["a flush", "b flush", "c flush"] for one in rounds)
    assert len(set(map(tuple, rounds))) > 3
    assert [(one.backend, one.clock, one.l2, one.values) for one in found] == [
        (name, "graph_us", "cold", (7.0,) * 20) for name in "abc"
    ]


# ---- the report ------------------------------------------------------------------------------------------------------


def told(file: Path) -> tunings.Tuning:
    asked = tune.questions(SPEC, [64, 256, 4096, 8192], "inference")
    broken = Fake({SHIPPED: 100.0, FAST: 90.0})
    broken.interrupt = MeasurementError("no\ngraph")
    benches = (
        Fake({SHIPPED: 100.0, FAST: 90.0, WRONG: 1.0}, {WRONG: "wrong: by far"}),
        Fake({SHIPPED: 100.0, EVEN: 99.5}, noise=0.03),
        Fake({SHIPPED: 100.0, SLOW: 120.0}),
        broken,
    )
    answers = searched(file, *benches, asked=asked)
    absent = dict.fromkeys(("liger_kernel", "kernels", "cuda", "driver", "sm_clock_mhz", "memory_clock_mhz"))
    where = Environment(
        python="3.11", platform="Linux", torch="2.11", triton="3.6", float32_matmul_precision="highest", **absent
    )
    return tunings.Tuning(
        schema=1,
        kind="tuning",
        created="2026-01-01T00:00:00+00:00",
        device=GPU,
        environment=where,
        file="tuned.json",
        answers=tuple(answers),
    )


def test_the_table_shows_shipped_best_and_their_ratio(file: Path) -> None:
    text = report.render(told(file))
    lines = {line.split()[1]: line for line in text.splitlines() if line.startswith("forward  ")}
    assert "0.900x [0.900–0.900]" in lines["64"]
    assert lines["64"].endswith("best")
    assert lines["256"].endswith("shipped")
    assert lines["4096"].endswith("–  shipped")
    assert lines["8192"].endswith("–")
    for wanted in (HERE.name, "torch 2.11", "L2 cold", "95%", f"left out: {tune.describe(WRONG)}: wrong: by far"):
        assert wanted in text
    assert "forward, 8192 tokens: failed: no graph" in text


def test_the_other_formats_hold_the_same(file: Path) -> None:
    tuning = told(file)
    assert msgspec.json.decode(report.render(tuning, "json"), type=tunings.Tuning) == tuning
    rows = report.render(tuning, "csv").splitlines()
    assert len(rows) == 5
    assert rows[0].startswith("device,torch,triton,created,direction,tokens")
    assert "| forward" in report.render(tuning, "github")
    with pytest.raises(UsageError, match="unknown format 'pdf'"):
        report.render(tuning, "pdf")


# ---- the command -----------------------------------------------------------------------------------------------------


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = cli.main(("tune", *args))
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> dict[str, Fake]:
    """A GPU that is not there, and what it measures for each number of tokens."""
    benches: dict[str, Fake] = {}
    monkeypatch.setattr("mlpfusion.device.detect", lambda kind: GPU)
    monkeypatch.setattr("mlpfusion.environment._nvidia_smi", lambda device: (None, None, None))
    monkeypatch.setattr(tune, "_bench", lambda question, device: benches[str(question.tokens)])
    return benches


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "tune times kernels on a GPU; this run is on the CPU"),
        (["--device", "cuda"], "device 'cuda' is not here: torch sees no GPU"),
        (["--device", "cpu"], "tune times kernels on a GPU"),
        (["--device", "tpu"], "unknown device 'tpu'; valid: cuda, cpu"),
        (["--dim", "0"], "--dim must be a positive integer, got '0'"),
        (["--hidden", "many"], "--hidden must be a positive integer, got 'many'"),
        (["--activation", "geglu"], "unknown activation 'geglu'; valid: gelu_tanh"),
        (["--dtype", "int8"], "unknown dtype 'int8'; valid: bfloat16"),
        (["--tokens", "1,,2"], "--tokens '1,,2' has an empty name"),
        (["--tokens", "1,x"], "--tokens must be a positive integer, got 'x'"),
        (["--tokens", "256,256"], "--tokens names '256' twice"),
        (["--mode", "both"], "unknown mode 'both'; valid: inference, training"),
        (["--limit", "0"], "--limit must be a positive number of seconds, got '0'"),
        (["--format", "pdf"], "unknown format 'pdf'"),
    ],
    ids=str,
)
def test_what_cannot_be_tuned_is_one_line(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    args: list[str],
    message: str,
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    code, out, err = run(capsys, *args)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--dim", "100"], "the fused kernels do not run here: hidden_size must be a multiple of 16, got 100"),
        (["--tokens", "100,128"], "tokens 100 and 128 share one configuration"),
    ],
)
def test_what_the_kernels_do_not_run_is_refused(
    capsys: pytest.CaptureFixture[str], gpu: dict[str, Fake], args: list[str], message: str
) -> None:
    code, out, err = run(capsys, *args)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_a_file_that_is_none_of_ours_is_not_overwritten(
    capsys: pytest.CaptureFixture[str], gpu: dict[str, Fake], file: Path
) -> None:
    file.parent.mkdir()
    file.write_text("notes")
    code, out, err = run(capsys)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "is none: it is no JSON" in err
    assert "move it away or delete it" in err
    assert file.read_text() == "notes"


def test_a_folder_that_cannot_be_is_one_line(
    capsys: pytest.CaptureFixture[str], gpu: dict[str, Fake], file: Path
) -> None:
    file.parent.write_text("a file in its place")
    code, _, err = run(capsys)
    assert (code, err.count("\n")) == (2, 1)
    assert "its directory cannot be made" in err


def test_a_run_prints_its_table_and_says_what_was_saved(
    capsys: pytest.CaptureFixture[str], gpu: dict[str, Fake], file: Path
) -> None:
    gpu |= {"256": Fake({SHIPPED: 100.0, FAST: 90.0}), "8192": Fake({SHIPPED: 100.0, SLOW: 120.0})}
    code, out, err = run(capsys, "--tokens", "256,8192")
    assert code == 0
    assert tune.describe(FAST) in out
    assert err.splitlines()[-1] == f"1 faster configuration saved in {file}"
    assert forward(m=256) == FAST


def test_a_failed_search_fails_the_run(capsys: pytest.CaptureFixture[str], gpu: dict[str, Fake]) -> None:
    gpu["8192"] = Fake({SHIPPED: 100.0, FAST: 90.0})
    gpu["8192"].interrupt = MeasurementError("no graph")
    code, out, _ = run(capsys, "--tokens", "8192")
    assert code == 1
    assert "failed: no graph" in out


def test_an_interrupt_prints_what_is_finished(
    capsys: pytest.CaptureFixture[str], gpu: dict[str, Fake], file: Path
) -> None:
    gpu |= {"256": Fake({SHIPPED: 100.0, FAST: 90.0}), "8192": Fake({SHIPPED: 100.0, SLOW: 120.0})}
    gpu["8192"].interrupt = KeyboardInterrupt()
    code, out, err = run(capsys, "--tokens", "256,8192")
    assert code == 130
    assert tune.describe(FAST) in out
    last = err.splitlines()[-1]
    assert last == f"mlpfusion: interrupted; 1 of 2 searches had finished; 1 faster configuration saved in {file}"
    assert gate_up_tuned.entry_of(gate_up_tuned.parse(file.read_bytes())[0]).config == FAST


def test_nothing_is_tuned_by_a_call() -> None:
    """No module that a call goes through imports the search."""
    package = Path(gate_up_tuned.__file__).parent
    importing = {path.name for path in package.glob("*.py") if "gate_up_search" in path.read_text(encoding="utf-8")}
    assert importing == set()
