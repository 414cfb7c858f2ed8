"""Mangled C++ names: spelled out as a demangler does, or given up."""

from __future__ import annotations

import time

import pytest
from support.mangled_names import MANGLED

from mlpfusion.trace.names.demangle import demangle


@pytest.mark.parametrize("name", MANGLED)
def test_demangles(name: str) -> None:
    assert demangle(name) == MANGLED[name]


@pytest.mark.parametrize(
    "name", ["_ZN" + "1aI" * 3000, "_ZN1aIFS_S_" + "FS0_S0_" * 3000, "_Z1aI" + "J" * 3000, "_ZN" + "T_" * 9000]
)
def test_a_hostile_mangled_name_is_given_up(name: str) -> None:
    begin = time.process_time()
    demangle(name)
    assert time.process_time() - begin < 10
