"""Classes are named by bounds that know how pairs depend on each other: tables, variances, Holm, identical classes."""

import math

import numpy as np
import pytest
import torch

from equimetric.calibration.class_bounds import RateEstimates, estimate_far, estimate_frr, lower_bounds
from equimetric.calibration.targets import FalseAccepts, FalseRejects
from equimetric.calibration.two_way_rates import TwoWayRates, accepted_shares
from equimetric.evaluation.engine.inputs import prepare_sets
from equimetric.evaluation.engine.pair_distances import pair_distances


def uneven_space(geometry, seed=0):
    """Classes of 1 to 9 images."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.cat([torch.full((size,), number) for number, size in enumerate([1, 2, 3, 9, 5, 4, 7, 2])])
    vectors = 0.6 * torch.randn(8, 6, generator=generator)[labels] + torch.randn(len(labels), 6, generator=generator)
    order = torch.randperm(len(labels), generator=generator)
    vectors = torch.nn.functional.normalize(vectors) if geometry == "cosine" else 3 * vectors
    return vectors[order], labels[order]


def table_by_definition(vectors, labels, label, threshold):
    """a_kc of one class: share of the images of each other class that each of its images accepts."""
    distance = torch.cdist(vectors.double(), vectors.double(), compute_mode="donot_use_mm_for_euclid_dist")
    others = [other for other in labels.unique().tolist() if other != label]
    return np.array(
        [
            [np.mean([float(distance[k, j] < threshold) for j in np.flatnonzero(labels == other)]) for other in others]
            for k in np.flatnonzero(labels == label)
        ]
    )


@pytest.mark.parametrize("geometry", ["cosine", "euclidean"])
@pytest.mark.parametrize("block_rows", [None, 3])
def test_tables_and_variances_are_those_of_the_definition(geometry, block_rows):
    vectors, labels = uneven_space(geometry)
    threshold = {"cosine": 1.1, "euclidean": 8.0}[geometry]
    rates = accepted_shares(prepare_sets(vectors, labels, geometry=geometry), threshold, block_rows=block_rows)
    distance = torch.cdist(vectors.double(), vectors.double())
    for label in range(8):
        table = table_by_definition(vectors, labels, label, threshold)
        n, others = table.shape
        assert (rates.images[label], rates.others[label]) == (n, others)
        assert rates.far[label] == pytest.approx(table.mean())
        if n == 1:
            assert math.isnan(rates.image_variance[label])
            continue
        rows, columns = table.mean(axis=1), table.mean(axis=0)
        rest = table - rows[:, None] - columns + table.mean()
        assert rates.image_variance[label] == pytest.approx(rows.var(ddof=1) / n, abs=1e-12)
        assert rates.class_variance[label] == pytest.approx(columns.var(ddof=1) / others, abs=1e-12)
        assert rates.rest_variance[label] == pytest.approx(
            (rest**2).sum() / ((n - 1) * (others - 1) * n * others), abs=1e-12
        )
        mine = distance[labels == label][:, labels == label] >= threshold
        mine.fill_diagonal_(False)
        assert rates.frr[label] == pytest.approx(mine.sum().item() / (n * (n - 1)))
        if n > 2:
            left = [np.delete(np.delete(mine.numpy(), k, 0), k, 1).sum() / ((n - 1) * (n - 2)) for k in range(n)]
            variance = (n - 1) / n * sum((one - np.mean(left)) ** 2 for one in left)
            assert rates.frr_variance[label] == pytest.approx(variance, abs=1e-12)


def two_way(tables):
    """The rates of tables (classes, images, others), as plain means and variances."""
    count, n, others = tables.shape
    rows, columns, mean = tables.mean(axis=2), tables.mean(axis=1), tables.mean(axis=(1, 2))
    rest = tables - rows[:, :, None] - columns[:, None] + mean[:, None, None]
    unknown = np.full(count, np.nan)
    return TwoWayRates(
        images=np.full(count, n),
        others=np.full(count, others),
        negatives=np.full(count, n * others),
        far=mean,
        image_variance=rows.var(axis=1, ddof=1) / n if n > 1 else unknown,
        class_variance=columns.var(axis=1, ddof=1) / others,
        rest_variance=(rest**2).sum(axis=(1, 2)) / max((n - 1) * (others - 1) * n * others, 1),
        frr=unknown,
        frr_variance=unknown,
    )


def test_the_variance_is_never_below_that_of_images_or_classes_alone():
    generator = np.random.default_rng(0)
    rates = two_way(generator.random((200, 5, 7)))
    found = estimate_far(rates)
    k, c, e = rates.image_variance, rates.class_variance, rates.rest_variance
    np.testing.assert_allclose(found.variance, np.max([k + c - e, k, c], axis=0))
    together = (e < k) & (e < c)
    assert 0 < together.sum() < 200
    satterthwaite = found.variance**2 / (k**2 / 4 + c**2 / 6 + e**2 / 24)
    np.testing.assert_allclose(found.degrees[together], np.minimum(satterthwaite, 4)[together])
    assert (found.degrees <= 4).all()


def test_classes_without_spread_or_with_few_images():
    nothing, everything = np.zeros((1, 4, 5)), np.ones((1, 4, 5))
    found = estimate_far(two_way(np.concatenate([nothing, everything])))
    none, all_of_them = lower_bounds(found, 0.1, 0.95)
    assert none == 0
    assert 0.1 < all_of_them < 1, "20 pairs are no proof of a rate of 1"
    for images in (1, 2):
        few = estimate_far(two_way(np.ones((3, images, 5))))
        assert np.isnan(lower_bounds(few, 0.1, 0.95)).all()
    assert np.isnan(lower_bounds(estimate_frr(two_way(everything)), 0.1, 0.95)).all()
    assert not len(lower_bounds(RateEstimates(*np.empty((4, 0))), 0.1, 0.95))


def test_bounds_follow_holm():
    from scipy.stats import t

    generator = np.random.default_rng(1)
    rate, error, degrees = generator.random(30) * 0.2, 0.02 * np.ones(30), generator.integers(3, 40, 30).astype(float)
    bounds = lower_bounds(RateEstimates(rate, error**2, degrees, np.full(30, 1e9)), 0.05, 0.95)
    p_values = t.sf((rate - 0.05) / error, degrees)
    order, named = np.argsort(p_values), set()
    for step, place in enumerate(order):
        if p_values[place] >= 0.05 / (30 - step):
            break
        named.add(int(place))
        level = 1 - 0.05 / (30 - step)
        assert bounds[place] == pytest.approx(rate[place] - t.ppf(level, degrees[place]) * error[place])
    assert 3 < len(named) < 27
    assert set(np.flatnonzero(bounds > 0.05)) == named


def draw_classes(kind, classes, each, generator):
    """Identical classes: samples of one distribution, or directions of their own at equal distances."""
    count, labels = classes * each, np.repeat(np.arange(classes), each)
    vectors = generator.normal(size=(count, 12))
    if kind == "some images close to all":
        vectors[generator.random(count) < 0.1] *= 0.25
        vectors[:, 0] += 1
    if kind == "two regions":
        vectors = vectors[:, :6]
        vectors[:, 0] += generator.choice([0.0, 3.0], size=count, p=[0.85, 0.15])
    if kind == "equidistant":
        vectors = 3 * np.eye(classes)[labels] + 0.6 * generator.normal(size=(count, classes))
    return prepare_sets(vectors.astype(np.float32), labels)


def names_anybody(kind, classes, each, far, seed):
    """Whether two halves of identical classes, each at the threshold of the other, name any class."""
    generator = np.random.default_rng(seed)
    halves = [draw_classes(kind, classes // 2, each, generator) for _ in range(2)]
    distances = [pair_distances(half) for half in halves]
    found = [
        estimate_far(accepted_shares(half, FalseAccepts(far).threshold(other)))
        for half, other in zip(halves, distances[::-1], strict=True)
    ]
    return bool((lower_bounds(RateEstimates.join(found), far, 0.95) > far).any())


KINDS = ["one cloud", "some images close to all", "two regions", "equidistant"]


@pytest.mark.parametrize("kind", KINDS)
def test_identical_classes_are_rarely_named(kind):
    named = [names_anybody(kind, 20, each, 1e-2, seed) for each in (4, 10) for seed in range(40)]
    assert np.mean(named) <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("classes", "each", "far"), [(20, 3, 5e-2), (20, 8, 1e-2), (80, 5, 1e-2), (80, 5, 5e-2), (40, 15, 1e-2)]
)
def test_at_most_one_certificate_of_twenty_names_an_identical_class(kind, classes, each, far):
    assert np.mean([names_anybody(kind, classes, each, far, seed) for seed in range(200)]) <= 0.05


@pytest.mark.parametrize("images", [3, 4, 6, 10])
def test_images_that_differ_much_name_no_class(images):
    """Few images with skewed rates: their row means agree by chance, and other classes are many."""
    generator = np.random.default_rng(images)
    named = []
    for _ in range(100):
        rate = np.minimum(0.05 * generator.gamma(0.5, 2.0, size=(80, images, 1)), 1) * np.ones((80, images, 39))
        tables = generator.binomial(images, rate) / images
        named.append((lower_bounds(estimate_far(two_way(tables)), 0.05, 0.95) > 0.05).any())
    assert np.mean(named) <= 0.05


def names_a_rejected_class(each, frr, seed):
    """Whether two halves of classes of one spread, some images far off, name any class for its false rejects."""
    generator, found = np.random.default_rng(seed), []
    labels = np.repeat(np.arange(10), each)
    halves = []
    for _ in range(2):
        noise = generator.normal(size=(10 * each, 8)) * generator.choice([1.0, 4.0], (10 * each, 1), p=[0.9, 0.1])
        vectors = 20 * generator.normal(size=(10, 8))[labels] + noise
        halves.append(prepare_sets(vectors.astype(np.float32), labels, geometry="euclidean"))
    for half, other in zip(halves, halves[::-1], strict=True):
        found.append(estimate_frr(accepted_shares(half, FalseRejects(frr).threshold(pair_distances(other)))))
    return bool((lower_bounds(RateEstimates.join(found), frr, 0.95) > frr).any())


@pytest.mark.parametrize("each", [3, 5, 10])
def test_identical_classes_are_rarely_named_for_their_false_rejects(each):
    assert np.mean([names_a_rejected_class(each, 0.2, seed) for seed in range(60)]) <= 0.05


def test_a_class_of_wide_spread_is_named_for_its_false_rejects():
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(20), 12)
    noise = generator.normal(size=(240, 8)) * np.where(labels == 4, 4.0, 1.0)[:, None]
    vectors = (20 * generator.normal(size=(20, 8))[labels] + noise).astype(np.float32)
    sets = prepare_sets(vectors, labels, geometry="euclidean")
    threshold = FalseRejects(0.1).threshold(pair_distances(sets))
    found = lower_bounds(estimate_frr(accepted_shares(sets, threshold)), 0.1, 0.95)
    assert np.flatnonzero(found > 0.1).tolist() == [4]


def test_classes_that_differ_are_named():
    """Five of forty classes accept ten times as much."""
    generator = np.random.default_rng(0)
    wrong = found = 0
    for _ in range(50):
        rate = np.full((40, 15, 39), 0.01)
        rate[:5] = 0.1
        tables = generator.binomial(10, rate) / 10
        named = lower_bounds(estimate_far(two_way(tables)), 0.01, 0.95) > 0.01
        found, wrong = found + named[:5].sum(), wrong + named[5:].any()
    assert found >= 240
    assert wrong <= 3
