"""The picture of the home page and the README: `python -m website.home_picture docs/images/home.png`.

The same fourteen methods, tuned alike, on two data sets: difference to contrastive loss with its interval and verdict.
"""

import csv
import sys
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from website.our_results import RESULTS

STUDIES = {
    "frozen-reality-check": "photographs of groceries, frozen features",
    "glyphs-reality-check": "printed characters, from scratch",
}
COLOURS = {"better": "#00897b", "worse": "#e65100", "undecided": "#78909c"}


def read_rows(study: str) -> dict[str, dict[str, str]]:
    """Rows of trained methods by name."""
    with (RESULTS / study / "tables" / "table.csv").open(encoding="utf-8", newline="") as file:
        return {row["method"]: row for row in csv.DictReader(file) if row["kind"] == "trained" and row["verdict"]}


def draw(file: Path) -> None:
    """Both studies side by side, methods in the order of the first."""
    tables = {study: read_rows(study) for study in STUDIES}
    first, second = tables.values()
    names = sorted((name for name in first if name in second), key=lambda name: float(first[name]["difference"]))
    figure = Figure(figsize=(9.6, 4.2), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, 2, sharey=True)
    for panel, (study, title) in zip(panels, STUDIES.items(), strict=True):
        draw_panel(panel, [tables[study][name] for name in names], title)
    for verdict, colour in COLOURS.items():
        panels[0].plot([], [], "o-", color=colour, label=verdict)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, title="than contrastive")
    figure.savefig(file, dpi=130)


def draw_panel(panel: Axes, rows: list[dict[str, str]], title: str) -> None:
    """Differences in points of MAP@R with their intervals."""
    panel.axvline(0, color="#37474f", linewidth=1)
    for place, row in enumerate(rows):
        low, middle, high = (100 * float(row[name]) for name in ("difference_low", "difference", "difference_high"))
        panel.plot([low, high], [place, place], color=COLOURS[row["verdict"]], linewidth=2.5)
        panel.plot(middle, place, "o", color=COLOURS[row["verdict"]], markersize=7)
    panel.set_yticks(range(len(rows)), [row["method"] for row in rows])
    panel.set_title(title, fontsize=11)
    panel.set_xlabel("points of MAP@R against contrastive loss")
    panel.grid(axis="x", alpha=0.3)
    for side in ("top", "right", "left"):
        panel.spines[side].set_visible(False)


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
