"""A result file of any kind has nothing in it that is its maker's own, and its rows keep one name each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support.checks_made import checked, self_test, validation
from support.choices_made import a_choice, part, point_of, row
from support.comparisons_made import raced
from support.paths import RESULTS
from support.profiles_made import EAGER, profile, timed
from support.studies_made import recorded

from mlpfusion.records.choice import Conditions, Plan
from mlpfusion.records.environment import Process
from mlpfusion.records.profile import Row
from mlpfusion.records.sweep.cells import Settings
from mlpfusion.records.sweep.study import Attempt
from mlpfusion.records.tuning import Answer, LeftOut, Question, Tuning
from mlpfusion.records.validation import Control, Judged, Peer, Verdict
from mlpfusion.spec import MLPSpec
from mlpfusion.stages.compare import self_test as compare_self
from mlpfusion.storage import redacted as redacting
from mlpfusion.storage import results
from mlpfusion.storage.redacted import redacted

if TYPE_CHECKING:
    from collections.abc import Iterator

SPEC = MLPSpec(hidden_size=16, intermediate_size=32)
HOLDS = Conditions(device="cpu", capability=None, versions={"torch": "2", "x": "1"})
KINDS = ("profile", "choice", "choice plan", "proof", "validation", "self-test", "tuning", "study")


# ---- every kind of file ----------------------------------------------------------------------------------------------


def _profile() -> Any:
    broken = Row(backend="mine", status="failed", reason="no", notes=("a note",), distributions={"pkg": "1"})
    started = Process(started="now", kernels={"eager": ("a",)}, reasons={"power_w": "none"})
    made = profile(EAGER, broken, timed("fused", 50), processes=(started,))
    behind = replace(made.environment, distributions={"pkg": "1"})
    return replace(made, environment=behind, command=("mlpfusion", "profile"))


def _validation() -> Any:
    check = replace(checked("runs", "reported"), sentence="it says", repro="mlpfusion validate x", refused=("a: b",))
    peer = Peer(name="eager", reason="no time")
    verdict = Verdict(
        target="t.py:f", kind="mlp", activation="silu", word="valid", headline="fine", checks=(check,), peers=(peer,)
    )
    return replace(validation(verdict), not_judged=("other.py:f",))


def _tuning() -> Any:
    asked = Question(
        direction="forward", tokens=1, hidden_size=16, intermediate_size=32, dtype="float32", activation="silu"
    )
    answer = Answer(question=asked, shipped="a", left_out=(LeftOut(config="b", reason="c"),), reason="d")
    where = profile(EAGER)
    return Tuning(
        schema=2,
        kind="tuning",
        created="now",
        device=where.device,
        environment=where.environment,
        file="tuned.json",
        answers=(answer,),
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    proof: Any = results.load_any(RESULTS / "h200-prove-gemma-2b-fused.json")
    study = recorded(tmp_path_factory.mktemp("made") / "study")
    failed = replace(study.cells[0], reason="why", attempts=(Attempt(node="node 1", started="now", reason="why"),))
    point = point_of(row("eager", (1.0, 2.0)), row("mine", reason="no"))
    return {
        "profile": _profile(),
        "choice": replace(a_choice(part("eager")), points=(point,)),
        "choice plan": Plan(schema=1, kind="choice plan", spec=SPEC, rounds=3, holds=HOLDS),
        "proof": replace(proof, failures=("logits: off",), reasons={"fp64": "no memory"}, inputs={"x": "a tensor"}),
        "validation": _validation(),
        "self-test": self_test(Judged(control=Control(name="a", target="b", why="c"), wrong="w", skipped="s")),
        "tuning": _tuning(),
        "study": replace(study, cells=(failed, *study.cells[1:]), nodes={"node 1": HOLDS}),
    }


# ---- nothing of its maker's ------------------------------------------------------------------------------------------

MARK = "MARKED"
# What drivers, versions and this package say, by field: it stays whatever it is.
_OURS = """
    schema kind mlpfusion created started definition digest policy trace_file file looked_at follows gpu gpus device
    workload spec decoded control python platform torch triton liger_kernel cuda driver flags checkout
    float32_matmul_precision
    """
OURS = frozenset(_OURS.split())
OWN = {"HOME": "/data/planted/planteduser", "USER": "planteduser", "HOSTNAME": "plantedhost", "A_TOKEN": "planted-one"}
PLANTED = (
    "/data/planted/planteduser",
    "/data/planted/planteduser/deep/x.py",
    "/opt/planted/mine.py",
    "file:///opt/planted/x",
    "planteduser",
    "plantedhost",
    "planted-one",
    "hf_plantedplantedplanted",
    "ghp_planted1planted",
    "sk-planted1planted",
    "xoxb-planted1",
    "Bearer planted1",
    "https://planted:word@x.org/a",
    "https://x.org/a?token=planted",
)


def places(document: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all texts of a document but for ours."""
    if isinstance(document, str):
        yield place
    elif isinstance(document, dict):
        for name, value in document.items():
            of_check = name == "name" and place[-2:-1] == ("checks",)
            if name not in OURS and not of_check and not (name == "kernels" and isinstance(value, str)):
                yield from places(value, (*place, name))
    elif isinstance(document, list):
        for number, value in enumerate(document):
            yield from places(value, (*place, number))


def marked(record: Any) -> Any:
    """The record as JSON, with a mark in all places where its types let any text stand."""
    document = json.loads(msgspec.json.encode(record))
    for place in places(document):
        inner = document
        for step in place[:-1]:
            inner = inner[step]
        before, inner[place[-1]] = inner[place[-1]], MARK
        try:
            msgspec.convert(document, type(record))
        except ValueError:  # one of a fixed list
            inner[place[-1]] = before
    return document


def left(document: Any, field: str = "") -> Iterator[str]:
    """All texts of a document, those that name kernels without the names of user and host, which stay there."""
    if isinstance(document, str):
        of_kernel = field in redacting._KERNELS
        yield document.replace("planteduser", "").replace("plantedhost", "") if of_kernel else document
    elif isinstance(document, dict):
        for name, value in document.items():
            yield from left(name, field)
            yield from left(value, field if field in redacting._KERNELS else name)
    elif isinstance(document, list):
        for value in document:
            yield from left(value, field)


@pytest.fixture(scope="module")
def templates(made: dict[str, Any]) -> dict[str, Any]:
    return {kind: marked(record) for kind, record in made.items()}


@pytest.mark.parametrize("kind", KINDS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from(PLANTED), min_size=1, max_size=3),
    st.sampled_from(["{}", "failed: {}", "'{}' is, no", "a\n{}"]),
)
def test_nothing_planted_is_in_a_file_of_any_kind(
    made: dict[str, Any], templates: dict[str, Any], kind: str, said: list[str], around: str
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        for name, value in OWN.items():
            patched.setenv(name, value)
        text = around.format(", ".join(said))
        document = json.loads(json.dumps(templates[kind]).replace(MARK, json.dumps(text)[1:-1]))
        found = redacted(msgspec.convert(document, type(made[kind])))
        assert "planted" not in "\n".join(left(json.loads(results.encode(found)))).lower()
        assert redacted(found) == found


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("profile", ("reason", "notes", "backend", "distributions", "command")),
        ("choice", ("reason", "backend", "winner")),
        ("choice plan", ("versions",)),
        ("proof", ("failures", "inputs", "backend", "reasons")),
        ("validation", ("sentence", "repro", "refused", "headline", "target", "reason")),
        ("self-test", ("wrong", "skipped")),
        ("tuning", ("left_out", "reason")),
        ("study", ("reason", "attempts")),
    ],
)
def test_the_places_of_third_parties_are_among_those(
    templates: dict[str, Any], kind: str, fields: tuple[str, ...]
) -> None:
    named = {step for place in places(templates[kind]) for step in place if MARK in str(_at(templates[kind], place))}
    assert set(fields) <= named


def _at(document: Any, place: tuple[Any, ...]) -> Any:
    for step in place:
        document = document[step]
    return document


@pytest.mark.parametrize("kind", KINDS)
def test_what_has_nothing_of_its_makers_stays(made: dict[str, Any], kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in OWN.items():
        monkeypatch.setenv(name, value)
    assert redacted(made[kind]) == made[kind]


def test_a_host_that_is_called_like_a_card_changes_no_fact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTNAME", "h200")
    monkeypatch.setenv("USER", "training")
    found = results.load(RESULTS / "h200-profile.json")
    assert redacted(found).device == found.device
    assert redacted(found).workload == found.workload


def test_keys_that_become_equal_are_both_kept() -> None:
    started = Process(started="now", reasons={"/a/x": "one", "/b/x": "two"})
    assert redacted(started).reasons == {"x": "one", "x (2)": "two"}


# ---- names of rows ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("eager", "eager"),
        ("./mine.py:Mine", "./mine.py:Mine"),
        ("home/planted/secret/mine.py:Mine", "mine.py:Mine"),
        ("planted/mine.py:Mine", "mine.py:Mine"),
        ("/home/planted/mine.py:Mine", "mine.py:Mine"),
        ("~/deep/mine.py:Mine", "mine.py:Mine"),
        ("../planted/mine.py:Mine", "mine.py:Mine"),
        ("./../../planted/mine.py:Mine", "mine.py:Mine"),
        ("my planted folder/mine.py:Mine", "mine.py:Mine"),
        ("auto:planted/choice.json", "auto:choice.json"),
        ("auto:/home/planted/choice.json", "auto:choice.json"),
    ],
)
def test_a_loose_file_keeps_its_name_alone(typed: str, shown: str) -> None:
    backed = replace(timed(typed, 100), distributions={typed: "0123", "torch": "2"}, notes=(f"{typed} is slow",))
    started = Process(started="now", kernels={typed: ("a",)}, reasons={f"kernels of {typed}": "none"})
    made = profile(backed, processes=(started,))
    behind = replace(made.environment, distributions={typed: "0123"})
    found = redacted(replace(made, environment=behind))
    assert found.rows[0].backend == shown
    assert found.rows[0].notes == (f"{shown} is slow",)
    assert found.rows[0].distributions == {shown: "0123", "torch": "2"}
    assert found.environment.distributions == {shown: "0123"}
    assert found.processes[0].kernels == {shown: ("a",)}
    assert found.processes[0].reasons == {f"kernels of {shown}": "none"}
    assert "planted" not in results.encode(found)


def test_what_compares_the_file_with_itself_names_its_rows() -> None:
    made = raced({"/home/planted/mine.py:Mine": 0.9})
    found = redacted(replace(made, itself=compare_self.of_profile(made)))
    assert {each.backend for each in found.itself} == {"mine.py:Mine"}
    assert "planted" not in results.encode(found)


@pytest.mark.parametrize("above", ["/home/planted/", "planted/", "../"])
def test_files_of_one_name_stay_rows_of_their_own(above: str) -> None:
    names = [f"{above}{folder}/mine.py:Mine" for folder in ("a", "b", "c")]
    found = redacted(profile(*[timed(name, 100) for name in names]))
    assert [each.backend for each in found.rows] == ["mine.py:Mine", "mine.py:Mine (2)", "mine.py:Mine (3)"]


def test_a_file_that_has_no_folder_keeps_its_name_beside_others() -> None:
    found = redacted(profile(timed("a/mine.py:Mine", 100), timed("mine.py:Mine", 100)))
    assert [each.backend for each in found.rows] == ["mine.py:Mine (2)", "mine.py:Mine"]
    assert redacted(found) == found


def test_a_choice_has_one_name_in_ranges_points_and_versions() -> None:
    name = "planted/mine.py:Mine"
    choice = a_choice(part("eager"))
    ranges = (replace(choice.ranges[0], backend=name),)
    point = point_of(row("eager", (2.0, 3.0)), row(name, (1.0, 1.0)))
    holds = replace(choice.holds, versions={name: "0123"})
    found = redacted(replace(choice, ranges=ranges, points=(point,), holds=holds))
    assert found.ranges[0].backend == found.points[0].winner == "mine.py:Mine"
    assert found.points[0].contenders[1].backend == "mine.py:Mine"
    assert found.holds.versions == {"mine.py:Mine": "0123"}


def test_a_study_names_no_folder_of_its_backends(made: dict[str, Any]) -> None:
    asked = Settings(backends=("eager", "planted/mine.py:Mine"), rounds=3)
    assert redacted(replace(made["study"], settings=asked)).settings.backends == ("eager", "mine.py:Mine")


@pytest.mark.parametrize(("typed", "shown"), [("planted/t.py:f", "t.py:f"), ("planted/hub", "hub"), ("./hub", "./hub")])
def test_targets_and_commands_have_no_folder(typed: str, shown: str) -> None:
    check = replace(checked("runs", "fail"), repro=f"mlpfusion validate {typed} --only runs")
    verdict = Verdict(target=typed, kind="mlp", activation="silu", word="valid", headline="", checks=(check,))
    found = redacted(validation(replace(verdict, peers=(Peer(name=typed),))))
    assert found.verdicts[0].target == found.verdicts[0].peers[0].name == shown
    assert found.verdicts[0].checks[0].repro == f"mlpfusion validate {shown} --only runs"


@pytest.mark.parametrize("name", ["max", "gemm", "void", "device", "float", "autotune", "mul"])
def test_a_user_of_any_name_changes_no_name_of_a_backend_or_kernel(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for each in ("USER", "LOGNAME", "HOSTNAME"):
        monkeypatch.setenv(each, name)
    monkeypatch.setenv("HOME", f"/home/{name}")
    for path in (RESULTS / "h200-profile.json", RESULTS / "h200-article-1.json"):
        before = results.load(path)
        after = redacted(before)
        for a, b in zip(before.rows, after.rows, strict=True):
            assert (b.backend, b.kernels, b.distributions, b.launches) == (
                a.backend,
                a.kernels,
                a.distributions,
                a.launches,
            )
            assert b.clocks == a.clocks
        assert after.environment == before.environment
        assert [each.kernels for each in after.processes] == [each.kernels for each in before.processes]
        assert after.itself == before.itself
    proof = results.load_any(RESULTS / "h200-prove-gemma-2b-fused.json")
    assert redacted(proof).kernels == proof.kernels
