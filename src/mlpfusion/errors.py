"""The exceptions that mlpfusion raises on purpose.

MlpfusionError
├── UsageError            a value the caller gave is wrong; the message names it and the valid ones (exit code 2)
│   └── UnknownBackendError    no such backend; the message lists those that exist
├── BackendUnavailableError    a backend cannot run here or refuses this module; carries the reason
├── NothingSwappedError    no module of a model was swapped; carries what was refused
├── UnsavedError           a result is there, and its file could not be written; carries the result
└── MeasurementError           a measurement ran but its result may not be reported

KeyboardInterrupt
└── StoppedError           Ctrl-C ended a run of which a part is finished; carries that part
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


class MlpfusionError(Exception):
    """Base of every error of this package; its text is one line that a user can act on."""


class UsageError(MlpfusionError, ValueError):
    """A value the caller gave is wrong. The message names the bad value and the valid ones."""


class UnknownBackendError(UsageError):
    """No backend has this name. The message lists the names that exist."""


class BackendUnavailableError(MlpfusionError):
    """A backend cannot run here, or refuses this module or input."""

    def __init__(self, backend: str, reason: str) -> None:
        super().__init__(f"backend {backend!r} is unavailable: {reason}")
        self.backend = backend
        self.reason = reason


class NothingSwappedError(MlpfusionError):
    """No module of a model was swapped. `refused` holds name, class and reason of each that looked like an MLP."""

    def __init__(self, message: str, refused: tuple[Any, ...]) -> None:
        super().__init__(message)
        self.refused = refused


class UnsavedError(MlpfusionError):
    """The file of a result could not be written. `result` is the record, which may have taken long."""

    def __init__(self, message: str, result: Any) -> None:
        super().__init__(message)
        self.result = result


class StoppedError(KeyboardInterrupt):
    """Ctrl-C ended a run. `result` is the record of what was finished; the text names what was not.

    Whoever handles an interrupt handles this one; whoever handles this package's errors does not.
    """

    def __init__(self, message: str, result: Any) -> None:
        super().__init__(message)
        self.result = result


class MeasurementError(MlpfusionError):
    """A measurement ran, but what it gave may not be reported as a result."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The three names of those known that are most like this one, for the message of an error."""
    return f"nearest: {', '.join(difflib.get_close_matches(name, list(known), 3, cutoff=0.0))}"


def first_line(error: BaseException) -> str:
    """The first line of an error's text that is not empty, for a one-line reason."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
