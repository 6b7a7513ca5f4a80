"""What a method retrieves wrongly: its worst queries and classes, confused classes, hubs and near duplicates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equimetric.studies.profiles import MethodProfile, StudyImages

__all__ = ["collect_rows", "retrieval_faults"]

SCORES = ("map@r", "r_precision", "recall@1", "precision@1")
QUERIES, CLASSES, CONFUSED, HUBS, DUPLICATES = 8, 6, 8, 8, 6
NEIGHBOURS = 6


def retrieval_faults(profile: MethodProfile, images: StudyImages) -> dict[str, Any] | None:
    """The faults of one run in rows of the data set; None where it has no scores of queries.

    A query is the worse the lower its score, and among equals the nearer its wrong nearest neighbour. A hub is an image
    that is among the nearest of many queries; a near duplicate is a pair of two classes that lie close together.
    """
    score = next((name for name in SCORES if name in profile.per_query), None)
    if score is None or not len(profile.per_query["index"]):
        return None
    values = profile.per_query
    rows, labels, neighbours = values["index"], values["labels"], values["neighbours"]
    scores = np.asarray(values[score], np.float64)
    distance = np.zeros(len(rows)) if profile.run.nearest is None else profile.run.nearest
    order = np.lexsort((distance, np.nan_to_num(scores, nan=np.inf)))
    classes = class_means(labels, scores)
    worst_classes = sorted(classes, key=lambda label: classes[label])[:CLASSES]
    first_of = {label: int(next(place for place in order if labels[place] == label)) for label in worst_classes}

    def retrieved(place: int) -> dict[str, Any]:
        nearest = [int(row) for row in neighbours[place][:NEIGHBOURS] if row >= 0]
        return {
            "query": int(rows[place]),
            "score": round(float(scores[place]), 4),
            "neighbours": [[row, bool(images.labels[row] == labels[place])] for row in nearest],
        }

    return {
        "score": score,
        "queries": [retrieved(int(place)) for place in order[:QUERIES]],
        "classes": [
            {**retrieved(place), "mean": round(classes[label], 4), "images": int((labels == label).sum())}
            for label, place in first_of.items()
        ],
        "confused": confused_classes(rows, labels, neighbours, images),
        "hubs": hubs(labels, neighbours, images),
        "duplicates": closest_class_pairs(rows, labels, neighbours, profile.run.nearest, images),
    }


def class_means(labels: NDArray[Any], scores: NDArray[np.float64]) -> dict[int, float]:
    """Class → mean score of its queries, where any has one."""
    known = np.isfinite(scores)
    classes, numbers = np.unique(labels[known], return_inverse=True)
    means = np.bincount(numbers, scores[known]) / np.bincount(numbers)
    return dict(zip(classes.tolist(), means.tolist(), strict=True))


def confused_classes(
    rows: NDArray[Any], labels: NDArray[Any], neighbours: NDArray[Any], images: StudyImages
) -> list[dict[str, Any]]:
    """Pairs of classes whose queries most often have a nearest neighbour of the other, with an example."""
    counts: Counter[tuple[int, int]] = Counter()
    example: dict[tuple[int, int], list[int]] = {}
    for row, label, nearest in zip(rows.tolist(), labels.tolist(), neighbours[:, 0].tolist(), strict=True):
        other = int(images.labels[nearest]) if nearest >= 0 else label
        if other != label:
            pair = (min(label, other), max(label, other))
            counts[pair] += 1
            example.setdefault(pair, [int(row), int(nearest)])
    return [{"images": example[pair], "times": times} for pair, times in counts.most_common(CONFUSED)]


def hubs(labels: NDArray[Any], neighbours: NDArray[Any], images: StudyImages) -> list[dict[str, Any]]:
    """Images that are among the nearest of the most queries, with how often wrongly."""
    flat = neighbours.reshape(-1)
    valid = flat >= 0
    wrong = images.labels[flat.clip(0)] != np.repeat(labels, neighbours.shape[1])
    times, mistaken = Counter(flat[valid].tolist()), Counter(flat[valid & wrong].tolist())
    return [{"image": row, "times": count, "wrong": mistaken[row]} for row, count in times.most_common(HUBS)]


def closest_class_pairs(
    rows: NDArray[Any],
    labels: NDArray[Any],
    neighbours: NDArray[Any],
    nearest: NDArray[Any] | None,
    images: StudyImages,
) -> list[dict[str, Any]]:
    """Pairs of two classes that lie closest together: duplicates with different labels, or classes hard to tell."""
    if nearest is None:
        return []
    first = neighbours[:, 0]
    apart = np.flatnonzero((first >= 0) & (images.labels[first.clip(0)] != labels) & np.isfinite(nearest))
    pairs: dict[frozenset[int], dict[str, Any]] = {}
    for place in apart[np.argsort(nearest[apart], kind="stable")].tolist():
        pair = [int(rows[place]), int(first[place])]
        pairs.setdefault(frozenset(pair), {"images": pair, "distance": round(float(nearest[place]), 4)})
        if len(pairs) == DUPLICATES:
            break
    return list(pairs.values())


def collect_rows(faults: Mapping[str, Any]) -> list[int]:
    """All rows whose images the faults of a method show."""
    queries = [*faults["queries"], *faults["classes"]]
    rows = [row for query in queries for row in (query["query"], *(near for near, _ in query["neighbours"]))]
    rows += [row for pair in (*faults["confused"], *faults["duplicates"]) for row in pair["images"]]
    return [*rows, *(hub["image"] for hub in faults["hubs"])]
