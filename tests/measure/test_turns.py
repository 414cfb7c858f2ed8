"""Races of one host wait for each other where a study asks for it."""

from __future__ import annotations

import os

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
