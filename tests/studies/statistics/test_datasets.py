"""Methods over several data sets."""

import math

import numpy as np
import pytest

from equimetric.errors import EquimetricError
from equimetric.studies.statistics import (
    compact_letters,
    friedman_test,
    nemenyi_critical_difference,
    rank_over_datasets,
)

SCORES = [
    [59.7, 55.8, 58.1, 60.2],
    [69.8, 65.7, 68.2, 72.1],
    [69.3, 67.3, 69.9, 70.9],
    [68.1, 64.2, 66.6, 67.5],
    [81.8, 79.1, 81.0, 85.4],
    [73.1, 72.7, 74.2, 76.2],
]
METHODS = ("contrastive", "triplet", "margin", "multi_similarity")

# Demšar (2006), q for 2 … 20 methods.
Q_05 = [1.96, 2.3437, 2.569, 2.7278, 2.8497, 2.9483, 3.0309, 3.1017, 3.1637, 3.2187, 3.268, 3.3127, 3.3536, 3.3912]
Q_05 += [3.426, 3.4584, 3.4887, 3.5171, 3.5438]
Q_10 = [1.6449, 2.0523, 2.2913, 2.4595, 2.5885, 2.6927, 2.7799, 2.8546, 2.9199, 2.9778, 3.0297, 3.0767, 3.1197, 3.1592]
Q_10 += [3.1957, 3.2297, 3.2615, 3.2912, 3.3192]


def test_friedman_and_iman_davenport():
    found = friedman_test(SCORES)
    assert (found.chi2, found.p_chi2) == (pytest.approx(15.0), pytest.approx(0.0018166489665723214))
    assert (found.f, found.degrees) == (pytest.approx(25.0), (3, 15))
    assert found.p_f == pytest.approx(4.366005990233504e-06)


def test_friedman_of_extreme_orders():
    same_order = friedman_test([[1, 2, 3]] * 6)
    assert (same_order.chi2, same_order.f, same_order.p_f) == (pytest.approx(12), math.inf, 0)
    all_tied = friedman_test([[1, 1, 1]] * 6)
    assert (all_tied.chi2, all_tied.p_chi2, all_tied.p_f) == (0, 1, 1)


@pytest.mark.parametrize(("confidence", "quantiles"), [(0.95, Q_05), (0.90, Q_10)])
def test_critical_differences(confidence, quantiles):
    for k, q in enumerate(quantiles, start=2):
        expected = q * math.sqrt(k * (k + 1) / 60)
        assert nemenyi_critical_difference(k, 10, confidence) == pytest.approx(expected, abs=3e-4)


def test_a_ranking():
    found = rank_over_datasets(SCORES, METHODS)
    assert found.mean_ranks == pytest.approx([2.1666666666666665, 4.0, 2.6666666666666665, 1.1666666666666667])
    assert found.critical_difference == pytest.approx(1.9148432265902373)
    assert found.order == ["multi_similarity", "contrastive", "margin", "triplet"]
    assert found.different_by_nemenyi == [("multi_similarity", "triplet")]
    letters = compact_letters(found.order, found.different_by_nemenyi)
    assert letters == {"multi_similarity": "a", "contrastive": "ab", "margin": "ab", "triplet": "b"}


def test_wilcoxon_with_holm_and_what_six_data_sets_allow():
    found = rank_over_datasets(SCORES, METHODS)
    # Five pairs have differences of one sign: 6 · 2^(1 − 6).
    assert sorted(found.wilcoxon_holm.values()) == pytest.approx([0.1875] * 5 + [0.21875])
    assert found.different_by_wilcoxon == []
    assert found.sentence == (
        "Over 6 data sets, 4 methods differ where their mean ranks are 1.91 or more apart (Nemenyi); Friedman's test "
        "gives p = 4.4e-06. Wilcoxon's test with Holm's adjustment cannot tell any pair apart: its smallest p is 0.19."
    )
    more = rank_over_datasets([*SCORES, *(np.array(SCORES) + 0.1 * np.arange(4))], METHODS)
    assert ("multi_similarity", "triplet") in more.different_by_wilcoxon
    assert "cannot" not in more.sentence


def test_lower_may_be_better():
    down = rank_over_datasets(-np.array(SCORES), METHODS, higher_is_better=False)
    assert down.mean_ranks == pytest.approx(rank_over_datasets(SCORES, METHODS).mean_ranks)
    assert down.wilcoxon_holm == rank_over_datasets(SCORES, METHODS).wilcoxon_holm


def test_few_data_sets_are_read_one_by_one():
    message = (
        "3 data sets are too few to rank methods over them, 6 are needed: with 3, mean ranks of 4 methods would have "
        "to differ by 2.7. Verdicts are per data set"
    )
    with pytest.raises(EquimetricError, match=message):
        rank_over_datasets(SCORES[:3], METHODS)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([[1, 2]] * 6, "three methods or more"),
        ([[1, 2, math.nan, 3]] * 6, "NaN or infinite"),
        ([[1, 2, 3]] * 6, "3 methods need 3 different names"),
    ],
)
def test_invalid_scores_raise_an_error(scores, message):
    with pytest.raises(EquimetricError, match=message):
        rank_over_datasets(scores, METHODS)


def test_nemenyi_agrees_with_scikit_posthocs():
    posthocs = pytest.importorskip("scikit_posthocs")
    p_values = posthocs.posthoc_nemenyi_friedman(np.array(SCORES)).to_numpy()
    found = rank_over_datasets(SCORES, METHODS)
    told = {(a, b) for a in range(4) for b in range(4) if p_values[a, b] < 0.05}
    assert told == {
        (METHODS.index(a), METHODS.index(b)) for pair in found.different_by_nemenyi for a, b in (pair, pair[::-1])
    }


def test_letters_agree_with_scikit_posthocs():
    posthocs = pytest.importorskip("scikit_posthocs")
    import pandas

    names = list("abcdefg")
    different = [("a", "e"), ("a", "f"), ("a", "g"), ("b", "f"), ("b", "g"), ("c", "g")]
    p_values = pandas.DataFrame(1.0, index=names, columns=names)
    for one, other in different:
        p_values.loc[one, other] = p_values.loc[other, one] = 0.0
    theirs, ours = posthocs.compact_letter_display(p_values), compact_letters(names, different)
    for one in names:
        for other in names:
            assert bool(set(theirs[one].strip()) & set(theirs[other].strip()) - {" "}) == bool(
                set(ours[one]) & set(ours[other])
            )
