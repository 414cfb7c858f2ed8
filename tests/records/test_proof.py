"""A proof holds where nothing breaks its policy, and is JSON both ways."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from msgspec.structs import replace
from support.paths import RESULTS

from mlpfusion.records.proof import Proof

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("path", sorted(RESULTS.glob("h200-prove-*.json")), ids=lambda path: path.stem)
def test_a_recorded_proof(path: Path) -> None:
    found = msgspec.json.decode(path.read_bytes(), type=Proof)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Proof) == found
    assert replace(found, failures=()).holds
    assert not replace(found, failures=("an error",)).holds
