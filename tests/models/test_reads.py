"""What is noted of a forward: what it reads, and of containers a copy."""

from __future__ import annotations

from typing import Any

from mlpfusion.models.reads import frozen


def test_a_frozen_container_changes_with_nothing() -> None:
    value: dict[str, Any] = {"a": [1, 2], "b": {3}}
    kept = frozen(value)
    value["a"].append(4)
    assert kept == {"a": [1, 2], "b": {3}}
