"""Damaged files: seeded changes of a JSON document and of its bytes, and every verb that reads such a file."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mlpfusion import stats
from mlpfusion.backends.auto import Auto
from mlpfusion.cli import main
from mlpfusion.device import Device
from mlpfusion.errors import MlpfusionError
from mlpfusion.stages.choose import rows, run
from mlpfusion.storage import results, schema_1
from support.paths import RESULTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

VALUES: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 1, 7, 0.0, -0.0, 0.5, -2.5, 1e-320, 1e-9, 1e300, -1e300, 2**31, 2**63, -(2**63), 2**70,
    10**30, 10**400, float("nan"), float("inf"), float("-inf"), "", "0", "x" * 300, "a\nb", "\x1b[31m", "\ud800", "é",
    "|", "..", "/etc/passwd", [], [None], [0], [[]], [1, 2, 3], {}, {"": ""}, {"kind": "profile"},
)  # fmt: skip
H200: Final = Device(kind="cuda", name="NVIDIA H200", capability=(9, 0), runtime="cuda")


# ---- damage ----------------------------------------------------------------------------------------------------------


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container of a document with each of its keys or indices."""
    found = []
    todo = [value]
    while todo:
        one = todo.pop()
        keys = list(one) if isinstance(one, dict) else list(range(len(one))) if isinstance(one, list) else []
        for key in keys:
            found.append((one, key))
            todo.append(one[key])
    return found


def field(place: tuple[Any, Any]) -> str:
    """What a place is called; those of one name are equally likely to be met."""
    return str(place[1]) if isinstance(place[0], dict) else f"[{len(place[0])}]"


def change(document: Any, seed: random.Random) -> str:
    """Make one to three changes in a document, and say which."""
    said = []
    for _ in range(seed.choice((1, 1, 1, 2, 3))):
        by_name: dict[str, list[tuple[Any, Any]]] = {}
        for place in places(document):
            by_name.setdefault(field(place), []).append(place)
        if not by_name:
            break
        inside, key = seed.choice(by_name[seed.choice(sorted(by_name))])
        said.append(f"{key}: {_changed(inside, key, seed)}")
    return "; ".join(said)


def _changed(inside: Any, key: Any, seed: random.Random) -> str:
    how = seed.choice(("alike", "alike", "alike", "any", "delete", "duplicate", "rename", "order", "empty"))
    old = inside[key]
    if how == "delete":
        del inside[key]
    elif how == "duplicate" and isinstance(inside, list):
        inside.insert(seed.randrange(len(inside) + 1), copy.deepcopy(old))
    elif how == "rename" and isinstance(inside, dict):
        name = seed.choice(sorted(map(str, inside)))
        inside[name] = inside.pop(key)
    elif how == "order" and isinstance(old, list):
        seed.shuffle(old)
    elif how == "empty" and isinstance(old, list | dict | str):
        inside[key] = type(old)()
    else:
        scaled = [old * factor for factor in (-1, 1e-3, 1e3, 1e18)] if isinstance(old, float) else []
        alike = [value for value in VALUES if type(value) is type(old) or (value is None and how == "alike")]
        inside[key] = new = copy.deepcopy(seed.choice(VALUES if how == "any" else [*alike, *scaled]))
        return f"set to {new!r:.60}"
    return how


def damage(data: bytes, seed: random.Random) -> bytes:
    """The bytes cut short, with some of them changed, doubled or lost, or with something before or behind them."""
    at, length = seed.randrange(len(data) + 1), seed.choice((1, 1, 2, 40, 4000))
    return seed.choice(
        (
            data[:at],
            data[at:],
            data[:at] + data[at + length :],
            data[:at] + data[at : at + length] * 2 + data[at + length :],
            data[:at] + bytes(seed.randrange(256) for _ in range(length)) + data[at + length :],
            data[:at] + seed.choice((b"\0", b"\xff", b"{", b"}", b"[" * 5000, b'"', b",", b"\n", b"NaN")) + data[at:],
            b"\xef\xbb\xbf" + data,
            data + data,
            b"",
        )
    )


def mutant(document: Any, seed: random.Random) -> tuple[bytes, str]:
    """The bytes of a damaged copy of a document, and what was done to it."""
    if seed.random() < 0.1:
        return damage(json.dumps(document).encode(), seed), "bytes"
    changed = copy.deepcopy(document)
    said = change(changed, seed)
    return json.dumps(changed).encode("utf-8", "surrogatepass"), said


# ---- what reads it ---------------------------------------------------------------------------------------------------


def said(args: list[str]) -> tuple[int, str, str]:
    """What a command line answers; an exception is the caller's to see."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main.main(args)
    return code, out.getvalue(), err.getvalue()


def check(args: list[str], answers: tuple[int, ...] = (0,)) -> int:
    """Run a command line that may only answer well or refuse in one line; returns the exit code."""
    code, out, err = said(args)
    assert code in (*answers, 2), (args, code, err)
    if code == 2:
        assert out == "", (args, out[:200])
        assert len(err.splitlines()) == 1, (args, err)
        assert err.startswith("mlpfusion: "), (args, err)
    else:
        words = out.replace("nan or inf where", "").split()  # so is told that an element of a result is none
        assert not any(word in words for word in ("nan", "inf", "-inf")), (args, "a number that is none")
    return code


FORMATS: Final = ("text", "github", "csv", "json")


def read_profile(path: Path, whole: Path, names: list[str]) -> int:
    """Every verb on a result file, or two where it is refused; 1 if it was taken."""
    others = [["table", str(path), "--format", fmt] for fmt in FORMATS[1:]]
    others += [["predict", str(path), "--format", fmt] for fmt in ("text", "github")]
    others += [
        ["diff", f"{path}:{name}", f"{whole}:{names[0]}", "--format", fmt]
        for fmt, name in zip(FORMATS, names * 4, strict=False)
    ]
    with contextlib.suppress(MlpfusionError):
        results.check_file(path)
    if check(["table", str(path)]):
        # What a profile's parts contradict `table` refuses alone; what is no profile every verb does.
        codes = {0, 2} if _loads(path) else {2}
        assert check(others[path.stat().st_size % len(others)]) in codes
        return 0
    for args in others:
        check(args)
    assert check(["read", str(path)]) == 2
    results.encode(results.load(path))
    return 1


HOW_COMPARED: Final = (
    (), (), ("--full",), ("--control", "none"), ("--exact",), ("--force",), ("--strict",), ("--threshold", "50%"),
    ("--force", "--full", "--control", "none"), ("--exact", "--strict"),
)  # fmt: skip


def read_compared(path: Path, whole: Path, names: list[str]) -> int:
    """`compare` of a damaged file with the whole one, of two of its rows, and with itself; 1 if any was taken."""
    size = path.stat().st_size
    fmt = ("text", "github", "json")[size % 3]
    sides = [(str(path), str(whole)), (str(whole), str(path))][size % 2]
    rows = [f"{path}:{names[place % len(names)]}" for place in (size, size + 1)] if names else list(sides)
    options = (*HOW_COMPARED[size % len(HOW_COMPARED)], "--format", fmt)
    given = [["compare", *sides, *options], ["compare", *rows, *options], ["compare", "--self", str(path)]]
    return int(any(check(args, (0, 1)) != 2 for args in given))


def _loads(path: Path) -> bool:
    try:
        results.load(path)
    except MlpfusionError:
        return False
    return True


def _refused(error: MlpfusionError) -> int:
    assert len(str(error).splitlines()) == 1, error
    return 0


def read_choice(path: Path) -> int:
    """A choice file as `auto` and the report of `choose` read it; 1 if it was taken."""
    from mlpfusion.report import choice as report

    with contextlib.suppress(MlpfusionError):
        results.check_file(path, kind="choice")
    try:
        found = results.load_choice(path)
        for fmt in FORMATS:
            assert report.render(found, fmt)
        Auto(path).unsupported(found.spec, H200)
    except MlpfusionError as error:
        return _refused(error)
    return 1


def read_folder(folder: Path) -> int:
    """A folder of `choose` as it predicts from it, and as it goes on in it; 1 if it could."""
    for fmt in FORMATS:
        code = check(["choose", "article", "--device", "h100-pcie", "--out", str(folder), "--format", fmt])
    try:
        plan = results.load_plan(folder / rows.PLAN_NAME)
        with rows.planned(folder, plan, fresh=False):
            pass
        found = [results.load(path) for path in sorted(folder.glob("inference-*.json"))]
        for each in found:
            rows.finished(each)
            rows.earlier(folder, each.workload)
        asked = run.model_asked("article", None)
        held = run._held(found, H200)
        run.decided(found, H200, model=asked, tp=1, clock="event_us", rounds=60, holds=held)
    except MlpfusionError as error:
        return _refused(error)
    return int(code == 0)


# ---- the files -------------------------------------------------------------------------------------------------------


def profiles() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every recorded profile, those inside other files among them."""
    for path in sorted(RESULTS.glob("**/*.json")):
        todo = [json.loads(path.read_text(encoding="utf-8"))]
        while todo:
            one = todo.pop()
            if isinstance(one, dict) and one.get("kind") == "profile":
                yield str(path.relative_to(RESULTS)), one
            elif isinstance(one, dict | list):
                todo += one.values() if isinstance(one, dict) else one


def of_one_process() -> Iterator[tuple[str, dict[str, Any]]]:
    """Those of the recorded profiles that were raced in one process."""
    return ((name, document) for name, document in profiles() if len(document.get("processes", ())) < 2)


def in_processes(document: dict[str, Any], number: int) -> dict[str, Any]:
    """A profile of schema 1 as one of schema 2 that was raced in that many processes, all alike."""
    found: dict[str, Any] = copy.deepcopy(schema_1.upgraded(document))
    for row in found["rows"]:
        for name in ("wall_us", "event_us", "graph_us"):
            clock = (row["clocks"] or {}).get(name)
            if clock is not None:
                rounds = [list(each) for each in clock["rounds"] * number]
                clock.update(rounds=rounds, n=clock["n"] * number, dropped=clock["dropped"] * number)
                clock["ratio_to_eager"] = None  # that of several processes has another interval
                clock["p20"], clock["p80"] = stats.fifths([time for one in rounds for time in one if time is not None])
    found["processes"] *= number
    return found


def others() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every recorded file that is no profile and not large."""
    for path in sorted(RESULTS.glob("**/*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["kind"] != "profile" and path.stat().st_size < 50_000:
            yield str(path.relative_to(RESULTS)), document


def read_other(path: Path, seed: int) -> int:
    """`table` on a file of any kind; 1 if it was taken."""
    return int(check(["table", str(path), "--format", FORMATS[seed % len(FORMATS)]]) == 0)


def attack_others(scratch: Path, count: int, seed: int) -> int:
    """As `attack_profiles`, files of the other kinds by `table` alone."""
    return _attack(
        list(others()), count, seed, scratch, lambda path, whole, document: read_other(path, path.stat().st_size)
    )


def attack_profiles(scratch: Path, count: int, seed: int) -> int:
    """Read that many damaged profiles, half of them of schema 2, by every verb; returns how many commands answered."""
    found = list(profiles())
    return _attack(
        [*found, *[(f"{name} in 3 processes", in_processes(each, 3)) for name, each in found if each["schema"] == 1]],
        count,
        seed,
        scratch,
        lambda path, whole, document: read_profile(path, whole, [row["backend"] for row in document["rows"]]),
    )


def attack_compared(scratch: Path, count: int, seed: int) -> int:
    """As `attack_profiles`, by `compare`, every kind of file that it takes."""
    found = [*profiles(), *[(f"{name} in 5 processes", in_processes(each, 5)) for name, each in of_one_process()]]
    found += [
        (str(path.relative_to(RESULTS)), document)
        for path in sorted(RESULTS.glob("**/*.json"))
        if path.stat().st_size < 200_000
        and (document := json.loads(path.read_text(encoding="utf-8")))["kind"] in ("choice", "proof")
    ]
    return _attack(
        found,
        count,
        seed,
        scratch,
        lambda path, whole, document: read_compared(
            path, whole, [row["backend"] for row in document.get("rows", ()) if "backend" in row]
        ),
    )


def attack_choices(scratch: Path, count: int, seed: int) -> int:
    """As above, choice files."""
    found = [(str(path), json.loads(path.read_text())) for path in sorted(RESULTS.glob("*/choice.json"))]
    return _attack(found, count, seed, scratch, lambda path, whole, document: read_choice(path))


def attack_folders(scratch: Path, count: int, seed: int) -> int:
    """As above, one file in a folder of `choose`."""
    whole = RESULTS / "h200-choose-article"
    answered = 0
    for number in range(count):
        chosen = random.Random(f"{seed}-{number}")
        folder = Path(shutil.copytree(whole, scratch / "folder"))
        path = chosen.choice(sorted(folder.glob("*.json")))
        data, what = mutant(json.loads(path.read_text()), chosen)
        path.write_bytes(data)
        with _named(f"folder {number}: {path.name} {what}"):
            answered += read_folder(folder)
        shutil.rmtree(folder)
    return answered


def _attack(
    found: list[tuple[str, Any]], count: int, seed: int, scratch: Path, read: Callable[[Path, Path, Any], int]
) -> int:
    answered = 0
    path, whole = scratch / "mutant.json", scratch / "whole.json"
    for number in range(count):
        chosen = random.Random(f"{seed}-{number}")
        name, document = chosen.choice(found)
        data, what = mutant(document, chosen)
        path.write_bytes(data)
        whole.write_text(json.dumps(document))
        with _named(f"{name} {number}: {what}"):
            answered += read(path, whole, document)
    return answered


KEEP_GOING: list[str] | None = None


@contextlib.contextmanager
def _named(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if KEEP_GOING is None:
            raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
        import traceback

        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename.rpartition('mlpfusion/')[2]}:{last.lineno}"
        KEEP_GOING.append(f"{type(error).__name__} {where} {str(error)[:150]} | {what}")
