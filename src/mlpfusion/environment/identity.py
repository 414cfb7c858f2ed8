"""Tells whether two results are of one card, without telling which card that is.

The name that a card has for life (its UUID) is known to others: to the cloud that rents it out, to whoever administers
the machine, to everybody who used it. A plain digest of it could be compared with such a list, however long the digest.
So it is keyed (HMAC-SHA256) with a salt of 256 random bits, which nobody can guess and which never goes into a result.

The salt lies in the user's state folder, readable by the user alone, and is made once: two results of one user, from
one home, have digests that can be compared. The digest begins with one of the salt itself: two digests of different
salts say nothing of their cards, where two of one salt do. Whoever deletes the salt is no longer tied to older results.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from pathlib import Path
from typing import Final

from mlpfusion.errors import MeasurementError

_BYTES: Final = 32
_OF_SALT: Final = 8  # hex digits, enough to tell the salts of those whose results are put side by side
_OF_CARD: Final = 16


def digest(uuid: str) -> str:
    """`5f0c41aa-90b1d2e7c35f8a64`: of the salt, and of the card with that salt.

    Raises:
        MeasurementError: there is no salt and none can be made, or others can read it.
    """
    salt = _salt(folder() / "salt")
    of_salt = hashlib.sha256(b"mlpfusion salt" + salt).hexdigest()[:_OF_SALT]
    return f"{of_salt}-{hmac.new(salt, uuid.encode(), hashlib.sha256).hexdigest()[:_OF_CARD]}"


def is_same_card(a: str | None, b: str | None) -> bool | None:
    """Whether two digests are of one card; None where they cannot tell, since their salts differ or one is missing."""
    if a is None or b is None or a.partition("-")[0] != b.partition("-")[0]:
        return None
    return a == b


def folder() -> Path:
    """Where mlpfusion keeps what is no cache: by the XDG specification, which ignores a relative path."""
    given = os.environ.get("XDG_STATE_HOME", "")
    base = Path(given) if os.path.isabs(given) else Path(os.path.expanduser("~"), ".local", "state")
    return base / "mlpfusion"


def _salt(path: Path) -> bytes:
    try:
        if not path.exists():
            _make(path)
        mode, found = path.stat().st_mode, path.read_bytes()
    except OSError as error:
        raise MeasurementError(f"no salt can be kept: {error.strerror or error}") from None
    if stat.S_IMODE(mode) & 0o077:
        raise MeasurementError("others can read the salt")
    if len(found) != _BYTES:
        raise MeasurementError("the salt is damaged")
    return found


def _make(path: Path) -> None:
    """Write a new salt, whole, unless another run has meanwhile."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = path.with_name(f".{secrets.token_hex(8)}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(_BYTES))
        os.link(part, path)
    except FileExistsError:
        pass  # another run was first, and its salt is the one
    finally:
        part.unlink(missing_ok=True)
