"""Note on metrics that cannot rank methods."""

from collections.abc import Iterable

__all__ = ["note_on_metrics"]

INFORMATIVE = ("map@r", "r_precision", "r-precision", "rp")
"""Metrics that look at all items of a query's class."""


def note_on_metrics(metrics: Iterable[str]) -> list[str]:
    """A note where figures are of the nearest neighbours or of clusters alone."""
    names = [name.casefold().removeprefix("macro:") for name in metrics]
    if not names or any(name in INFORMATIVE for name in names):
        return []
    return [
        "No R-Precision or MAP@R is reported: Recall@K, NMI and F1 alone do not see how whole classes are ranked, and "
        "can rank methods otherwise."
    ]
