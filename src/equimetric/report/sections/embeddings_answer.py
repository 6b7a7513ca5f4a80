"""The answer of a page about embeddings: how many, how good, how alike one threshold treats classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equimetric.report.metric_cells import is_percentage, metric_ends, metric_text
from equimetric.report.section import section
from equimetric.report.table_data import format_number
from equimetric.runs.profile import RunProfile
from equimetric.studies.embeddings_record import EmbeddingsRecord

__all__ = ["embeddings_answer_section"]

MAIN_METRICS = ("recall@1", "map@r")
MIDDLE = (0.1, 0.9)
"""Between these shares of the classes the rates are said to lie."""

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
    drawn = " In brackets: 95 % intervals for other classes of the same kind." if record.intervals else ""
    return [f"{' and '.join(parts)}.{drawn}"]


def threshold_sentences(run: RunProfile | None) -> list[str]:
    """What one threshold does to all pairs, and how far classes lie apart there; nothing where it is not known."""
    if run is None or run.thresholds is None:
        return []
    profile, point = run.thresholds, run.certified
    first, last = profile.calibration
    if point is None:
        place = (first + last - 1) // 2
        chosen = "In the middle of the calibration range"
    else:
        place = int(np.abs(profile.thresholds - point.threshold).argmin())
        chosen = f"At the threshold that is certified for a false accept rate of {100 * point.target_far:g} %"
    far, frr = (percent(float(rate[place])) for rate in (profile.far, profile.frr))
    return [
        f"{chosen}, {far} of the pairs of two classes are accepted (FAR) and {frr} of the pairs of one class rejected "
        f"(FRR).",
        f"One threshold does not treat classes alike: in the middle four fifths of them, FAR is "
        f"{middle(profile.class_far[:, place])} and FRR {middle(profile.class_frr[:, place])}.",
    ]


def middle(rates: NDArray[np.float64]) -> str:
    """'0.02 % to 1.3 %' of the middle classes."""
    low, high = np.quantile(rates, MIDDLE)
    return f"{percent(float(low))} to {percent(float(high))}"


def percent(rate: float) -> str:
    """A rate in percent, with two digits where it is small."""
    shown = 100 * rate
    return f"{format_number(shown, 1) if shown >= 1 or shown == 0 else f'{shown:.2g}'} %"
