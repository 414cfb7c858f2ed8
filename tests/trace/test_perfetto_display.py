"""A trace on a machine without a display: the tunnel through which it is opened."""

from __future__ import annotations

import shlex
import socket
from typing import Any

import pytest

from mlpfusion.cli import main
from mlpfusion.trace import perfetto

NOWHERE: dict[str, str] = {}


@pytest.mark.parametrize(
    "environment",
    [
        NOWHERE,
        {"DISPLAY": ""},
        {"SSH_CONNECTION": "10.0.0.2 50000 10.0.0.1 22"},
        {"SSH_CLIENT": "10.0.0.2 50000 22"},
        {"SSH_TTY": "/dev/pts/0", "DISPLAY": "localhost:10.0"},
    ],
)
@pytest.mark.parametrize("port", [9001, 40123])
def test_without_a_display_there_is_a_tunnel(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], port: int
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("getpass.getuser", lambda: "somebody")
    command = perfetto.tunnel(port, environment)
    assert command is not None
    assert shlex.split(command) == ["ssh", "-L", f"{port}:127.0.0.1:{port}", f"somebody@{socket.gethostname()}"]


@pytest.mark.parametrize("environment", [{"DISPLAY": ":0"}, {"WAYLAND_DISPLAY": "wayland-0"}])
def test_with_a_display_there_is_none(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    assert perfetto.tunnel(9001, environment) is None
    monkeypatch.setattr("sys.platform", "darwin")
    assert perfetto.tunnel(9001, NOWHERE) is None


def test_a_user_without_a_name_is_a_placeholder(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 1234")

    monkeypatch.setattr("getpass.getuser", nobody)
    assert "USER@" in (perfetto.tunnel(9001, {"SSH_TTY": "x"}) or "")


def test_open_prints_the_tunnel_with_the_port_that_it_serves(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    monkeypatch.setenv("SSH_TTY", "/dev/pts/0")
    (tmp_path / "t.json").write_text("{}")
    assert main.main(["open", str(tmp_path / "t.json"), "--port", "0", "--timeout", "0.1"]) == 1
    out, err = capsys.readouterr()
    port = out.split("127.0.0.1:")[1].split("/")[0]
    assert f"ssh -L {port}:127.0.0.1:{port} " in err
    assert port != "0"
