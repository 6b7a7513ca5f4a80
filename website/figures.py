"""Figures of the site as SVG: their lines have the colour of the text, so that they are legible in the dark, too."""

from collections.abc import Mapping, Sequence

import numpy as np

from equimetric.evaluation import evaluate
from equimetric.explain import WeightCurves
from equimetric.published import select_results

__all__ = ["axes", "curve_figure", "dotted", "end_label", "level_of", "toy_spaces", "value_range"]

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 320, 200, 44, 34, 12
PALETTE = ("#00897b", "#e65100", "#3949ab", "#c2185b", "#7cb342", "#6d4c41", "#00acc1", "#fbc02d", "#8e24aa")


def curve_figure(curves: WeightCurves, caption: str = "") -> str:
    """Weight against cosine similarity: positives solid, negatives dashed, on two scales if they differ much."""
    sides = [curves.positive.numpy(), curves.negative.numpy()]
    largest = [float(np.abs(side).max()) for side in sides]
    apart = min(largest) > 0 and max(largest) > 8 * min(largest)
    scales = largest if apart else [max(largest)] * 2
    shares = [side / (scale or 1.0) for side, scale in zip(sides, scales, strict=True)]
    low, high = value_range(*shares)
    x = curves.similarity.numpy()
    lines = "".join(
        f'<path class="{name}" d="{polyline(x, share, low, high)}"/>'
        for name, share in zip(("positive", "negative"), shares, strict=True)
    )
    return axes(end_label(high, scales, apart), lines, caption, base=end_label(low, scales, apart), zero=(low, high))


def value_range(*shares: np.ndarray) -> tuple[float, float]:
    """The least and the largest value on the vertical axis, 0 among them; noise of rounding is no value below 0."""
    low = min(0.0, *(float(share.min()) for share in shares))
    return (low if low < -1e-6 else 0.0), max(0.0, *(float(share.max()) for share in shares))


def end_label(share: float, scales: Sequence[float], apart: bool) -> str:
    """An end of the vertical axis as weights, of positives and negatives where their scales differ."""
    if share == 0:
        return "0"
    numbers = [format_number(share * scale) for scale in scales]
    return f"{numbers[0]}, negatives {numbers[1]}" if apart else numbers[0]


def axes(
    top: str,
    drawn: str,
    caption: str,
    ticks: Sequence[tuple[float, str]] = ((-1, "−1"), (0, "0"), (1, "1")),
    name: str = "cosine similarity",
    base: str = "0",
    zero: tuple[float, float] = (0.0, 1.0),
) -> str:
    """Something drawn in axes, whose ends are labelled as the caller says; a line at 0 where values are below it.

    `zero` has the values at the lower and the upper end.
    """
    right, bottom = WIDTH - 8, HEIGHT - BOTTOM
    marks = "".join(
        f'<text x="{at(value)}" y="{bottom + 14}" text-anchor="middle">{label}</text>' for value, label in ticks
    )
    middle = f"M{at(0)} {bottom}V{TOP}" if any(value == 0 for value, _ in ticks) else ""
    if zero[0] < 0:
        level = level_of(0.0, *zero)
        marks += f'<path class="zero" d="M{LEFT} {level}H{right}"/>'
        marks += f'<text x="{LEFT - 6}" y="{level + 4}" text-anchor="end">0</text>' if zero[1] > 0 else ""
    lower = f'<text x="{LEFT - 6}" y="{bottom}" text-anchor="end">{base}</text>'
    if len(base) > 6:
        lower = f'<text x="{LEFT + 4}" y="{bottom - 4}">{base}</text>'
    return (
        f'<figure class="curve"><figcaption>{caption}</figcaption><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="A curve against {name}, from {base} to {top}">'
        f'<path class="axis" d="M{LEFT} {TOP}V{bottom}H{right}{middle}"/>{marks}'
        f'<text x="{LEFT - 4}" y="{TOP - 2}" text-anchor="start">{top}</text>{lower}'
        f'<text x="{at(0)}" y="{HEIGHT - 4}" text-anchor="middle">{name}</text>{drawn}</svg></figure>'
    )


def level_of(value: float, low: float = 0.0, high: float = 1.0) -> float:
    """The place of a value on the vertical axis."""
    return round(HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - BOTTOM - TOP), 1)


def at(similarity: float) -> float:
    """The place of a similarity on the horizontal axis."""
    return round(LEFT + (similarity + 1) / 2 * (WIDTH - 8 - LEFT), 1)


def polyline(x: np.ndarray, y: np.ndarray, low: float = 0.0, high: float = 1.0) -> str:
    """A path through points, in axes from `low` to `high`."""
    return "M" + "L".join(f"{at(one)} {level_of(other, low, high)}" for one, other in zip(x, y, strict=True))


def format_number(value: float) -> str:
    """A number with two digits that count, or more where it is large."""
    shown = f"{value:.0f}" if abs(value) >= 10 else f"{value:.2g}"
    return shown.replace("-", "−", 1) if value < 0 else shown


def toy_spaces() -> str:
    """Three spaces of nine classes in the plane, with the scores of `evaluate` beside those of the slides' spaces."""
    figures = (space_figure(gap, slides_scores(number)) for number, gap in enumerate((0.05, 0.6, 2.5), start=1))
    return f'<div class="spaces">{"".join(figures)}</div>'


def slides_scores(number: int) -> dict[str | None, float | None]:
    """Metric → percent that the Reality Check's slides print below one of their three spaces."""
    printed = select_results(paper="reality-check", dataset="illustration")
    return {one.our_metric: one.value for one in printed if one.method == f"embedding space {number}"}


def space_figure(gap: float, slides: Mapping[str | None, float | None]) -> str:
    """Nine discs of radius 1 with a gap between them, what is measured on them, and what the slides print."""
    points, labels = discs(gap)
    names = {"recall@1": "Recall@1", "nmi": "NMI", "f1": "F1", "r_precision": "R-Precision", "map@r": "MAP@R"}
    scores = evaluate(points, labels, geometry="euclidean", metrics=list(names))
    rows = "".join(
        f"<tr><td>{title}</td><td>{scores[name]:.1%}</td><td>{slides[name]:.1f}%</td></tr>"
        for name, title in names.items()
    )
    span = 2 * (2 + 2.5) + 2.4
    middle = points.mean(0)
    dots = "".join(
        f'<path stroke="{PALETTE[number]}" d="{dotted((points[labels == number] - middle) / span * 200 + 100)}"/>'
        for number in range(9)
    )
    return (
        f'<figure><svg viewBox="0 0 200 200" role="img" aria-label="Nine classes with a gap of {gap}">{dots}</svg>'
        f"<figcaption>gap {gap}<table><tr><th></th><th>here</th><th>slides</th></tr>{rows}</table>"
        "</figcaption></figure>"
    )


def discs(gap: float) -> tuple[np.ndarray, np.ndarray]:
    """100 points in each of nine discs, and their classes."""
    generator = np.random.default_rng(1)
    centres = np.array([(x, y) for x in range(3) for y in range(3)]) * (2.0 + gap)
    labels = np.repeat(np.arange(9), 100)
    angle, radius = generator.uniform(0, 2 * np.pi, 900), np.sqrt(generator.uniform(0, 1, 900))
    return centres[labels] + np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1), labels


def dotted(points: Sequence[Sequence[float]] | np.ndarray) -> str:
    """A path whose round ends are dots."""
    return "".join(f"M{x:.1f} {y:.1f}h0" for x, y in points)
