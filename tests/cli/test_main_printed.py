"""What commands print on the recorded traces and results, byte by byte; `python tools/printed.py` records it anew."""

from __future__ import annotations

import pytest
from support.bench import tool
from support.rings import first_of_each

from mlpfusion.stages.predict import sources

PRINTED = tool("printed")
MADE = PRINTED.recordings()


@pytest.fixture(autouse=True)
def no_measured_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the extra `tables` is not installed, whatever is here: predictions are recorded so."""
    monkeypatch.setattr(sources, "PACKAGE", "a-package-that-nobody-has")
    said = sources.missing
    monkeypatch.setattr(
        sources, "missing", lambda card: str(said(card)).replace(sources.PACKAGE, "aiconfigurator-core")
    )


def verb(name: str) -> str:
    return name.partition("-")[0]


def test_what_is_recorded_is_what_is_compared() -> None:
    assert {path.stem for path in PRINTED.PRINTED.iterdir()} == set(MADE)
    verbs = {"read", "table", "diff", "compare", "explain", "predict", "choose", "prove", "wrong", "help"}
    assert verbs == set(map(verb, MADE))


@pytest.mark.parametrize("name", first_of_each(MADE, verb))
def test_a_command_prints_what_it_printed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("COLUMNS", "40")  # of no terminal's width
    recorded = (PRINTED.PRINTED / f"{name}.txt").read_text(encoding="utf-8")
    assert PRINTED.compact(MADE[name]()) == recorded, "on purpose? then record it anew: python tools/printed.py"


def test_only_what_is_wrong_is_refused() -> None:
    for path in PRINTED.PRINTED.glob("*.txt"):
        codes = {line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("exit code: ")}
        # A comparison may find a regression, which is 1.
        fine = {"exit code: 2"} if path.stem == "wrong" else {"exit code: 0"}
        assert codes <= fine | ({"exit code: 1"} if verb(path.stem) == "compare" else set()), path.name


@pytest.mark.parametrize("at", [0, 159, 160, 200, 999])
@pytest.mark.parametrize("line", [0, 249, 250, 400])
def test_no_byte_changes_unseen(line: int, at: int) -> None:
    lines = ["x" * 1000 + "\n"] * 401
    changed = lines.copy()
    changed[line] = lines[line][:at] + "y" + lines[line][at + 1 :]
    before, after = PRINTED.compact("".join(lines)), PRINTED.compact("".join(changed))
    assert before != after
    assert len(before) < 0.2 * len("".join(lines))
