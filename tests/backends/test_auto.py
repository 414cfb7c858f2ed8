"""Choice files, what a damaged one says, and the modules that run by them."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from msgspec.structs import replace
from support.choices_made import HERE, SPEC, a_choice, part

from mlpfusion import GatedMLP, Workload, profile
from mlpfusion import backend as registry
from mlpfusion.backends.auto import Auto
from mlpfusion.cli.main import main
from mlpfusion.environment import provenance
from mlpfusion.errors import BackendUnavailableError, MeasurementError, UsageError
from mlpfusion.storage import results

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="the choice without a GPU")


# ---- the choice file -------------------------------------------------------------------------------------------------


def test_a_choice_comes_back_from_its_file(tmp_path):
    made = a_choice(part("eager", 1, 8), part("compile", 9))
    results.save(made, tmp_path / "choice.json")
    assert results.load_choice(tmp_path / "choice.json") == made
    assert results.encode(made) == results.encode(results.load_choice(tmp_path / "choice.json"))


@pytest.mark.parametrize("beside", [True, False])
def test_a_loose_backend_is_found_below_the_choice_or_the_working_folder(tmp_path, monkeypatch, beside):
    here, kept = tmp_path / "here", tmp_path / "kept"
    place = (kept if beside else here) / "deep"
    for folder in (here, kept, place):
        folder.mkdir(exist_ok=True)
    (place / "mine.py").write_text("from mlpfusion.backends.eager import Eager as Mine\n")
    monkeypatch.chdir(here)
    name = f"{place}/mine.py:Mine"
    made = a_choice(part(name), backends=("eager", name))
    results.save(made, kept / "choice.json")
    assert "deep" not in (kept / "choice.json").read_text()
    found = Auto(kept / "choice.json")
    assert found.backends == (name if beside else "deep/mine.py:Mine",)
    assert found.unsupported(SPEC, HERE) is None
    (place / "mine.py").unlink()
    with pytest.raises(UsageError, match=r"backend 'mine.py:Mine': no file 'mine.py' of it is in this folder or below"):
        Auto(kept / "choice.json")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_choice_with_a_number_that_is_none_is_not_written(tmp_path, value):
    made = a_choice()
    with pytest.raises(MeasurementError, match=r"points\[0\]\.neighbours = .* is not a finite number"):
        results.save(replace(made, points=(replace(made.points[0], neighbours=value),)), tmp_path / "choice.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text[:300], "is not JSON, or cut short"),
        (lambda text: "", "is not JSON, or cut short"),
        (lambda text: "[]", "is not a file of mlpfusion: no schema number and kind at its top"),
        (lambda text: "{}", "is not a file of mlpfusion: no schema number and kind at its top"),
        (
            lambda text: text.replace('"schema": 1', '"schema": 99', 1),
            "with schema 99; this one reads up to 1: pip install -U",
        ),
        (lambda text: text.replace('"rounds": 25', '"rounds": "many"'), "is damaged: Expected `int`"),
        (
            lambda text: text.replace('"last": 8', '"last": 0'),
            "is damaged: last must be an integer from 1",
        ),
        (lambda text: text.replace('"first": 9', '"first": 8'), "is damaged: two ranges of tokens overlap at 8"),
        (lambda text: text.replace('"kind": "choice"', '"kind": "profile"'), "holds a 'profile'; valid here: 'choice'"),
    ],
)
def test_a_damaged_file_is_one_line(tmp_path, change, said):
    path = tmp_path / "choice.json"
    path.write_text(change(results.encode(a_choice(part("eager", 1, 8), part("compile", 9)))), encoding="utf-8")
    with pytest.raises(UsageError, match=said) as caught:
        GatedMLP(SPEC, backend=f"auto:{path}")
    assert len(str(caught.value).splitlines()) == 1


def test_no_file_at_all(tmp_path):
    with pytest.raises(UsageError, match="does not exist"):
        GatedMLP(SPEC, backend=f"auto:{tmp_path / 'choice.json'}")


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
    mlp = GatedMLP(RELU, backend=Auto(chosen))
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
    mlp = GatedMLP(SPEC, backend=Auto(a_choice(part("eager", 1, 8), part("eager", 9, 64))))
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
        mlp.set_backend(Auto(made))
    assert mlp.backend == "eager"


def test_a_changed_loose_file_is_refused(recorders):
    name = f"{recorders}:First"
    made = a_choice(part(name), spec=RELU, backends=[name])
    recorders.write_text(f"{RECORDERS}\n", encoding="utf-8")
    with pytest.raises(BackendUnavailableError, match=r"recorders\.py:First .* there, .* here"):
        GatedMLP(RELU, backend=Auto(made))


def test_another_mlp_is_refused():
    with pytest.raises(
        BackendUnavailableError, match=r"the choice is for hidden_size 16, .* this MLP has hidden_size 32"
    ):
        GatedMLP(replace(SPEC, hidden_size=32), backend=Auto(a_choice()))
    mlp = GatedMLP(SPEC, backend=Auto(a_choice())).half()
    with pytest.raises(BackendUnavailableError, match=r"this MLP has .* float16"):
        mlp(torch.randn(1, 16).half())


def test_a_backend_of_the_choice_that_refuses(recorders):
    name = f"{recorders}:Refuses"
    with pytest.raises(BackendUnavailableError, match="which the choice names: only on Tuesdays"):
        GatedMLP(SPEC, backend=Auto(a_choice(part(name), backends=[name])))
    with pytest.raises(BackendUnavailableError, match="the choice names no backend"):
        GatedMLP(SPEC, backend=Auto(replace(a_choice(), ranges=())))


# ---- by its name -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", ["auto", "auto:"])
def test_auto_needs_a_file(named):
    for refused in (lambda: GatedMLP(SPEC, backend=named), lambda: registry.check_name(named)):
        with pytest.raises(UsageError, match=r"backend 'auto' needs a file .*, as in auto:choice\.json"):
            refused()
    assert Auto(a_choice()).backends == ("eager",)


def test_no_table_has_it_unasked():
    assert not [name for name in registry.names() if name.startswith("auto")]


def test_it_is_found_by_name_like_any_other(tmp_path):
    name = f"auto:{tmp_path / 'choice.json'}"
    results.save(a_choice(part("eager")), tmp_path / "choice.json")
    assert registry.check_name(name) == name
    made = registry.load(name)
    assert isinstance(made, Auto)
    assert (made.name, made.backends) == ("auto", ("eager",))
    assert provenance.installed(name) == {"mlpfusion": provenance.version("mlpfusion")}


def test_the_file_is_read_once(tmp_path):
    path = tmp_path / "choice.json"
    results.save(a_choice(part("eager")), path)
    mlp = GatedMLP(SPEC, backend=f"auto:{path}")
    path.unlink()
    with torch.no_grad():
        for other in (mlp.to(torch.float32), copy.deepcopy(mlp), pickle.loads(pickle.dumps(mlp))):
            assert other(torch.randn(2, 16)).shape == (2, 16)
            assert other.backend == "auto"


@pytest.mark.full
def test_a_profile_has_it_as_a_row(tmp_path):
    path = tmp_path / "choice.json"
    results.save(a_choice(part("eager")), path)
    made = profile(Workload(spec=SPEC, batch=1, seq=4), backends=["eager", f"auto:{path}"], device="cpu", rounds=2)
    assert [(row.backend, row.status) for row in made.rows] == [("eager", "ok"), (f"auto:{path}", "ok")]


@pytest.mark.parametrize("text", [None, "{}", "[]", ""])
def test_a_profile_of_no_choice_is_refused_at_once(tmp_path, capsys, text):
    path = tmp_path / "choice.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    assert main(["profile", "--backends", f"auto:{path}", "--device", "cpu"]) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert repr(str(path)) in err
