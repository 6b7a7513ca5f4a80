"""Size of a large report, and how long a browser takes to open it: 20 methods × 10 seeds, 11,316 classes."""

import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

from equimetric.report import RunRecord, StudyRecord, write_report
from equimetric.studies.outcomes import ClassList

METHODS, SEEDS, CLASSES = 20, 10, 11_316


def make_study() -> StudyRecord:
    generator = np.random.default_rng(0)
    classes = ClassList(tuple(range(CLASSES)), tuple(f"chair {k:05d} final" for k in range(CLASSES)), (5,) * CLASSES)
    level = generator.uniform(0.2, 0.9, CLASSES)
    runs = []
    for method in range(METHODS):
        for seed in range(SEEDS):
            scores = (level + 0.01 * method + generator.normal(0, 0.1, CLASSES)).clip(0, 1)
            history = tuple({"kind": "validation", "step": 100 * k, "map@r": 0.5 + 0.004 * k} for k in range(1, 31))
            runs.append(
                RunRecord(
                    method=f"method_{method}",
                    kind="trained",
                    seed=seed,
                    status="done",
                    error=None,
                    metrics={"map@r": float(scores.mean())},
                    history=history,
                    seconds=60.0,
                    parameters=1_000_000,
                    per_class={"map@r": scores},
                    classes=classes,
                )
            )
    return StudyRecord("large", "A large made study", ("Made numbers.",), {}, tuple(runs))


def open_in_browser(page: Path) -> float:
    """Seconds from the request to the first figure, in headless Chromium."""
    from playwright.sync_api import sync_playwright

    browser_path = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        window = browser.new_page()
        start = time.perf_counter()
        window.goto(page.as_uri())
        window.locator("#figure-intervals svg").wait_for()
        seconds = time.perf_counter() - start
        browser.close()
    return seconds


def main() -> None:
    study = make_study()
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        page = write_report(study, Path(folder))
        print(f"written in {time.perf_counter() - start:.1f} s, {page.stat().st_size / 1e6:.2f} MB (limit 8 MB)")
        opened = sorted(open_in_browser(page) for _ in range(5))
        print(f"opened in {opened[2]:.2f} s, median of 5, first figure drawn (limit 3 s)")


if __name__ == "__main__":
    main()
