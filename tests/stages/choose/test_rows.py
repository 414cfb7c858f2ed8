"""What `choose` measures: which questions it takes, and which rows on disk it keeps, goes on from or refuses."""

from __future__ import annotations

import pytest
import torch
from msgspec.structs import replace
from support.choices_made import SPEC, Bench, profile, row

from mlpfusion import device as devices
from mlpfusion.environment import provenance
from mlpfusion.errors import UsageError
from mlpfusion.models import known
from mlpfusion.stages.choose import rows
from mlpfusion.stages.choose import run as choose_run
from mlpfusion.storage import results
from mlpfusion.storage.redacted import redacted

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="the choice without a GPU")


# ---- what is asked ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tokens": []}, "no tokens were given"),
        ({"tokens": [0]}, "tokens must be an integer from 1 to 2147483647, got 0"),
        ({"tokens": [1, 1]}, "tokens names 1 twice"),
        ({"modes": ["inference", "inference"]}, "modes names inference twice"),
        ({"modes": ["decode"]}, "unknown mode 'decode'; valid: inference, training"),
        ({"tp": 0}, "tp must be an integer from 1 to 65536, got 0"),
        ({"tp": 5}, "tp 5 does not divide the intermediate_size 32 of 16x32-gelu_tanh"),
        ({"backends": ["egaer"]}, "unknown backend 'egaer'; known: eager"),
        ({"clock": "graph_us"}, "clock 'graph_us' needs a GPU; valid on a CPU: wall_us"),
        ({"clock": "cycles"}, "unknown clock 'cycles'; valid: event_us, graph_us, wall_us"),
        ({"device": "a100-80gb"}, r"device 'a100-80gb' \(NVIDIA A100-SXM4-80GB or NVIDIA A100 80GB PCIe\) is not here"),
        ({"device": "tpu"}, "unknown device 'tpu'; valid: cuda, cpu, or a card: a100-sxm4-80gb"),
        ({"device": "cuda"}, "torch sees no GPU"),
        ({"tokens": [2**31 - 1]}, "needs about .* GB"),
    ],
)
def test_a_bad_question_is_one_line(options, said):
    with pytest.raises(UsageError, match=said):
        choose_run.choose(SPEC, **{"tokens": [1], "device": "cpu", **options})


def test_a_model_for_inference_alone_is_not_trained():
    with pytest.raises(UsageError, match=r"t5-v1.1-xl is for inference alone: dropout_rate 0.1"):
        choose_run.choose("t5-v1.1-xl", tokens=[1], modes=["training"], device="cpu")


def test_a_card_that_is_here(monkeypatch):
    card = devices.Device(kind="cuda", name="NVIDIA H200", capability=(9, 0))
    monkeypatch.setattr(devices, "detect", lambda kind=None: card)
    assert choose_run.device_of("h200") == card
    with pytest.raises(UsageError, match=r"device 'h100-pcie' .* is not here.*; here: NVIDIA H200"):
        choose_run.device_of("h100-pcie")
    assert choose_run.card_away("h200") == choose_run.card_away("cuda") == choose_run.card_away(None) == ()
    assert choose_run.card_away("h100-pcie") == ("NVIDIA H100 PCIe",)


# ---- rows on disk ----------------------------------------------------------------------------------------------------


ASKED = {"tokens": [1, 100], "backends": ["eager", "compile"], "device": "cpu"}


def test_an_interrupted_run_goes_on_where_it_was(tmp_path, monkeypatch):
    Bench(monkeypatch, stop_after=(100, "eager"))
    with pytest.raises(KeyboardInterrupt):
        choose_run.choose(SPEC, **ASKED, out=tmp_path)
    assert not (tmp_path / rows.CHOICE_NAME).exists()
    again = Bench(monkeypatch)
    made = choose_run.choose(SPEC, **ASKED, out=tmp_path)
    assert again.asked == [("inference", 100, ["compile"])]
    assert (made.ranges[0].first, made.ranges[0].backend) == (1, "eager")
    assert results.load_choice(tmp_path / rows.CHOICE_NAME) == made
    third = Bench(monkeypatch)
    assert choose_run.choose(SPEC, **ASKED, out=tmp_path).ranges == made.ranges
    assert third.asked == []


def test_fresh_measures_again(tmp_path, monkeypatch):
    Bench(monkeypatch)
    choose_run.choose(SPEC, **ASKED, out=tmp_path)
    again = Bench(monkeypatch)
    choose_run.choose(SPEC, **ASKED, out=tmp_path, fresh=True)
    assert [each[:2] for each in again.asked] == [("inference", 1), ("inference", 100)]


def test_more_tokens_backends_or_modes_measure_only_those(tmp_path, monkeypatch):
    Bench(monkeypatch)
    choose_run.choose(SPEC, **ASKED, out=tmp_path)
    again = Bench(monkeypatch)
    wider = {**ASKED, "tokens": [1, 8, 100], "backends": ["eager", "compile", "packed"]}
    choose_run.choose(SPEC, **wider, out=tmp_path)
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
    choose_run.choose(known.of_sizes(SPEC), **ASKED, out=tmp_path)
    with pytest.raises(UsageError, match=f"{said}; name another folder, or --fresh"):
        choose_run.choose(known.of_sizes(SPEC), **ASKED, **options, out=tmp_path)


def test_rows_of_more_backends_than_are_asked_for_are_not_replaced(tmp_path, monkeypatch):
    Bench(monkeypatch)
    choose_run.choose(SPEC, **ASKED, out=tmp_path)
    before = {each: each.read_bytes() for each in tmp_path.iterdir()}
    again = Bench(monkeypatch)
    fewer = {**ASKED, "backends": ["eager"]}
    with pytest.raises(UsageError, match=r"holds rows of compile too, .*; name them in --backends as well, or name"):
        choose_run.choose(SPEC, **fewer, out=tmp_path)
    assert again.asked == []
    assert {each: each.read_bytes() for each in tmp_path.iterdir()} == before
    choose_run.choose(SPEC, **fewer, out=tmp_path, fresh=True)
    assert [each[:2] for each in again.asked] == [("inference", 1), ("inference", 100)]


def test_rows_of_another_torch_are_not_mixed(tmp_path, monkeypatch):
    Bench(monkeypatch)
    choose_run.choose(SPEC, **ASKED, out=tmp_path)
    now = torch.__version__
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    with pytest.raises(UsageError, match=r"torch .* there, 2\.99\.0 here; name another folder"):
        choose_run.choose(SPEC, **ASKED, out=tmp_path)
    assert now != "2.99.0"


def test_a_folder_with_other_files_keeps_them(tmp_path, monkeypatch):
    Bench(monkeypatch)
    (tmp_path / "choice.json").write_text('{"mine": 1}', encoding="utf-8")
    with pytest.raises(UsageError, match=r"choice\.json' exists and holds no 'choice' of mlpfusion; delete it"):
        choose_run.choose(SPEC, **ASKED, out=tmp_path)
    (tmp_path / "choice.json").unlink()
    (tmp_path / "inference-9.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UsageError, match=r"holds rows but no plan\.json"):
        choose_run.choose(SPEC, **ASKED, out=tmp_path)
    with pytest.raises(UsageError, match="is not a result file of mlpfusion"):
        choose_run.choose(SPEC, **ASKED, out=tmp_path, fresh=True)
    assert (tmp_path / "inference-9.json").exists()


# ---- names of loose backends -----------------------------------------------------------------------------------------


def test_rows_get_the_names_that_were_typed_where_the_contents_are_the_same(tmp_path):
    names = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(f"# {folder}")
        names.append(f"{tmp_path}/{folder}/mine.py:Mine")
    measured = [row(name, (1.0, 2.0), distributions=provenance.installed(name)) for name in names]
    made = profile(row("eager", (1.0, 2.0)), *measured)
    behind = {name: there for each in measured for name, there in each.distributions.items()}
    made = replace(made, environment=replace(made.environment, distributions=behind))
    kept = redacted(made)
    assert [each.backend for each in kept.rows] == ["eager", "mine.py:Mine", "mine.py:Mine (2)"]
    assert rows.as_typed(kept, ["eager", *names]) == made
    assert rows.as_typed(kept, ["eager", *reversed(names)]).rows == kept.rows  # others have these names now
    assert rows.as_typed(None, names) is None
    refused = replace(kept, rows=(replace(kept.rows[1], status="unavailable", distributions={}),))
    assert rows.as_typed(refused, names).rows[0].backend == names[0]
