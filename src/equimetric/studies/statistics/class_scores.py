"""The scores of one row of a table: every seed on every test class."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from equimetric.errors import EquimetricError, quote

__all__ = ["ClassScores", "PairedScores", "Pairing", "average_folds", "pair_rows"]

Floats: TypeAlias = NDArray[np.float64]

Pairing: TypeAlias = Literal["same seeds", "against a row without seeds", "different seeds", "no seeds"]


@dataclass(frozen=True, eq=False)
class ClassScores:
    """Scores of n seeds on C test classes, and how much each class counts in the number printed.

    values   (n, C); a row without seeds, such as raw features, has n = 1
    seeds    the ids of the n seeds; None for a row without seeds
    classes  ids of the C classes; by default 0 … C − 1
    weights  (C,) each class's share of the queries, which sum to 1; by default equal (the mean over classes)

    The row's score is mean_s Σ_c w_c x_sc. Average folds first (`average_folds`).
    """

    values: Floats
    seeds: tuple[Hashable, ...] | None
    classes: tuple[Hashable, ...]
    weights: Floats

    def __init__(
        self,
        values: ArrayLike,
        *,
        seeds: Sequence[Hashable] | None,
        classes: Sequence[Hashable] | None = None,
        weights: ArrayLike | None = None,
    ) -> None:
        array = np.array(values, dtype=np.float64)
        if array.ndim != 2 or array.size == 0:
            advice = "average its folds first (average_folds)" if array.ndim == 3 else "give (seeds, classes)"
            raise EquimetricError(f"the scores of a row have shape {array.shape}; {advice}")
        n, c = array.shape
        shares = np.full(c, 1 / c) if weights is None else np.array(weights, dtype=np.float64)
        object.__setattr__(self, "values", array)
        object.__setattr__(self, "seeds", None if seeds is None else _check_ids(seeds, n, "seeds"))
        object.__setattr__(self, "classes", _check_ids(range(c) if classes is None else classes, c, "classes"))
        object.__setattr__(self, "weights", shares)
        if seeds is None and n > 1:
            raise EquimetricError(f"a row without seeds has one score per class, not {n}; give the ids of its seeds")
        if shares.shape != (c,) or not (shares > 0).all() or abs(shares.sum() - 1) > 1e-6:
            raise EquimetricError(
                f"the weights of {c} classes must be {c} positive shares that sum to 1: divide the queries of each "
                "class by all queries, and leave out classes without queries"
            )

    @classmethod
    def from_queries(
        cls,
        scores: ArrayLike,
        labels: ArrayLike,
        *,
        seeds: Sequence[Hashable] | None,
        average: Literal["queries", "classes"] = "queries",
    ) -> "ClassScores":
        """Class means of the scores of single queries, (n, Q) with labels (Q,).

        The number printed is the mean over `queries` (a class counts by its queries), or over `classes` (alike).
        """
        array, of_query = np.atleast_2d(np.asarray(scores, dtype=np.float64)), np.asarray(labels)
        if array.shape[1:] != of_query.shape:
            raise EquimetricError(f"scores of shape {array.shape} need one label per query, not {of_query.shape}")
        names, position, counts = np.unique(of_query, return_inverse=True, return_counts=True)
        sums = np.stack([np.bincount(position, row, len(names)) for row in array])
        weights = counts / counts.sum() if average == "queries" else None
        return cls(sums / counts, seeds=seeds, classes=names.tolist(), weights=weights)

    @property
    def mean(self) -> float:
        """The number printed: mean_s Σ_c w_c x_sc."""
        return float(self.seed_means.mean())

    @property
    def seed_means(self) -> Floats:
        """(n,) Σ_c w_c x_sc, the score of every seed."""
        self.require_finite()
        return self.values @ self.weights

    @property
    def class_means(self) -> Floats:
        """(C,) mean over seeds."""
        self.require_finite()
        means: Floats = self.values.mean(axis=0)
        return means

    def require_finite(self) -> None:
        """Raise an error that tells which seeds or classes to leave out where a score is NaN or infinite."""
        bad = ~np.isfinite(self.values)
        if not bad.any():
            return
        classes = _first_ids(self.classes[c] for c in np.flatnonzero(bad.any(axis=0)))
        advice = f"leave out classes {classes} in every row, with without(classes=[…])"
        if self.seeds is not None:
            seeds = _first_ids(self.seeds[s] for s in np.flatnonzero(bad.any(axis=1)))
            advice = f"leave out seeds {seeds} with without(seeds=[…]), or {advice.removeprefix('leave out ')}"
        raise EquimetricError(f"{bad.sum()} of {bad.size} scores are NaN or infinite; {advice}")

    def without(self, *, seeds: Iterable[Hashable] = (), classes: Iterable[Hashable] = ()) -> "ClassScores":
        """The same row without some seeds or classes; the weights of the other classes keep their proportions."""
        left_out, left_out_classes = set(seeds), set(classes)
        return self.select(
            seeds=None if self.seeds is None else [seed for seed in self.seeds if seed not in left_out],
            classes=[name for name in self.classes if name not in left_out_classes] if left_out_classes else None,
        )

    def select(
        self, *, seeds: Sequence[Hashable] | None = None, classes: Sequence[Hashable] | None = None
    ) -> "ClassScores":
        """These seeds and classes, in this order; by default all."""
        rows = slice(None) if seeds is None or self.seeds is None else _find_positions(seeds, self.seeds, "seed")
        columns = slice(None) if classes is None else _find_positions(classes, self.classes, "class")
        weights = self.weights if classes is None else self.weights[columns] / self.weights[columns].sum()
        chosen: Sequence[Hashable] | None = None if self.seeds is None else np.array(self.seeds, object)[rows].tolist()
        return ClassScores(
            self.values[rows][:, columns],
            seeds=chosen,
            classes=np.array(self.classes, object)[columns].tolist(),
            weights=weights,
        )


@dataclass(frozen=True, eq=False)
class PairedScores:
    """Two rows on the same classes, ready for a difference.

    groups      independent sets of seeds, (n_g, C) each: the differences of common seeds, or the rows one by one
    difference  (C,) difference of the class means
    """

    pairing: Pairing
    groups: tuple[Floats, ...]
    difference: Floats


def average_folds(values: ArrayLike) -> Floats:
    """(n, F, C) scores of n seeds × F folds → (n, C): folds of one run are not independent runs."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 3:
        raise EquimetricError(f"scores with folds have the shape (seeds, folds, classes), not {array.shape}")
    means: Floats = array.mean(axis=1)
    return means


def pair_rows(a: ClassScores, b: ClassScores) -> PairedScores:
    """Pair two rows by class, and by seed where they have the same seeds, two or more.

    A row without seeds is subtracted from every seed of the other. Where the seeds differ, all seeds of both rows are
    used, unpaired: so a difference is always that of the scores printed.
    """
    b = _match_classes(a, b)
    a.require_finite()
    b.require_finite()
    difference = a.class_means - b.class_means
    if a.seeds is None and b.seeds is None:
        return PairedScores("no seeds", (), difference)
    if a.seeds is None or b.seeds is None:
        groups = a.values - b.values
        return PairedScores("against a row without seeds", (groups,), difference)
    if len(a.seeds) < 2 or set(a.seeds) != set(b.seeds):
        return PairedScores("different seeds", (a.values, b.values), difference)
    return PairedScores("same seeds", (a.values - b.select(seeds=a.seeds).values,), difference)


def _match_classes(a: ClassScores, b: ClassScores) -> ClassScores:
    """`b` with its classes in the order of `a`."""
    unmatched = set() if a.classes == b.classes else set(a.classes) ^ set(b.classes)
    if unmatched:
        raise EquimetricError(
            f"two rows are compared on the same classes, but {len(unmatched)} are in one of them only "
            f"({_first_ids(unmatched)}); leave these out with without(classes=[…])"
        )
    b = b if a.classes == b.classes else b.select(classes=a.classes)
    if not np.allclose(a.weights, b.weights, rtol=1e-6, atol=0):
        raise EquimetricError("two rows are compared with the same class weights; give both the same queries")
    return b


def _check_ids(values: Sequence[Hashable], expected: int, name: str) -> tuple[Hashable, ...]:
    ids = tuple(values)
    if len(ids) != expected:
        raise EquimetricError(f"{len(ids)} {name} are named for scores of {expected} {name}")
    if len(set(ids)) < expected:
        raise EquimetricError(f"{name} must have different ids, got {quote(ids)}")
    return ids


def _find_positions(ids: Sequence[Hashable], valid_ids: tuple[Hashable, ...], name: str) -> NDArray[np.intp]:
    position = {item: i for i, item in enumerate(valid_ids)}
    missing = [item for item in ids if item not in position]
    if missing:
        raise EquimetricError(f"there is no {name} {quote(missing[0])} in this row")
    if not ids:
        raise EquimetricError(f"at least one {name} must be left")
    return np.array([position[item] for item in ids], dtype=np.intp)


def _first_ids(ids: Iterable[Any]) -> str:
    """The first three ids as text."""
    texts = [str(item) for item in ids]
    return ", ".join(texts[:3]) + (" …" if len(texts) > 3 else "")
