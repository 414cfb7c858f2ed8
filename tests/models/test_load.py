"""Models that are built from a config, with weights or without."""

from __future__ import annotations

import pytest

from mlpfusion.errors import MlpfusionError
from mlpfusion.models import load

pytest.importorskip("transformers")


@pytest.mark.parametrize(
    ("version", "said"), [("4.57.6", "transformers 4.57.6 is installed, need"), (None, "not installed")]
)
def test_other_versions_of_transformers_are_refused(
    version: str | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load.metadata, "version", lambda name: version)
    if version is None:
        monkeypatch.setattr(load.util, "find_spec", lambda name: None)
    with pytest.raises(MlpfusionError, match=said):
        load.check_transformers()
