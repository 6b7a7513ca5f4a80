"""A page open in a browser, with all that it complained about and asked the network for."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

NEEDS_CHROMIUM = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium on this machine: install the package chromium"
)


@contextmanager
def open_browser() -> Iterator[Any]:
    """Chromium under Playwright; two of them cannot run in one thread."""
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


class Window:
    """A page, with all that it complained about and asked the network for."""

    def __init__(self, browser, file: Path, **options):
        self.page = browser.new_page(**options)
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.complaints.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(file.as_uri())
        for figure in self.page.locator("figure.chart").all():
            if figure.is_visible():
                figure.scroll_into_view_if_needed()
                figure.locator(".canvas svg").first.wait_for(timeout=60_000)

    def column(self, place: int) -> list[str]:
        cells = self.page.locator(f"#leaderboard-table tbody.trained tr:visible > :nth-child({place})")
        return [text.strip() for text in cells.all_inner_texts()]
