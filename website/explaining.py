"""Figures of the pages that explain, drawn from what the example of the page has computed."""

import contextlib
import io
import re
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.evaluation import evaluate, threshold_consistency
from equimetric.explain import pair_weights
from equimetric.objectives import Context, build_objective
from equimetric.studies.statistics import RowComparison
from website.figures import BOTTOM, HEIGHT, TOP, at, axes, dotted, end_label, level_of, value_range

__all__ = ["batch_figure", "choice_figure", "run_examples", "utility_figure", "verdict_figure"]

LEVELS = 5
"""Of the opacity of a weight."""

SPAN = 8.0
"""Points of MAP@R on either side of zero in the figure of verdicts."""


def run_examples(markdown: str) -> dict[str, Any]:
    """The names that the examples of a page define; what they print is left out."""
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        for block in re.findall(r"```python\n(.*?)```", markdown, re.DOTALL):
            exec(block, names)
    return names


@cache
def batch_figure(method: str, caption: str) -> str:
    """The weight of every pair of one batch against its cosine, for a loss that reads a batch as a whole.

    Empty where the loss has no weights of pairs. The batch has eight classes with four samples each.
    """
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(8).repeat_interleave(4)
    vectors = torch.randn(8, 16, generator=generator)[labels] + torch.randn(32, 16, generator=generator)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            objective = build_objective(method, {}, Context(classes=8, dim=16, images=32)).double()
            weights = pair_weights(objective, vectors.double(), labels)
    except EquimetricError:
        return ""
    if weights.shape != (32, 32) or not 0 < float(weights.abs().max()) < float("inf"):
        return ""
    unit = torch.nn.functional.normalize(vectors.double())
    cosine, same = unit @ unit.T, labels[:, None] == labels
    sides = {"positive": same & ~torch.eye(32, dtype=torch.bool), "negative": ~same}
    largest = float(weights.abs().max())
    share = weights / largest
    low, high = value_range(share.numpy())
    dots = "".join(
        f'<path class="dots {side}" d="{dotted(places(cosine[kept], share[kept], low, high))}"/>'
        for side, kept in sides.items()
    )
    top, base = (end_label(end, [largest], apart=False) for end in (high, low))
    return axes(top, dots, caption, base=base, zero=(low, high))


def places(cosine: Tensor, height: Tensor, low: float, high: float) -> np.ndarray:
    """(N, 2) where dots stand in the axes."""
    return np.array([(at(x), level_of(y, low, high)) for x, y in zip(cosine.tolist(), height.tolist(), strict=True)])


def choice_figure(names: Mapping[str, Any]) -> str:
    """The weights of all pairs of the page's batch under each of its objectives, as matrices."""
    figures = []
    for title, objective in names["objectives"].items():
        weights = pair_weights(objective, names["embeddings"], names["labels"]).abs()
        figures.append(matrix_figure(weights / weights.max(), reference_labels(weights, names["labels"]), title))
    return f'<div class="spaces matrices">{"".join(figures)}</div>'


def reference_labels(weights: Tensor, labels: Tensor) -> Tensor:
    """(Q, R) whether a pair is positive: references are the batch itself, or one for each class."""
    classes = labels.new_tensor(sorted(set(labels.tolist())))
    references = labels if weights.shape[1] == len(labels) else classes
    return labels[:, None] == references


def matrix_figure(share: Tensor, positive: Tensor, title: str) -> str:
    """Squares in a colour as strong as the weight of their pair is large."""
    rows, columns = share.shape
    squares = []
    for side, kept in (("positive", positive), ("negative", ~positive)):
        for level in range(1, LEVELS + 1):
            inside = kept & (share > (level - 1) / LEVELS) & (share <= level / LEVELS)
            path = "".join(f"M{column} {row}h.9v.9h-.9z" for row, column in inside.nonzero().tolist())
            squares.append(f'<path class="fill {side}" opacity="{level / LEVELS}" d="{path}"/>')
    return (
        f'<figure><svg viewBox="-1 -1 {rows + 2} {rows + 2}" role="img" aria-label="Weights of all pairs: {title}">'
        f'<path class="frame" d="M-.5 -.5h{columns + 0.9}v{rows + 0.9}h-{columns + 0.9}z"/>{"".join(squares)}</svg>'
        f"<figcaption>{title}</figcaption></figure>"
    )


def utility_figure(names: Mapping[str, Any]) -> str:
    """Utility, from ½ to 1, over the threshold, a line for each class, in both spaces of the page."""
    spaces = (("classes alike", names["alike"]), ("classes unlike", names["unlike"]))
    drawn = "".join(space_of_utility(title, space, names["labels"]) for title, space in spaces)
    return f'<div class="gallery">{drawn}</div>'


def space_of_utility(title: str, space: np.ndarray, labels: np.ndarray) -> str:
    """One space with its scores below."""
    consistency = threshold_consistency(space, labels)
    scores = evaluate(space, labels, metrics=["recall@1", "opis", "opis_noise"])
    x = np.linspace(-1, 1, consistency.utility.shape[1])
    height = HEIGHT - BOTTOM - TOP

    def line(utility: Sequence[float]) -> str:
        tops = [HEIGHT - BOTTOM - 2 * (one - 0.5) * height for one in utility]
        return "M" + "L".join(f"{at(place)} {top:.1f}" for place, top in zip(x, tops, strict=True))

    lines = "".join(f'<path class="thin" d="{line(row)}"/>' for row in consistency.utility.tolist())
    mean = f'<path class="positive" d="{line(consistency.utility.mean(0).tolist())}"/>'
    ends = [f"{float(consistency.thresholds[place]):.2f}" for place in (0, -1)]
    caption = (
        f"{title}: Recall@1 {scores['recall@1']:.1%}, OPIS {1000 * scores['opis']:.2f} ×10⁻³, "
        f"of which noise {1000 * scores['opis_noise']:.2f}"
    )
    ticks = ((-1, ends[0]), (1, ends[1]))
    return axes("utility 1", lines + mean, caption, ticks=ticks, name="threshold (distance)", base="0.5")


def verdict_figure(names: Mapping[str, Any]) -> str:
    """The comparisons of the page's table: simultaneous intervals beside the region of practical equality."""
    comparisons: Sequence[RowComparison] = names["table"].comparisons
    row, left, width = 24, 190, 330
    bottom = 20 + row * len(comparisons)

    def x(points: float) -> float:
        return round(left + (points + SPAN) / (2 * SPAN) * width, 1)

    region = 100 * comparisons[0].equivalence_margin
    drawn = [f'<path class="region" d="M{x(-region)} 8H{x(region)}V{bottom}H{x(-region)}z"/>']
    drawn.append(f'<path class="axis" d="M{x(0)} 8V{bottom}M{left} {bottom}H{left + width}"/>')
    for place, one in enumerate(comparisons):
        y = 22 + row * place
        low, middle, high = (100 * end for end in (one.low, one.interval.mean, one.high))
        kind = one.verdict.replace(" ", "-")
        drawn.append(
            f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">{one.first} − {one.second}</text>'
            f'<path class="{kind}" d="M{x(low)} {y}H{x(high)}"/>'
            f'<circle class="{kind}" cx="{x(middle)}" cy="{y}" r="4"/>'
            f'<text x="{left + width + 8}" y="{y + 4}">{one.verdict}</text>'
        )
    drawn += [
        f'<text x="{x(points)}" y="{bottom + 14}" text-anchor="middle">{label}</text>'
        for points, label in ((-8, "−8"), (-4, "−4"), (0, "0"), (4, "+4"), (8, "+8"))
    ]
    return (
        f'<figure class="curve verdicts"><svg viewBox="0 0 640 {bottom + 32}" role="img" '
        f'aria-label="Differences with their intervals and verdicts">{"".join(drawn)}'
        f'<text x="{x(0)}" y="{bottom + 28}" text-anchor="middle">difference in points</text></svg></figure>'
    )
