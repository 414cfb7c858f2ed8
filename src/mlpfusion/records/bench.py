"""Records of files that scripts of `bench/` write: what is in them is shown as it is there."""

from __future__ import annotations

from typing import Any, Final

from mlpfusion.records.base import Record
from mlpfusion.records.profile import Profile

SCHEMA: Final = 1
# Each is what one script measures: its `kind`.
KINDS: Final = (
    "act-mul",
    "article",
    "backward-forms",
    "comparison-simulation",
    "decode",
    "false-alarms",
    "fused",
    "grid",
    "groups",
    "host-time",
    "planted",
    "plugin",
    "prediction errors",
    "reading",
    "sanitized",
    "tiles",
    "training-step",
    "two-cards",
    "validation-set",
    "version-range",
)


class Bench(Record, frozen=True, kw_only=True):
    """A file of one script, with all that is in it but its head."""

    schema: int
    kind: str
    content: dict[str, Any]


class Profiles(Record, frozen=True, kw_only=True):
    """Several profiles in one file, by name: what `bench/traffic.py` measures."""

    schema: int
    kind: str
    profiles: dict[str, Profile]
