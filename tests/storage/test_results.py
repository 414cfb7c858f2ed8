"""store: result files are written whole or not at all, and read back as they were."""

from __future__ import annotations

import json
import os
import stat
import statistics
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import rings
from support.paths import RESULTS
from support.profiles_made import on_a_cpu

from mlpfusion.device import Device
from mlpfusion.errors import MeasurementError, MlpfusionError, UsageError
from mlpfusion.records.clocks import Bound, Clock, Clocks, Ratio
from mlpfusion.records.environment import Card, Checkout, Environment, Process, Readings
from mlpfusion.records.profile import (
    Accuracy,
    Decoded,
    Kernel,
    Launches,
    Memory,
    PreOpParts,
    PreOps,
    Profile,
    Row,
    Setup,
    Traffic,
)
from mlpfusion.records.traffic import Ceilings, CopyRate, Intermediate, ProductRate, Role, Step
from mlpfusion.spec import ACTIVATIONS, DTYPES, MODES, MLPSpec, Workload
from mlpfusion.storage import results
from mlpfusion.storage.redacted import redacted

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)  # no lone surrogates: JSON has no place for them
TIMES = st.floats(1e-9, 1e12)
COUNTS = st.integers(0, 2**53)
SOME = st.integers(1, 2**53)
SIZES = st.integers(1, 2**15)  # batch and seq of it are less than 2**31 tokens
REASONS = st.dictionaries(WORDS, WORDS, max_size=2)


def maybe(strategy: st.SearchStrategy) -> st.SearchStrategy:
    return st.none() | strategy


def some(strategy: st.SearchStrategy, most: int = 2) -> st.SearchStrategy:
    return st.lists(strategy, max_size=most).map(tuple)


PARTS = {name: maybe(TIMES) for name in PreOpParts.__struct_fields__}
DECODED = st.builds(
    Decoded, library=maybe(WORDS), tile=maybe(WORDS), stages=maybe(st.integers(0, 9)), fused_ops=some(WORDS)
)
KERNELS = st.builds(
    Kernel, name=WORDS, role=st.sampled_from(get_args(Role)), decoded=DECODED, time_us=maybe(TIMES), op=maybe(WORDS)
)
LAUNCHES = st.builds(
    Launches,
    kernels=st.integers(0, 1),  # every row here has a kernel
    memcpys=COUNTS,
    memsets=COUNTS,
    runtime_launches=st.dictionaries(WORDS, COUNTS, max_size=3),
    occupancy_queries=COUNTS,
    syncs=COUNTS,
)
PRE_OPS = st.builds(
    PreOps,
    n=COUNTS,
    time_to_first_launch=maybe(TIMES),
    first_launch=maybe(WORDS),
    between_launches=maybe(st.builds(PreOpParts, **PARTS)),
    profiler_inflation=maybe(TIMES),
    **PARTS,
)
THREE = st.tuples(TIMES, TIMES, TIMES).map(sorted)
RATIOS = st.builds(
    lambda three, **others: Ratio(low=three[0], median=three[1], high=three[2], **others),
    THREE,
    baseline=WORDS,
    confidence=st.floats(0, 1),
    n=SOME,
)


@st.composite
def clock_of(draw: st.DrawFn, lengths: tuple[int, ...]) -> Clock:
    """A clock whose processes had these numbers of rounds, or the summary of one."""
    rounds = tuple(tuple(draw(st.lists(maybe(TIMES), min_size=n, max_size=n))) for n in lengths)
    kept = [time for each in rounds for time in each if time is not None] or [draw(TIMES)]
    median = statistics.median(kept)
    few = draw(st.booleans())
    return Clock(
        n=len(kept),
        median=median,
        p20=None if few else draw(st.floats(min(kept), median)),
        p80=None if few else draw(st.floats(median, max(kept))),
        l2=draw(st.sampled_from(["cold", "warm", "unknown"])),
        dropped=sum(each.count(None) for each in rounds),
        ratio_to_eager=draw(maybe(RATIOS)),
        rounds=rounds if any(time is not None for each in rounds for time in each) else (),
    )


def clocks_of(lengths: tuple[int, ...]) -> st.SearchStrategy[Clocks]:
    clock = maybe(clock_of(lengths))
    return st.builds(Clocks, wall_us=clock, event_us=clock, kernel_us=maybe(clock_of((3,))), reasons=REASONS)


READINGS = st.builds(
    lambda three, n: Readings(n=n, low=three[0], median=three[1], high=three[2]),
    st.tuples(*[st.floats(-50, 3000)] * 3).map(sorted),
    SOME,
)
PROCESS = st.builds(
    Process,
    started=WORDS,
    sm_clock_mhz=maybe(READINGS),
    power_w=maybe(READINGS),
    temperature_c=maybe(READINGS),
    throttle_reasons=maybe(some(WORDS)),
    neighbours=maybe(st.floats(0, 1)),
    kernels=st.dictionaries(WORDS, some(WORDS), max_size=1),
    reasons=REASONS,
)
CARD = st.builds(
    Card,
    power_limit_w=maybe(st.floats(1, 2000)),
    ecc=maybe(st.booleans()),
    locked_clocks=maybe(st.booleans()),
    digest=maybe(WORDS),
    reasons=REASONS,
)
INTERMEDIATES = st.builds(
    Intermediate,
    role=st.sampled_from(["gate", "product", "other"]),
    bytes=COUNTS,
    moved_bytes=COUNTS,
    written_by=WORDS,
    read_by=st.lists(WORDS, min_size=1, max_size=2).map(tuple),
    saved=st.booleans(),
)
STEPS = st.builds(
    Step,
    op=WORDS,
    source=st.sampled_from(["operator", "triton"]),
    read_bytes=COUNTS,
    write_bytes=COUNTS,
    flops=maybe(COUNTS),
    kernels=some(st.just(0)),  # every row here has a kernel
    time_us=maybe(TIMES),
    above=maybe(WORDS),
)
CEILINGS = st.builds(
    Ceilings,
    dtype=WORDS,
    copies=st.lists(SOME, min_size=1, max_size=2, unique=True).flatmap(
        lambda sizes: st.tuples(
            *(st.builds(CopyRate, bytes=st.just(size), bytes_per_second=TIMES, n=SOME) for size in sorted(sizes))
        )
    ),
    products=st.lists(
        st.builds(ProductRate, m=SIZES, n=SIZES, k=SIZES, flops_per_second=TIMES, samples=SOME), min_size=1, max_size=2
    ).map(tuple),
)
ROW = {
    "backend": WORDS,
    "status": st.sampled_from(["ok", "unavailable", "failed"]),
    "reason": maybe(WORDS),
    "emulated": st.booleans(),
    "tokens": maybe(SIZES),
    "setup": maybe(st.builds(Setup, bind_s=TIMES, first_call_s=TIMES)),
    "accuracy": maybe(
        st.builds(
            Accuracy,
            max_error=TIMES,
            rms_error=TIMES,
            eager_max_error=TIMES,
            eager_rms_error=TIMES,
            rows=SOME,
            elements=SOME,
        )
    ),
    "kernels": st.lists(KERNELS, min_size=1, max_size=2).map(tuple),
    "launches": maybe(LAUNCHES),
    "pre_ops": maybe(PRE_OPS),
    "bound": maybe(st.builds(Bound, by=st.sampled_from(["cpu", "gpu"]), margin=TIMES, host_us=TIMES, device_us=TIMES)),
    "traffic": maybe(
        st.builds(
            Traffic,
            minimum_bytes=COUNTS,
            derived_bytes=maybe(COUNTS),
            round_trips=maybe(COUNTS),
            intermediates=some(INTERMEDIATES),
            steps=some(STEPS),
            other=some(WORDS),
            captured=st.booleans(),
            measured_bytes=maybe(COUNTS),
            explained=maybe(WORDS),
            reasons=REASONS,
        )
    ),
    "memory": maybe(st.builds(Memory, peak_bytes=maybe(COUNTS), reasons=REASONS)),
    "trace_file": maybe(WORDS),
    "notes": some(WORDS),
}
PROFILE = {
    "schema": st.just(2),
    "kind": st.just("profile"),
    "mlpfusion": WORDS,
    "created": WORDS,
    "workload": st.builds(
        Workload,
        spec=st.builds(
            MLPSpec,
            hidden_size=SIZES,
            intermediate_size=SIZES,
            activation=st.sampled_from(ACTIVATIONS),
            dtype=st.sampled_from(DTYPES),
            bias=st.booleans(),
        ),
        batch=SIZES,
        seq=SIZES,
        mode=st.sampled_from(MODES),
    ),
    "device": st.builds(Device, kind=st.sampled_from(["cuda", "cpu"]), name=WORDS, memory_bytes=maybe(COUNTS)),
    "environment": st.builds(
        Environment,
        python=WORDS,
        platform=WORDS,
        torch=WORDS,
        triton=maybe(WORDS),
        liger_kernel=maybe(WORDS),
        kernels=maybe(WORDS),
        cuda=maybe(WORDS),
        driver=maybe(WORDS),
        sm_clock_mhz=maybe(COUNTS),
        memory_clock_mhz=maybe(COUNTS),
        float32_matmul_precision=WORDS,
        flags=st.dictionaries(WORDS, WORDS, max_size=2),
        card=maybe(CARD),
        checkout=maybe(st.builds(Checkout, commit=WORDS, clean=st.booleans())),
    ),
    "command": maybe(some(WORDS)),
    "ceilings": maybe(CEILINGS),
    "complete": st.booleans(),
}


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    """A profile whose rows were raced in the same processes."""
    lengths = tuple(draw(st.lists(st.integers(1, 4), max_size=3)))
    row = st.builds(Row, clocks=maybe(clocks_of(lengths)), **ROW)
    rows = draw(st.lists(row, max_size=3, unique_by=lambda row: row.backend))
    processes = tuple(draw(PROCESS) for _ in lengths)
    return draw(st.builds(Profile, rows=st.just(tuple(rows)), processes=st.just(processes), **PROFILE))


OK = Row(backend="eager", status="ok")


def clocked(**clock: object) -> Profile:
    fields = {"n": 1, "median": 1.0, "p20": None, "p80": None, "l2": "unknown", **clock}
    return on_a_cpu(msgspec.structs.replace(OK, clocks=Clocks(wall_us=Clock(**fields))))


@given(profiles())
@settings(max_examples=rings.examples(60))
def test_a_profile_comes_back_as_it_was(tmp_path: Path, profile: Profile) -> None:
    path = tmp_path / "result.json"
    for named in (path, str(path)):
        results.save(profile, named)
        assert results.load(named) == redacted(profile)  # a drawn word may be a path
        assert results.encode(results.load(path)) == path.read_text(encoding="utf-8")
        assert os.listdir(tmp_path) == ["result.json"]


def test_samples_are_kept_on_one_line(tmp_path: Path) -> None:
    samples = tuple(index + 0.125 for index in range(200))
    results.save(clocked(n=200, median=99.625, rounds=(samples,)), tmp_path / "r.json")
    assert results.load(tmp_path / "r.json").rows[0].clocks.wall_us.samples == samples
    assert len((tmp_path / "r.json").read_text().splitlines()) < 120


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("field", ["median", "rounds"])
def test_a_number_that_is_none_is_refused_and_the_old_file_stays(tmp_path: Path, field: str, value: float) -> None:
    path = tmp_path / "r.json"
    results.save(on_a_cpu(OK), path)
    before = path.read_bytes()
    with pytest.raises(MeasurementError, match=rf"rows\[0\]\.clocks\.wall_us\.{field}.* is not a finite number"):
        results.save(clocked(**{field: ((1.0, value),) if field == "rounds" else value}), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["r.json"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.json"
    results.save(on_a_cpu(OK), path)
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(MlpfusionError, match="No space left on device"):
        results.save(on_a_cpu(OK, created="later"), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["r.json"]


def test_a_link_keeps_pointing_at_what_was_written(tmp_path: Path) -> None:
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    results.save(on_a_cpu(OK), tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    assert results.load(tmp_path / "real.json") == on_a_cpu(OK)


def test_a_result_file_is_as_readable_as_any_other(tmp_path: Path) -> None:
    results.save(on_a_cpu(OK), tmp_path / "r.json")
    (tmp_path / "plain").touch()
    assert stat.S_IMODE((tmp_path / "r.json").stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


def test_where_no_result_file_can_be(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path, message in [
        (tmp_path, "is a directory"),
        (tmp_path / "no" / "r.json", "does not exist"),
        (Path(os.devnull), "is not a regular file"),
        (tmp_path / ("n" * 300), "File name too long"),
        (tmp_path / "loop" / "r.json", "cannot be written"),
        (tmp_path / "loop", "cannot be written|is not a regular file"),
        (tmp_path / "null\0byte", "cannot be written"),
        (Path("/proc/r.json"), "is not writable|cannot be written"),
    ]:
        with pytest.raises(UsageError, match=message):
            results.check_file(path)
        with pytest.raises(UsageError, match=message):
            results.save(on_a_cpu(OK), path)
    assert not (tmp_path / "no").exists()


def test_where_no_output_directory_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UsageError, match="is a file, not a directory"):
            results.check_directory(path, overwrite=True)
    (tmp_path / "out" / results.RESULT_NAME).mkdir(parents=True)
    with pytest.raises(UsageError, match="is a directory"):
        results.check_directory(tmp_path / "out", overwrite=True)
    assert results.check_directory(tmp_path / "new" / "deep", overwrite=True) == tmp_path / "new" / "deep"
    assert sorted(os.listdir(tmp_path)) == ["file", "out"]


def test_where_the_system_would_refuse_an_output_directory(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    names = ["loop", "dangling", "n" * 300, f"new/{'n' * 300}", "null\0byte"]
    for path in (*(tmp_path / name for name in names), Path("/proc/foo"), Path("/proc/foo/deep")):
        with pytest.raises(UsageError, match="output directory") as caught:
            results.check_directory(path, overwrite=True)
        assert "\n" not in str(caught.value)
    assert sorted(os.listdir(tmp_path)) == ["dangling", "loop"]


def test_a_folder_in_the_place_of_a_trace(tmp_path: Path) -> None:
    (tmp_path / "eager.trace.json.gz").mkdir()
    with pytest.raises(UsageError, match=r"'eager\.trace\.json\.gz' in it is not a regular file"):
        results.check_directory(tmp_path, overwrite=True)


def test_the_longest_name_that_a_file_may_have(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 250 + ".json")
    results.save(on_a_cpu(OK), path)
    assert results.load(path) == on_a_cpu(OK)


def test_a_file_without_an_end_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "_MOST_BYTES", 2**20)
    with pytest.raises(UsageError, match="result file '/dev/zero' is larger than 1 MiB"):
        results.load("/dev/zero")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_without_write_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError, match="is not writable"):
        results.check_file(tmp_path / "r.json")
    with pytest.raises(UsageError, match="is not writable"):
        results.check_directory(tmp_path / "out", overwrite=True)


def encoded(**changes: object) -> bytes:
    return json.dumps({**json.loads(results.encode(on_a_cpu(OK))), **changes}).encode()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not JSON, or cut short"),
        (b"backend,status\n", "is not JSON, or cut short"),
        (results.encode(on_a_cpu(OK)).encode()[:-40], "is not JSON, or cut short"),
        (b'{"schema": 1, "kind": "\xff"}', "is not JSON, or cut short"),
        (b"[" * 100_000, "is not JSON, or cut short|is not a result file"),
        (b"[1, 2]", "is not a result file of mlpfusion"),
        (b"{}", "is not a result file of mlpfusion"),
        (b'{"traceEvents": [], "schemaVersion": 1}', "is not a result file of mlpfusion"),
        (encoded(schema=7), "with schema 7; this one reads up to 2"),
        (encoded(kind="verdict"), "holds a 'verdict'; valid here: 'profile'"),
        (encoded(rows=3), "is a damaged profile: .*rows"),
        (encoded(rows=[{"backend": "eager"}]), "is a damaged profile: .*status"),
        (encoded(workload={"spec": {"hidden_size": 0, "intermediate_size": 1}, "batch": 1, "seq": 1}), "hidden_size"),
    ],
)
def test_a_file_that_is_no_profile_is_named_in_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=message) as caught:
        results.load(path)
    assert "r.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        results.load(tmp_path / "r.json")
    with pytest.raises(UsageError, match="is a directory"):
        results.load(tmp_path)


OF_SCHEMA_1 = [
    path for path in sorted(RESULTS.glob("h200-prove-*.json")) if json.loads(path.read_text())["schema"] == 1
]


@pytest.mark.parametrize("path", OF_SCHEMA_1, ids=lambda path: path.name)
def test_a_proof_of_schema_1_keeps_its_samples(path: Path) -> None:
    found = results.load_any(path)
    assert found.schema == 2
    speed = json.loads(path.read_text())["speed"]
    assert found.speed.original.rounds == (tuple(speed["original"]["samples"]),)
