"""The content policy inside the page."""

from __future__ import annotations

import base64
import hashlib

from mlpfusion.report.page.policy import policy


def directives(text: str) -> dict[str, str]:
    return {name: rest for name, _, rest in (each.partition(" ") for each in text.split("; "))}


def test_only_what_is_inside_may_run() -> None:
    found = directives(policy(["one", "two"], ["three"]))
    digests = [f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'" for text in (b"one", b"two")]
    assert found["script-src"] == " ".join(digests)
    assert found["style-src"].count("sha256-") == 1
    assert found["default-src"] == found["base-uri"] == found["form-action"] == "'none'"
    assert not any("unsafe" in each or "http" in each for each in found.values())


def test_nothing_inside_means_nothing_runs() -> None:
    assert directives(policy([], []))["script-src"] == "'none'"
