"""Takes README's picture: the top of the page that `mlpfusion report` makes of two recorded results, in a Chromium.

python tools/picture.py
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from mlpfusion.report.page import page, sources

ROOT: Final = Path(__file__).parents[1]
PICTURE: Final = ROOT / "docs" / "figures" / "report.png"
RESULTS: Final = ("h200-article-1.json", "h200-article-2.json")
WIDTH: Final = 1000  # of the window, in pixels
_BROWSERS: Final = ("chromium-headless-shell", "chromium", "google-chrome", "chromium-browser")
_MOST_MS: Final = 120_000


def take(chromium: Any, path: Path) -> None:
    """Write the page from its top to the end of its first figure as a PNG."""
    found = sources.gather([str(ROOT / "bench" / "results" / name) for name in RESULTS])
    with tempfile.TemporaryDirectory() as folder:
        html = Path(folder, "report.html")
        html.write_text(page.render(found, "0.1.0"), "utf-8")
        tab = chromium.new_page(viewport={"width": WIDTH, "height": 2400}, color_scheme="light")
        tab.goto(html.as_uri(), timeout=_MOST_MS)
        tab.wait_for_selector("body[data-drawn]", timeout=_MOST_MS, state="attached")
        end = tab.locator(".figure figcaption").first.bounding_box()
        height = end["y"] + end["height"] + 12
        tab.screenshot(path=str(path), clip={"x": 0, "y": 0, "width": WIDTH, "height": height})
        tab.close()


if __name__ == "__main__":
    from playwright.sync_api import sync_playwright

    browser = os.environ.get("MLPFUSION_BROWSER") or next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        sys.exit(f"needs a browser, one of {', '.join(_BROWSERS)}")
    with sync_playwright() as driver:
        take(driver.chromium.launch(executable_path=browser), PICTURE)
