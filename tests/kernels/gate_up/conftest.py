"""For the tests of compiled kernels: one process that compiles them, for all files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support import gate_up_compiled, no_card

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def compiler() -> Iterator[no_card.Compiler]:
    with no_card.Compiler(gate_up_compiled.__file__) as running:
        yield running
