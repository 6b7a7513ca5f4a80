"""A figure of what a cohort changes: false accept rates and utility of the classes, plain beside normalised."""

from typing import TYPE_CHECKING

import numpy as np

from equimetric.evaluation.cohort_effect import CohortEffect, ScoreThreshold
from equimetric.evaluation.plots import BAND, INK, MAX_SINGLE_CURVES, NEGATIVE, WORST, empty_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_cohort"]


def plot_cohort(effect: CohortEffect) -> "Figure":
    """Above the FAR of every class at the common threshold, below the utility of the classes over the thresholds.

    Left without a cohort, right with it; both rows have one vertical axis. Scores differ, so their axes do.
    """
    figure = empty_figure(9.6, 6.8)
    grid = figure.subplots(2, 2, sharey="row")
    titles = {"plain cosine": effect.plain, "normalised by the cohort": effect.normalized}
    for column, (title, threshold) in enumerate(titles.items()):
        rates, curves = grid[0, column], grid[1, column]
        _draw_rates(rates, threshold, effect.target_far)
        rates.set_title(f"{title}: TAR {threshold.tar:.1%} at FAR {effect.target_far:g}", fontsize="medium")
        _draw_curves(curves, threshold)
        for axes in (rates, curves):
            axes.grid(alpha=0.3)
            axes.set_axisbelow(True)
    grid[0, 0].set_ylabel("false accept rate of a class")
    grid[1, 0].set_ylabel("utility of a class")
    grid[1, 1].legend(fontsize="small", loc="lower left")
    return figure


def _draw_rates(axes: "Axes", threshold: ScoreThreshold, target_far: float) -> None:
    """The FAR of the classes, ascending."""
    rates = np.sort(threshold.class_far[~np.isnan(threshold.class_far)])
    axes.bar(np.arange(1, len(rates) + 1), rates, width=1.0, color=NEGATIVE, alpha=0.6, linewidth=0)
    axes.axhline(target_far, color=WORST, linestyle="--", linewidth=1.2)
    # Above its left end, where the rates of the classes are lowest.
    axes.annotate(
        f"target FAR {target_far:g}",
        (0.02, target_far),
        (0, 3),
        ("axes fraction", "data"),
        "offset points",
        fontsize="small",
    )
    axes.set_xlim(0.5, len(rates) + 0.5)
    axes.set_ylim(bottom=0)
    axes.set_xlabel(f"classes by their rate, score above {threshold.score:.3f} accepted")


def _draw_curves(axes: "Axes", threshold: ScoreThreshold) -> None:
    """Utility against the score that a pair needs, over the range of OPIS."""
    consistency = threshold.consistency
    score, utility = -consistency.thresholds, consistency.utility
    if len(utility) <= MAX_SINGLE_CURVES:
        single = axes.plot(score, utility.T, color=INK, alpha=0.12, linewidth=0.6)
        single[0].set_label("single classes")
    low, high = np.quantile(utility, BAND, axis=0)
    axes.fill_between(score, low, high, color=NEGATIVE, alpha=0.25, linewidth=0, label="middle 80 % of the classes")
    axes.plot(score, utility.mean(axis=0), color=NEGATIVE, linewidth=2, label="mean")
    axes.set_xlim(score.min(), score.max())
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlabel(f"threshold of the score, OPIS {consistency.opis:.4f}")
