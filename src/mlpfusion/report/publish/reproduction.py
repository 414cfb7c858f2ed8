"""Renders what measures a profile again: pinned versions, flags, the command, and the comparison that judges it."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Final

from mlpfusion.report.publish.citation import about

if TYPE_CHECKING:
    from mlpfusion.records.profile import Profile

# A version that pip can install: numbers, and what a release may end in (PEP 440); the part after + names a build.
_VERSION: Final = re.compile(r"(\d+(?:\.\d+)*(?:(?:a|b|rc)\d+)?(?:\.post\d+)?(?:\.dev\d+)?)(\+[\w.]+)?")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_FLAG: Final = re.compile(r"[A-Z_][A-Z0-9_]*")
_OWN: Final = ("mlpfusion", "mlpfusion-read")


def render(profile: Profile, name: str, digest: str, rerun: str = "rerun.json") -> str:
    """A shell script for the profile in the file `name`, whose bytes have the SHA-256 `digest`; ends with a newline."""
    where = profile.environment
    lines = [
        f"# {about(profile)}; recorded {profile.created}",
        f"# result file {name}, SHA-256 {digest}",
        "# 1. The versions",
        *_checkout(profile),
        *_packages(profile),
        "# 2. The same measurement" + _of_the_machine(profile),
        shlex.join(["mlpfusion", "profile", "--like", name, "--json", rerun]),
        "# 3. The judgement",
        shlex.join(["mlpfusion", "compare", name, rerun]),
    ]
    flags = {key: value for key, value in sorted(where.flags.items()) if _FLAG.fullmatch(key)}
    if flags:
        lines.insert(3, " ".join(["export", *(f"{key}={shlex.quote(_line(value))}" for key, value in flags.items())]))
    return "\n".join(_line(line) if line.startswith("#") else line for line in lines) + "\n"


def _checkout(profile: Profile) -> list[str]:
    found = profile.environment.checkout
    if found is None:
        return [f"# mlpfusion {profile.mlpfusion}; the file does not say of which commit"]
    dirty = "" if found.clean else "  # with changes that are in no commit"
    return [f"git checkout {shlex.quote(found.commit)}{dirty}"]


def _packages(profile: Profile) -> list[str]:
    """pip's line, and a comment for what pip cannot install by its version."""
    where = profile.environment
    asked = {"torch": where.torch, "triton": where.triton, **where.distributions}
    pins, notes = [], []
    for name, version in sorted(asked.items()):
        if version is None or name in _OWN:
            continue
        found = _VERSION.fullmatch(version) if _NAME.fullmatch(name) else None
        if found is None:
            notes.append(f"# {name}: {version}")
            continue
        pins.append(f"{name}=={found[1]}")
        if found[2]:
            notes.append(f"# {name} was the build {version}")
    return ["python -m pip install " + " ".join(shlex.quote(pin) for pin in pins), *notes]


def _of_the_machine(profile: Profile) -> str:
    where, card = profile.environment, profile.environment.card
    said = [profile.device.name]
    if where.driver is not None:
        said.append(f"driver {where.driver}")
    if where.sm_clock_mhz is not None:
        said.append(f"SM clock {where.sm_clock_mhz} MHz")
    if card is not None and card.power_limit_w is not None:
        said.append(f"power limit {card.power_limit_w:g} W")
    if card is not None and card.locked_clocks is not None:
        said.append("locked clocks" if card.locked_clocks else "clocks not locked")
    return ", on " + ", ".join(said)


def _line(text: str) -> str:
    """Text of a file as one line that prints."""
    return "".join(each for each in " ".join(text.split()) if each.isprintable())
