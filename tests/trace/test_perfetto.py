"""perfetto: serves one file to one client and ends, tells nobody else, and says in one line why it cannot."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from mlpfusion.errors import MlpfusionError, UsageError
from mlpfusion.trace import perfetto

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Serving:
    """`serve` in a thread of its own."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        self.served: Any = None
        self.fetched: bool | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(path, timeout_s), daemon=True)
        self._thread.start()
        assert self._ready.wait()

    def _run(self, path: Path, timeout_s: float) -> None:
        def ready(served: Any) -> None:
            self.served = served
            self._ready.set()

        self.fetched = perfetto.serve(path, timeout_s=timeout_s, ready=ready, port=0)

    def wait(self) -> bool | None:
        """What it says at its end."""
        self._thread.join()
        return self.fetched

    def ask(self, name: str, *, method: str = "GET", host: str | None = None) -> Any:
        url = f"http://127.0.0.1:{self.served.port}/{name}"
        request = urllib.request.Request(url, method=method, headers={"Host": host} if host else {})
        return urllib.request.urlopen(request)


@contextmanager
def serving(path: Path, timeout_s: float = 3600.0) -> Iterator[Serving]:
    yield Serving(path, timeout_s)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "my trace.json.gz"
    path.write_bytes(b"x" * 3_000_000)
    return path


def test_it_serves_the_file_once_to_the_ui_and_ends(trace: Path) -> None:
    with serving(trace) as server:
        port = server.served.port
        assert server.served.link == f"https://ui.perfetto.dev/#!/?url=http://127.0.0.1:{port}/my%20trace.json.gz"
        with server.ask("my%20trace.json.gz", method="HEAD") as answer:
            assert answer.headers["Content-Length"] == "3000000"
        assert server.fetched is None
        with server.ask("my%20trace.json.gz") as answer:
            assert answer.read() == trace.read_bytes()
            assert answer.headers["Access-Control-Allow-Origin"] == "https://ui.perfetto.dev"
        assert server.wait() is True


def test_nothing_else_is_served_and_no_refusal_is_the_one_fetch(trace: Path) -> None:
    (trace.parent.parent / "secret").write_text("secret")
    with serving(trace) as server:
        for name in ("", "other.json", "../secret", "my%20trace.json.gz/..", "%2e%2e/my%20trace.json.gz"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                server.ask(name)
        with pytest.raises(urllib.error.HTTPError, match="404"):  # a name of elsewhere that points here
            server.ask("my%20trace.json.gz", host="evil.example:9001")
        assert server.fetched is None
        with server.ask("my%20trace.json.gz") as answer:
            assert answer.read() == trace.read_bytes()
        assert server.wait() is True


def test_what_a_browser_asks_first_is_answered(trace: Path) -> None:
    with serving(trace) as server:
        with server.ask("my%20trace.json.gz", method="OPTIONS") as answer:
            assert answer.status == 204
            assert answer.headers["Access-Control-Allow-Origin"] == "https://ui.perfetto.dev"
            assert answer.headers["Access-Control-Allow-Private-Network"] == "true"
        with server.ask("my%20trace.json.gz") as answer:  # it was no fetch: the file is still served
            assert answer.read() == trace.read_bytes()
        assert server.wait() is True


def test_a_connection_that_says_nothing_stops_nobody(trace: Path) -> None:
    with serving(trace) as server, socket.create_connection(("127.0.0.1", server.served.port)):
        with server.ask("my%20trace.json.gz") as answer:
            answer.read()
        assert server.wait() is True


def test_a_client_that_goes_away_is_no_fetch(trace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    trace.write_bytes(b"x" * 50_000_000)
    with serving(trace) as server:
        with socket.create_connection(("127.0.0.1", server.served.port)) as client:
            head = f"GET /my%20trace.json.gz HTTP/1.0\r\nHost: 127.0.0.1:{server.served.port}\r\n\r\n"
            client.sendall(head.encode())
            client.recv(1000)
        with server.ask("my%20trace.json.gz") as answer:
            assert answer.read() == trace.read_bytes()
        assert server.wait() is True
    assert capfd.readouterr() == ("", "")


def test_what_cannot_be_served(tmp_path: Path, trace: Path) -> None:
    for path in (tmp_path / "nowhere.json", tmp_path, "a\0b"):
        with pytest.raises(UsageError, match="trace "):
            perfetto.serve(path, timeout_s=1, ready=print)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(MlpfusionError, match=f"cannot serve on 127.0.0.1:{port}: Address already in use"):
            perfetto.serve(trace, timeout_s=1, ready=print, port=port)


@pytest.fixture
def _a_display(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISPLAY", ":0")
    for name in ("SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("_a_display")
def test_the_verb(trace: Path) -> None:
    command = [sys.executable, "-m", "mlpfusion", "open", str(trace), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        link = running.stdout.readline().strip()
        ui, _, url = link.partition("/#!/?url=")
        assert ui == "https://ui.perfetto.dev"
        with urllib.request.urlopen(url) as answer:
            assert answer.read() == trace.read_bytes()
        out, err = running.communicate()
        assert (running.returncode, out, err) == (0, "", "")


@pytest.mark.usefixtures("_a_display")
def test_the_verb_gives_up(trace: Path) -> None:
    command = [sys.executable, "-m", "mlpfusion", "open", str(trace), "--port", "0", "--timeout", "0.5"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == f"mlpfusion: no browser fetched {str(trace)!r} within 0.5 s\n"
