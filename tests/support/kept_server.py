"""Workers forked from one fork server, itself a fork of one that has imported PyTorch, which a file's tests share."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

import pytest

from mlpfusion.workers import forking, supervise
from support import forked as forked_processes
from support.strange_workers import task_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mlpfusion.workers import tasks


class Forked(Protocol):
    """Runs a forked worker that does what `strange_workers.BODIES` has under this name."""

    def __call__(self, body: str, *, time_limit_s: float = ...) -> tasks.Answer: ...


@pytest.fixture(scope="module")
def server() -> Iterator[None]:
    with forked_processes.processes_of(forking), forking.kept():
        yield


@pytest.fixture
def forked(server: None, tmp_path: Path) -> Forked:
    def run(body: str, *, time_limit_s: float = 900) -> tasks.Answer:
        os.environ.pop("PYTEST_CURRENT_TEST", None)  # with which each test would get a server of its own
        return supervise.run(task_for(body, tmp_path), folder=tmp_path, name="task", time_limit_s=time_limit_s)

    return run


def serving() -> int:
    """The number of the server's process."""
    assert forking._KEPT.server is not None
    return forking._KEPT.server._process.pid
