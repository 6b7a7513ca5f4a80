"""Screenshots of the demo's report, for the README: docs/images/report-*.png.

make demo
.venv/bin/python -m website.report_pictures runs/demo/report/index.html
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

__all__ = ["take_pictures"]

IMAGES = Path(__file__).parents[1] / "docs" / "images"
WIDTH = 1180
PICTURES = {
    "leaderboard": ("#answer", 1120),
    "explorer": ("#explorer", 1060),
    "gallery": ("#compare h3:has-text('Queries that changed')", 760),
}
"""Name → the element at the top of the picture, and the picture's height in pixels."""


def take_pictures(page: Page, folder: Path) -> list[Path]:
    """A picture of each part, with the figures that it shows."""
    files = []
    for name, (selector, height) in PICTURES.items():
        page.set_viewport_size({"width": WIDTH, "height": height})
        page.locator(selector).first.evaluate(
            "one => window.scrollTo(0, scrollY + one.getBoundingClientRect().top - 24)"
        )
        for figure in page.locator("figure.chart").all():
            box = figure.bounding_box()
            if box is not None and box["y"] + box["height"] > 0 and box["y"] < height:
                figure.locator(".canvas svg").first.wait_for()
        files.append(folder / f"report-{name}.png")
        page.screenshot(path=files[-1])
    return files


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("give the page: python -m website.report_pictures runs/demo/report/index.html")
    browser_path = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(Path(sys.argv[1]).resolve().as_uri())
        for file in take_pictures(page, IMAGES):
            print(file)
        browser.close()


if __name__ == "__main__":
    main()
