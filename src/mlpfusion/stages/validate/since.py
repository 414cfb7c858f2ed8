"""What changed since an earlier validation: faults that are new or mended, and what the verdicts were reached with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mlpfusion.errors import UsageError
from mlpfusion.records.validation import Changed, Since, Validation
from mlpfusion.spec import parse_activation
from mlpfusion.storage import private, results
from mlpfusion.storage.redacted import redacted

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from mlpfusion.records.validation import Checked, Verdict

_VERSIONS: Final = ("python", "torch", "triton", "liger_kernel", "kernels", "cuda", "driver")


def earlier(path: str | os.PathLike[str], targets: Sequence[str], activation: str | None) -> Validation:
    """The validation in a file, of these targets and perhaps others. `activation` is None where it is to be found.

    Raises:
        UsageError: the file holds something else, or no verdict on one of the targets, or one by another activation.
    """
    found = results.load_any(path)
    if not isinstance(found, Validation):
        raise UsageError(f"--since needs a file of `validate --json`; {str(path)!r} is a {found.kind}")
    found = redacted(found)
    for target in private.last_parts(targets).values():
        own = [each for each in found.verdicts if each.target == target or each.target.startswith(f"{target}:")]
        if not own:
            known = ", ".join(each.target for each in found.verdicts) or "none"
            raise UsageError(f"--since {str(path)!r} has no verdict on {target!r}; it has: {known}")
        for verdict in own if activation is not None else ():
            if verdict.activation != parse_activation(activation or ""):
                raise UsageError(f"--since {str(path)!r} judged {target} as {verdict.activation}, not as {activation}")
    return found


def since(then: Validation, now: Validation) -> Since:
    """What changed between two validations, of the targets that both have judged as the same function."""
    then, now = redacted(then), redacted(now)  # the file names no folders, and one of earlier versions may
    before = {(each.target, each.activation): each for each in then.verdicts}
    keys = {(each.target, each.activation): each for each in now.verdicts}
    changed = tuple(_changed(before[key], verdict) for key, verdict in keys.items() if key in before)
    return Since(created=then.created, targets=changed, made_with=tuple(_made_with(then, now)))


def _changed(then: Verdict, now: Verdict) -> Changed:
    old, new = _faults(then), _faults(now)
    judged = {(each.name, each.dtype) for each in now.checks if each.status != "not decidable here"}
    gone = {key: check for key, check in old.items() if key not in new}
    return Changed(
        target=now.target,
        words=(then.word, now.word),
        new=tuple(check for key, check in new.items() if key not in old),
        mended=tuple(check for key, check in gone.items() if key in judged),
        not_judged=tuple(check for key, check in gone.items() if key not in judged),
    )


def _faults(verdict: Verdict) -> dict[tuple[str, str | None], Checked]:
    return {(each.name, each.dtype): each for each in verdict.checks if each.status == "fail" or each.hazard}


def _made_with(then: Validation, now: Validation) -> Iterator[str]:
    yield from _differs("device", then.device.name, now.device.name)
    yield from _differs("mlpfusion", then.mlpfusion, now.mlpfusion)
    for name in _VERSIONS:
        yield from _differs(name, getattr(then.environment, name), getattr(now.environment, name))
    if not then.bounds:
        yield "the bounds of then are not recorded"
        return
    for name in dict.fromkeys((*then.bounds, *now.bounds)):
        yield from _differs(f"the bound {name}", then.bounds.get(name), now.bounds.get(name))


def _differs(name: str, then: object, now: object) -> Iterator[str]:
    if then != now:
        yield f"{name} was {'none' if then is None else then}, is {'none' if now is None else now}"
