"""The digest of a card: equal for one user, another for each user, and the salt stays where it is."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest
from support.fake_nvml import UUID

from mlpfusion.environment import identity
from mlpfusion.errors import MeasurementError

OTHER = UUID.replace("1", "9")


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "mlpfusion"


def test_one_user_has_one_digest_per_card(home: Path) -> None:
    found = identity.digest(UUID)
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{16}", found)
    assert identity.digest(UUID) == found
    assert identity.is_same_card(found, identity.digest(UUID)) is True
    assert identity.is_same_card(found, identity.digest(OTHER)) is False
    assert os.listdir(home) == ["salt"]


def test_another_user_cannot_tell(monkeypatch: pytest.MonkeyPatch, home: Path, tmp_path: Path) -> None:
    mine = identity.digest(UUID)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    theirs = identity.digest(UUID)
    assert mine.partition("-")[0] != theirs.partition("-")[0]
    assert identity.is_same_card(mine, theirs) is None
    assert identity.is_same_card(mine, None) is None


def test_the_salt_is_the_users_alone_and_in_no_digest(home: Path) -> None:
    found = identity.digest(UUID)
    salt = (home / "salt").read_bytes()
    assert len(salt) == 32
    assert stat.S_IMODE((home / "salt").stat().st_mode) == 0o600
    assert not any(part in salt.hex() for part in found.split("-"))
    (home / "salt").unlink()
    assert identity.is_same_card(found, identity.digest(UUID)) is None


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_salt_that_others_can_read_is_none(home: Path, mode: int) -> None:
    identity.digest(UUID)
    (home / "salt").chmod(mode)
    with pytest.raises(MeasurementError, match="others can read the salt"):
        identity.digest(UUID)


@pytest.mark.parametrize("salt", [b"", b"short", bytes(33)])
def test_a_damaged_salt_is_none(home: Path, salt: bytes) -> None:
    identity.digest(UUID)
    (home / "salt").write_bytes(salt)
    with pytest.raises(MeasurementError, match="the salt is damaged"):
        identity.digest(UUID)


def test_where_no_salt_can_be_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(MeasurementError, match="no salt can be kept: "):
        identity.digest(UUID)


def test_the_first_of_two_runs_makes_the_salt(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    first = identity.digest(UUID)
    monkeypatch.setattr(Path, "exists", lambda self: False)  # what the second saw a moment earlier
    assert identity.digest(UUID) == first
    assert os.listdir(home) == ["salt"]


def test_a_relative_folder_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert identity.folder() == tmp_path / ".local" / "state" / "mlpfusion"
