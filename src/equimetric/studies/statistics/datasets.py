"""Methods over several data sets: mean ranks, Friedman's test, critical difference, Wilcoxon tests with Holm."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike

from equimetric.errors import EquimetricError
from equimetric.studies.statistics.class_scores import Floats
from equimetric.studies.statistics.multiplicity import holm
from equimetric.studies.statistics.seed_tests import smallest_p, wilcoxon_test

__all__ = [
    "MIN_DATASETS",
    "DatasetRanking",
    "FriedmanTest",
    "friedman_test",
    "nemenyi_critical_difference",
    "rank_over_datasets",
]

MIN_DATASETS = 6
"""Data sets from which on ranks over them are tested; with fewer, verdicts are per data set."""


@dataclass(frozen=True)
class FriedmanTest:
    """Friedman's χ² (corrected for ties) and the F of Iman and Davenport, with their p-values.

    χ² = 12 N / (k (k + 1)) · (Σ_j R_j² − k (k + 1)² / 4),   F = (N − 1) χ² / (N (k − 1) − χ²)
    for mean ranks R_j of k methods on N data sets.
    """

    chi2: float
    p_chi2: float
    f: float
    degrees: tuple[int, int]
    p_f: float


@dataclass(frozen=True, eq=False)
class DatasetRanking:
    """Methods ranked on N data sets.

    scores               (N, k) one score per data set and method
    mean_ranks           (k,) rank 1 is best, ties share their mean
    critical_difference  mean ranks that differ by less cannot be told apart (Nemenyi)
    """

    methods: tuple[str, ...]
    scores: Floats
    mean_ranks: Floats
    friedman: FriedmanTest
    critical_difference: float
    confidence: float

    @property
    def different_by_nemenyi(self) -> list[tuple[str, str]]:
        """Pairs (better, worse) whose mean ranks differ by the critical difference or more."""
        return [
            pair
            for pair in combinations(self.order, 2)
            if abs(self._rank[pair[0]] - self._rank[pair[1]]) >= self.critical_difference
        ]

    @property
    def different_by_wilcoxon(self) -> list[tuple[str, str]]:
        """Pairs (better, worse) by mean rank that Wilcoxon's test with Holm's adjustment tells apart."""
        return [pair for pair, p in self.wilcoxon_holm.items() if p <= 1 - self.confidence]

    @cached_property
    def wilcoxon_holm(self) -> dict[tuple[str, str], float]:
        """Adjusted p of all pairs of methods, over data sets."""
        column = dict(zip(self.methods, self.scores.T, strict=True))
        pairs = list(combinations(self.order, 2))
        return dict(zip(pairs, holm([wilcoxon_test(column[a], column[b]).p_value for a, b in pairs]), strict=True))

    @property
    def order(self) -> list[str]:
        """Methods by mean rank, best first."""
        return sorted(self.methods, key=self._rank.__getitem__)

    @property
    def sentence(self) -> str:
        """The results of the tests, and their limits with this number of data sets."""
        n, k = self.scores.shape
        text = (
            f"Over {n} data sets, {k} methods differ where their mean ranks are {self.critical_difference:.2f} or more "
            f"apart (Nemenyi); Friedman's test gives p = {self.friedman.p_f:.2g}."
        )
        min_p = smallest_p("Wilcoxon", n, k * (k - 1) // 2)
        if min_p > 1 - self.confidence:
            text += (
                f" Wilcoxon's test with Holm's adjustment cannot tell any pair apart: its smallest p is {min_p:.2g}."
            )
        return text

    @cached_property
    def _rank(self) -> dict[str, float]:
        return dict(zip(self.methods, self.mean_ranks.tolist(), strict=True))


def friedman_test(scores: ArrayLike) -> FriedmanTest:
    """Do k ≥ 3 methods differ in their ranks on N data sets? Scores (N, k)."""
    from scipy.special import fdtrc
    from scipy.stats import friedmanchisquare

    array = _check_scores(scores)
    n, k = array.shape
    if np.ptp(array, axis=1).max() == 0:
        return FriedmanTest(0.0, 1.0, 0.0, (k - 1, (k - 1) * (n - 1)), 1.0)
    result = friedmanchisquare(*array.T)
    chi2, degrees = float(result.statistic), (k - 1, (k - 1) * (n - 1))
    # The same order on every data set leaves no variation to compare with.
    residual = n * (k - 1) - chi2
    f = (n - 1) * chi2 / residual if residual > 1e-9 else math.inf
    return FriedmanTest(chi2, float(result.pvalue), f, degrees, float(fdtrc(*degrees, f)))


def nemenyi_critical_difference(methods: int, datasets: int, confidence: float = 0.95) -> float:
    """CD = q √(k (k + 1) / (6 N)), with q the quantile of the studentised range of k values, divided by √2."""
    from scipy.stats import studentized_range

    q = float(studentized_range.ppf(confidence, methods, np.inf)) / math.sqrt(2)
    return q * math.sqrt(methods * (methods + 1) / (6 * datasets))


def rank_over_datasets(
    scores: ArrayLike, methods: Sequence[str], *, confidence: float = 0.95, higher_is_better: bool = True
) -> DatasetRanking:
    """Rank k ≥ 3 methods on N ≥ 6 data sets, scores (N, k); fewer data sets raise an error that says so.

    Data sets must be independent: folds, seeds and metrics of one data set are not.
    """
    from scipy.stats import rankdata

    array = _check_scores(scores)
    n, k = array.shape
    if len(methods) != k or len(set(methods)) < k:
        raise EquimetricError(f"scores of {k} methods need {k} different names, got {len(set(methods))}")
    difference = nemenyi_critical_difference(k, n, confidence)
    if n < MIN_DATASETS:
        raise EquimetricError(
            f"{n} data set{'s are' if n > 1 else ' is'} too few to rank methods over them, {MIN_DATASETS} are "
            f"needed: with {n}, mean ranks of {k} methods would have to differ by {difference:.1f}. Verdicts are per "
            "data set: read those of each one for itself"
        )
    ranks = rankdata(-array if higher_is_better else array, axis=1)
    return DatasetRanking(tuple(methods), array, ranks.mean(axis=0), friedman_test(array), difference, confidence)


def _check_scores(scores: ArrayLike) -> Floats:
    array = np.asarray(scores, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] < 3 or array.shape[0] < 1:
        raise EquimetricError(
            f"give scores of shape (data sets, methods) with three methods or more, not {array.shape}"
        )
    if not np.isfinite(array).all():
        raise EquimetricError(
            "scores contain NaN or infinite numbers; leave out the data set or the method they are of"
        )
    return array
