"""Processes that tests fork of one that has imported PyTorch are as those that Python is started in."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

import pytest
from support import forked

if TYPE_CHECKING:
    from pathlib import Path

SAYS = """
import os, sys
print(sys.argv, __name__, sys.path[0], os.getcwd(), os.environ.get("MARK"), sys.stdin.read())
print("err", file=sys.stderr)
sys.exit({code})
"""


@pytest.mark.parametrize("code", ["0", "3", "'said last'", "None", "os.kill(os.getpid(), 11)"])
@pytest.mark.parametrize("how", ["-c", "-m", "a file"])
def test_it_is_as_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, code: str) -> None:
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "another")
    text = SAYS.format(code=code)
    (tmp_path / "said.py").write_text(text)
    arguments = {"-c": ["-c", text], "-m": ["-m", "said"], "a file": [str(tmp_path / "said.py")]}[how]
    command = [sys.executable, *arguments, "one", "two"]
    mine = forked.run(command, cwd=tmp_path)
    theirs = subprocess.run(
        command, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert (mine.returncode, mine.stdout, mine.stderr) == (theirs.returncode, theirs.stdout, theirs.stderr)


def test_it_has_pytorch_and_shares_no_random_numbers() -> None:
    code = "import sys; print('torch' in sys.modules); import random; print(random.random())"
    (is_there, one), (_, other) = (forked.run([sys.executable, "-c", code]).stdout.split() for _ in range(2))
    assert is_there == "True"
    assert one != other


def test_what_it_raises_is_told_and_check_raises() -> None:
    command = [sys.executable, "-c", "raise ValueError('a b')"]
    assert forked.run(command).stderr.splitlines()[-1] == "ValueError: a b"
    with pytest.raises(subprocess.CalledProcessError):
        forked.run(command, check=True)


def test_it_has_the_environment_and_the_descriptors_it_is_given(tmp_path: Path) -> None:
    read, write = os.pipe()
    name = "MLPFUSION_SCRATCH"  # for others a server would be started
    code = f"import os, sys; os.write(int(sys.argv[1]), os.environb[b'{name}']); print(os.getsid(0))"
    with (tmp_path / "log").open("wb") as log:
        command = [sys.executable, "-c", code, str(write)]
        environment = {**os.environ, name: "here"}
        one = forked.Popen(command, stdout=log, stderr=log, env=environment, pass_fds=[write], start_new_session=True)
    os.close(write)
    assert one.wait() == 0
    assert (tmp_path / "log").read_text() == f"{one.pid}\n"
    assert os.read(read, 9) == b"here"
    os.close(read)


def test_it_customises_itself_by_the_folders_of_its_own_pythonpath(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import neighbour\n")
    (tmp_path / "neighbour.py").write_text("print('came')\n")
    command = [sys.executable, "-c", "import neighbour, sys; print(sys.path.index(sys.argv[1]))", str(tmp_path)]
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    assert forked.run(command, env={**os.environ, "PYTHONPATH": path}).stdout == "came\n1\n"
    assert forked.run([sys.executable, "-c", "import neighbour"]).returncode == 1


def test_one_that_hangs_can_be_waited_for_and_ended(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        one = forked.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdout=log, stderr=log)
    assert one.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        one.wait(0.01)
    assert forked.run([sys.executable, "-c", "print(1)"]).stdout == "1\n"  # while another runs
    os.kill(one.pid, signal.SIGTERM)
    assert one.wait() == -signal.SIGTERM


def test_another_who_asks_has_the_same_server_and_takes_only_its_own_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    says = [sys.executable, "-c", "import os; print(os.getppid())"]
    server = forked.run(says).stdout
    with monkeypatch.context() as another:
        another.setattr(forked, "_SERVERS", {})
        assert forked.run(says).stdout == server
        with tempfile.TemporaryFile() as log:
            left = forked.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdout=log, stderr=log)
        (connection,) = forked._SERVERS.values()
        connection.close()
        assert left.wait() == -signal.SIGKILL
    assert forked.run(says).stdout == server


def test_its_pipes_are_its_streams_until_it_is_killed() -> None:
    code = "import sys\nfor line in sys.stdin: print(line.upper(), end='', flush=True)"
    with tempfile.TemporaryFile() as log:
        one = forked.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
    assert one.stdin is not None
    assert one.stdout is not None
    with one.stdin, one.stdout:
        for line in (b"a\n", b"b\n"):
            one.stdin.write(line)
            assert one.stdout.readline() == line.upper()
        one.kill()
        assert one.wait() == -signal.SIGKILL
        assert one.stdout.read() == b""
