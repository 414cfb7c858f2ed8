"""Fills are one work, whatever the profiler knew of the memory; all else is compared by its whole name."""

from __future__ import annotations

import pytest

from mlpfusion.trace.names.same import compared


@pytest.mark.parametrize("place", ["Device", "Unknown", "Pinned", "Managed", ""])
def test_fills_are_compared_without_their_place(place: str) -> None:
    assert compared(f"Memset ({place})") == "Memset"


@pytest.mark.parametrize(
    "name",
    [
        "Memcpy DtoD (Device -> Device)",
        "Memcpy HtoD (Pinned -> Device)",
        "Memset",
        "my Memset (Device)",
        "Memset (a) b",
        "",
    ],
)
def test_all_else_is_compared_by_its_name(name: str) -> None:
    assert compared(name) == name
