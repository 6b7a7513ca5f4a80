import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from equimetric.errors import EquimetricError
from equimetric.evaluation import Consistency, Evaluation, evaluate
from equimetric.evaluation.metrics.clustering import ClusterAssignments
from equimetric.evaluation.metrics.partitions import (
    Contingency,
    adjusted_mutual_information,
    normalized_mutual_information,
    pairwise_f1,
)
from equimetric.evaluation.resampling import bootstrap, bootstrap_interval, compare_paired, paired
from equimetric.evaluation.resampling.class_statistics import class_statistic


def random_evaluation(seed=0, classes=12, each=6, metrics=("precision@1", "map@r"), noise=0.9, **options):
    """Spaces of different noise share their class centres, so that they can be compared."""
    generator = torch.Generator().manual_seed(7)
    labels = torch.arange(classes).repeat_interleave(each)
    centres = torch.randn(classes, 8, generator=generator)
    generator.manual_seed(seed)
    embeddings = centres[labels] + noise * torch.randn(len(labels), 8, generator=generator)
    return evaluate(embeddings, labels, metrics=metrics, **options)


def with_scores(scores, classes):
    """An evaluation whose only metric `score` is the mean of these scores of queries."""
    scores, classes = torch.as_tensor(scores, dtype=torch.float64), torch.as_tensor(classes)
    value = float(scores[~scores.isnan()].mean())
    return Evaluation(
        scores={"score": value},
        score_per_query={"score": scores},
        score_per_class={},
        labels=classes,
        class_labels=tuple(range(int(classes.max()) + 1)),
        query_classes=classes,
        queries=len(classes),
        gallery=None,
        lone=0,
        geometry="cosine",
        path="",
        percent=frozenset(),
    )


def with_curves(utility, threshold, value, name):
    empty = with_scores([0.0, 1.0], [0, 1])
    members = np.arange(len(utility))
    curves = Consistency(threshold, utility, tuple(members.tolist()), members, (threshold[0], threshold[-1]))
    return replace(empty, scores={name: value}, score_per_query={}, details={name: (curves,)})


def opis_by_definition(utility, threshold, share=None):
    """OPIS and ε-OPIS by definition, with trapezoids over the range."""
    width = threshold[-1] - threshold[0]
    if share is None:
        mean = sum(utility) / len(utility)
        return sum(np.trapezoid((curve - mean) ** 2, threshold) / width for curve in utility) / len(utility)
    ranked = sorted(utility, key=lambda curve: np.trapezoid(curve, threshold))
    group = max(1, int(share * len(utility) + 0.5))
    best, worst = sum(ranked[-group:]) / group, sum(ranked[:group]) / group
    return np.trapezoid((best - worst) ** 2, threshold) / width


def test_an_interval_contains_its_metric():
    result = random_evaluation()
    found = bootstrap_interval(result, "map@r")
    assert found.low < found.value == result["map@r"] < found.high
    assert (found.classes, found.draws, found.confidence) == (12, 2000, 0.95)
    narrow = bootstrap_interval(result, "map@r", confidence=0.5)
    assert found.low < narrow.low < narrow.high < found.high


def test_the_standard_error_is_that_of_class_means():
    generator = np.random.default_rng(0)
    per_class = generator.random(40)
    result = with_scores(np.repeat(per_class, 5), np.repeat(np.arange(40), 5))
    found = bootstrap_interval(result, "score", draws=5000)
    assert found.standard_error == pytest.approx(per_class.std() / np.sqrt(40), rel=0.05)
    # Nearly normal, so the interval reaches about two standard errors to each side.
    assert found.high - found.low == pytest.approx(2 * 1.96 * found.standard_error, rel=0.1)


def test_draws_are_those_of_a_plain_loop_over_classes():
    scores, classes = [1.0, 0.0, 0.5, 0.2, float("nan"), 0.9, 0.4], [0, 0, 0, 2, 2, 3, 4]
    statistic = class_statistic(with_scores(scores, classes), "score")
    assert statistic.classes.tolist() == [0, 2, 3, 4]  # class 1 has no queries
    drawn = [0, 0, 3, 2]
    queries = [score for number in drawn for score, of in zip(scores, classes, strict=True) if of == number]
    expected = np.nanmean(queries)
    assert statistic.of_weights(np.array([[2.0, 1.0, 1.0, 0.0]]))[0] == pytest.approx(expected)


def test_the_seed_determines_the_result_and_blocks_do_not(monkeypatch):
    result = random_evaluation()
    first, other = bootstrap_interval(result, "map@r", seed=1), bootstrap_interval(result, "map@r", seed=2)
    assert first == bootstrap_interval(result, "map@r", seed=1) != other
    monkeypatch.setattr(bootstrap, "WEIGHT_CHUNK_SIZE", 100)
    assert bootstrap_interval(result, "map@r", seed=1) == first


def test_draws_have_the_moments_of_a_bootstrap():
    blocks = list(bootstrap._draw_weights(10, 3000, np.random.default_rng(0)))
    weights = np.concatenate([weights for _, weights in blocks])
    assert weights.shape == (3000, 10)
    assert (weights.sum(axis=1) == 10).all()
    assert weights.mean(axis=0) == pytest.approx(np.ones(10), abs=0.1)
    assert weights.var(axis=0) == pytest.approx(np.full(10, 0.9), abs=0.12)


@pytest.mark.parametrize(("name", "share"), [("opis", None), ("opis@10%", 0.1), ("opis@34%", 0.34)])
def test_opis_of_drawn_classes(name, share):
    generator = np.random.default_rng(1)
    threshold, utility = np.linspace(0.4, 1.1, 21), generator.random((15, 21))
    value = opis_by_definition(list(utility), threshold, share)
    result = with_curves(utility, threshold, value, name)
    statistic = class_statistic(result, name)
    assert statistic.of_weights(np.ones((1, 15)))[0] == pytest.approx(value, rel=1e-10)
    drawn = generator.integers(15, size=15)
    weights = np.bincount(drawn, minlength=15).astype(float)[None]
    expected = opis_by_definition(list(utility[drawn]), threshold, share)
    assert statistic.of_weights(weights)[0] == pytest.approx(expected, rel=1e-10)
    found = bootstrap_interval(result, name)
    assert found.low < found.high
    assert found.classes == 15


def test_metrics_of_classes_are_resampled_by_class():
    result = random_evaluation(metrics=("pi_intra", "pi_ratio"))
    for name in ("pi_intra", "pi_ratio"):
        found = bootstrap_interval(result, name)
        per_class = result.score_per_class[name].numpy()
        assert found.low < found.value < found.high
        assert found.standard_error == pytest.approx(per_class.std() / np.sqrt(12), rel=0.1)


@pytest.mark.parametrize("name", ["tar@far=0.05", "frr@distance=1", "alignment", "alignment@alpha=1"])
def test_metrics_of_positive_pairs_are_resampled_by_class(name):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(12).repeat_interleave(torch.arange(2, 14))
    embeddings = torch.randn(12, 8, generator=generator)[labels] + torch.randn(len(labels), 8, generator=generator)
    result = evaluate(embeddings, labels, metrics=[name])
    statistic = class_statistic(result, name)
    assert statistic.of_weights(np.ones((1, 12)))[0] == pytest.approx(result[name], rel=1e-9)
    # Classes count by their pairs: the largest alone is its own value.
    assert statistic.of_weights(np.eye(12))[-1] == pytest.approx(result.score_per_class[name][-1].item())
    found = bootstrap_interval(result, name)
    assert found.low < found.value < found.high


def test_positive_pairs_with_a_gallery_have_no_interval():
    labels = torch.arange(4).repeat_interleave(torch.arange(2, 6))
    embeddings = torch.randn(len(labels), 8, generator=torch.Generator().manual_seed(0))
    result = evaluate(embeddings, labels, embeddings[2:7] + 1, labels[2:7], metrics=["alignment"])
    with pytest.raises(EquimetricError, match="'alignment' is a property of all classes together here"):
        bootstrap_interval(result, "alignment")


@pytest.mark.parametrize("name", ["opis", "opis@20%"])
def test_opis_of_an_evaluation(name):
    result = random_evaluation(metrics=[name], classes=30)
    statistic = class_statistic(result, name)
    assert statistic.of_weights(np.ones((1, 30)))[0] == pytest.approx(result[name], rel=1e-9)


@pytest.mark.parametrize("name", ["nmi", "nmi_geometric", "f1"])
def test_partitions_count_a_class_as_often_as_it_is_drawn(name):
    result = random_evaluation(metrics=[name], classes=5, each=4)
    statistic = class_statistic(result, name)
    weights = np.array([[1, 1, 1, 1, 1], [2, 0, 1, 2, 0]])
    classes, clusters = result.query_classes.numpy(), result.detail(ClusterAssignments).clusters[0]
    metric = {
        "nmi": normalized_mutual_information,
        "nmi_geometric": lambda table: normalized_mutual_information(table, "geometric"),
        "f1": pairwise_f1,
    }[name]
    expected = [
        metric(Contingency.from_labels(np.repeat(classes, row[classes]), np.repeat(clusters, row[classes])))
        for row in weights
    ]
    assert statistic.of_weights(weights.astype(np.float64)) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["auc", "eer"])
def test_verification_follows_the_classes_that_are_drawn(name):
    result = random_evaluation(metrics=[name], classes=30)
    statistic = class_statistic(result, name)
    assert statistic.of_weights(np.ones((1, 30)))[0] == pytest.approx(result[name], abs=1e-12)
    found = bootstrap_interval(result, name)
    assert found.low < result[name] < found.high
    noisy = random_evaluation(1, metrics=[name], classes=30, noise=2.0)
    assert compare_paired(result, noisy)[name].p_value < 0.01


def drawn_pairs(values, classes, weights):
    """Mean of values (N, N) over pairs: inside a class as often as it is drawn, between two by the product."""
    of_pair = np.outer(weights[classes], weights[classes])
    same = classes[:, None] == classes
    of_pair[same] = weights[classes[same.nonzero()[0]]]
    np.fill_diagonal(of_pair, 0)
    return (of_pair * values).sum() / of_pair.sum()


def far_by_definition(unit, classes, weights):
    """FAR at distance 1 over the negative pairs of the drawn classes."""
    between = (classes[:, None] != classes) * np.outer(weights[classes], weights[classes])
    return (between * (((unit[:, None] - unit) ** 2).sum(axis=2) <= 1)).sum() / between.sum()


def uniformity_by_definition(unit, classes, weights):
    return np.log(drawn_pairs(np.exp(-2 * ((unit[:, None] - unit) ** 2).sum(axis=2)), classes, weights))


def pi_inter_by_definition(unit, classes, weights):
    means = np.stack([unit[classes == number].mean(axis=0) for number in range(len(weights))])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    of_pair = np.outer(weights, weights) * (1 - np.eye(len(weights)))
    return (of_pair * (1 - means @ means.T)).sum() / of_pair.sum()


def spectral_decay_by_definition(unit, classes, weights):
    rows = np.repeat(np.arange(len(unit)), weights[classes].astype(int))
    share = np.linalg.svd(unit[rows], compute_uv=False)
    return -np.log(share / share.sum() * len(share)).mean()


def auc_by_definition(unit, classes, weights):
    """Share of pairs (positive, negative) of the drawn classes in which the positive is closer."""
    distance = ((unit[:, None] - unit) ** 2).sum(axis=2)
    first, second = np.triu_indices(len(unit), 1)
    same = classes[first] == classes[second]
    positive, negative = distance[first[same], second[same]], distance[first[~same], second[~same]]
    order = np.argsort(negative)
    of_negative = (weights[classes[first]] * weights[classes[second]])[~same][order]
    closer = np.append(0.0, np.cumsum(of_negative))[np.searchsorted(negative[order], positive)]
    of_positive = weights[classes[first[same]]]
    return 1 - (of_positive @ closer) / (of_positive.sum() * of_negative.sum())


@pytest.mark.parametrize(
    ("name", "by_definition"),
    [
        ("auc", auc_by_definition),
        ("far@distance=1", far_by_definition),
        ("uniformity", uniformity_by_definition),
        ("pi_inter", pi_inter_by_definition),
        ("spectral_decay", spectral_decay_by_definition),
    ],
)
def test_metrics_across_classes_vary_like_a_direct_resample(name, by_definition):
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(60).repeat_interleave(4)
    spread = torch.tensor([2.0, 1.6, 1.2, 0.9, 0.6, 0.4], dtype=torch.float64)
    embeddings = spread * torch.randn(60, 6, generator=generator, dtype=torch.float64)[labels]
    embeddings = embeddings + 0.4 * torch.randn(240, 6, generator=generator, dtype=torch.float64)
    result = evaluate(embeddings, labels, metrics=[name])
    unit, classes = torch.nn.functional.normalize(embeddings, dim=1).numpy(), labels.numpy()
    statistic = class_statistic(result, name)
    assert by_definition(unit, classes, np.ones(60)) == pytest.approx(result[name], rel=1e-9)
    assert statistic.of_weights(np.ones((1, 60)))[0] == pytest.approx(result[name], rel=1e-9)
    weights = np.random.default_rng(0).multinomial(60, np.full(60, 1 / 60), size=300).astype(float)
    direct = np.array([by_definition(unit, classes, row) for row in weights])
    found = statistic.of_weights(weights)
    assert np.corrcoef(found, direct)[0, 1] > 0.9
    assert found.std() == pytest.approx(direct.std(), rel=0.15)
    drawn = bootstrap_interval(result, name, draws=300)
    assert drawn.low < result[name] < drawn.high


def test_ami_of_drawn_classes_is_close_to_the_exact_one():
    result = random_evaluation(metrics=["ami"], classes=30, each=8)
    classes, clusters = result.query_classes.numpy(), result.detail(ClusterAssignments).clusters[0]
    weights = np.random.default_rng(0).multinomial(30, np.full(30, 1 / 30), size=20)
    direct = [
        adjusted_mutual_information(
            Contingency.from_labels(np.repeat(classes, row[classes]), np.repeat(clusters, row[classes]))
        )
        for row in weights
    ]
    assert class_statistic(result, "ami").of_weights(weights.astype(float)) == pytest.approx(direct, abs=0.02)
    found = bootstrap_interval(result, "ami", draws=200)
    assert found.low < found.high


@pytest.mark.parametrize(
    "name", ["uniformity", "spectral_decay@drop=1", "spectral_decay_reverse", "pi_inter_euclidean"]
)
def test_every_variant_has_an_interval(name):
    found = bootstrap_interval(random_evaluation(metrics=[name]), name, draws=100)
    assert found.low < found.high


def test_uniformity_with_a_gallery_has_no_interval():
    labels = torch.arange(4).repeat_interleave(3)
    embeddings = torch.randn(12, 8, generator=torch.Generator().manual_seed(0))
    result = evaluate(embeddings, labels, embeddings + 1, labels, metrics=["uniformity"])
    with pytest.raises(EquimetricError, match="is a property of all classes together here"):
        bootstrap_interval(result, "uniformity")


def test_a_better_space_is_detected():
    good, bad = random_evaluation(noise=0.5), random_evaluation(1, noise=1.5)
    comparison = compare_paired(good, bad)
    assert list(comparison) == ["precision@1", "map@r"]
    found = comparison["map@r"]
    assert found.difference == pytest.approx(good["map@r"] - bad["map@r"])
    assert 0 < found.low < found.difference < found.high
    assert found.p_value < 0.01
    assert (found.test, found.classes) == ("sign flips", 12)
    backward = compare_paired(bad, good, ["map@r"])["map@r"]
    assert (backward.low, backward.high) == pytest.approx((-found.high, -found.low))
    assert backward.p_value == found.p_value


def test_a_space_does_not_differ_from_itself():
    result = random_evaluation()
    found = compare_paired(result, result)["map@r"]
    assert (found.difference, found.low, found.high, found.p_value) == (0, 0, 0, 1)


def test_sign_flips_approach_the_exact_test():
    difference = np.array([0.5, 0.4, -0.1, 0.3, 0.2, 0.6, -0.2])
    signs = np.array(list(itertools.product([-1, 1], repeat=7)))
    exact = (np.abs(signs @ difference) >= abs(difference.sum()) - 1e-12).mean()
    assert paired._sign_flips(difference, 20_000, seed=0) == pytest.approx(exact, abs=0.01)


def test_p_is_uniform_under_the_null_hypothesis():
    generator = np.random.default_rng(0)
    classes = np.repeat(np.arange(20), 4)
    p_values = []
    for _ in range(200):
        # Queries of a class are strongly correlated: a test that ignores classes would find differences everywhere.
        luck = generator.normal(size=(2, 20)).repeat(4, axis=1) + 0.1 * generator.normal(size=(2, 80))
        first, other = (with_scores(scores, classes) for scores in luck)
        p_values.append(compare_paired(first, other, draws=200)["score"].p_value)
    assert np.mean(np.array(p_values) <= 0.05) < 0.1
    assert np.mean(p_values) == pytest.approx(0.5, abs=0.07)


def test_opis_is_compared_by_the_bootstrap():
    generator = np.random.default_rng(2)
    threshold = np.linspace(0.5, 1.0, 11)
    tight, wide = 0.8 + 0.02 * generator.random((30, 11)), 0.5 + 0.5 * generator.random((30, 1)) * np.ones(11)
    first, other = (
        with_curves(utility, threshold, opis_by_definition(list(utility), threshold), "opis")
        for utility in (tight, wide)
    )
    found = compare_paired(first, other)["opis"]
    assert found.test == "bootstrap"
    assert found.low < found.difference < found.high < 0
    assert found.p_value == pytest.approx(2 / 2001)
    same = compare_paired(first, first)["opis"]
    assert (same.low, same.high, same.p_value) == (0, 0, 1)


def test_a_comparison_can_be_read_and_written():
    comparison = compare_paired(random_evaluation(), random_evaluation(1))
    document = json.loads(json.dumps(comparison.to_dict()))
    assert document["metrics"]["map@r"]["p_value"] == comparison["map@r"].p_value
    assert document["metrics"]["map@r"]["difference"] == comparison["map@r"].difference
    lines = repr(comparison).splitlines()
    assert len(lines) == 3
    assert f"{comparison['map@r'].p_value:.4f}" in lines[2]


def test_invalid_comparisons():
    result = random_evaluation()
    with pytest.raises(EquimetricError, match="72 queries and the other 60"):
        compare_paired(result, random_evaluation(classes=10))
    swapped = replace(result, labels=result.labels.flip(0), query_classes=result.query_classes.flip(0))
    with pytest.raises(EquimetricError, match="query 0 is of class 0 in one evaluation and 11 in the other"):
        compare_paired(result, swapped)
    with pytest.raises(EquimetricError, match="query 0 is of class 0 in one evaluation and a in the other"):
        compare_paired(result, replace(result, labels=("a",) * 72))
    with pytest.raises(EquimetricError, match="share no metric"):
        compare_paired(result, random_evaluation(metrics=("mrr",)))
    with pytest.raises(EquimetricError, match="did you mean 'map@r'"):
        compare_paired(result, result, ["mapr"])
    lone = with_scores([0.5, 0.5, float("nan")], [0, 1, 2]), with_scores([0.5, 0.5, 0.0], [0, 1, 2])
    with pytest.raises(EquimetricError, match="different queries or classes"):
        compare_paired(*lone)


def test_invalid_intervals():
    result = random_evaluation()
    with pytest.raises(EquimetricError, match="did you mean 'map@r'"):
        bootstrap_interval(result, "map@")
    with pytest.raises(EquimetricError, match="confidence is 95"):
        bootstrap_interval(result, "map@r", confidence=95)
    with pytest.raises(EquimetricError, match="draws is 1"):
        bootstrap_interval(result, "map@r", draws=1)
    with pytest.raises(EquimetricError, match="a single class"):
        bootstrap_interval(with_scores([0.5, 1.0, float("nan")], [0, 0, 1]), "score")
