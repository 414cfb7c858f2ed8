"""A run that is killed while it writes leaves the old file or the new one, whole."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from mlpfusion.storage import files

if TYPE_CHECKING:
    from pathlib import Path

SIZE = 2**20


@pytest.mark.parametrize("wait_s", [0.0, 0.002, 0.005, 0.01, 0.02])
def test_the_old_file_or_the_new_one(tmp_path: Path, wait_s: float) -> None:
    path = tmp_path / "result.json"
    files.write_whole("result file", path, b"0" * SIZE)
    worker = os.fork()
    if worker == 0:  # writes the next generation over and over until it is killed
        with contextlib.suppress(BaseException):
            for number in range(1, 10_000):
                files.write_whole("result file", path, b"%d" % (number % 10) * SIZE)
        os._exit(0)
    try:
        time.sleep(wait_s)
    finally:
        os.kill(worker, signal.SIGKILL)
        os.waitpid(worker, 0)
    data = path.read_bytes()
    assert len(data) == SIZE
    assert len(set(data)) == 1
