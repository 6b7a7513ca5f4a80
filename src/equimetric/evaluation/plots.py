"""Figures of an evaluation: utility curves of classes, the ROC curve, and histograms of pair distances.

`plot_…` draws from an evaluation, `…_figure` from plain arrays. All return a new matplotlib figure: nothing is shown,
and the state of pyplot does not change.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np

from equimetric.errors import EquimetricError
from equimetric.escaping import name_text
from equimetric.evaluation.engine.arrays import Floats, Integers
from equimetric.evaluation.evidence import Detail
from equimetric.evaluation.families import Metric
from equimetric.evaluation.metrics.roc import Roc
from equimetric.evaluation.metrics.utility_curves import Consistency, Rate, check_rate_name, group_size
from equimetric.evaluation.metrics.verification import DistanceHistogram, EqualErrorThreshold
from equimetric.evaluation.result import Evaluation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "distance_figure",
    "empty_figure",
    "new_figure",
    "plot_distances",
    "plot_roc",
    "plot_utility",
    "roc_figure",
    "utility_figure",
]

Kind = TypeVar("Kind", bound=Detail)
Measure = Literal["distance", "score"]
POSITIVE, NEGATIVE, BEST, WORST, INK = "#1b7837", "#2166ac", "#009e73", "#d55e00", "#333333"
BAND = (0.1, 0.9)
MIDDLE_80 = 1.2816
"""Standard deviations on either side of the mean that hold 80 % of a normal distribution."""
MAX_NAMES, MAX_NAME_LENGTH = 3, 24
UTILITY_NAMES = {"opis": "utility of a class", "opis_far": "1 − FAR of a class", "opis_frr": "1 − FRR of a class"}
MAX_SINGLE_CURVES = 200
"""With more classes, single curves would only smear the band."""


def plot_utility(
    evaluation: Evaluation,
    *,
    rate: Rate = "both",
    share: float = 0.1,
    names: Mapping[int | str, int | str] | None = None,
) -> "Figure":
    """The utility curves behind `opis`, or of one rate alone behind `opis_far` and `opis_frr`.

    The given share of best and of worst classes stands apart, by name, and a band shows what sampling alone would give.
    `names` replaces labels. With a cohort, thresholds are of the score, as in a calibration.
    """
    name = check_rate_name(rate)
    details = (detail for group in evaluation.details.values() for detail in group)
    curves = next((detail for detail in details if isinstance(detail, Consistency) and detail.rate == rate), None)
    if curves is None:
        raise EquimetricError(f"this evaluation has no utility to plot; evaluate with {name!r} among the metrics")
    thresholds, utility, (low, high) = curves.thresholds, curves.utility, curves.calibration_range
    noise = None if curves.noise is None else (curves.noise.thresholds, curves.noise.by_threshold)
    if _has_scores(evaluation):
        thresholds, utility, low, high = -thresholds[::-1], utility[:, ::-1], -high, -low
        noise = None if noise is None else (-noise[0][::-1], noise[1][::-1])
    return utility_figure(
        thresholds,
        utility,
        share=share,
        calibration_range=(low, high),
        measure="score" if _has_scores(evaluation) else "distance",
        rate=rate,
        names=[(names or {}).get(label, label) for label in curves.members],
        noise=noise,
    )


def plot_roc(evaluation: Evaluation) -> "Figure":
    """The ROC curve behind `auc`, `eer` and `tar@far=…`, with the values of the last beside it."""
    curve = _find_detail(evaluation, Roc, "roc", "auc")
    marked = {Metric.parse(name)["far"]: tar for name, tar in evaluation.items() if name.startswith("tar@far=")}
    return roc_figure(curve.far, curve.tar, marked=marked)


def plot_distances(evaluation: Evaluation, *, threshold: float | None = None) -> "Figure":
    """The distances of positive and of negative pairs, with a threshold; default: that of `eer`, if evaluated.

    With a cohort they are scores, and so is the threshold.
    """
    counts = _find_detail(evaluation, DistanceHistogram, "distances", "auc")
    equal_error = evaluation.detail(EqualErrorThreshold)
    edges, positive, negative, scored = counts.edges, counts.positive, counts.negative, _has_scores(evaluation)
    at_equal_error = threshold is None and equal_error is not None
    if threshold is None and equal_error is not None:
        threshold = -equal_error.eer_threshold if scored else equal_error.eer_threshold
    if scored:
        edges, positive, negative = -edges[::-1], positive[::-1], negative[::-1]
    measure: Measure = "score" if scored else "distance"
    figure = distance_figure(edges, positive, negative, threshold=threshold, measure=measure)
    if at_equal_error:
        figure.axes[0].set_title("threshold of equal error rates (EER)", fontsize="medium")
    return figure


def utility_figure(
    threshold: Floats,
    utility: Floats,
    *,
    share: float = 0.1,
    calibration_range: tuple[float, float] | None = None,
    measure: Measure = "distance",
    rate: Rate = "both",
    names: Sequence[int | str] | None = None,
    noise: tuple[Floats, Floats] | None = None,
) -> "Figure":
    """Utility of T classes (T, G) at G thresholds: their mean, the middle 80 %, and the means of the best and worst.

    share              share of the classes, at least one, in the best and in the worst group
    calibration_range  the thresholds over which classes are ranked, marked in the figure; default: all
    measure            what the thresholds are of
    rate               what the utility is: of `both` rates, 1 − `far`, or 1 − `frr`
    names              (T,) of the classes: some of the best and worst are written above
    noise              thresholds (H,) and the variance of a utility by sampling alone (H,): the middle 80 % of classes
                       that do not differ
    """
    threshold, utility = np.asarray(threshold, dtype=np.float64), np.asarray(utility, dtype=np.float64)
    if utility.ndim != 2 or utility.shape[1:] != threshold.shape or not len(utility):
        raise EquimetricError(
            f"utility has shape {utility.shape} and threshold {threshold.shape}; give (classes, thresholds) and "
            "(thresholds,)"
        )
    if not 0 < share <= 1:
        raise EquimetricError(f"share is {share}; give the share of best and worst classes, such as 0.1")
    low, high = calibration_range or (threshold[0], threshold[-1])
    within = (threshold >= low) & (threshold <= high)
    if not within.any():
        raise EquimetricError(f"no threshold lies within the calibration range {low:g} … {high:g}; give a wider one")
    order = np.argsort(utility[:, within].mean(axis=1), kind="stable")
    group = group_size(share, len(utility))
    best, worst, mean = order[-group:][::-1], order[:group], utility.mean(axis=0)

    figure, axes = new_figure(f"{measure} threshold", UTILITY_NAMES[check_rate_name(rate)])
    if len(utility) <= MAX_SINGLE_CURVES:
        single = axes.plot(threshold, utility.T, color=INK, alpha=0.15, linewidth=0.7)
        single[0].set_label("single classes")
    band = np.quantile(utility, BAND, axis=0)
    axes.fill_between(threshold, *band, color=NEGATIVE, alpha=0.2, linewidth=0, label="middle 80 % of the classes")
    if noise is not None:
        spread = MIDDLE_80 * np.sqrt(np.maximum(np.interp(threshold, *noise), 0))
        ends = np.clip([mean - spread, mean + spread], 0, 1)
        axes.fill_between(threshold, *ends, facecolor="none", edgecolor=NEGATIVE, hatch="////", alpha=0.6, linewidth=0)
        axes.plot(threshold, ends.T, color=NEGATIVE, linewidth=0.8, linestyle=":")
        axes.plot([], [], color=NEGATIVE, linewidth=0.8, linestyle=":", label="middle 80 % by sampling alone")
    axes.plot(threshold, mean, color=NEGATIVE, linewidth=2, label=f"mean of {len(utility)} classes")
    members = "class" if group == 1 else f"{group} classes"
    axes.plot(threshold, utility[best].mean(axis=0), color=BEST, linestyle="--", label=f"best {members}")
    axes.plot(threshold, utility[worst].mean(axis=0), color=WORST, linestyle="-.", label=f"worst {members}")
    if names is not None:
        for line, (kind, indices, colour) in enumerate([("worst", worst, WORST), ("best", best, BEST)]):
            axes.annotate(
                f"{kind}: {_short_names(names, indices)}",
                (0, 1),
                xycoords="axes fraction",
                xytext=(0, 5 + 13 * line),
                textcoords="offset points",
                fontsize="small",
                color=colour,
            )
    if low <= threshold[0] and high >= threshold[-1]:
        axes.set_xlabel(f"{measure} threshold, over the calibration range")
    else:
        axes.axvspan(low, high, color=INK, alpha=0.07, linewidth=0, label=f"calibration range {low:.3g} … {high:.3g}")
    axes.set_xlim(threshold[0], threshold[-1])
    # False accept rates are small: over the whole axis their curves would be one line.
    axes.set_ylim(*((-0.02, 1.02) if rate != "far" else (float(utility.min()) - 0.005, 1.005)))
    axes.legend(fontsize="small")
    return figure


def _short_names(names: Sequence[int | str], indices: Integers) -> str:
    """The first few, each at most a few letters long; as text without markup."""
    displayed = [name_text(str(names[index])) for index in indices[:MAX_NAMES]]
    short = [name if len(name) <= MAX_NAME_LENGTH else f"{name[: MAX_NAME_LENGTH - 1]}…" for name in displayed]
    text = ", ".join(short) + (", …" if len(indices) > len(displayed) else "")
    return text.replace("$", r"\$")


def roc_figure(far: Floats, tar: Floats, *, marked: Mapping[float, float] | None = None) -> "Figure":
    """True against false accept rate, the latter on a logarithmic axis.

    marked  FAR → TAR of operating points to write beside the curve; those left of its start are not shown
    """
    far, tar = np.asarray(far, dtype=np.float64), np.asarray(tar, dtype=np.float64)
    if far.shape != tar.shape or far.ndim != 1:
        raise EquimetricError(f"far has shape {far.shape} and tar {tar.shape}; give two lists of the same length")
    order = np.lexsort((tar, far))
    far, tar = far[order], tar[order]
    if not (far > 0).any():
        raise EquimetricError("no threshold accepts a negative pair, so there is no ROC curve to draw")
    min_far = far[far > 0][0]

    figure, axes = new_figure("false accept rate (FAR)", "true accept rate (TAR)")
    axes.set_xscale("log")
    # The TAR without any false accept holds from the left edge on.
    left = min_far / 2
    at_zero = tar[far == 0][-1:]
    x, y = np.append(np.full(len(at_zero), left), far[far > 0]), np.append(at_zero, tar[far > 0])
    axes.plot(x, y, color=POSITIVE, linewidth=2, drawstyle="steps-post", label="this space")
    chance = np.geomspace(left, 1, 200)
    axes.plot(chance, chance, color=INK, linewidth=0.8, linestyle=":", label="chance")
    for rate, marked_tar in (marked or {}).items():
        if left <= rate <= 1:
            axes.plot(rate, marked_tar, "o", color=POSITIVE, markersize=5)
            axes.annotate(
                f"{marked_tar:.1%} at {rate:g}",
                (rate, marked_tar),
                xytext=(6, -12),
                textcoords="offset points",
                fontsize="small",
            )
    axes.set_xlim(left, 1)
    axes.set_ylim(-0.02, 1.02)
    axes.legend(fontsize="small", loc="lower right")
    return figure


def distance_figure(
    edges: Floats,
    positive: Floats,
    negative: Floats,
    *,
    threshold: float | None = None,
    measure: Measure = "distance",
) -> "Figure":
    """Histograms (B,) of the distances of positive and negative pairs over B + 1 edges, each as a density.

    A pair is accepted where its distance is below the threshold, or its score above.

    With a threshold, the legend gives the shares of pairs it rejects and accepts wrongly, interpolated between edges.
    """
    edges = np.asarray(edges, dtype=np.float64)
    figure, axes = new_figure(f"{measure} of a pair", "density")
    for counts, colour, name in ((positive, POSITIVE, "positive"), (negative, NEGATIVE, "negative")):
        counts = np.asarray(counts, dtype=np.float64)
        if counts.shape != (len(edges) - 1,):
            raise EquimetricError(f"{len(edges)} edges make {len(edges) - 1} bins, but {name} has shape {counts.shape}")
        total = counts.sum()
        density = counts / (total or 1.0) / np.diff(edges)
        label = f"{name} pairs ({total:,.0f})"
        if threshold is not None and total:
            below = float(np.interp(threshold, edges, np.append(0.0, counts.cumsum()))) / total
            accepted = below if measure == "distance" else 1 - below
            error_text = f"{1 - accepted:.2%} rejected" if name == "positive" else f"{accepted:.2%} accepted"
            label += f": {error_text}"
        axes.stairs(density, edges, color=colour, fill=True, alpha=0.3)
        axes.stairs(density, edges, color=colour, linewidth=1.4, label=label)
    if threshold is not None:
        axes.axvline(threshold, color=INK, linestyle="--", linewidth=1.2, label=f"threshold {threshold:.4g}")
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(bottom=0)
    axes.legend(fontsize="small")
    return figure


def _has_scores(evaluation: Evaluation) -> bool:
    """Whether negated scores stand for distances, because a cohort has normalised them."""
    return "cohort" in evaluation.geometry


def empty_figure(width: float, height: float) -> "Figure":
    """A figure of this size in inches, without axes and outside of pyplot."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def new_figure(x: str, y: str) -> "tuple[Figure, Axes]":
    """A figure with empty axes of these labels."""
    figure = empty_figure(6.6, 4.2)
    axes = figure.add_subplot()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)
    return figure, axes


def _find_detail(evaluation: Evaluation, kind: type[Kind], name: str, metric: str) -> Kind:
    detail = evaluation.detail(kind)
    if detail is None:
        raise EquimetricError(f"this evaluation has no {name} to plot; evaluate with {metric!r} among the metrics")
    return detail
