"""Figures of identification: FNIR against FPIR, and both against the size of the gallery."""

from typing import TYPE_CHECKING

import numpy as np

from equimetric.errors import EquimetricError
from equimetric.evaluation.identification.protocol import describe_threshold
from equimetric.evaluation.plots import INK, NEGATIVE, POSITIVE, WORST, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from equimetric.evaluation.identification.gallery_sizes import GallerySizeCurve
    from equimetric.evaluation.identification.identification import Identification

__all__ = ["plot_gallery_sizes", "plot_identification"]


def plot_identification(identification: "Identification") -> "Figure":
    """FNIR against FPIR on a logarithmic axis, with the points that were asked for."""
    curve = identification.curve()
    positive = curve["fpir"] > 0
    if not positive.any():
        raise EquimetricError("no threshold accepts a stranger, so there is no curve to draw")
    fpir, fnir = curve["fpir"][positive], curve["fnir"][positive]
    figure, axes = new_figure("false positive identification rate (FPIR)", "false negative identification rate (FNIR)")
    axes.set_xscale("log")
    axes.plot(
        fpir,
        fnir,
        color=POSITIVE,
        linewidth=2,
        label=f"{identification.identities} identities, {identification.geometry}",
    )
    for point in identification.points:
        if point.fpir > 0:
            axes.plot(point.fpir, point.fnir, "o", color=POSITIVE, markersize=5)
            if point.fnir_interval is not None:
                axes.vlines(point.fpir, *point.fnir_interval, color=POSITIVE, linewidth=1.2)
            axes.annotate(
                f"{point.fnir:.1%} at {point.target_fpir:g}",
                (point.fpir, point.fnir),
                xytext=(6, 6),
                textcoords="offset points",
                fontsize="small",
            )
    axes.set_xlim(fpir[0] / 1.2, 1)
    highest = max(
        [fnir.max(), *(point.fnir_interval[1] for point in identification.points if point.fnir_interval is not None)]
    )
    axes.set_ylim(0, min(1.02, max(1e-3, 1.1 * float(highest))))
    axes.legend(fontsize="small", loc="upper right", title=identification.protocol.description, title_fontsize="small")
    return figure


def plot_gallery_sizes(curve: "GallerySizeCurve") -> "Figure":
    """FPIR, its prediction under independence, and FNIR, against the number of identities in the gallery."""
    from matplotlib.ticker import FuncFormatter

    figure, axes = new_figure("identities in the gallery", "error rate")
    measured = [size for size in curve.sizes if not size.extrapolated]
    continued = [measured[-1], *(size for size in curve.sizes if size.extrapolated)]
    identities = [size.identities for size in measured]
    axes.set_xscale("log")
    for name, colour, label in (
        ("fpir", NEGATIVE, "FPIR: a stranger is accepted"),
        ("fnir", POSITIVE, "FNIR: a known identity is missed"),
    ):
        # A logarithmic axis has no 0.
        rates = [getattr(size, name) or np.nan for size in measured]
        axes.plot(identities, rates, "o-", color=colour, markersize=4, label=label)
        bands = [(size.identities, getattr(size, f"{name}_interval")) for size in measured]
        bands = [(count, interval) for count, interval in bands if interval is not None]
        if bands:
            low, high = np.array([interval for _, interval in bands]).T
            axes.fill_between([count for count, _ in bands], low, high, color=colour, alpha=0.15, linewidth=0)
    if any(size.fpir_interval or size.fnir_interval for size in measured):
        axes.fill_between([], [], color=INK, alpha=0.15, linewidth=0, label="bands: intervals over classes")
    grid = np.geomspace(1, curve.sizes[-1].identities, 200)
    predicted = 1 - (1 - curve.far) ** grid
    axes.plot(grid, predicted, ":", color=INK, label="FPIR if identities were independent")
    if len(continued) > 1:
        axes.plot(
            [size.identities for size in continued],
            [size.fpir for size in continued],
            "o--",
            color=WORST,
            markersize=4,
            markerfacecolor="white",
            label="FPIR, extrapolated beyond the data",
        )
    positive_rates = [rate for size in curve.sizes for rate in (size.fpir, size.fnir, size.predicted) if rate]
    if positive_rates:
        axes.set_yscale("log")
        axes.set_ylim(0.7 * min(positive_rates), min(1.0, 2 * max(positive_rates)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda rate, _: f"{rate:.3%}".rstrip("%0").rstrip(".") + " %"))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda identities, _: f"{identities:,.0f}"))
    axes.set_title(
        f"{describe_threshold(curve.threshold, curve.geometry, 4)} accepted "
        f"({curve.protocol.description}, {curve.geometry})",
        fontsize="small",
    )
    figure.legend(fontsize="small", loc="outside lower center", ncols=2)
    return figure
