"""The answer of a page about embeddings: how many, how good, how alike one threshold treats classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equimetric.report.metric_cells import is_percentage, metric_ends, metric_text
from equimetric.report.section import section
from equimetric.report.table_data import format_share
from equimetric.report.threshold_data import with_certified
from equimetric.runs.profile import RunProfile
from equimetric.studies.embeddings_record import EmbeddingsRecord

__all__ = ["embeddings_answer_section"]

MAIN_METRICS = ("recall@1", "map@r")
MIDDLE = (0.1, 0.9)
"""Quantiles of the classes between which rates are reported."""

FEW_CLASSES = 10
"""Below this number intervals over classes hold less often than they say."""

TEMPLATE = """
<p class="answer">{{ sentences | join(" ") }}</p>
"""


@section("embeddings_answer", title="The answer", order=5, template=TEMPLATE, record_types=(EmbeddingsRecord,))
def embeddings_answer_section(record: EmbeddingsRecord) -> Mapping[str, Any]:
    """Sentences on size, metrics and thresholds."""
    return {"sentences": [size_sentence(record), *metric_sentences(record), *threshold_sentences(record.profile)]}


def size_sentence(record: EmbeddingsRecord) -> str:
    """How many items of how many classes there are."""
    sizes = np.unique(record.labels, return_counts=True)[1]
    span = f"{sizes.min():,}" if sizes.min() == sizes.max() else f"{sizes.min():,} to {sizes.max():,}"
    return f"{record.name} holds {len(record.labels):,} items of {len(sizes):,} classes with {span} items each."


def metric_sentences(record: EmbeddingsRecord) -> list[str]:
    """The main metrics with their intervals; all others are in the table."""
    parts = []
    for name in (name for name in MAIN_METRICS if name in record.metrics):
        unit = " %" if is_percentage(name) else ""
        ends = f" ({metric_ends(name, *record.intervals[name])})" if name in record.intervals else ""
        parts.append(f"{name} is {metric_text(name, record.metrics[name])}{unit}{ends}")
    if not parts:
        return []
    sentences = [f"{' and '.join(parts)}."]
    if record.intervals:
        sentences.append("In brackets: 95 % intervals for other classes of the same kind.")
        if (classes := len(np.unique(record.labels))) < FEW_CLASSES:
            sentences.append(f"With {classes} classes they are too narrow: {FEW_CLASSES} or more tell of others.")
    return sentences


def threshold_sentences(run: RunProfile | None) -> list[str]:
    """What one threshold does to all pairs, and how far classes lie apart there; nothing where it is not known."""
    if run is None or run.thresholds is None:
        return []
    point = run.certified
    profile, place = with_certified(run.thresholds, point)
    if point is None:
        first, last = profile.calibration
        place = (first + last - 1) // 2
        far, frr = float(profile.far[place]), float(profile.frr[place])
        chosen = "In the middle of the calibration range"
    else:
        # Of older runs, classes are known only at the nearest threshold that was counted.
        place = int(np.abs(profile.thresholds - point.threshold).argmin()) if place is None else place
        far, frr = point.far, point.frr
        chosen = f"At the threshold that is certified for a false accept rate of {100 * point.target_far:g} %"
    return [
        f"{chosen}, {format_share(far)} % of the pairs of two classes are accepted (FAR) and {format_share(frr)} % of "
        f"the pairs of one class rejected (FRR).",
        class_sentence(profile.class_far[:, place], profile.class_frr[:, place]),
    ]


def class_sentence(far: NDArray[np.float64], frr: NDArray[np.float64]) -> str:
    """How far classes lie apart at one threshold."""
    if np.ptp(far) == np.ptp(frr) == 0:
        return "All classes have the same rates there."
    return (
        "One threshold does not treat classes alike: in the middle four fifths of them, FAR is "
        f"{format_middle_range(far)} and FRR {format_middle_range(frr)}."
    )


def format_middle_range(rates: NDArray[np.float64]) -> str:
    """'0.02 % to 1.3 %' of the middle classes."""
    low, high = np.quantile(rates, MIDDLE)
    return f"{format_share(float(low))} % to {format_share(float(high))} %"
