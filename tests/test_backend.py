"""The registry: entry points, loose files, and plugins that are broken."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata

import pytest

from mlpfusion import backend
from mlpfusion.errors import BackendUnavailableError, UnknownBackendError, UsageError


def test_the_built_in_backends_are_registered_like_anybodys():
    assert backend.names()[: len(backend.built_in())] == backend.built_in()
    for name in backend.built_in():
        loaded = backend.load(name)
        assert loaded.name == name
        assert isinstance(loaded, backend.Backend)


def test_an_unknown_name_lists_the_known_ones():
    for call in (backend.load, backend.check_name):
        with pytest.raises(UnknownBackendError) as caught:
            call("egaer")
        assert "'egaer'" in str(caught.value)
        assert all(name in str(caught.value) for name in backend.built_in())


GOOD = """
class Mine:
    name = "mine"
    def unsupported(self, spec, device): return None
    def bind(self, mlp): return mlp.down_proj
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import no_such_module_anywhere", "ModuleNotFoundError: No module named 'no_such_module_anywhere'"),
        ("class Other: pass", "has no 'Mine'"),
        ("class Mine: pass", "it lacks name, unsupported, bind"),
        ("class Mine:\n    def __init__(self): raise RuntimeError('two\\nlines')", "RuntimeError: two"),
        ("class Mine(:", "SyntaxError"),
    ],
)
def test_a_broken_loose_file_says_what_is_wrong(tmp_path, text, reason):
    path = tmp_path / "mine.py"
    path.write_text(text)
    with pytest.raises(BackendUnavailableError) as caught:
        backend.load(f"{path}:Mine")
    assert reason in caught.value.reason
    assert "\n" not in str(caught.value)


def test_a_loose_file_is_loaded(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(GOOD)
    assert backend.load(f"{path}:Mine").name == "mine"
    with pytest.raises(UsageError, match="does not exist"):
        backend.load(f"{tmp_path / 'gone.py'}:Mine")


@pytest.fixture
def read_anew(monkeypatch):
    """What is registered is asked for each time: the tests that use this change it by no file."""
    monkeypatch.setattr(backend, "_read", backend._read.__wrapped__)


def test_what_is_registered_is_read_again_only_when_packages_changed(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    backend.names()
    monkeypatch.setattr(metadata, "entry_points", lambda **_: pytest.fail("read again"))
    assert "eager" in backend.names()
    monkeypatch.undo()
    monkeypatch.syspath_prepend(tmp_path)
    assert "later" not in backend.names()
    info = tmp_path / "later-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: later\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[{backend.GROUP}]\nlater = os:getpid\n")
    assert "later" in backend.names()
    assert not backend.is_built_in("later")
    info.rename(tmp_path / "gone")
    assert "later" not in backend.names()


@pytest.mark.usefixtures("read_anew")
def test_a_broken_plugin_is_unavailable_and_the_others_stay(monkeypatch):
    broken = metadata.EntryPoint("broken", "no_such_package_at_all:Thing", backend.GROUP)
    real = metadata.entry_points

    def entry_points(*, group, name=None):
        points = [*real(group=group), broken]
        return [point for point in points if name is None or point.name == name]

    monkeypatch.setattr(metadata, "entry_points", entry_points)
    assert backend.names() == [*backend.built_in(), "broken"]
    with pytest.raises(BackendUnavailableError, match="cannot be loaded: ModuleNotFoundError"):
        backend.load("broken")
    assert backend.load("eager").name == "eager"


@pytest.mark.usefixtures("read_anew")
def test_a_built_in_backend_needs_no_place_in_a_list(monkeypatch):
    """Whatever our own distribution registers is built in; one of others is not, and comes last whatever its name."""

    class Dist:
        def __init__(self, name):
            self.name = name

    added = [
        metadata.EntryPoint(name, "os:getpid", backend.GROUP)._for(Dist(owner))  # type: ignore[attr-defined]
        for name, owner in (("zoo", "mlpfusion"), ("also", "mlpfusion"), ("aaa", "stranger"))
    ]
    real = metadata.entry_points

    def entry_points(*, group, name=None):
        points = [*added, *real(group=group)]
        return [point for point in points if name is None or point.name == name]

    before, listed = set(backend.built_in()), [name for name in backend.ORDER if name in backend.built_in()]
    monkeypatch.setattr(metadata, "entry_points", entry_points)
    assert backend.built_in() == [*listed, *sorted({*before, "also", "zoo"} - set(listed))]
    assert backend.names() == [*backend.built_in(), "aaa"]
    assert [backend.is_built_in(name) for name in ("zoo", "also", "aaa", "nothing")] == [True, True, False, False]


@pytest.mark.usefixtures("read_anew")
def test_another_package_cannot_take_a_built_in_name(monkeypatch):
    class Dist:
        name = "stranger"

    fake = metadata.EntryPoint("eager", "os:getpid", backend.GROUP)._for(Dist())  # type: ignore[attr-defined]
    real = metadata.entry_points
    for order in (0, 1):

        def entry_points(*, group, name=None, order=order):
            points = list(real(group=group))
            points.insert(0 if order == 0 else len(points), fake)
            return [point for point in points if name is None or point.name == name]

        monkeypatch.setattr(metadata, "entry_points", entry_points)
        assert type(backend.load("eager")).__module__ == "mlpfusion.backends.eager"


def test_a_plugin_that_exits_is_unavailable(tmp_path):
    path = tmp_path / "quits.py"
    path.write_text("import sys; sys.exit('bye')")
    with pytest.raises(BackendUnavailableError, match="SystemExit: bye"):
        backend.load(f"{path}:Mine")


def in_the_c_locale(folder, name):
    code = "import sys; from mlpfusion import backend; backend.check_name(n := sys.argv[1]); backend._load_loose(n)"
    return subprocess.run(
        [sys.executable, "-c", code, name],
        env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_path_that_the_locale_cannot_write_is_refused_by_name_and_no_matter_around_it(tmp_path):
    folder = tmp_path / "ü"
    folder.mkdir()
    (folder / "mine.py").write_text("class Mine: pass\n")
    assert in_the_c_locale(folder, "./mine.py:Mine").stderr == ""
    refused = in_the_c_locale(tmp_path, "./ü/mine.py:Mine").stderr.splitlines()[-1]
    assert "is no text in this locale; valid: one of UTF-8, as by LC_ALL=C.UTF-8" in refused
    assert backend.check_name(f"{folder}/mine.py:Mine")


def test_a_loose_file_runs_once_for_each_state_of_it(tmp_path):
    path, log = tmp_path / "mine.py", tmp_path / "log"
    text = f"open({str(log)!r}, 'a').write('x')\n{GOOD}"
    path.write_text(text)
    first, again = backend.load(f"{path}:Mine"), backend.load(f"{path}:Mine")
    assert type(first) is type(again)
    assert log.read_text() == "x"
    other = tmp_path / "other" / "mine.py"
    other.parent.mkdir()
    other.write_text(GOOD.replace('"mine"', '"theirs"'))
    assert backend.load(f"{other}:Mine").name == "theirs"
    assert backend.load(f"{path}:Mine").name == "mine"
    path.write_text(text.replace('"mine"', '"edited"'))
    assert backend.load(f"{path}:Mine").name == "edited"


def test_why_a_call_was_not_captured_is_what_happened_inside_it():
    error = RuntimeError("failed due to a previous error")
    assert backend.not_captured(error) == "capturing a CUDA graph failed: failed due to a previous error"
    error.__context__ = RuntimeError("no synchronizing here\nand more")
    assert backend.not_captured(error) == "capturing a CUDA graph failed: no synchronizing here"
