"""Options: each is named as the field that it sets, and an old name still works, says so, and shows nowhere."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import typer
from support import in_this_process
from support.command import run

from mlpfusion import spec
from mlpfusion.cli import main
from mlpfusion.cli.renamed import LAST, OLD_LIMIT, OLD_SIZES
from mlpfusion.workers import supervise

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMANDS: dict[str, Any] = typer.main.get_command(main.app).commands  # type: ignore[attr-defined]
WITH_SIZES = sorted(
    name for name, command in COMMANDS.items() if any("--hidden-size" in param.opts for param in command.params)
)
FIELDS = {*spec.MLPSpec.__struct_fields__, *spec.Workload.__struct_fields__}
ONE_LETTER_LESS = [name[:-1] for name in OLD_SIZES.values()]
SIZES = ("--hidden-size", "32", "--intermediate-size", "64")


def options() -> Iterator[tuple[str, Any]]:
    for name, command in COMMANDS.items():
        for param in command.params:
            if any(opt.startswith("--") for opt in param.opts):
                yield name, param


VISIBLE = [pytest.param(param, id=f"{name}{param.opts[0]}") for name, param in options() if not param.hidden]


# Names that mean something else in Python.
PLAIN = {"fmt": "format", "everything": "all", "against_itself": "self", "study": "from"}


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, int]]:
    """The sizes with which each verb would have begun its work."""
    found: list[dict[str, int]] = []

    def keep(*args: Any, **given: Any) -> Any:
        made = next(each for each in (*args, *given.values()) if hasattr(each, "hidden_size") or hasattr(each, "spec"))
        made = getattr(made, "spec", made)
        found.append({"hidden_size": made.hidden_size, "intermediate_size": made.intermediate_size})
        raise KeyboardInterrupt

    for name in (
        "mlpfusion.stages.profile.run.profile",
        "mlpfusion.stages.profile.plan.planned",
        "mlpfusion.stages.tune.run.check_device",
    ):
        monkeypatch.setattr(name, keep)
    monkeypatch.setattr("mlpfusion.stages.choose.run.choose", keep)
    return found


def test_the_verbs_that_take_sizes_are_known() -> None:
    assert WITH_SIZES == ["backends", "choose", "profile", "tune"]


@pytest.mark.parametrize("param", VISIBLE)
def test_an_option_has_the_name_of_what_it_sets(param: Any) -> None:
    assert param.opts[0] == "--" + PLAIN.get(param.name, param.name).replace("_", "-")
    assert not set(param.opts) & {*OLD_SIZES, *OLD_LIMIT}
    first = (param.help or "").replace(",", " ").split()[:1]
    assert not set(first) & (FIELDS - {param.name}), "its help begins with another field"


@pytest.mark.parametrize("verb", COMMANDS)
def test_no_option_of_a_size_has_a_name_of_its_own(verb: str) -> None:
    about = [
        param.name for name, param in options() if name == verb and not param.hidden and "width" in param.help.lower()
    ]
    assert about == (["hidden_size", "intermediate_size"] if verb in WITH_SIZES else [])


@pytest.mark.parametrize("verb", WITH_SIZES)
def test_sizes_reach_the_work(capsys: pytest.CaptureFixture[str], seen: list[dict[str, int]], verb: str) -> None:
    _, _, err = run(capsys, verb, *SIZES)
    assert seen == [{"hidden_size": 32, "intermediate_size": 64}]
    assert "is now" not in err


@pytest.mark.parametrize("form", [["--dim", "32", "--hidden", "64"], ["--dim=32", "--hidden=64"]])
@pytest.mark.parametrize("verb", WITH_SIZES)
def test_old_names_mean_what_they_meant_and_say_so(
    capsys: pytest.CaptureFixture[str], seen: list[dict[str, int]], verb: str, form: list[str]
) -> None:
    _, out, err = run(capsys, verb, *form)
    assert seen == [{"hidden_size": 32, "intermediate_size": 64}]
    assert out == ""
    for old, new in OLD_SIZES.items():
        assert f"mlpfusion: {old} is now {new}; {old} is gone after version {LAST}\n" in err
    assert err.count("is now") == 2


@pytest.mark.parametrize(("old", "new"), OLD_SIZES.items())
@pytest.mark.parametrize("verb", WITH_SIZES)
def test_both_names_of_one_option_are_refused(
    capsys: pytest.CaptureFixture[str], seen: list[dict[str, int]], verb: str, old: str, new: str
) -> None:
    for args in ([new, "768", old, "512"], [old, "768", new, "768"]):
        code, out, err = run(capsys, verb, *args)
        assert (code, out) == (2, "")
        assert err == f"mlpfusion: {old} is the old name of {new}, which is given too; give {new} alone\n"
    assert seen == []


@pytest.mark.parametrize("old", OLD_SIZES)
@pytest.mark.parametrize("verb", WITH_SIZES)
def test_a_bad_value_of_an_old_name_is_one_line(capsys: pytest.CaptureFixture[str], verb: str, old: str) -> None:
    code, out, err = run(capsys, verb, old, "0")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"mlpfusion: {old} must be ")
    assert err.endswith(", got '0'\n")


@pytest.mark.parametrize("short", [*ONE_LETTER_LESS, "--hidden-", "--hid", "--intermediate", "--inter", "--di", "-h"])
@pytest.mark.parametrize("verb", WITH_SIZES)
def test_no_option_is_abbreviated(
    capsys: pytest.CaptureFixture[str], seen: list[dict[str, int]], verb: str, short: str
) -> None:
    code, out, err = run(capsys, verb, short, "32")
    assert (code, out, seen) == (2, "", [])
    assert err.count("\n") == 1
    assert all(f"{old}," not in err and f"'{old}'" not in err for old in OLD_SIZES), "an old name is offered"


@pytest.mark.parametrize("verb", COMMANDS)
def test_help_shows_no_old_name(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    code, out, err = run(capsys, verb, "--help")
    assert (code, err) == (0, "")
    words = out.replace(",", " ").split()
    assert not set(words) & {*OLD_SIZES, *OLD_LIMIT}
    assert ("--hidden-size" in words) == (verb in WITH_SIZES)


def test_an_old_name_leaves_stdout_to_the_result(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervise, "run", in_this_process.run)
    args = ("--dim", "16", "--hidden", "32", "--backends", "eager", "--device", "cpu", "--rounds", "1")
    code, out, err = run(capsys, "profile", *args, "--batch", "1", "--seq", "4", "--format", "json")
    assert code == 0, err
    made = json.loads(out)["workload"]["spec"]
    assert (made["hidden_size"], made["intermediate_size"]) == (16, 32)


@pytest.fixture
def limit_given(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time limits that reach the search of `tune`."""
    found: list[float] = []

    def search(*_: object, limit_s: float, **__: object) -> list[object]:
        found.append(limit_s)
        return []

    for name in ("check_device", "questions", "check_file"):
        monkeypatch.setattr(f"mlpfusion.stages.tune.run.{name}", lambda *_: [])
    monkeypatch.setattr("mlpfusion.stages.tune.run.search", search)
    return found


@pytest.mark.parametrize(
    ("args", "limit", "said"),
    [
        ((), 600.0, ""),
        (("--time-limit", "7.5"), 7.5, ""),
        (("--limit", "7.5"), 7.5, f"mlpfusion: --limit is now --time-limit; --limit is gone after version {LAST}\n"),
    ],
)
def test_the_time_limit_of_tune(
    capsys: pytest.CaptureFixture[str], limit_given: list[float], args: tuple[str, ...], limit: float, said: str
) -> None:
    code, _, err = run(capsys, "tune", *args)
    assert (code, limit_given) == (0, [limit])
    assert err.startswith(said)
    assert ("is now" in err) == bool(said)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--limit", "0"), "--limit must be a number of seconds from 0.001 to 604800, got '0'"),
        (("--limit", "1e7"), "--limit must be a number of seconds from 0.001 to 604800, got '1e7'"),
        (
            ("--limit", "5", "--time-limit", "5"),
            "--limit is the old name of --time-limit, which is given too; give --time-limit alone",
        ),
    ],
)
def test_a_bad_time_limit_of_tune_is_one_line(
    capsys: pytest.CaptureFixture[str], limit_given: list[float], args: tuple[str, ...], said: str
) -> None:
    assert run(capsys, "tune", *args) == (2, "", f"mlpfusion: {said}\n")
    assert limit_given == []


def test_the_seconds_of_a_run_have_one_name_in_every_verb() -> None:
    names = {param.opts[0] for _, param in options() if not param.hidden and (param.help or "").startswith("Seconds")}
    assert names == {"--time-limit", "--timeout"}  # the second is of waiting for another program, not of work
    assert [name for name, param in options() if "--timeout" in param.opts] == ["open"]
