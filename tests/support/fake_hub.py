"""A Hugging Face Hub on this machine with a few kernel repositories, for tests of what `kernels` does online."""

from __future__ import annotations

import hashlib
import json
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@contextmanager
def serve(repositories: dict[str, Path]) -> Iterator[str]:
    """The address of a Hub that has these repositories ("owner/name" -> directory), each in version 1 only.

    The owner "stranger" is not trusted, and the repository name "stalled" never answers.
    """
    stop = threading.Event()

    class Handler(_Handler):
        files = repositories
        stopped = stop

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        stop.set()
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    files: dict[str, Path]
    stopped: threading.Event

    def do_GET(self) -> None:
        parts = self.path.partition("?")[0].strip("/").split("/")
        match parts:
            case ["api", "organizations", owner, "overview"]:
                trusted = owner != "stranger"
                self._json({"avatarUrl": "", "name": owner, "fullname": owner, "trustedKernelPublisher": trusted})
            case ["api", "kernels", owner, name, *rest] if (root := self._root(owner, name)) is not None:
                self._api(f"{owner}/{name}", root, rest)
            case ["kernels", owner, name, "resolve", _, *path] if (root := self._root(owner, name)) is not None:
                self._file(root.joinpath(*path))
            case _:
                self._missing("RepoNotFound")

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass  # the test's output is the client's

    def _root(self, owner: str, name: str) -> Path | None:
        if name == "stalled":
            self.stopped.wait()
        return self.files.get(f"{owner}/{name}")

    def _api(self, repo: str, root: Path, rest: list[str]) -> None:
        match rest:
            case ["refs"]:
                branches = [
                    {"name": name, "ref": f"refs/heads/{name}", "targetCommit": COMMIT} for name in ("main", "v1")
                ]
                self._json({"branches": branches, "converts": [], "tags": []})
            case ["tree", _, *path]:
                start = root.joinpath(*path)
                found = start.rglob("*") if "recursive=true" in self.path.lower() else start.iterdir()
                self._json([_entry(root, entry) for entry in sorted(found)])
            case ["revision", _]:
                names = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]
                self._json({"id": repo, "sha": COMMIT, "siblings": [{"rfilename": name} for name in names]})
            case _:
                self._missing("EntryNotFound")

    def _file(self, path: Path) -> None:
        if not path.is_file():
            self._missing("EntryNotFound")
            return
        content = path.read_bytes()
        etag = hashlib.sha256(content).hexdigest()
        self._answer(200, content, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT})

    def _json(self, value: object) -> None:
        self._answer(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _missing(self, code: str) -> None:
        self._answer(404, b"", {"X-Error-Code": code})

    def _answer(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        with suppress(ConnectionError):  # the client of a stalled request is gone
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else content)


def _entry(root: Path, path: Path) -> dict[str, object]:
    entry: dict[str, object] = {"path": path.relative_to(root).as_posix(), "oid": COMMIT}
    return {**entry, "type": "directory"} if path.is_dir() else {**entry, "type": "file", "size": path.stat().st_size}
