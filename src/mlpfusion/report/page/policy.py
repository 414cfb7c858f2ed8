"""The page's content policy: what is inside it may run by its digest, and nothing else may be run or fetched."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def policy(scripts: Iterable[str], styles: Iterable[str]) -> str:
    """The value of `Content-Security-Policy` for these inline scripts and style sheets."""
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {' '.join(map(_digest, scripts)) or _NONE}",
            f"style-src {' '.join(map(_digest, styles)) or _NONE}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


_NONE = "'none'"


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
