"""The picture of the home page, and of the README: `python -m website.home_picture docs/images/home.png`.

The same fourteen methods, tuned alike, on two data sets: difference to contrastive loss with its interval and verdict.
The home page has it as SVG in the colours of the reader's theme, one panel below the other on a phone.
"""

import csv
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from website.our_results import RESULTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STUDIES = {
    "frozen-reality-check": "photographs of groceries, frozen features",
    "glyphs-reality-check": "printed characters, from scratch",
}
COLOURS = {"better": "#00897b", "worse": "#e65100", "practically equal": "#3949ab", "undecided": "#78909c"}


def read_rows(study: str) -> dict[str, dict[str, str]]:
    """Rows of trained methods by name."""
    with (RESULTS / study / "tables" / "table.csv").open(encoding="utf-8", newline="") as file:
        return {row["method"]: row for row in csv.DictReader(file) if row["kind"] == "trained" and row["verdict"]}


SPAN = (-14.0, 18.0)
"""Points of MAP@R that the panels of the home page show."""


def home_figure() -> str:
    """Both studies as SVG, methods in the order of the first."""
    tables, names = tables_and_names()
    panels = "".join(svg_panel([tables[study][name] for name in names], STUDIES[study]) for study in STUDIES)
    legend = "".join(f'<span class="key {verdict}">{verdict}</span>' for verdict in COLOURS)
    return f'<div class="panels">{panels}</div>\n<p class="legend">{legend} compared with contrastive loss</p>'


def svg_panel(rows: list[dict[str, str]], title: str) -> str:
    """Differences in points of MAP@R with their intervals."""
    left, right, top, step = 128, 452, 8, 22
    bottom = top + step * len(rows)

    def x(points: float) -> float:
        return round(left + (points - SPAN[0]) / (SPAN[1] - SPAN[0]) * (right - left), 1)

    drawn = [f'<path class="axis" d="M{x(0)} {top}V{bottom}M{left} {bottom}H{right}"/>']
    for place, row in enumerate(reversed(rows)):
        y = top + step // 2 + step * place
        low, middle, high = (100 * float(row[name]) for name in ("difference_low", "difference", "difference_high"))
        drawn.append(
            f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">{row["method"]}</text>'
            f'<path class="{row["verdict"]}" d="M{x(low)} {y}H{x(high)}"/>'
            f'<circle class="{row["verdict"]}" cx="{x(middle)}" cy="{y}" r="4"/>'
        )
    drawn += [
        f'<text x="{x(points)}" y="{bottom + 16}" text-anchor="middle">{signed(points)}</text>'
        for points in (-10, -5, 0, 5, 10, 15)
    ]
    return (
        f'<figure class="curve verdicts panel"><figcaption>{title}</figcaption><svg viewBox="0 0 460 {bottom + 38}" '
        f'role="img" aria-label="Differences to contrastive loss: {title}">{"".join(drawn)}<text '
        f'x="{(left + right) // 2}" y="{bottom + 34}" text-anchor="middle">points of MAP@R</text></svg></figure>'
    )


def signed(points: int) -> str:
    """A number with its sign, as typeset."""
    return f"{points:+d}".replace("-", "−") if points else "0"


def tables_and_names() -> tuple[dict[str, dict[str, dict[str, str]]], list[str]]:
    """Rows of both studies by method, and the methods of both in the order of the first."""
    tables = {study: read_rows(study) for study in STUDIES}
    first, second = tables.values()
    names = [name for name in first if name in second]
    return tables, sorted(names, key=lambda name: float(first[name]["difference"]))


def draw(file: Path) -> None:
    """Both studies side by side, methods in the order of the first, as a picture for the README."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    tables, names = tables_and_names()
    figure = Figure(figsize=(9.6, 4.2), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, 2, sharey=True)
    for panel, (study, title) in zip(panels, STUDIES.items(), strict=True):
        draw_panel(panel, [tables[study][name] for name in names], title)
    for verdict, colour in COLOURS.items():
        panels[0].plot([], [], "o-", color=colour, label=verdict)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, title="than contrastive")
    figure.savefig(file, dpi=130)


def draw_panel(panel: "Axes", rows: list[dict[str, str]], title: str) -> None:
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
