"""The verdicts and proofs among the files: the word, why, and the command that runs each check again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from mlpfusion.errors import UsageError
from mlpfusion.records.bench import Bench
from mlpfusion.records.proof import Proof
from mlpfusion.records.validation import SelfTest, Validation, Verdict
from mlpfusion.report import proof, self_test, validation
from mlpfusion.report.page.cells import Head, Table, line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mlpfusion.report.page.sources import Source

_SET: Final = "validation-set"  # of `bench/validate.py`: every control and what it was judged


class Judged(NamedTuple):
    """One thing that was judged: its name and word, why, a table of checks, and the whole text where there is more."""

    name: str
    word: str
    why: str
    table: Table | None
    text: str


def verdicts(sources: Sequence[Source]) -> tuple[Judged, ...]:
    """Every verdict, proof and self-test among the files."""
    return tuple(each for source in sources for each in _of(source))


def _of(source: Source) -> Iterator[Judged]:
    found = source.result
    if isinstance(found, Validation):
        for number, verdict in enumerate(found.verdicts):
            yield _of_target(verdict, f"{source.digest[:8]}-{number}")
    elif isinstance(found, Bench) and found.kind == _SET:
        for number, verdict in enumerate(_of_set(found, source.name)):
            yield _of_target(verdict, f"{source.digest[:8]}-{number}")
    elif isinstance(found, Proof):
        word = "holds" if found.holds else "fails"
        why = "; ".join(found.failures) or found.policy
        yield Judged(f"{found.backend} in {found.model}, {found.mode}", word, why, None, proof.render(found))
    elif isinstance(found, SelfTest):
        word = "passed" if found.passed else "failed"
        wrong = [f"{one.control.name}: {one.wrong}" for one in found.judged if one.wrong is not None]
        why = "; ".join(wrong) or f"{len(found.judged)} controls"
        yield Judged(f"self-test ({source.name})", word, why, None, self_test.render(found))


def _of_set(found: Bench, name: str) -> Iterator[Verdict]:
    """The verdicts in a file of `bench/validate.py`."""
    try:
        judged = msgspec.convert(found.content["judged"], dict[str, dict[str, Any]])
        for each in judged.values():
            if each.get("verdict") is not None:
                yield msgspec.convert(each["verdict"], Verdict)
    except (KeyError, msgspec.ValidationError) as error:
        raise UsageError(f"{name!r} is a damaged {found.kind}: {error}") from None


def is_judged(source: Source) -> bool:
    """Whether a file holds verdicts or a proof."""
    found = source.result
    return isinstance(found, Proof | Validation | SelfTest) or (isinstance(found, Bench) and found.kind == _SET)


def _of_target(verdict: Verdict, key: str) -> Judged:
    heads = (Head("check"), Head("dtype"), Head("status"), Head("what was found", words=True), Head("again"))
    lines = [
        line(check.name, check.dtype or "all", "hazard" if check.hazard else check.status, check.sentence, check.repro)
        for check in verdict.checks
    ]
    table = Table(f"checks-{key}", f"Checks of {verdict.target}", heads, tuple(lines))
    text = validation.page(verdict) if verdict.peers else ""
    return Judged(f"{verdict.target} ({verdict.activation})", verdict.word, verdict.headline, table, text)
