"""A headless Chromium for tests of the page: where there is none they skip, or fail if MLPFUSION_BROWSER_TESTS is 1."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace
from support import profiles_made as made
from support.checks_made import self_test
from support.paths import RESULTS
from support.reported import hostile, many, source

from mlpfusion.report.page import page
from mlpfusion.report.page.sources import gather
from mlpfusion.spec import MLPSpec, Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

# MLPFUSION_BROWSER names another one.
NAMES = ("chromium-headless-shell", "chromium", "google-chrome", "chromium-browser")
LOAD_S = 120  # until all figures are drawn, on a machine that others load


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    path = os.environ.get("MLPFUSION_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        path, lacking = None, "playwright, of the extra `browser`"
    else:
        lacking = f"a browser, one of {', '.join(NAMES)}"
    if path is None:
        missing = pytest.fail if os.environ.get("MLPFUSION_BROWSER_TESTS") == "1" else pytest.skip
        missing(f"needs {lacking}")
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=path)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages on disk: of a choice's folder, of names that try to be markup, of few rows, of a proof."""
    folder = tmp_path_factory.mktemp("pages")
    sources_of = {
        "choice": gather([str(RESULTS / "h200-choose-gemma-2b")]),
        "hostile": (source(hostile()),),
        "small": (source(made.profile()), source(self_test(), "self.json")),
        "modes": tuple(
            source(replace(each, workload=replace(each.workload, seq=seq, mode=mode)), f"{mode}-{seq}.json")
            for each in many(1)
            for seq in (16, 256)
            for mode in ("inference", "training")
        ),
        "panels": tuple(
            source(made.profile(*rows, workload=Workload(spec=spec, batch=1, seq=seq)), f"{seq}.json")
            for rows in [(made.timed("eager", 100.0, 101.0), made.timed("fast", 80.0, 81.0))]
            for spec, counts in (
                (MLPSpec(hidden_size=768, intermediate_size=3072), (16, 64)),
                (MLPSpec(hidden_size=512, intermediate_size=2048), (256, 1024)),
            )
            for seq in counts
        ),
        "proof": gather([str(RESULTS / "h200-prove-gemma-2b-fused.json"), str(RESULTS / "h200-groups.json")]),
    }
    for name, sources in sources_of.items():
        (folder / f"{name}.html").write_text(page.render(sources, "0.1.0"), "utf-8")
    return {name: folder / f"{name}.html" for name in sources_of}


@pytest.fixture
def opened(browser: Any, pages: dict[str, Path]) -> Callable[..., AbstractContextManager[Any]]:
    """Opens a page from disk without a network, waits for its figures, and closes it; what goes wrong in it fails."""

    @contextmanager
    def open_(name: str, fragment: str = "", width: int = 1280, **options: Any) -> Iterator[Any]:
        context = browser.new_context(viewport={"width": width, "height": 900}, offline=True, **options)
        wrong: list[str] = []
        tab = context.new_page()
        tab.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.on("dialog", lambda dialog: (wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        address = pages[name].as_uri()
        tab.on(
            "request", lambda request: None if is_own(request.url, address) else wrong.append(f"request: {request.url}")
        )
        tab.goto(f"{address}{fragment}")
        if options.get("java_script_enabled", True) and tab.locator(".drawing").count():
            tab.wait_for_selector("body[data-drawn]", timeout=1000 * LOAD_S, state="attached")
        yield tab
        context.close()
        assert wrong == []

    return open_


def is_own(url: str, address: str) -> bool:
    """Whether a request is for the page itself, or for a file inside it that is saved."""
    return url.partition("#")[0] == address or url.startswith("blob:")
