"""Records what commands print on the recorded traces and results; a test compares every byte of it.

python tools/printed.py          (after a change on purpose: the difference is then reviewed with the change)
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from mlpfusion.cli import main as cli
from mlpfusion.report import choice as choice_report
from mlpfusion.report import proof as proof_report
from mlpfusion.storage import results

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT: Final = Path(__file__).parents[1]
PRINTED: Final = ROOT / "tests" / "data" / "printed"
TRACES: Final = "tests/data"
RESULTS: Final = "bench/results"
FORMATS: Final = ("text", "github", "csv", "json")
# What is longer is kept up to there, with a digest.
_CHARACTERS: Final = 160  # of a line
_LINES: Final = 250  # of a text


def recordings() -> dict[str, Callable[[], str]]:
    """What is recorded: for each file of `PRINTED`, how its text is made."""
    found = {name: lambda args=args: run(args) for name, args in commands().items()}
    return {**found, **dict(reports()), "wrong": wrong, "help": help_texts}


# ---- commands --------------------------------------------------------------------------------------------------------


def commands() -> dict[str, list[str]]:
    """The arguments of each command that prints what it reads from a file, by a name that begins with its verb."""
    eager, compiled = f"{TRACES}/h200_eager.json.gz", f"{TRACES}/h200_compile.json.gz"
    ran = f"{RESULTS}/h200-profile.json"
    kernels = (ROOT / TRACES / "kernel_names.tsv").read_text(encoding="utf-8").splitlines()
    names = [line.split("\t")[0] for line in kernels]
    traces = sorted(path.name.removesuffix(".json.gz") for path in (ROOT / TRACES).glob("*.json.gz"))
    two = (f"{RESULTS}/h200-article.json", f"{RESULTS}/h200-choose-article/inference-8192.json")
    forecast = ["choose", "article", "--device", "NVIDIA H100 PCIe", "--out", f"{RESULTS}/h200-choose-article"]
    return {
        **{f"read-{name}-text": ["read", f"{TRACES}/{name}.json.gz"] for name in traces},
        **_in_formats("read-h200_compile", ["read", compiled]),
        "read-two": ["read", eager, f"{TRACES}/cpu_eager.json.gz", "--call", "mlpfusion.call"],
        **{f"diff-{name}-text": ["diff", eager, f"{TRACES}/{name}.json.gz"] for name in traces if "h200" in name},
        **_in_formats("diff-h200_compile", ["diff", eager, compiled]),
        "diff-rows": ["diff", f"{ran}:eager", f"{ran}:fused"],
        "diff-cpu": ["diff", f"{TRACES}/cpu_eager.json.gz", f"{TRACES}/cpu_compile.json.gz"],
        "explain": ["explain", *names[::8]],
        **_in_formats("explain-some", ["explain", *names[::40]]),
        **_in_formats("table", ["table", ran]),
        "table-full": ["table", ran, "--full"],
        "table-columns": ["table", ran, "--columns", "event_us,graph_us,round_trips,peak_bytes"],
        "table-training": ["table", f"{RESULTS}/h200-article-training.json", "--full"],
        "table-one-token": ["table", f"{RESULTS}/h200-choose-gemma-2b/inference-1.json"],
        "table-traffic": ["table", f"{RESULTS}/h200-article.json", "--full"],
        "table-plan": ["table", f"{RESULTS}/h200-choose-gemma-2b/plan.json"],
        "table-bench": ["table", f"{RESULTS}/h200-act-mul.json"],
        **{f"predict-{fmt}": ["predict", ran, "--format", fmt] for fmt in FORMATS[:2]},
        "predict-card": ["predict", ran, "--card", "NVIDIA H100 PCIe"],
        **_in_formats("choose-forecast", forecast),
        **{f"compare-{fmt}": ["compare", *two, "--format", fmt] for fmt in ("text", "github", "json")},
        "compare-rows": ["compare", f"{ran}:triton", f"{ran}:fused", "--full"],
        "compare-proofs": [
            "compare",
            *(f"{RESULTS}/h200-prove-gemma-2b-{name}.json:{name}" for name in ("fused", "triton")),
        ],
    }


def _in_formats(name: str, args: list[str]) -> dict[str, list[str]]:
    return {f"{name}-{fmt}": [*args, "--format", fmt] for fmt in FORMATS}


# Each is refused in one line of ours. What the parser of arguments refuses in words of its own is not here.
WRONG: Final = (
    ["nonsense"],
    ["raed", "x"],
    ["read", "nowhere.json"],
    ["read", f"{TRACES}/h200_eager.json.gz", "--call", "nowhere"],
    ["read", f"{TRACES}/h200_eager.json.gz", "--format", "pdf"],
    ["read", f"{TRACES}/h200_eager.json.gz", "--max-bytes", "1"],
    ["read", f"{RESULTS}/h200-profile.json"],
    ["table", "nowhere.json"],
    ["table", "README.md"],
    ["table", f"{TRACES}/h200_eager.json.gz"],
    ["table", f"{RESULTS}/h200-choose-article/choice.json", "--full"],
    ["table", "docs"],
    ["table", f"{RESULTS}/h200-profile.json", "--columns", "nonsense"],
    ["compare", f"{RESULTS}/h200-profile.json", f"{RESULTS}/h200-profile.json"],
    ["compare", f"{RESULTS}/h200-profile.json", f"{RESULTS}/h200-article-training.json"],
    ["compare", f"{RESULTS}/h200-profile.json", f"{RESULTS}/h200-choose-article/plan.json"],
    ["compare", f"{RESULTS}/h200-profile.json", f"{RESULTS}/h200-article.json", "--control", "nothing"],
    ["compare", "--self", f"{RESULTS}/h200-profile.json"],
    ["diff", f"{RESULTS}/h200-profile.json", f"{RESULTS}/h200-profile.json:eager"],
    ["diff", f"{RESULTS}/h200-profile.json:eager", f"{RESULTS}/h200-profile.json:none"],
    ["diff", f"{TRACES}/h200_eager.json.gz", "nowhere.json"],
    ["predict", "nowhere.json"],
    ["predict", f"{RESULTS}/h200-article.json"],
    ["predict", f"{RESULTS}/h200-article.json", "--card", "NVIDIA 1"],
    ["profile", "--batch", "0"],
    ["profile", "--hidden-size", "768x"],
    ["profile", "--dtype", "int8"],
    ["profile", "--activation", "tanh"],
    ["profile", "--mode", "both"],
    ["profile", "--rounds", "10000000"],
    ["profile", "--backends", "eager,,triton"],
    ["profile", "--colour"],
    ["choose", "nowhere"],
    ["choose", "article", "--tokens", "0"],
    ["choose", "article", "--mode", "both"],
    ["prove", "nowhere", "--backend", "eager"],
    ["tune", "--hidden-size", "0"],
    ["validate", "nowhere.py:f"],
    ["validate", "eager", "--only", "nonsense"],
    ["trace", "nowhere.py:f"],
    ["open", "nowhere.json"],
)


def wrong() -> str:
    """What each of `WRONG` says."""
    return "\n".join(run(args) for args in WRONG)


def run(args: list[str]) -> str:
    """A command with its exit code, its stdout and its stderr, as it runs in the root of the project."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)]
    with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]), _at(ROOT):
        code = cli.main(args)
    out, err = (stream.buffer.getvalue().decode() for stream in streams)  # type: ignore[attr-defined]
    said = f"stderr: {err}" if err else ""
    return f"$ {shlex.join(['mlpfusion', *args])}\nexit code: {code}\n{said}{out}"


@contextlib.contextmanager
def _at(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


# ---- reports of what was measured ------------------------------------------------------------------------------------


def reports() -> Iterator[tuple[str, Callable[[], str]]]:
    """What `choose` and `prove` printed once they had measured what is recorded."""
    chosen = ROOT / RESULTS / "h200-choose-gemma-2b" / "choice.json"
    proven = ROOT / RESULTS / "h200-prove-gemma-2b-fused-training.json"
    for fmt in FORMATS:
        yield f"choose-{fmt}", lambda fmt=fmt: choice_report.render(results.load_choice(chosen), fmt)
    for fmt in FORMATS:
        yield (
            f"prove-{fmt}",
            lambda fmt=fmt: proof_report.render(results.load_any(proven), fmt),
        )


# ---- help ------------------------------------------------------------------------------------------------------------


def help_texts() -> str:
    """The help of each verb as the sources have it: its layout is the parser's, and changes with its version."""
    root: Any = typer.main.get_command(cli.app)
    blocks = [f"mlpfusion: {root.help}"]
    for name, command in root.commands.items():
        lines = [f"mlpfusion {name}", command.help]
        for option in command.params:
            if not getattr(option, "hidden", False):
                default = f"[{option.default}]" if isinstance(option.default, str) else None
                said = [*option.opts, *option.secondary_opts, option.metavar, option.help, default]
                lines.append("  " + "  ".join(filter(None, said)))
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


# ---- the files -------------------------------------------------------------------------------------------------------


def compact(text: str) -> str:
    """A text without the ends of long lines and of a long text, which digests stand for: no byte changes unseen."""
    lines = text.splitlines(keepends=True)
    rest = "".join(lines[_LINES:])
    end = f"… {len(lines) - _LINES} more lines, sha256 {_digest(rest)}\n" if rest else ""
    return "".join(map(_cut, lines[:_LINES])) + end


def _cut(line: str) -> str:
    if len(line) <= _CHARACTERS:
        return line
    return f"{line[:_CHARACTERS].rstrip()}… {len(line)} characters, sha256 {_digest(line)}\n"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def main() -> int:
    """Write all files anew; one that is recorded no more goes."""
    PRINTED.mkdir(exist_ok=True)
    made = recordings()
    for path in PRINTED.glob("*.txt"):
        if path.stem not in made:
            path.unlink()
    for name, text in made.items():
        (PRINTED / f"{name}.txt").write_text(compact(text()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
