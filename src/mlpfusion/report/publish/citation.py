"""Renders BibTeX entries of a version of mlpfusion and of a result file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from mlpfusion.device import Device
from mlpfusion.records.choice import Choice
from mlpfusion.records.profile import Profile
from mlpfusion.records.proof import Proof

if TYPE_CHECKING:
    from mlpfusion.spec import MLPSpec
    from mlpfusion.storage.results import Result

TITLE: Final = (
    "mlpfusion: many implementations of one gated MLP behind one interface, and the instruments to judge them"
)
AUTHORS: Final = "{The mlpfusion authors}"
_SPECIAL: Final = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "·": r"$\cdot$",
    "×": r"$\times$",
    "µ": r"$\mu$",
    **{each: f"\\{each}" for each in "#$%&_"},
}


def of_version(version: str) -> str:
    """The entry of the software; ends with a newline."""
    return _entry(
        "software",
        f"mlpfusion-{version}",
        {"author": AUTHORS, "title": f"{{{_escaped(TITLE)}}}", "version": _escaped(version), "license": "Apache-2.0"},
    )


def of_result(result: Result, name: str, digest: str) -> str:
    """The entry of a result file: what was measured where and when, and the SHA-256 of its bytes."""
    created = getattr(result, "created", None)
    date = created[:10] if isinstance(created, str) and re.match(r"\d{4}-\d\d-\d\d", created) else None
    fields = {
        "author": AUTHORS,
        "title": f"{{{_escaped(f'mlpfusion {result.kind}: {about(result)}')}}}",
        **({} if date is None else {"year": date[:4], "month": str(int(date[5:7])), "date": date}),
        "note": _escaped(f"result file {name}, SHA-256 {digest}"),
    }
    return _entry("misc", f"mlpfusion-{result.kind.replace(' ', '-')}-{digest[:12]}", fields)


def about(result: Result) -> str:
    """What a result is about, in one line: the MLP and the device where it says them."""
    if isinstance(result, Profile):
        work = result.workload
        return f"{_mlp(work.spec)}, {work.tokens} tokens, {work.mode}, on {result.device.name}"
    if isinstance(result, Choice):
        return f"{result.model.name}, {_mlp(result.spec)}, on {result.device.name}"
    device = getattr(result, "device", None)
    where = f"on {device.name}" if isinstance(device, Device) else "of this machine"
    return f"{result.backend} in {result.model}, {where}" if isinstance(result, Proof) else where


def _mlp(spec: MLPSpec) -> str:
    return f"{spec.activation} MLP {spec.hidden_size} × {spec.intermediate_size}, {spec.dtype}"


def _entry(kind: str, key: str, fields: dict[str, str]) -> str:
    width = max(map(len, fields))
    lines = [
        f"  {name:<{width}} = {value if value.startswith('{') else f'{{{value}}}'}," for name, value in fields.items()
    ]
    return "\n".join([f"@{kind}{{{key},", *lines, "}"]) + "\n"


def _escaped(text: str) -> str:
    """Text as BibTeX prints it: one line, no markup of its own."""
    return "".join(_SPECIAL.get(each, each) for each in " ".join(text.split()) if each.isprintable())
