"""The utility of classes against the threshold, for papers: what the page draws as a fan with a slider."""

from __future__ import annotations

from typing import Any

import numpy as np

from equimetric.escaping import one_line
from equimetric.evaluation.metrics.utility_curves import group_size
from equimetric.evaluation.threshold_profile import ThresholdProfile
from equimetric.report.figure import Figure, import_altair
from equimetric.report.palette import PALETTE
from equimetric.runs.profile import CertifiedPoint, RunProfile

__all__ = ["fan_figure"]

GROUP_SHARE = 0.1
LINES = {"mean of all classes": (0, (1, 0)), "best 10 %": (2, (7, 3)), "worst 10 %": (1, (3, 2))}
"""Name → place in the palette, dash: the looks of the page."""


def fan_figure(name: str, run: RunProfile, number: int) -> Figure | None:
    """The fan of one method; None where its thresholds are not known."""
    profile = run.thresholds
    if profile is None:
        return None
    classes = len(profile.numbers)
    group = group_size(GROUP_SHARE, classes)
    return Figure(
        f"utility-{number}",
        lambda: draw_utility(one_line(name), profile, run.certified),
        f"Utility of the classes under {name} against the threshold.",
        f"{name}: mean utility of {classes} classes (the harmonic mean of 1 − FAR and 1 − FRR), shaded ± one standard "
        f"deviation; the means of the {group} best and worst classes in the calibration range, grey.",
    )


def draw_utility(name: str, profile: ThresholdProfile, certified: CertifiedPoint | None) -> Any:
    """The calibration range behind a band and three lines, the certified threshold before them."""
    alt = import_altair()
    sign = -1 if profile.scored else 1
    ends = [sign * float(profile.thresholds[place]) for place in (profile.calibration[0], profile.calibration[1] - 1)]
    spread, lines = utility_values(profile, sign)
    words = "score of two items" if profile.scored else "distance of two items"
    x = alt.Scale(nice=False, zero=False)
    y = alt.Y("utility:Q", title="utility of a class", scale=alt.Scale(domain=[0, 1]))
    names, looks = list(LINES), list(LINES.values())
    legend = alt.Legend(symbolType="stroke", symbolStrokeWidth=3)
    look = {
        "color": alt.Color(
            "line:N", scale=alt.Scale(domain=names, range=[PALETTE[k] for k, _ in looks]), legend=legend
        ),
        "strokeDash": alt.StrokeDash(
            "line:N", scale=alt.Scale(domain=names, range=[list(dash) for _, dash in looks]), legend=legend
        ),
    }
    axis = alt.X("threshold:Q", scale=x, title=f"threshold: {words}")
    calibration = alt.Chart(alt.Data(values=[{"from": min(ends), "to": max(ends)}])).mark_rect(
        color="#808890", opacity=0.14
    )
    layers = [
        calibration.encode(x=alt.X("from:Q", scale=x, title=f"threshold: {words}"), x2="to:Q"),
        alt.Chart(alt.Data(values=spread))
        .mark_area(color=PALETTE[0], opacity=0.22)
        .encode(x=axis, y=alt.Y("low:Q", title="utility of a class"), y2="high:Q"),
        alt.Chart(alt.Data(values=lines)).mark_line(strokeWidth=2).encode(x=axis, y=y, **look),
    ]
    if certified is not None:
        layers += certified_layers(alt, sign * certified.threshold, certified.target_far)
    return alt.layer(*layers).properties(title=name, width="container", height=260)


def utility_values(profile: ThresholdProfile, sign: int) -> tuple[list[dict[str, float]], list[dict[str, Any]]]:
    """The band of the standard deviation, and the lines, at every threshold."""
    utility = profile.utility
    order = np.argsort(profile.consistency.mean_utility, kind="stable")
    group = group_size(GROUP_SHARE, len(order))
    mean, deviation = utility.mean(axis=0), utility.std(axis=0)
    thresholds = [round(sign * float(threshold), 6) for threshold in profile.thresholds]
    spread = [
        {"threshold": at, "low": round(max(0.0, m - d), 5), "high": round(min(1.0, m + d), 5)}
        for at, m, d in zip(thresholds, mean.tolist(), deviation.tolist(), strict=True)
    ]
    curves = (mean, utility[order[::-1][:group]].mean(axis=0), utility[order[:group]].mean(axis=0))
    lines = [
        {"threshold": at, "utility": round(value, 5), "line": line}
        for line, curve in zip(LINES, curves, strict=True)
        for at, value in zip(thresholds, curve.tolist(), strict=True)
    ]
    return spread, lines


def certified_layers(alt: Any, threshold: float, far: float) -> list[Any]:
    """A rule at the certified threshold, with its false accept rate."""
    base = alt.Chart(alt.Data(values=[{"threshold": threshold, "words": f"certified at FAR {100 * far:g} %"}]))
    rule = base.mark_rule(color=PALETTE[3], strokeWidth=1.6, strokeDash=[5, 3]).encode(x="threshold:Q")
    words = base.mark_text(align="right", dx=-5, y=8, fontSize=11).encode(x="threshold:Q", text="words:N")
    return [rule, words]
