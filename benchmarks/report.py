"""Size of a large report, and how long a browser takes to open it and to move its threshold: 20 methods × 10 seeds,
11,316 classes."""

import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

from equimetric.evaluation.threshold_profile import ThresholdProfile
from equimetric.report import RunRecord, StudyRecord, write_report
from equimetric.runs.profile import RunProfile
from equimetric.studies.outcomes import ClassList
from equimetric.studies.profiles import MethodProfile

METHODS, SEEDS, CLASSES = 20, 10, 11_316
THRESHOLDS, IMAGES = 161, 5
MOVES = 40


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
    profiles = {
        f"method_{method}": MethodProfile(0, RunProfile(make_thresholds(generator))) for method in range(METHODS)
    }
    return StudyRecord("large", "A large made study", ("Made numbers.",), {}, tuple(runs), profiles=profiles)


def make_thresholds(generator: np.random.Generator) -> ThresholdProfile:
    """Accepted pairs of classes of five images whose distances scatter around class-specific levels."""
    thresholds = np.linspace(0.2, 1.4, THRESHOLDS)
    positive_levels, negative_levels = (generator.normal(mean, 0.08, (CLASSES, 1)) for mean in (0.6, 1.2))
    positives, negatives = IMAGES * (IMAGES - 1), IMAGES * IMAGES * (CLASSES - 1)
    class_positive, class_negative = (
        np.floor(pairs / (1 + np.exp((level - thresholds) / 0.05))).astype(np.int64)
        for pairs, level in ((positives, positive_levels), (negatives, negative_levels))
    )
    return ThresholdProfile(
        thresholds=thresholds,
        calibration=(30, 131),
        positive=class_positive.sum(0),
        negative=class_negative.sum(0),
        positives=positives * CLASSES,
        negatives=negatives * CLASSES,
        numbers=np.arange(CLASSES),
        class_positive=class_positive,
        class_negative=class_negative,
        class_positives=np.full(CLASSES, positives),
        class_negatives=np.full(CLASSES, negatives),
    )


def open_in_browser(page: Path) -> tuple[float, float]:
    """Seconds from the request to the first figure, and of the slowest move of the slider, in headless Chromium."""
    from playwright.sync_api import sync_playwright

    browser_path = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        window = browser.new_page()
        start = time.perf_counter()
        window.goto(page.as_uri())
        window.locator("#figure-intervals svg").wait_for()
        seconds = time.perf_counter() - start
        window.locator("#explorer-threshold").scroll_into_view_if_needed()
        slowest = window.evaluate(MOVE, MOVES)
        browser.close()
    return seconds, slowest / 1000


MOVE = """async (moves) => {
  const slider = document.getElementById("explorer-threshold");
  let slowest = 0;
  for (let k = 0; k < moves; k += 1) {
    slider.value = Number(slider.min) + ((Number(slider.max) - Number(slider.min)) * k) / moves;
    const start = performance.now();
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    // The second frame comes when the first has been drawn.
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    slowest = Math.max(slowest, performance.now() - start);
  }
  return slowest;
}"""


def main() -> None:
    study = make_study()
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        page = write_report(study, Path(folder))
        print(f"written in {time.perf_counter() - start:.1f} s, {page.stat().st_size / 1e6:.2f} MB (limit 8 MB)")
        opened, moved = zip(*(open_in_browser(page) for _ in range(5)), strict=True)
        print(f"opened in {sorted(opened)[2]:.2f} s, median of 5, first figure drawn (limit 3 s)")
        slowest = 1000 * sorted(moved)[2]
        print(f"slowest of {MOVES} moves of the slider {slowest:.0f} ms, median of 5, two frames (limit 100 ms)")


if __name__ == "__main__":
    main()
