"""Races of one host wait for each other where a study asks for it."""

from __future__ import annotations

import os
import time

from mlpfusion.measure import turns


def is_free(path):
    """Whether another process would get its turn at once."""
    import fcntl

    other = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(other)
    return True


def test_a_turn_is_taken_and_given_back(tmp_path, monkeypatch):
    path = tmp_path / "lock"
    monkeypatch.setenv(turns.LOCK, str(path))
    with turns.taken():
        assert not is_free(path)
    assert is_free(path)


def test_a_profile_alone_waits_for_nobody(tmp_path, monkeypatch):
    monkeypatch.delenv(turns.LOCK, raising=False)
    monkeypatch.chdir(tmp_path)
    with turns.taken():
        assert list(tmp_path.iterdir()) == []


# ---- waits, which no time limit counts -------------------------------------------------------------------------------


def test_a_wait_counts_from_its_start_until_the_turn_comes(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setenv(turns.LOCK, str(tmp_path / "lock"))
    monkeypatch.setenv(turns.WAITS, str(tmp_path / "waits"))
    seen = []

    def locked(held, how):
        now[0] += 4.0
        seen.append(turns.waited(tmp_path / "waits"))
        now[0] += 3.0

    monkeypatch.setattr("fcntl.flock", locked)
    assert turns.waited() == 0
    for number in (1, 2):
        with turns.taken():
            assert turns.waited() == 7.0 * number
            now[0] += 50.0
        assert turns.waited() == 7.0 * number
    assert seen == [4.0, 11.0]


def test_a_wait_whose_process_died_is_over(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setenv(turns.WAITS, str(tmp_path / "waits"))
    turns.settle()
    assert turns.waited() == 0
    (tmp_path / "waits").write_text("90.0\n")
    assert turns.waited() == 10.0
    turns.settle()
    now[0] += 50.0
    assert turns.waited() == 10.0


def test_without_a_file_nobody_has_waited(monkeypatch):
    monkeypatch.delenv(turns.WAITS, raising=False)
    turns.settle()
    assert turns.waited() == 0
