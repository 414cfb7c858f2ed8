"""README, CONTRIBUTING and the pages of docs/: every command and example runs, every link leads somewhere."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import shlex
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import torch
from support import rings, studies_made
from support.bench import tool
from support.comparisons_made import raced
from support.paths import DATA, RESULTS, ROOT
from torch import Tensor, nn

import mlpfusion
from mlpfusion.cli import main
from mlpfusion.errors import MlpfusionError
from mlpfusion.storage import results

if TYPE_CHECKING:
    from pathlib import Path

SITE = sorted((ROOT / "docs").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *SITE]
VERBS = {command.name for command in main.app.registered_commands}
MAKE = (ROOT / "Makefile").read_text(encoding="utf-8")
RECORDED = RESULTS / "h200-profile.json"


class Block(NamedTuple):
    """One fenced block: where it begins, its language and its lines."""

    where: str
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(f"{page.name}:{text[: found.start()].count(chr(10)) + 1}", found[1], found[2])
        for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    ]


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```\w*\n.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def commands() -> list[Any]:
    """Every command of ours: the lines of fenced blocks, and spans of code with more than a verb in them."""
    found = {}
    for page in PAGES:
        lines = [line for block in blocks(page) if not block.language for line in block.text.splitlines()]
        steps = [line for block in blocks(page) if block.language == "yaml" for line in block.text.splitlines()]
        lines += [line.split(" >> ")[0].strip().removeprefix("- run: ") for line in steps]
        spans = re.findall(r"`(mlpfusion [^`]+)`", prose(page).replace("\n", " "))
        for line in [*lines, *(span for span in spans if len(span.split()) > 2)]:
            if line.startswith("mlpfusion "):
                found.setdefault(line.split("  ")[0].split(" #")[0].strip(), page.name)
    figures = [line for line in found if line.startswith("mlpfusion plot")]
    return [
        pytest.param(line, id=f"{page} {line}", marks=rings.FULL if line in figures[1:] else ())
        for line, page in found.items()
    ]


class ReachedError(BaseException):
    """Work begins that takes long, or needs a GPU: what was typed has passed all checks until then."""


def _reached(*_: object, **__: object) -> None:
    raise ReachedError


SLOW = (  # where each verb that measures begins to
    "mlpfusion.workers.supervise.run",
    "mlpfusion.stages.validate.judge.examine.Bench.__enter__",
    "mlpfusion.models.load.load_model",
    "mlpfusion.stages.tune.run.check_device",
    "mlpfusion.trace.perfetto.serve",
    "mlpfusion.stages.sweep.local.run",
)


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the pages name."""
    made = tmp_path_factory.mktemp("named")
    traces = {"eager": "eager", "compile": "compile", "trace": "compile", "a": "eager", "b": "compile", "step": "eager"}
    for name, recorded in traces.items():
        shutil.copy(DATA / f"h200_{recorded}.json.gz", made / f"{name}.json.gz")
    for name in ("out.json", "result.json", "old.json", "new.json"):
        shutil.copy(RECORDED, made / name)
    results.save(raced({"triton": 0.9}), made / "five.json")
    for job in ("traces", "before", "after"):
        (made / job).mkdir()
        for rank in (0, 3):
            shutil.copy(DATA / "h200_eager.json.gz", made / job / f"rank{rank}.json.gz")
    (made / "mine.py").write_text("class Mine:\n    pass\n", encoding="utf-8")
    (made / "script.py").write_text("def step():\n    pass\n", encoding="utf-8")
    (made / "path/to/model").mkdir(parents=True)
    config = {
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": 64,
        "intermediate_size": 128,
        "dtype": "float32",
    }
    (made / "path/to/config.json").write_text(json.dumps(config), encoding="utf-8")
    (made / "choices/gemma-2b-bfloat16").mkdir(parents=True)
    shutil.copy(RESULTS / "h200-choose-gemma-2b" / "choice.json", made / "choices/gemma-2b-bfloat16")
    for study in ("decode", "decode-2.11", "decode-2.13"):
        studies_made.recorded(made / "sweeps" / study)
    return made


@pytest.fixture
def folder(named: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own with the files that the pages name, and those of the repository."""
    shutil.copytree(named, tmp_path, dirs_exist_ok=True)
    for name in ("bench", "examples", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("line", commands())
def test_a_command_runs(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for place in SLOW:
        monkeypatch.setattr(place, _reached)
    if "--device a100" in line:  # predicts from the rows in the folder
        shutil.copytree(ROOT / "bench/results/h200-choose-gemma-2b", "choices/gemma-2b-bfloat16", dirs_exist_ok=True)
    if line.startswith("mlpfusion plot") and ".json" not in line.partition(" -o ")[2]:
        pytest.importorskip("vl_convert", reason="needs the extra figures")
    if "--counters" in line:
        monkeypatch.setattr("shutil.which", lambda name: name)
    try:
        code = main.main(shlex.split(line)[1:])
    except ReachedError:
        return
    captured = capsys.readouterr()
    if "--like" in line and not torch.cuda.is_available():  # the file was recorded on a GPU
        assert (code, "torch sees no GPU" in captured.err) == (2, True)
        return
    assert code == 0, captured.err
    assert captured.out


def test_a_wrong_command_would_be_noticed() -> None:
    assert main.main(["profile", "--hidden", "768x"]) == 2
    assert len(commands()) > 30


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_verbs_targets_and_scripts_that_a_page_names_are_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert set(re.findall(r"`mlpfusion (\w+)`", text)) <= VERBS
    made = re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE)
    assert set(made) <= set(re.findall(r"^# make ([a-z-]+)", MAKE, re.MULTILINE))
    named = re.findall(r"(?<![\w/-])((?:src|bench|tests|examples|docs|kernels|tools)/[\w./-]*\w)", text)
    assert [name for name in named if not list(ROOT.glob(f"{name}*"))] == []


GENERATED = tool("generated")


@pytest.mark.parametrize(("name", "marker"), GENERATED.PARTS)
def test_what_is_generated_is_up_to_date(name: str, marker: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert GENERATED.filled(text, marker, GENERATED.PARTS[name, marker]()) == text, "python tools/generated.py"


DRAWN = tool("figures")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def test_every_figure_of_the_pages_has_its_command() -> None:
    picture = tool("picture").PICTURE
    assert {path.name for path in DRAWN.FIGURES.iterdir()} == {picture.name, *DRAWN.commands()}
    assert picture.relative_to(ROOT).as_posix() in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.full
@pytest.mark.parametrize("name", DRAWN.commands())
def test_a_figure_of_the_pages_is_what_its_command_draws(name: str, tmp_path: Path) -> None:
    pytest.importorskip("vl_convert", reason="needs the extra figures")
    assert DRAWN.draw(DRAWN.commands()[name], tmp_path / name) == 0
    now, then = ((folder / name).read_text(encoding="utf-8") for folder in (tmp_path, DRAWN.FIGURES))
    assert NUMBER.sub("0", now) == NUMBER.sub("0", then), "python tools/figures.py"
    moved = [abs(float(a) - float(b)) for a, b in zip(NUMBER.findall(now), NUMBER.findall(then), strict=True)]
    assert max(moved) <= 2, "python tools/figures.py"  # pixels: text is measured with the fonts that a machine has


PUBLISHED = tool("published")


def unpacked(text: str) -> str:
    """A page with the files inside it as digests: versions of zlib pack the same bytes differently."""

    def digest(found: re.Match[str]) -> str:
        return hashlib.sha256(gzip.decompress(base64.b64decode(found[1]))).hexdigest()

    return re.sub(r"data:application/gzip;base64,([\w+/=]+)", digest, text)


def test_every_published_file_has_its_maker_and_the_page_names_the_report() -> None:
    assert {path.name for path in PUBLISHED.PUBLISHED.iterdir()} == set(PUBLISHED.made())
    assert f"(published/{PUBLISHED.PAGE}.html)" in (ROOT / "docs" / "publishing.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(each, marks=pytest.mark.full) if each == f"{PUBLISHED.PAGE}.html" else each
        for each in PUBLISHED.made()
    ],
)
def test_what_is_published_is_what_the_recordings_give(name: str) -> None:
    recorded = (PUBLISHED.PUBLISHED / name).read_text(encoding="utf-8")
    assert unpacked(PUBLISHED.made()[name]()) == unpacked(recorded), "python tools/published.py"


# ---- examples --------------------------------------------------------------------------------------------------------


class Block32(nn.Module):
    """A gated MLP with names of its own, at sizes that every backend takes."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(32, 48, bias=False), nn.Linear(32, 48, bias=False), nn.Linear(48, 32)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.c(nn.functional.silu(self.a(x)) * self.b(x))
        return y


class Model(nn.Module):
    """A language model with one gated MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mlp, self.head = nn.Embedding(64, 32), Block32(), nn.Linear(32, 64)

    def forward(self, input_ids: Tensor) -> Tensor:
        y: Tensor = self.head(self.mlp(self.embed(input_ids)))
        return y


# A proof compiles a model twice: a quarter of a minute.
EXAMPLES = [
    pytest.param(block, id=block.where, marks=[pytest.mark.full] if "inductor import Trial" in block.text else [])
    for page in PAGES
    for block in blocks(page)
    if block.language == "python"
]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("block", EXAMPLES)
def test_an_example_runs(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    names: dict[str, Any] = {"model": Model(), "ids": torch.randint(64, (2, 7)), "x": torch.ones(4)}
    names["step"] = torch.sin
    monkeypatch.setattr(mlpfusion, "profile", lambda *args, **options: results.load(RECORDED), raising=False)
    text = block.text.replace(', device="cuda"', ', device="cpu"')
    if 'device="cpu"' in text and "choices/" not in text:  # where Triton's interpreter takes no bfloat16
        text = text.replace(", intermediate_size", ', dtype="float32", intermediate_size')
    run = compile(text, block.where, "exec")
    if "choices/" in text:  # which was made for another card
        with pytest.raises(MlpfusionError, match="NVIDIA H200"):
            exec(run, names)
        return
    exec(run, names)


# ---- links -----------------------------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, by GitHub's rule."""
    heads = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        aim = (page.parent / name).resolve() if name else page
        assert aim.is_file(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(aim), f"{page.name} links to {target}"


def test_every_page_is_on_the_site_and_reached_from_the_index() -> None:
    config = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for page in SITE:
        assert f'"{page.name}"' in config
        assert page.name == "index.md" or f"({page.name})" in index, page.name
