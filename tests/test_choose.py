"""Choosing: winners and ties, ranges, rows that are kept, choice files, and modules that run by them."""

from __future__ import annotations

import copy
import csv
import io
import itertools
import json
import pickle
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mlpfusion import GatedMLP, api, choice_file, holding, store
from mlpfusion import device as devices
from mlpfusion.__main__ import main as run_main
from mlpfusion.auto import Auto
from mlpfusion.choices import SCHEMA, Choice, Contender, Point, Range
from mlpfusion.device import detect
from mlpfusion.errors import BackendUnavailableError, UsageError
from mlpfusion.models import choose, decide, known, rows
from mlpfusion.models.time_left import TimeLeft
from mlpfusion.records import Accuracy, Bound, Clock, Clocks, Launches, Memory, Profile, Row, Traffic
from mlpfusion.report import choice as report
from mlpfusion.spec import MLPSpec, Workload

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="the choice without a GPU")

SPEC = MLPSpec(hidden_size=16, intermediate_size=32, dtype="float32")
GOOD = Accuracy(max_error=1.0, rms_error=1.0, eager_max_error=1.0, eager_rms_error=1.0, rows=1, elements=16)
HERE = replace(detect("cpu"), interpreted=False)


def clock_of(*values):
    return Clock(n=len(values), median=sorted(values)[len(values) // 2], p20=min(values), p80=max(values), l2="cold",
                 samples=values)  # fmt: skip


def around(middle, wobble=0.01, n=25):
    return tuple(middle * (1 + wobble * ((7 * i) % 5 - 2) / 2) for i in range(n))


def row(name, values=None, **changes):
    if values is None:
        return Row(backend=name, status=changes.pop("status", "unavailable"), **changes)
    clocks = Clocks(event_us=clock_of(*values), wall_us=clock_of(*values))
    return Row(backend=name, **{"status": "ok", "accuracy": GOOD, "clocks": clocks, **changes})


def profile(*found, tokens=16, mode="inference", spec=SPEC, complete=True):
    return Profile(
        schema=1,
        kind="profile",
        mlpfusion="0.1.0",
        created="2026-01-01T00:00:00+00:00",
        workload=Workload(spec=spec, batch=1, seq=tokens, mode=mode),
        device=HERE,
        environment=api.environment.collect(HERE),
        rows=found,
        complete=complete,
    )


def point_of(*found, wrong=None, **options):
    return decide.point(profile(*found, **options), "event_us", wrong or {})


def by_name(point):
    return {each.backend: each for each in point.contenders}


# ---- one number of tokens --------------------------------------------------------------------------------------------


def test_the_fastest_wins_with_its_margin():
    point = point_of(row("eager", around(120)), row("triton", around(100)), row("packed", around(110)))
    assert (point.chosen, point.winner, point.runner_up, point.tied) == ("triton", "triton", "packed", ())
    found = by_name(point)
    assert found["triton"].verdict == "won"
    assert found["packed"].verdict == found["eager"].verdict == "slower"
    ratio = found["packed"].ratio
    assert ratio.low <= ratio.median <= ratio.high
    assert ratio.median == pytest.approx(1.1)
    assert (ratio.baseline, ratio.n, ratio.confidence) == ("triton", 25, 0.95)
    assert all(each.clock.samples == () for each in found.values())


def test_a_tie_within_the_noise_goes_to_the_fastest_or_to_eager():
    noisy, other = around(100, wobble=0.2), tuple(reversed(around(101, wobble=0.2)))
    assert point_of(row("triton", noisy), row("packed", other)).tied == ("packed",)
    assert point_of(row("triton", noisy), row("packed", other)).chosen == "triton"
    point = point_of(row("triton", noisy), row("eager", other))
    assert (point.winner, point.chosen, by_name(point)["eager"].verdict) == ("triton", "eager", "tied")


def test_too_few_rounds_tell_nothing():
    point = point_of(row("eager", (200.0, 201.0)), row("triton", (100.0, 101.0)))
    assert (point.winner, point.tied, point.chosen) == ("triton", ("eager",), "eager")


def test_what_is_left_out_says_why():
    bad = row("bad", around(10), accuracy=replace(GOOD, max_error=90.0), status="failed", reason="numerically wrong")
    emulated = row("emulated", around(1), emulated=True, reason="emulated: no times")
    no_graph = row("late", around(1), clocks=Clocks(reasons={"event_us": "not sampled"}))
    dropped = row("dropped", clocks=Clocks(event_us=replace(clock_of(*around(1)), dropped=1)), status="ok")
    refused = row("refused", reason="only on Tuesdays")
    point = point_of(row("eager", around(100)), bad, emulated, no_graph, dropped, refused)
    assert point.chosen == "eager"
    assert {name: (each.verdict, each.reason) for name, each in by_name(point).items() if name != "eager"} == {
        "bad": ("failed", "numerically wrong"),
        "emulated": ("untimed", "emulated: no times"),
        "late": ("untimed", "not sampled"),
        "dropped": ("untimed", "no whole series of event_us"),
        "refused": ("unavailable", "only on Tuesdays"),
    }


def test_wrong_for_one_number_of_tokens_is_out_for_all():
    wrong_at_256 = row("mine", status="failed", reason="numerically wrong: 9", accuracy=replace(GOOD, rms_error=9.0))
    small = profile(row("eager", around(100)), row("mine", around(50)), tokens=1)
    large = profile(row("eager", around(100)), wrong_at_256, tokens=256)
    wrong = decide.disqualified([small, large])
    assert wrong == {"mine": "wrong at inference, 256 tokens: numerically wrong: 9"}
    point = decide.point(small, "event_us", wrong)
    assert point.chosen == "eager"
    assert by_name(point)["mine"].reason == wrong["mine"]


def test_nothing_to_choose():
    point = point_of(row("eager", status="failed", reason="out of memory"))
    assert (point.chosen, point.winner) == (None, None)
    assert point.reason == "no backend that is right has a time by event_us"


def test_why_one_is_slower():
    def launches(kernels):
        return Launches(kernels=kernels, memcpys=0, memsets=0, runtime_launches={}, occupancy_queries=0, syncs=0)

    host = Bound(by="cpu", margin=3.0, host_us=300.0, device_us=100.0)
    slow = row("eager", around(300), launches=launches(5), bound=host,
               traffic=Traffic(minimum_bytes=1, derived_bytes=4_000_000))  # fmt: skip
    fast = row("fused", around(100), launches=launches(2), traffic=Traffic(minimum_bytes=1, derived_bytes=1_000_000))
    said = by_name(point_of(slow, fast))["eager"].reason
    assert said == (
        "bound by the host, which takes 3.00x the device's time, 5 kernels against 2, moves 4.00 MB against 1.00 MB"
    )


# ---- ranges ----------------------------------------------------------------------------------------------------------


def measured(tokens, times, mode="inference", chosen=None):
    contenders = tuple(Contender(backend=name, verdict="slower", clock=clock_of(time)) for name, time in times.items())
    best = chosen if chosen is not None else min(times, key=times.get) if times else None
    return Point(mode=mode, tokens=tokens, chosen=best, winner=best, runner_up=None, tied=(), contenders=contenders)


def test_a_range_ends_where_the_times_cross():
    # a is constant, b falls from 4 to 1 between 1 and 256 tokens: on logarithmic scales they cross halfway, at 16
    points = [measured(1, {"a": 2.0, "b": 4.0}), measured(256, {"a": 2.0, "b": 1.0})]
    assert [(each.first, each.last, each.backend, each.measured) for each in decide.ranges(points)] == [
        (1, 16, "a", (1,)),
        (17, None, "b", (256,)),
    ]


def test_where_one_has_no_time_a_range_ends_halfway():
    points = [measured(4, {"a": 2.0}), measured(64, {"b": 1.0})]
    assert [(each.first, each.last) for each in decide.ranges(points)] == [(1, 16), (17, None)]


def test_a_point_without_a_choice_is_a_gap():
    points = [measured(1, {"a": 2.0}), measured(16, {}), measured(256, {"a": 1.0})]
    assert [(each.first, each.last) for each in decide.ranges(points)] == [(1, 4), (65, None)]


def test_phases():
    def phases(*points):
        return [each.phase for each in decide.ranges(points)]

    assert phases(measured(1, {"a": 1.0, "b": 2.0}), measured(4096, {"a": 1.0, "b": 0.5})) == ["decode", "prefill"]
    assert phases(measured(1, {"a": 1.0}), measured(16, {"b": 1.0}), measured(4096, {"a": 1.0}))[1:] == [
        "decode and prefill",
        "prefill",
    ]
    assert phases(measured(8, {"a": 1.0}, "training")) == ["training"]


TIMES = st.lists(st.floats(0.1, 1e4), min_size=3, max_size=3)
DATA = st.lists(st.tuples(st.integers(1, 10**6), TIMES), min_size=1, max_size=6, unique_by=lambda each: each[0])


@given(DATA)
def test_ranges_cover_every_number_once_and_agree_with_the_points(data):
    points = [measured(tokens, dict(zip("abc", times, strict=True))) for tokens, times in data]
    found = decide.ranges(points)
    assert found[0].first == 1
    assert found[-1].last is None
    for one, after in itertools.pairwise(found):
        assert one.last + 1 == after.first
        assert one.backend != after.backend
    for point in points:
        (its,) = [
            each for each in found if each.first <= point.tokens and (each.last is None or point.tokens <= each.last)
        ]
        assert its.backend == point.chosen
        assert point.tokens in its.measured


# ---- what is asked ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tokens": []}, "no tokens were given"),
        ({"tokens": [0]}, "tokens must be a positive integer, got 0"),
        ({"tokens": [1, 1]}, "tokens names 1 twice"),
        ({"modes": ["inference", "inference"]}, "modes names inference twice"),
        ({"modes": ["decode"]}, "unknown mode 'decode'; valid: inference, training"),
        ({"tp": 0}, "tp must be a positive integer, got 0"),
        ({"tp": 5}, "tp 5 does not divide the intermediate_size 32 of 16x32-gelu_tanh"),
        ({"backends": ["egaer"]}, "unknown backend 'egaer'; known: eager"),
        ({"clock": "graph_us"}, "clock 'graph_us' needs a GPU; valid on a CPU: wall_us"),
        ({"clock": "cycles"}, "unknown clock 'cycles'; valid: event_us, graph_us, wall_us"),
        ({"device": "a100-80gb"}, r"device 'a100-80gb' \(NVIDIA A100-SXM4-80GB or NVIDIA A100 80GB PCIe\) is not here"),
        ({"device": "tpu"}, "unknown device 'tpu'; valid: cuda, cpu, or a card: a100-sxm4-80gb"),
        ({"device": "cuda"}, "torch sees no GPU"),
        ({"tokens": [10**12]}, "needs about .* GB"),
    ],
)
def test_a_bad_question_is_one_line(options, said):
    with pytest.raises(UsageError, match=said):
        choose.choose(SPEC, **{"tokens": [1], "device": "cpu", **options})


def test_a_model_for_inference_alone_is_not_trained():
    with pytest.raises(UsageError, match=r"t5-v1.1-xl is for inference alone: dropout_rate 0.1"):
        choose.choose("t5-v1.1-xl", tokens=[1], modes=["training"], device="cpu")


def test_a_card_that_is_here(monkeypatch):
    card = devices.Device(kind="cuda", name="NVIDIA H200", capability=(9, 0))
    monkeypatch.setattr(devices, "detect", lambda kind=None: card)
    assert choose.device_of("h200") == card
    with pytest.raises(UsageError, match=r"device 'h100-pcie' .* is not here.*; here: NVIDIA H200"):
        choose.device_of("h100-pcie")


# ---- rows on disk ----------------------------------------------------------------------------------------------------


class Bench:
    """Stands in for `api.profile`: writes its rows as that does, and can be interrupted after some of them."""

    def __init__(self, monkeypatch, stop_after=None):
        self.asked, self.stop_after = [], stop_after
        monkeypatch.setattr(api, "profile", self)

    def __call__(self, work, *, backends, json, finished, on_event, **options):
        kept = {each.backend: each for each in finished}
        self.asked.append((work.mode, work.tokens, sorted(set(backends) - set(kept))))
        done = []
        for name in backends:
            on_event(api.Progress("qualify", name, "…"))
            done.append(kept.get(name) or row(name, around(100 if name == "eager" else 150 - work.tokens)))
            on_event(api.Progress("qualify", name, "ok"))
            found = profile(*done, tokens=work.tokens, mode=work.mode, spec=work.spec, complete=False)
            if json is not None:
                store.save(found, json)
            if self.stop_after == (work.tokens, name):
                raise KeyboardInterrupt
        on_event(api.Progress("race", None, "done"))
        if json is not None:
            store.save(replace(found, complete=True), json)
        return replace(found, complete=True)


ASKED = {"tokens": [1, 100], "backends": ["eager", "compile"], "device": "cpu"}


def test_an_interrupted_run_goes_on_where_it_was(tmp_path, monkeypatch):
    Bench(monkeypatch, stop_after=(100, "eager"))
    with pytest.raises(KeyboardInterrupt):
        choose.choose(SPEC, **ASKED, out=tmp_path)
    assert not (tmp_path / rows.CHOICE_NAME).exists()
    again = Bench(monkeypatch)
    made = choose.choose(SPEC, **ASKED, out=tmp_path)
    assert again.asked == [("inference", 100, ["compile"])]
    assert (made.ranges[0].first, made.ranges[0].backend) == (1, "eager")
    assert choice_file.load(tmp_path / rows.CHOICE_NAME) == made
    third = Bench(monkeypatch)
    assert choose.choose(SPEC, **ASKED, out=tmp_path).ranges == made.ranges
    assert third.asked == []


def test_fresh_measures_again(tmp_path, monkeypatch):
    Bench(monkeypatch)
    choose.choose(SPEC, **ASKED, out=tmp_path)
    again = Bench(monkeypatch)
    choose.choose(SPEC, **ASKED, out=tmp_path, fresh=True)
    assert [each[:2] for each in again.asked] == [("inference", 1), ("inference", 100)]


def test_more_tokens_backends_or_modes_measure_only_those(tmp_path, monkeypatch):
    Bench(monkeypatch)
    choose.choose(SPEC, **ASKED, out=tmp_path)
    again = Bench(monkeypatch)
    wider = {**ASKED, "tokens": [1, 8, 100], "backends": ["eager", "compile", "packed"]}
    choose.choose(SPEC, **wider, out=tmp_path)
    assert again.asked == [
        ("inference", 1, ["packed"]),
        ("inference", 8, ["compile", "eager", "packed"]),
        ("inference", 100, ["packed"]),
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tp": 2}, "they are of another MLP"),
        ({"dtype": "float16"}, "they are of another MLP"),
        ({"rounds": 7}, "they took 60 rounds, not 7"),
    ],
)
def test_rows_of_another_question_are_not_mixed(tmp_path, monkeypatch, options, said):
    Bench(monkeypatch)
    choose.choose(known.of_sizes(SPEC), **ASKED, out=tmp_path)
    with pytest.raises(UsageError, match=f"{said}; name another folder, or --fresh"):
        choose.choose(known.of_sizes(SPEC), **ASKED, **options, out=tmp_path)


def test_rows_of_another_torch_are_not_mixed(tmp_path, monkeypatch):
    Bench(monkeypatch)
    choose.choose(SPEC, **ASKED, out=tmp_path)
    now = torch.__version__
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    with pytest.raises(UsageError, match=r"torch .* there, 2\.99\.0 here; name another folder"):
        choose.choose(SPEC, **ASKED, out=tmp_path)
    assert now != "2.99.0"


def test_a_folder_with_other_files_keeps_them(tmp_path, monkeypatch):
    Bench(monkeypatch)
    (tmp_path / "choice.json").write_text('{"mine": 1}', encoding="utf-8")
    with pytest.raises(UsageError, match="holds a None; valid here: 'choice'"):
        choose.choose(SPEC, **ASKED, out=tmp_path)
    (tmp_path / "choice.json").unlink()
    (tmp_path / "inference-9.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UsageError, match=r"holds rows but no plan\.json"):
        choose.choose(SPEC, **ASKED, out=tmp_path)
    with pytest.raises(UsageError, match="is not a result file of mlpfusion"):
        choose.choose(SPEC, **ASKED, out=tmp_path, fresh=True)
    assert (tmp_path / "inference-9.json").exists()


def test_how_long_the_rest_takes():
    work = Workload(spec=SPEC, batch=1, seq=8)
    told, time = [], iter([0.0, 30.0, 60.0])
    heard = TimeLeft({work: frozenset({"a", "b", "c"})}, told.append, lambda: next(time)).watch(work)
    for name, text in (("old", "ok"), ("a", "…"), ("a", "ok"), ("b", "failed: x")):
        heard(api.Progress("qualify", name, text))
    assert [each.text for each in told] == [
        "ok [inference, 8 tokens; 0 of 4 steps]",
        "… [inference, 8 tokens; 0 of 4 steps]",
        "ok [inference, 8 tokens; 1 of 4 steps, about 2 min left]",
        "failed: x [inference, 8 tokens; 2 of 4 steps, about 1 min left]",
    ]


# ---- the choice file -------------------------------------------------------------------------------------------------


def a_choice(*ranges, spec=SPEC, backends=("eager",)):
    points = (point_of(row("eager", around(100)), row("compile", around(130), memory=Memory(peak_bytes=10**6))),)
    return Choice(
        schema=SCHEMA,
        kind="choice",
        mlpfusion="0.1.0",
        created="2026-01-01T00:00:00+00:00",
        model=known.of_sizes(spec),
        tp=1,
        spec=spec,
        clock="event_us",
        rounds=25,
        device=HERE,
        environment=api.environment.collect(HERE),
        holds=holding.conditions(HERE, backends),
        points=points,
        ranges=ranges or (part("eager"),),
    )


def part(backend, first=1, last=None, mode="inference"):
    return Range(mode=mode, first=first, last=last, backend=backend, phase="decode", measured=(first,), tie=False)


def test_a_choice_comes_back_from_its_file(tmp_path):
    made = a_choice(part("eager", 1, 8), part("compile", 9))
    choice_file.save(made, tmp_path / "choice.json")
    assert choice_file.load(tmp_path / "choice.json") == made
    assert choice_file.encode(made) == choice_file.encode(choice_file.load(tmp_path / "choice.json"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text[:300], "is not JSON, or cut short"),
        (lambda text: "", "is not JSON, or cut short"),
        (lambda text: "[]", "is none of mlpfusion"),
        (lambda text: "{}", "holds a None; valid here: 'choice'"),
        (lambda text: text.replace('"schema": 1', '"schema": 99', 1), "has schema 99; this version reads schema 1"),
        (lambda text: text.replace('"rounds": 25', '"rounds": "many"'), "is damaged: Expected `int`"),
        (lambda text: text.replace('"last": 8', '"last": 0'), "is damaged: last must be a positive integer"),
        (lambda text: text.replace('"first": 9', '"first": 8'), "is damaged: two ranges of tokens overlap at 8"),
        (lambda text: text.replace('"kind": "choice"', '"kind": "profile"'), "holds a 'profile'; valid here: 'choice'"),
    ],
)
def test_a_damaged_file_is_one_line(tmp_path, change, said):
    path = tmp_path / "choice.json"
    path.write_text(change(choice_file.encode(a_choice(part("eager", 1, 8), part("compile", 9)))), encoding="utf-8")
    with pytest.raises(UsageError, match=said) as caught:
        GatedMLP(SPEC, backend="auto", choice=path)
    assert len(str(caught.value).splitlines()) == 1


def test_no_file_at_all(tmp_path):
    with pytest.raises(UsageError, match="does not exist"):
        GatedMLP(SPEC, backend="auto", choice=tmp_path / "choice.json")


# ---- a module that runs by it ----------------------------------------------------------------------------------------

RECORDERS = """
CALLS = []
class First:
    name = "first"
    def unsupported(self, spec, device): return None
    def bind(self, mlp):
        def call(x):
            CALLS.append(self.name)
            return mlp.down_proj(mlp.gate_proj(x).relu() * mlp.up_proj(x))
        return call
class Second(First):
    name = "second"
class Refuses(First):
    def unsupported(self, spec, device): return "only on Tuesdays"
"""


@pytest.fixture
def recorders(tmp_path):
    path = tmp_path / "recorders.py"
    path.write_text(RECORDERS, encoding="utf-8")
    return path


RELU = replace(SPEC, activation="relu")


def auto_mlp(path, *ranges):
    chosen = a_choice(*ranges, spec=RELU, backends=[each.backend for each in ranges])
    mlp = GatedMLP(RELU, backend="auto", choice=chosen)
    from mlpfusion import backend as registry

    calls = type(registry.load(f"{path}:First")).bind.__globals__["CALLS"]
    calls.clear()
    return mlp, calls


def test_each_call_goes_by_its_tokens(recorders):
    mlp, calls = auto_mlp(recorders, part(f"{recorders}:First", 1, 8), part(f"{recorders}:Second", 9))
    expected = copy.deepcopy(mlp).set_backend("eager")
    with torch.no_grad():
        for shape in ((1, 16), (2, 4, 16), (3, 3, 16), (1, 500, 16), (0, 16), (16,)):
            x = torch.randn(*shape)
            torch.testing.assert_close(mlp(x), expected(x))
    assert calls == ["first", "first", "second", "second", "first", "first"]
    assert mlp.backend == "auto"


def test_training_and_inference_have_ranges_of_their_own(recorders):
    both = (part(f"{recorders}:First"), part(f"{recorders}:Second", mode="training"))
    mlp, calls = auto_mlp(recorders, *both)
    x = torch.randn(2, 16)
    mlp(x).sum().backward()
    assert mlp.gate_proj.weight.grad is not None
    with torch.no_grad():
        mlp(x)
    mlp.requires_grad_(False)(x)
    assert calls == ["second", "first", "first"]


def test_what_was_not_measured_is_refused(recorders):
    mlp, calls = auto_mlp(recorders, part(f"{recorders}:First", 4, 8))
    x = torch.randn(4, 16)
    with pytest.raises(BackendUnavailableError, match=r"nothing for 4 tokens in training \(under torch.no_grad"):
        mlp(x)
    with torch.no_grad():
        for tokens in (3, 9):
            with pytest.raises(
                BackendUnavailableError, match=f"nothing for {tokens} tokens in inference; it does for: 4 to 8"
            ):
                mlp(torch.randn(tokens, 16))
        mlp(x)
    assert calls == ["first"]


def test_it_survives_copies_and_has_the_same_state(recorders):
    mlp, _ = auto_mlp(recorders, part(f"{recorders}:First"))
    x = torch.randn(2, 16)
    with torch.no_grad():
        for other in (copy.deepcopy(mlp), pickle.loads(pickle.dumps(mlp))):
            assert other.backend == "auto"
            torch.testing.assert_close(other(x), mlp(x))
            assert list(other.state_dict()) == list(GatedMLP(RELU).state_dict())


def test_it_compiles_whole():
    mlp = GatedMLP(SPEC, backend="auto", choice=a_choice(part("eager", 1, 8), part("eager", 9, 64)))
    torch.compiler.reset()
    compiled = torch.compile(mlp, backend="eager", fullgraph=True)
    with torch.no_grad():
        for tokens in (2, 20, 4):
            x = torch.randn(tokens, 16)
            torch.testing.assert_close(compiled(x), mlp(x))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda one: replace(one, device="NVIDIA H200", capability=(9, 0)), r"NVIDIA H200 \(sm_90\) there, .* here"),
        (lambda one: replace(one, versions={**one.versions, "torch": "2.0.1"}), "torch 2.0.1 there, 2.* here"),
        (lambda one: replace(one, versions={**one.versions, "triton": None}), "triton not installed there"),
        (lambda one: replace(one, versions={**one.versions, "mlpfusion_kernels": "0" * 16}), "mlpfusion_kernels 0000"),
        (lambda one: replace(one, versions={**one.versions, "quack-kernels": "0.6.5"}), "quack-kernels 0.6.5 there"),
    ],
)
def test_elsewhere_it_is_refused_by_name(change, said):
    made = a_choice()
    made = replace(made, holds=change(made.holds))
    mlp = GatedMLP(SPEC)
    with pytest.raises(BackendUnavailableError, match=f"measured elsewhere: {said}.*--fresh` measures again"):
        mlp.set_backend("auto", choice=made)
    assert mlp.backend == "eager"


def test_a_changed_loose_file_is_refused(recorders):
    name = f"{recorders}:First"
    made = a_choice(part(name), spec=RELU, backends=[name])
    recorders.write_text(f"{RECORDERS}\n", encoding="utf-8")
    with pytest.raises(BackendUnavailableError, match=r"recorders\.py:First .* there, .* here"):
        GatedMLP(RELU, backend="auto", choice=made)


def test_another_mlp_is_refused():
    with pytest.raises(
        BackendUnavailableError, match=r"the choice is for hidden_size 16, .* this MLP has hidden_size 32"
    ):
        GatedMLP(replace(SPEC, hidden_size=32), backend="auto", choice=a_choice())
    mlp = GatedMLP(SPEC, backend="auto", choice=a_choice()).half()
    with pytest.raises(BackendUnavailableError, match=r"this MLP has .* float16"):
        mlp(torch.randn(1, 16).half())


def test_a_backend_of_the_choice_that_refuses(recorders):
    name = f"{recorders}:Refuses"
    with pytest.raises(BackendUnavailableError, match="which the choice names: only on Tuesdays"):
        GatedMLP(SPEC, backend="auto", choice=a_choice(part(name), backends=[name]))
    with pytest.raises(BackendUnavailableError, match="the choice names no backend"):
        GatedMLP(SPEC, backend="auto", choice=replace(a_choice(), ranges=()))


def test_auto_and_a_choice_go_together():
    with pytest.raises(UsageError, match=r"backend 'auto' needs choice=FILE, the choice\.json"):
        GatedMLP(SPEC, backend="auto")
    with pytest.raises(UsageError, match="choice= goes with backend 'auto', got backend 'eager'"):
        GatedMLP(SPEC, choice=a_choice())
    assert Auto(a_choice()).backends == ("eager",)


# ---- reports and the command -----------------------------------------------------------------------------------------


def test_reports_say_it_in_four_formats():
    made = a_choice(part("eager", 1, 8), part("compile", 9))
    text = report.render(made)
    for said in ("1 to 8", "9 and more", "130", "1.30x", "slower with no more kernels or bytes", "16x32-gelu_tanh"):
        assert said in text
    markdown = report.render(made, "github")
    assert "| inference |" in markdown
    assert "**Ranges**" in markdown
    assert json.loads(report.render(made, "json"))["kind"] == "choice"
    lines = list(csv.DictReader(io.StringIO(report.render(made, "csv"))))
    assert [(line["backend"], line["chosen"], line["verdict"]) for line in lines] == [
        ("eager", "True", "won"),
        ("compile", "False", "slower"),
    ]
    with pytest.raises(UsageError, match="unknown format 'html'"):
        report.render(made, "html")


def cli(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["mlpfusion", "choose", *arguments])
    return run_main()


def test_the_command_measures_and_what_it_writes_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    config = {
        "model_type": "gemma",
        "hidden_size": 16,
        "intermediate_size": 64,
        "hidden_act": "gelu",
        "dtype": "float32",
    }
    Path("tiny").mkdir()
    Path("tiny", "config.json").write_text(json.dumps(config), encoding="utf-8")
    asked = ("tiny", "--tp", "2", "--tokens", "1,4", "--backends", "eager,fused", "--rounds", "20", "--device", "cpu")
    assert cli(monkeypatch, *asked) == 0
    out, err = capsys.readouterr()
    assert "stands for tanh-GELU" in out
    assert "steps, about" in err
    path = Path("choices", "tiny-float32-tp2", "choice.json")
    made = choice_file.load(path)
    assert (made.spec, made.tp, made.clock) == (replace(SPEC, intermediate_size=32), 2, "wall_us")
    assert [(each.backend, each.first, each.last) for each in made.ranges] == [("eager", 1, None)]
    mlp, x = GatedMLP(made.spec, backend="auto", choice=path), torch.randn(3, 16)
    with torch.no_grad():
        assert torch.equal(mlp(x), copy.deepcopy(mlp).set_backend("eager")(x))
    assert cli(monkeypatch, *asked, "--format", "csv") == 0
    out, err = capsys.readouterr()
    assert "qualify" not in err
    assert out.startswith("model,device,torch,")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "no model: give a config.json, its directory, --dim and --hidden, or article, gemma-2b"),
        (("--dim", "64"), "--dim needs --hidden too, or name a model"),
        (("gemma-2b", "--hidden", "64"), "--hidden does not go with a model"),
        (("nowhere",), "unknown model 'nowhere'"),
        (("article", "--tokens", "1,,2"), "--tokens '1,,2' has an empty name"),
        (("article", "--tokens", "0"), "--tokens must be a positive integer, got '0'"),
        (("article", "--mode", "decode"), "unknown mode 'decode'"),
        (("article", "--device", "a100-80gb"), "is not here, and this version predicts no times"),
        (("article", "--format", "html"), "unknown format 'html'"),
    ],
)
def test_a_bad_command_is_one_line_and_writes_nothing(tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    assert cli(monkeypatch, *arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_command_says_what_is_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Bench(monkeypatch, stop_after=(1, "eager"))
    asked = ("--dim", "16", "--hidden", "32", "--tokens", "1", "--backends", "eager,compile", "--device", "cpu")
    assert cli(monkeypatch, *asked) == 130
    assert "what was finished is in choices/16x32-gelu_tanh-bfloat16" in capsys.readouterr().err
