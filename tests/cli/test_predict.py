"""The verb that predicts: the cards it offers, the user's own products, and what it refuses."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from support.paths import RESULTS

from mlpfusion import device
from mlpfusion.cli.main import main
from mlpfusion.stages.predict import run, sources

if TYPE_CHECKING:
    from pathlib import Path

RECORDED = str(RESULTS / "h200-profile.json")


@pytest.fixture(autouse=True)
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where no tables of measured products are installed, whatever is here."""
    monkeypatch.setattr(sources, "installed", lambda card: None)


def test_it_offers_the_known_cards(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "--help"]) == 0
    listed = re.search(r"Known cards:\n((?:    .*\n)+)", capsys.readouterr().out)
    assert listed
    cards = [line.split(" (")[0].strip() for line in listed[1].splitlines()]
    assert cards == list(device.KNOWN_CARDS)
    assert next(line for line in listed[1].splitlines() if "default" in line).strip().startswith(run.REFERENCE_CARD)


@pytest.mark.parametrize("card", device.KNOWN_CARDS)
def test_every_known_card_is_predicted_with_intervals(capsys: pytest.CaptureFixture[str], card: str) -> None:
    assert main(["predict", RECORDED, "--card", card]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"predicted, not measured, for {card} (")
    assert re.search(r"^fused +[\d.]+ +[\d.]+–[\d.]+$", shown, re.MULTILINE)


def test_own_products_are_used_and_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("m,n,k,dtype,us\n8192,3072,768,bfloat16,222\n", "utf-8")
    assert main(["predict", RECORDED, "--table", str(path), "--explain"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^eager +1 +gate_gemm +222 +\d+–\d+ +compute +measured table, 1 nearest$", shown, re.MULTILINE)
    assert re.search(r"^eager +1 +8192 x 3072 x 768 +222 +mine.csv$", shown, re.MULTILINE)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--card", "NVIDIA Z1"], "unknown card 'NVIDIA Z1'; valid: NVIDIA A100-SXM4-80GB"),
        (["--table", "no-such.csv"], "table 'no-such.csv' does not exist"),
        (["--table", str(RESULTS / "h200-article.json")], "was measured on NVIDIA H200, not on NVIDIA A100-SXM4-80GB"),
        (["--format", "csv"], "unknown format 'csv'; valid: text, github"),
    ],
)
def test_what_it_refuses_is_one_line(capsys: pytest.CaptureFixture[str], argv: list[str], said: str) -> None:
    assert main(["predict", RECORDED, *argv]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err
