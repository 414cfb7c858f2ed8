"""The verbs for what is published: an entry to cite, and what measures a result again."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Final

import typer

from mlpfusion.cli import streams
from mlpfusion.cli.text import OK, Text

_MOST_BYTES: Final = 2**30


def add_to(app: typer.Typer) -> None:
    """Give the command line these verbs."""
    app.command("cite")(_cite)
    app.command("reproduce")(_reproduce)


def _cite(
    result: Annotated[Text, typer.Argument(metavar="RESULT", help="A result file of any verb.")] = None,
) -> int:
    """Print BibTeX of the version and of a result.

    The entry of RESULT says what was measured where and when, and has the SHA-256 of the file.
    """
    from importlib.metadata import version

    from mlpfusion.report.publish import citation
    from mlpfusion.storage import results

    entries = [citation.of_version(version("mlpfusion-read"))]
    if result is not None:
        digest = _digest(result)
        entries.append(citation.of_result(results.load_any(result), Path(result).name, digest))
    streams.write_out("\n".join(entries))
    return OK


def _reproduce(
    result: Annotated[str, typer.Argument(metavar="RESULT", help="Result file of `mlpfusion profile`.")],
) -> int:
    """Print what measures a result again.

    Pinned versions, the flags, the `profile --like` that measures the same, and the `compare` that judges the rerun.
    """
    from mlpfusion.report.publish import reproduction
    from mlpfusion.storage import results

    digest = _digest(result)
    streams.write_out(reproduction.render(results.load(result), result, digest))
    return OK


def _digest(name: str) -> str:
    """The SHA-256 of a file's bytes as they are on disk."""
    from mlpfusion.errors import UsageError
    from mlpfusion.storage import files, inputs

    if inputs.is_stdin(name):
        raise UsageError("stdin has no file to be cited or measured again; name one")
    return hashlib.sha256(files.read_whole("result file", Path(name), _MOST_BYTES)).hexdigest()
