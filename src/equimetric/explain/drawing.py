"""The figure of weight curves, one panel for each objective."""

import math
from collections.abc import Sequence
from pathlib import Path

from equimetric.explain.curves import WeightCurves

__all__ = ["draw_weights"]

COLUMNS = 3
MUCH_LARGER = 8
"""From this ratio of the largest weights on, negatives have an axis of their own."""


def draw_weights(curves: Sequence[WeightCurves], file: Path) -> Path:
    """Weight against cosine similarity: positives solid and green, negatives dotted and blue."""
    from matplotlib import rc_context

    from equimetric.evaluation.plots import NEGATIVE, POSITIVE, empty_figure

    columns = 2 if len(curves) == 4 else min(COLUMNS, len(curves))
    rows = math.ceil(len(curves) / columns)
    figure = empty_figure(4.2 * columns, 3.2 * rows)
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    for panel, curve in zip(panels, curves, strict=False):
        largest = [float(side.abs().max()) for side in (curve.positive, curve.negative)]
        separate_axes = min(largest) > 0 and max(largest) > MUCH_LARGER * min(largest)
        negative_axes = panel.twinx() if separate_axes else panel
        x = curve.similarity.numpy()
        (pull,) = panel.plot(x, curve.positive.numpy(), color=POSITIVE, label="positive: pulled")
        dotted = {"linestyle": ":", "linewidth": 2.2, "label": "negative: pushed"}
        (push,) = negative_axes.plot(x, curve.negative.numpy(), color=NEGATIVE, **dotted)
        note = {"ha": "center", "fontsize": "small", "transform": panel.transAxes}
        if curve.geometry:
            panel.text(0.5, 1.03, f"geometry: {curve.geometry}", **note)
        panel.set_title(curve.name, pad=16 if curve.geometry else None)
        if not max(largest):
            panel.text(0.5, 0.7, "all weights are 0,\nat every cosine", **note)
        panel.set_xlabel("cosine similarity")
        panel.set_ylabel("weight of a positive" if separate_axes else "weight")
        if separate_axes:
            negative_axes.set_ylabel("weight of a negative", color=NEGATIVE)
        panel.set_xlim(-1, 1)
        panel.set_xticks([-1, -0.5, 0, 0.5, 1])
        panel.grid(alpha=0.3)
        # Outside the axes: curves may fill any corner of a panel.
        panel.legend(
            handles=[pull, push],
            fontsize="small",
            frameon=False,
            ncols=2,
            loc="upper center",
            bbox_to_anchor=(0.5, -0.2),
        )
    for panel in panels[len(curves) :]:
        panel.set_visible(False)
    file.parent.mkdir(parents=True, exist_ok=True)
    # Files of the same curves are the same bytes.
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    with rc_context({"svg.hashsalt": "equimetric"}):
        figure.savefig(file, dpi=150, metadata=undated.get(file.suffix.lower()))
    return file
