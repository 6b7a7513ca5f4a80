"""Figures of a calibration: the rates of its classes, and the distances of its pairs with the threshold."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from equimetric.calibration.rates import ErrorRates
from equimetric.escaping import name_text
from equimetric.evaluation.engine.arrays import Floats
from equimetric.evaluation.plots import INK, NEGATIVE, WORST, distance_figure, empty_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from equimetric.calibration.result import Calibration

__all__ = ["plot_class_rates", "plot_pair_distances"]

MAX_NAME_LENGTH = 32


def plot_pair_distances(calibration: "Calibration") -> "Figure":
    """Distances of positive and negative pairs, with the threshold and its interval; for cosine also their cosines."""
    counts, (low, high), fitted = calibration.histogram, calibration.interval, calibration.fitted
    figure = distance_figure(
        counts.edges,
        counts.positive,
        counts.negative,
        threshold=calibration.threshold,
        measure="distance" if calibration.cohort is None else "score",
    )
    axes = figure.axes[0]
    confidence = calibration.options["confidence"]
    axes.axvspan(low, high, color=INK, alpha=0.15, linewidth=0, label=f"its {confidence:.0%} interval")
    handles, labels = axes.get_legend_handles_labels()
    # Exact, where the histogram can only interpolate.
    labels[0] = f"positive pairs ({fitted.positives:,}): {fitted.frr:.2%} rejected"
    labels[1] = f"negative pairs ({fitted.negatives:,}): {fitted.far:.2%} accepted"
    axes.legend().remove()
    figure.legend(handles, labels, loc="outside lower center", ncol=2, fontsize="small", frameon=False)
    if calibration.options["geometry"] == "cosine" and calibration.cohort is None:
        cosines = axes.secondary_xaxis("top", functions=(_cosine, _distance))
        cosines.set_xlabel("cosine")
        cosines.set_xticks([x for x in np.linspace(-1, 1, 11) if _cosine(axes.get_xlim()[1]) <= x < 0.95])
    figure.suptitle(f"Threshold for {calibration.target}", fontsize="medium")
    return figure


def _cosine(distance: Any) -> Any:
    """1 − d²/2."""
    return 1 - np.square(distance) / 2


def _distance(cosine: Any) -> Any:
    """√(2 − 2 cos)."""
    return np.sqrt(np.maximum(2 - 2 * cosine, 0))


def plot_class_rates(calibration: "Calibration", *, most: int = 30) -> "Figure":
    """Held-out FAR and FRR of at most `most` classes, the worst first, those named in colour.

    A line leads from the lower bound of a rate to the rate itself: a class is named where all of it lies beyond the
    target rate. An arrow leads to a bound left of the axis.
    """
    displayed = calibration.worst(most)
    figure = empty_figure(8.4, 1.6 + 0.22 * len(displayed))
    far, frr = figure.subplots(1, 2, sharey=True)
    rates = list(displayed.values())
    target_rate, held_out = calibration.target_rate, calibration.held_out
    _draw_far(far, rates, target_rate.far if target_rate.far is not None else held_out.far, target_rate.far is not None)
    _draw_frr(frr, rates, target_rate.frr if target_rate.frr is not None else held_out.frr, target_rate.frr is not None)
    far.set_yticks(range(len(displayed)), [_short(str(name)) for name in displayed], fontsize="small")
    for label, class_rates in zip(far.get_yticklabels(), rates, strict=True):
        label.set_color(WORST if class_rates.violates else INK)
    far.set_ylim(len(displayed) - 0.4, -0.6)
    count = len(calibration.classes)
    subject = (
        f"the {len(displayed)} worst of {count} classes"
        if len(displayed) < count
        else f"{count} classes, the worst first"
    )
    num_above, num_named = len(calibration.exceedances), len(calibration.violations)
    confidence = f"with {calibration.options['confidence']:.0%} confidence"
    figure.suptitle(
        f"Held-out rates of {subject}\n{num_above or 'none'} above the target rate, {num_named or 'none'} {confidence}",
        fontsize="medium",
    )
    return figure


def _draw_far(axes: "Axes", rates: list[ErrorRates], line: float, target_rate: bool) -> None:
    from matplotlib.ticker import NullFormatter

    positive = [class_rates.far for class_rates in rates if class_rates.far > 0] + [line]
    left = 10 ** math.floor(math.log10(min(positive)) - 0.1)
    axes.set_xscale("log")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(left, min(1.0, max(10 * left, 2 * max(positive))))
    values, bounds = [class_rates.far for class_rates in rates], [class_rates.far_bound for class_rates in rates]
    _draw_rates(axes, rates, np.maximum(values, left), np.array(bounds), line, "FAR", target_rate)


def _draw_frr(axes: "Axes", rates: list[ErrorRates], line: float, target_rate: bool) -> None:
    values, bounds = [class_rates.frr for class_rates in rates], [class_rates.frr_bound for class_rates in rates]
    axes.set_xlim(0, min(1.0, 1.1 * max([line, *(value for value in values if not math.isnan(value))])) or 1.0)
    _draw_rates(axes, rates, np.array(values), np.array(bounds), line, "FRR", target_rate)


def _draw_rates(
    axes: "Axes",
    rates: list[ErrorRates],
    values: Floats,
    bounds: Floats,
    line: float,
    name: str,
    target_rate: bool,
) -> None:
    position = np.arange(len(rates))
    colours = np.array([WORST if class_rates.violates else NEGATIVE for class_rates in rates])
    left = axes.get_xlim()[0]
    axes.hlines(position, np.maximum(bounds, left), values, colors=colours.tolist(), linewidth=1.4, alpha=0.7)
    beyond = bounds < left
    axes.scatter(bounds[~beyond], position[~beyond], marker="|", s=36, c=colours[~beyond], linewidths=1.2)
    axes.scatter(values, position, s=18, c=colours, zorder=3)
    axes.scatter(np.full(beyond.sum(), left), position[beyond], marker="<", s=24, c=colours[beyond], clip_on=False)
    axes.axvline(line, color=INK, linestyle="--", linewidth=1.2)
    axes.set_title(f"dashed: {line:.3g}, {'the target rate' if target_rate else 'of all pairs'}", fontsize="small")
    axes.set_xlabel(f"{'false accept' if name == 'FAR' else 'false reject'} rate ({name}), with lower bound")
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)


def _short(name: str) -> str:
    text = name_text(name).replace("$", r"\$")
    return text if len(text) <= MAX_NAME_LENGTH else f"{text[: MAX_NAME_LENGTH - 1]}…"
