"""What a logger says. It stands for pytest's `caplog`, whose plugin is off: it takes longer than most tests do."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Keeping(logging.Handler):
    def __init__(self, messages: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._messages = messages

    def emit(self, record: logging.LogRecord) -> None:
        self._messages.append(record.getMessage())


@contextlib.contextmanager
def warnings_of(logger: logging.Logger) -> Iterator[list[str]]:
    """The warnings of this logger, as they come within."""
    messages: list[str] = []
    handler = _Keeping(messages)
    logger.addHandler(handler)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)
