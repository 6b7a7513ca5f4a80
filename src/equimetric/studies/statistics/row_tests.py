"""All tests over the seeds of two rows."""

from dataclasses import dataclass

from equimetric.errors import EquimetricError
from equimetric.studies.statistics.class_scores import ClassScores, Pairing, pair_rows
from equimetric.studies.statistics.seed_tests import (
    MAX_FLIPPED_PAIRS,
    SignFlipTest,
    TTest,
    WilcoxonTest,
    paired_t_test,
    sign_flip_test,
    welch_t_test,
    wilcoxon_test,
)

__all__ = ["SeedTests", "compare_seeds"]


@dataclass(frozen=True)
class SeedTests:
    """Tests of the scores of two rows over their seeds, for these test classes.

    t           the paired test, or Welch's where the seeds differ
    sign_flip   exact; None where the seeds differ, and for more than 24 seeds
    wilcoxon    None where the seeds differ
    """

    pairing: Pairing
    seeds: tuple[int, ...]
    t: TTest
    sign_flip: SignFlipTest | None
    wilcoxon: WilcoxonTest | None


def compare_seeds(a: ClassScores, b: ClassScores, confidence: float = 0.95) -> SeedTests:
    """Test two rows over common seeds (two or more), over all seeds against a row without seeds, or by Welch's test."""
    paired = pair_rows(a, b)
    seeds = tuple(map(len, paired.groups))
    if not seeds or 1 in seeds:
        raise EquimetricError("tests over seeds need at least two seeds; use two_way_difference for rows without seeds")
    means = [group @ a.weights for group in paired.groups]
    if paired.pairing == "different seeds":
        return SeedTests(paired.pairing, seeds, welch_t_test(means[0], means[1], confidence), None, None)
    (difference,) = means
    zeros = 0 * difference
    return SeedTests(
        paired.pairing,
        seeds,
        paired_t_test(difference, zeros, confidence),
        sign_flip_test(difference, zeros) if len(difference) <= MAX_FLIPPED_PAIRS else None,
        wilcoxon_test(difference, zeros),
    )
