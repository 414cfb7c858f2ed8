"""Serves one trace on loopback until the Perfetto UI has fetched it."""

from __future__ import annotations

import getpass
import os
import shlex
import socket
import sys
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, unquote

from mlpfusion import limits
from mlpfusion.errors import MlpfusionError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

HOST: Final = "127.0.0.1"
PORT: Final = 9001  # the one port of loopback from which the UI's content security policy lets it fetch
UI: Final = "https://ui.perfetto.dev"
_CHUNK: Final = 1 << 20
_POLL_S: Final = 0.2
_IDLE_S: Final = 30.0  # for a client that connects and then says nothing


_BY_SSH: Final = ("SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY")
_DISPLAYS: Final = ("DISPLAY", "WAYLAND_DISPLAY")


def tunnel(port: int, environment: Mapping[str, str] | None = None) -> str | None:
    """The `ssh -L` command that brings a port of this machine to the user's, or None where a browser can run here.

    No browser can where the session came by SSH or, on Linux, there is no display.
    """
    given = os.environ if environment is None else environment
    by_ssh = any(given.get(name) for name in _BY_SSH)
    if not by_ssh and (sys.platform != "linux" or any(given.get(name) for name in _DISPLAYS)):
        return None
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a user number without a name, as in some containers
        user = "USER"
    return f"ssh -L {port}:{HOST}:{port} {shlex.quote(f'{user}@{socket.gethostname()}')}"


class Served(NamedTuple):
    """What is served: the file, its name in the link, and the port."""

    path: Path
    name: str
    port: int

    @property
    def link(self) -> str:
        """What to open in a browser."""
        return f"{UI}/#!/?url=http://{HOST}:{self.port}/{quote(self.name)}"


def serve(path: str | Path, *, timeout_s: float, ready: Callable[[Served], None], port: int = PORT) -> bool:
    """Serve the file until it was fetched once, or `timeout_s` have passed; whether it was fetched.

    `ready` gets the link once the server listens. Only this file is served, only to this machine, and only the
    Perfetto UI may read it from within a browser. Port 0 takes any that is free.

    Raises:
        UsageError: there is no such file.
        MlpfusionError: the port is taken.
    """
    limits.seconds("timeout_s", timeout_s)
    limits.whole("port", port, limits.PORT)
    file = Path(path)
    if (why := _unfit(file)) is not None:
        raise UsageError(f"trace {str(path)!r} {why}")
    try:
        server = _Server(file, port)
    except OSError as error:
        reason = error.strerror or error
        raise MlpfusionError(f"cannot serve on {HOST}:{port}: {reason}; end what uses that port") from error
    with server:
        ready(Served(file, file.name, server.server_port))
        deadline = time.monotonic() + timeout_s
        while not server.fetched and (left := deadline - time.monotonic()) > 0:
            server.timeout = min(_POLL_S, left)
            server.handle_request()
    return server.fetched


def _unfit(file: Path) -> str | None:
    """Why it cannot be served, or None."""
    try:
        if file.is_file():
            return None
        if file.is_dir():
            return "is a directory; name a file in it"
        return "is no regular file" if file.exists() else "does not exist"
    except ValueError:  # a name with a null byte
        return "does not exist"


class _Server(ThreadingHTTPServer):  # threads, since browsers also open connections that they do not use
    allow_reuse_address = True  # a connection of the run before may linger on the port
    daemon_threads = True

    def __init__(self, file: Path, port: int) -> None:
        self.file = file
        self.fetched = False
        super().__init__((HOST, port), _Handler)

    def server_bind(self) -> None:
        """Without the look-up of a host name that HTTPServer makes."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = HOST, self.server_address[1]

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing: a client that went away has not fetched the file, and may come again."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _IDLE_S
    sent = False

    def do_GET(self) -> None:
        """The file."""
        if self._found():
            with self.server.file.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    self.wfile.write(chunk)
            self.sent = True

    def finish(self) -> None:
        """The file counts as fetched once its last byte has left."""
        super().finish()
        if self.sent:
            self.server.fetched = True

    def do_HEAD(self) -> None:
        """The same headers as GET."""
        self._found()

    def do_OPTIONS(self) -> None:
        """What a browser asks before it lets a page of the public web fetch from loopback."""
        self.send_response(HTTPStatus.NO_CONTENT)
        self._allow()
        self.send_header("Access-Control-Allow-Methods", "GET, HEAD")
        self.send_header("Access-Control-Allow-Private-Network", "true")
        self.end_headers()

    def _found(self) -> bool:
        """Send the headers; return whether the request is for our file, by its name and from loopback."""
        asked = unquote(self.path.partition("?")[0])
        host = (self.headers.get("Host") or "").rpartition(":")[0]
        if asked != f"/{self.server.file.name}" or host not in (HOST, "localhost"):
            self.send_error(HTTPStatus.NOT_FOUND)
            return False
        self.send_response(HTTPStatus.OK)
        self._allow()
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(self.server.file.stat().st_size))
        self.end_headers()
        return True

    def _allow(self) -> None:
        self.send_header("Access-Control-Allow-Origin", UI)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the terminal is for the link."""
