"""What stands in the folder of a choice, or in a choice file, that is damaged, foreign or older: not lost, not used."""

from __future__ import annotations

import json

import pytest
import torch
from support.choices_made import SPEC, Bench, a_choice, part

from mlpfusion import GatedMLP
from mlpfusion.backends.auto import Auto
from mlpfusion.errors import BackendUnavailableError, UsageError
from mlpfusion.models import known
from mlpfusion.stages.choose import rows, run
from mlpfusion.storage import results

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="the choice without a GPU")

ASKED = {"tokens": [1, 100], "backends": ["eager", "compile"], "device": "cpu"}
ROW = "inference-1.json"


def contents(folder):
    return {path.name: path.read_bytes() if path.is_file() else None for path in folder.iterdir()}


def refused(folder, **options):
    """What a run says that is refused, with the whole folder as it was."""
    before = contents(folder)
    with pytest.raises(UsageError) as caught:
        run.choose(SPEC, **ASKED, out=folder, **options)
    assert contents(folder) == before
    said = str(caught.value)
    assert len(said.splitlines()) == 1
    return said


@pytest.mark.parametrize("name", [ROW, rows.PLAN_NAME, rows.CHOICE_NAME])
@pytest.mark.parametrize("text", ["{", "[]", '{"mine": 1}', "\udcff", None])
@pytest.mark.parametrize("fresh", [False, True])
def test_a_file_that_is_damaged_or_foreign_is_named_and_kept(tmp_path, monkeypatch, name, text, fresh):
    Bench(monkeypatch)
    run.choose(SPEC, **ASKED, out=tmp_path)
    (tmp_path / name).unlink()
    if text is None:
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).write_text(text, encoding="utf-8", errors="surrogateescape")
    said = refused(tmp_path, fresh=fresh)
    assert str(tmp_path / name) in said
    assert "delete it, or name another folder" in said


def test_a_foreign_plan_alone_in_a_folder_is_kept(tmp_path, monkeypatch):
    Bench(monkeypatch)
    (tmp_path / rows.PLAN_NAME).write_text('{"resource_changes": []}', encoding="utf-8")
    assert rows.PLAN_NAME in refused(tmp_path)


@pytest.mark.parametrize("name", [ROW, rows.PLAN_NAME, rows.CHOICE_NAME])
def test_files_of_an_older_version_are_replaced_when_asked(tmp_path, monkeypatch, name):
    Bench(monkeypatch)
    run.choose(SPEC, **ASKED, out=tmp_path)
    old = json.loads((tmp_path / name).read_text(encoding="utf-8"))
    (tmp_path / name).write_text(json.dumps({"schema": 0, "kind": old["kind"]}), encoding="utf-8")
    run.choose(SPEC, **ASKED, out=tmp_path, fresh=True)
    assert json.loads((tmp_path / name).read_text(encoding="utf-8"))["schema"] == old["schema"]


@pytest.mark.parametrize("device", ["", "-", " "])
def test_no_device_is_no_card(device):
    with pytest.raises(UsageError, match="unknown device"):
        run.device_of(device)


def test_no_name_is_no_model():
    with pytest.raises(UsageError, match="unknown model ''"):
        known.find("")


# ---- choice files ----------------------------------------------------------------------------------------------------


def said_of(tmp_path, change):
    """What a module says of a choice file after a change to its values."""
    values = json.loads(results.encode(a_choice(part("eager", 1, 8), part("compile", 9))))
    change(values)
    path = tmp_path / "choice.json"
    path.write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises((UsageError, BackendUnavailableError)) as caught:
        GatedMLP(SPEC, backend=f"auto:{path}")
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def test_ranges_overlap_whatever_stands_between_them(tmp_path):
    def shuffle(values):
        first, second = values["ranges"]
        values["ranges"] = [first, {**first, "mode": "training"}, {**second, "first": 5}]

    assert "two ranges of tokens overlap at 5" in said_of(tmp_path, shuffle)


@pytest.mark.parametrize("name", ["torch", "triton", "mlpfusion", "mlpfusion_kernels"])
def test_a_choice_that_does_not_say_what_it_ran_on_is_refused(tmp_path, name):
    def forget(values):
        del values["holds"]["versions"][name]

    assert f"it does not say which {name} it was measured with" in said_of(tmp_path, forget)


@pytest.mark.parametrize("name", ["tp", "rounds"])
def test_figures_are_positive(tmp_path, name):
    assert f"{name} must be an integer from 1 to " in said_of(tmp_path, lambda values: values.update({name: 0}))


def test_a_backend_that_is_not_known_is_named_with_the_file(tmp_path):
    def rename(values):
        values["ranges"][0]["backend"] = "fastest"

    assert "unknown backend 'fastest'; known: eager" in said_of(tmp_path, rename)


# ---- a module that runs by one ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("trains", [False, True])
def test_it_goes_by_the_parameters_that_are_there_now(trains):
    mlp = GatedMLP(SPEC, backend=Auto(a_choice(part("eager")))).requires_grad_(not trains)
    for layer in mlp.projections.values():
        layer.weight = torch.nn.Parameter(layer.weight.detach(), requires_grad=trains)
    if trains:
        with pytest.raises(BackendUnavailableError, match="nothing for 2 tokens in training"):
            mlp(torch.randn(2, 16))
    else:
        assert not mlp(torch.randn(2, 16)).requires_grad
