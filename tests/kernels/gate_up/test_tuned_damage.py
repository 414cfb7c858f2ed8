"""What a call ignores in the file of tuned configurations, and what it says of that."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlpfusion_kernels import reload_tuned
from mlpfusion_kernels.gate_up import tuned
from mlpfusion_kernels.gate_up.choice import choose
from mlpfusion_kernels.gate_up.configs import Config
from mlpfusion_kernels.gate_up.decode import DecodeConfig, StreamTile
from mlpfusion_kernels.gate_up.limits import decode_refusal, refusal
from mlpfusion_kernels.gate_up.tuned import Entry, Key, kernels_version
from support import forked, rings, tunings_made
from support.tunings_made import BF16, CARDS, HERE, OTHER, SHAPE, STREAM, entry, forward, warned, write

if TYPE_CHECKING:
    from collections.abc import Callable

file = tunings_made.file  # a fixture


def ignored(file: Path, *reasons: str, ask: Any = forward) -> None:
    """A call gets what is shipped, and one warning that names the file and the reasons; the next one gets none."""
    found, texts = warned(ask)
    assert found == choose(HERE, BF16, *SHAPE)
    assert len(texts) == 1
    assert repr(str(file)) in texts[0]
    for reason in reasons:
        assert reason in texts[0]
    assert warned(lambda: forward(m=8000))[1] == []


def bind(path: Path) -> None:
    """A socket that nobody serves."""
    here = Path.cwd()
    os.chdir(path.parent)  # a socket's path may have about a hundred bytes
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


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
    ignored(file, "it is not a regular file")


@pytest.mark.parametrize(
    "make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), bind], ids=["fifo", "device", "socket"]
)
def test_what_could_be_waited_for_is_not_read(file: Path, make: Callable[[Path], object]) -> None:
    file.parent.mkdir()
    make(file)
    ignored(file, "it is not a regular file")


def test_a_link_to_a_file_is_read(file: Path) -> None:
    write(file, entry())
    file.rename(file.with_name("elsewhere.json"))
    file.symlink_to("elsewhere.json")
    reload_tuned()
    assert warned() == (OTHER, [])


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
    write(file, one | {"digest": tuned.digest(one)})
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
        ({"form": "wide", "resident": 1}, "the wide form is for compute capability 9 and 10"),
        ({"form": "hopper", "resident": 1}, "the hopper form is for compute capability 9.0"),
        ({"resident": 1}, "the pointer form has no resident programs, got 1"),
        ({"block_m": 96}, "block_m must be a power of two from 16 to 256, got 96"),
        ({"block_n": 512}, "block_n must be a power of two from 16 to 256, got 512"),
        ({"block_k": 8}, "block_k must be a power of two from 16 to 256, got 8"),
        ({"block_k": -64}, "block_k must be a power of two"),
        ({"parts": 3}, "parts of the pointer form cannot be 3"),
        ({"parts": 0}, "parts of the pointer form cannot be 0"),
        ({"warps": 3}, "warps must be 4 or 8, got 3"),
        ({"stages": 99}, "stages must be from 2 to 8, got 99"),
        ({"stages": 1}, "stages must be from 2 to 8, got 1"),
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
    one["digest"] = tuned.digest(one)
    write(file, one)
    ignored(file, "entry 0: ", reason)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (STREAM._replace(tokens=20), "tokens 20 is none of 16, 32, 64"),
        (STREAM._replace(overlap=True), "overlap needs compute capability 9.0 or later"),
        (STREAM._replace(gate_up=StreamTile(24, 64, 3, 4)), "gate_up: rows must be a power of two"),
        (STREAM._replace(down=StreamTile(16, 32, 3, 4)), "down: columns must be a power of two from 64"),
        (STREAM._replace(down=StreamTile(256, 64, 2, 4)), "down: 512 sums for each thread are more than"),
        (STREAM._replace(down=StreamTile(64, 1024, 16, 4)), "down: it needs 2621440 bytes of shared memory"),
        (STREAM._replace(gate_up=StreamTile(64, 64, 1, 4)), "gate_up: stages must be from 2 to 16, got 1"),
    ],
)
def test_the_same_for_a_few_tokens(file: Path, config: DecodeConfig, reason: str) -> None:
    def ask() -> Config:
        tuned.decode_config(HERE, BF16, 1, *SHAPE[1:])
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


def test_entries_of_other_kernels_are_no_fault_where_these_have_their_own(file: Path) -> None:
    elsewhere = entry(version="0123456789abcdef")
    elsewhere["config"] = {"fields": "that these kernels do not have"}
    elsewhere["digest"] = tuned.digest(elsewhere)
    write(file, elsewhere, entry(), entry(OTHER._replace(group=4), version="another"))
    assert warned() == (OTHER, [])
    write(file, elsewhere, entry(tokens=256))
    assert warned(lambda: forward(m=256)) == (
        OTHER,
        [
            f"tuned configurations in {str(file)!r} are ignored in part: entry 0: found for other kernels "
            f"('0123456789abcdef', these are {kernels_version()!r})"
        ],
    )


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
        (shipped._replace(stages=1), False),
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
DAMAGE = settings(max_examples=rings.examples(60))


def whole_or_not_at_all(file: Path, content: bytes) -> None:
    """Whatever the file holds: no exception, and configurations that the kernels of that direction can run."""
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)
    reload_tuned()
    found, texts = warned()
    assert len(texts) <= 1
    assert refusal(found, HERE, BF16, "forward", 768) is None
    few, texts = warned(lambda: tuned.decode_config(HERE, BF16, 1, *SHAPE[1:]))
    assert texts == []  # the file was read before
    assert decode_refusal(few, HERE, BF16, 1) is None


@DAMAGE
@given(data=st.data())
def test_bytes_that_are_lost_or_changed_never_raise(file: Path, data: st.DataObject) -> None:
    content = bytearray(tuned.document_of([entry(), entry(STREAM, tokens=1)]))
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
        one["digest"] = tuned.digest(one) if data.draw(st.booleans()) else one["digest"]
    whole_or_not_at_all(file, json.dumps({"kind": tuned.KIND, "schema": 1, "entries": damaged}).encode())


@DAMAGE
@given(document=json_values, wrapped=st.booleans())
def test_any_json_never_raises(file: Path, document: Any, wrapped: bool) -> None:
    entries = document if isinstance(document, list) else [document]
    whole = {"kind": tuned.KIND, "schema": 1, "entries": entries} if wrapped else document
    whole_or_not_at_all(file, json.dumps(whole).encode())


@given(
    numbers=st.tuples(*[st.integers(1, 2**20)] * 2),
    dtype=st.sampled_from(["bfloat16", "float16", "float32"]),
    config=st.builds(Config, st.text(), *[st.integers(-(2**31) + 1, 2**31 - 1)] * 9),
    device=st.text(),
)
def test_an_entry_survives_the_file(numbers: tuple[int, int], dtype: str, config: Config, device: str) -> None:
    made = Entry(Key(device, (9, 0), dtype, "forward", 64, *numbers), "v", config)
    try:
        data = tuned.document_of([tuned.entry_to_json(made)])
        (raw,) = tuned.parse(data)
    except UnicodeError:
        return
    if not any("\ud800" <= letter <= "\udfff" for letter in config.form + device):  # those are spelled out
        assert tuned.entry_of(raw) == made


def test_the_version_follows_the_sources_and_not_the_process() -> None:
    script = "from mlpfusion_kernels.gate_up.tuned import kernels_version; print(kernels_version())"
    other = forked.run([sys.executable, "-c", script], check=True)  # of one that hashes strings in another way
    assert other.stdout.strip() == kernels_version.__wrapped__()


def test_another_line_of_a_kernel_is_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = Path(tuned.__file__).parents[1]
    tmp_path = shutil.copytree(package, tmp_path / "copy", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(tuned, "__file__", str(tmp_path / "gate_up" / "tuned.py"))
    fresh = kernels_version.__wrapped__
    for name, follows in [("layers.py", False), ("gate_up/tuned.py", False), ("gate_up/kernels.py", True)]:
        before = fresh()
        (tmp_path / name).write_text((tmp_path / name).read_text() + "\n# more\n")
        assert (fresh() != before) == follows, name
    (tmp_path / "activations.py").unlink()
    with pytest.raises(OSError, match="activations"):
        fresh()
