"""What a validation says while it runs: which check of which target begins, and what was found."""

from __future__ import annotations

from typing import NamedTuple


class Step(NamedTuple):
    """Number `number` of the `of` parts of one target, `what`, begins (`found` is None) or is over."""

    target: str
    what: str
    number: int
    of: int
    found: str | None = None

    @property
    def line(self) -> str:
        """It in words."""
        said = f"{self.target}: {self.what} ({self.number} of {self.of})"
        return said if self.found is None else f"{said}: {self.found}"


def silent(step: Step) -> None:
    """Says nothing."""
