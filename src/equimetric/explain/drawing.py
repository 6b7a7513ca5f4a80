"""The figure of weight curves, one panel for each objective."""

import math
from collections.abc import Sequence
from pathlib import Path

from equimetric.explain.curves import WeightCurves

__all__ = ["draw_weights"]

POSITIVE, NEGATIVE = "#1b7837", "#2166ac"
COLUMNS = 3
MUCH_LARGER = 8
"""From this ratio of the largest weights on, negatives have an axis of their own."""


def draw_weights(curves: Sequence[WeightCurves], file: Path) -> Path:
    """Weight against cosine similarity: positives solid and green, negatives dotted and blue."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(COLUMNS, len(curves))
    rows = math.ceil(len(curves) / columns)
    figure = Figure(figsize=(4.2 * columns, 3.2 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    for panel, shown in zip(panels, curves, strict=False):
        largest = [float(side.abs().max()) for side in (shown.positive, shown.negative)]
        apart = min(largest) > 0 and max(largest) > MUCH_LARGER * min(largest)
        other = panel.twinx() if apart else panel
        x = shown.similarity.numpy()
        (pull,) = panel.plot(x, shown.positive.numpy(), color=POSITIVE, label="positive: pulled")
        dotted = {"linestyle": ":", "linewidth": 2.2, "label": "negative: pushed"}
        (push,) = other.plot(x, shown.negative.numpy(), color=NEGATIVE, **dotted)
        panel.set_title(shown.name)
        panel.set_xlabel("cosine similarity")
        panel.set_ylabel("weight of a positive" if apart else "weight")
        if apart:
            other.set_ylabel("weight of a negative", color=NEGATIVE)
        panel.set_xlim(-1, 1)
        panel.set_xticks([-1, -0.5, 0, 0.5, 1])
        panel.grid(alpha=0.3)
        panel.legend(handles=[pull, push], fontsize="small", loc="best")
    for panel in panels[len(curves) :]:
        panel.set_visible(False)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=150)
    return file
