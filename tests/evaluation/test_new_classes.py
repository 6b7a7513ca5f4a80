"""Upper bounds of the rates for new classes: the definition, their coverage, and where there is none."""

import math

import numpy as np
import pytest
from scipy.stats import t

from equimetric.calibration.new_classes import bound_new_classes
from equimetric.calibration.rates import class_counts
from equimetric.calibration.targets import FalseAccepts
from equimetric.evaluation.engine.inputs import prepare_sets
from equimetric.evaluation.engine.pair_distances import pair_distances


def draw_space(classes, each, seed, *, clumped=False):
    generator = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), each)
    centres = generator.normal(size=(classes, 8))
    if clumped:
        centres[:, 0] += generator.choice([0.0, 2.0], size=classes)
    return (centres[labels] + 0.4 * generator.normal(size=(classes * each, 8))).astype(np.float32), labels


def test_classes_are_deleted_with_both_ends_of_their_pairs():
    embeddings, labels = draw_space(12, 5, 0)
    distances = pair_distances(prepare_sets(embeddings, labels))
    threshold = FalseAccepts(0.01).threshold(distances)
    bounds = bound_new_classes(class_counts(distances, threshold), 0.95)

    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    first, second = np.triu_indices(60, 1)
    distance = np.linalg.norm(unit[first].astype(float) - unit[second], axis=1)
    same, errors = labels[first] == labels[second], {}
    for name, which, wrong in (("far", ~same, distance < threshold), ("frr", same, distance >= threshold)):
        rates = []
        for left_out in (-1, *range(12)):
            kept = which & (labels[first] != left_out) & (labels[second] != left_out)
            rates.append(wrong[kept].mean())
        logs = np.log(rates[1:])
        errors[name] = rates[0] * math.exp(t.ppf(0.95, 11) * math.sqrt(11 / 12 * ((logs - logs.mean()) ** 2).sum()))
    # The threshold is itself the distance of a pair, so a rounding may move one pair.
    assert bounds.far == pytest.approx(errors["far"], rel=0.05)
    assert bounds.frr == pytest.approx(min(1, errors["frr"]), rel=0.05)


def coverage(classes, draws, *, clumped=False):
    """Shares of draws whose bounds of FAR and FRR hold in a large population."""
    population = pair_distances(prepare_sets(*draw_space(1200, 4, 99, clumped=clumped)))
    held = []
    for seed in range(draws):
        distances = pair_distances(prepare_sets(*draw_space(classes, 8, (seed, classes), clumped=clumped)))
        threshold = FalseAccepts(1e-2).threshold(distances)
        bounds = bound_new_classes(class_counts(distances, threshold), 0.95)
        accepted = population.count_accepted(threshold, strictly_below=True)
        far, frr = accepted.negative / population.negatives, 1 - accepted.positive / population.positives
        # Without a bound nothing is promised, so such a draw neither holds nor fails.
        known = [(far, bounds.far), (frr, bounds.frr)]
        held.append([np.nan if bound is None else float(rate <= bound) for rate, bound in known])
    assert np.isfinite(held).mean() > 0.5
    return np.nanmean(held, axis=0)


@pytest.mark.parametrize("classes", [10, 20])
def test_bounds_hold_for_new_classes(classes):
    assert (coverage(classes, 60) >= 0.88).all()


@pytest.mark.slow
@pytest.mark.parametrize("clumped", [False, True])
@pytest.mark.parametrize("classes", [10, 20, 40])
def test_bounds_hold_for_new_classes_in_two_hundred_draws(classes, clumped):
    assert (coverage(classes, 200, clumped=clumped) >= 0.92).all()


def counts(accepted, rejected, classes=12):
    """(C, 4): each class has 110 negative and 10 positive pairs."""
    table = np.tile([0.0, 10.0, 110.0, 10.0], (classes, 1))
    table[:, 0] = accepted
    table[:, 1] -= rejected
    return table


def test_where_there_is_no_bound_a_sentence_says_why():
    few = bound_new_classes(counts(5, 1, classes=9), 0.95)
    assert (few.far, few.frr) == (None, None)
    assert "9 classes have such pairs, and 10 are needed" in few.reasons[0]
    none = bound_new_classes(counts(0, 1), 0.95)
    assert none.far is None
    assert none.frr == pytest.approx(0.1)
    assert none.reasons == ("no bound of the FAR for new classes: there is no accepted negative pair",)
    rejected = np.zeros(12)
    rejected[3] = 4
    one = bound_new_classes(counts(5, rejected), 0.95)
    assert one.frr is None
    assert one.reasons == ("no bound of the FRR for new classes: one class has a part in every rejected positive pair",)


def test_a_bound_is_at_most_one():
    rejected = np.where(np.arange(12) < 4, 10.0, 0.5)
    assert bound_new_classes(counts(5, rejected), 0.95).frr <= 1
