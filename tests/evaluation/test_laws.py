"""Invariances of the scores: order, class names, rotation, length of vectors, tiles, threads."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from equimetric.evaluation import evaluate, list_metrics
from equimetric.evaluation.resampling.class_statistics import class_statistic

METRICS = ["precision@1", "recall@2", "precision@3", "map@4", "r_precision", "map@r", "map", "mrr"]
spaces = st.tuples(st.integers(0, 2**31), st.integers(2, 40), st.integers(2, 9), st.integers(2, 6))
laws = settings(max_examples=25, deadline=None, derandomize=True)


def make(space):
    seed, count, dimension, classes = space
    generator = torch.Generator().manual_seed(seed)
    embeddings = torch.randn(count + classes, dimension, generator=generator, dtype=torch.float64)
    # Some query must have a relevant item, and there must be two classes.
    labels = torch.randint(0, classes, (count + classes,), generator=generator)
    labels[:3] = torch.tensor([0, 0, 1])
    return embeddings, labels, generator


@laws
@given(spaces)
def test_permutation(space):
    embeddings, labels, generator = make(space)
    order = torch.randperm(len(labels), generator=generator)
    plain, permuted = (evaluate(embeddings[rows], labels[rows], metrics=METRICS) for rows in (slice(None), order))
    assert plain == permuted
    for name in plain:
        torch.testing.assert_close(
            plain.per_query[name][order], permuted.per_query[name], rtol=0, atol=0, equal_nan=True
        )


@laws
@given(spaces)
def test_relabelling(space):
    embeddings, labels, generator = make(space)
    names = torch.randperm(1000, generator=generator)[: int(labels.max()) + 1] - 500
    expected = evaluate(embeddings, labels, metrics=METRICS)
    assert evaluate(embeddings, names[labels], metrics=METRICS) == expected
    # Neighbouring numbers above 2^24 are one number in float32, above 2^53 in float64.
    assert evaluate(embeddings, 2**24 + labels, metrics=METRICS) == expected
    assert evaluate(embeddings, 2**53 + labels, metrics=METRICS) == expected
    assert evaluate(embeddings, [f"class {label}" for label in labels.tolist()], metrics=METRICS) == expected


@laws
@given(spaces)
def test_rotation_and_length(space):
    embeddings, labels, generator = make(space)
    dimension = embeddings.shape[1]
    rotation, _ = torch.linalg.qr(torch.randn(dimension, dimension, generator=generator, dtype=torch.float64))
    lengths = 0.01 + 10 * torch.rand(len(labels), 1, generator=generator, dtype=torch.float64)
    turned, plain = (evaluate(vectors, labels, metrics=METRICS) for vectors in (embeddings @ rotation, embeddings))
    assert turned == plain
    assert evaluate(lengths * embeddings, labels, metrics=METRICS) == plain
    euclidean = [
        evaluate(vectors, labels, metrics=METRICS, geometry="euclidean")
        for vectors in (embeddings, embeddings @ rotation)
    ]
    assert euclidean[0] == euclidean[1]


@laws
@given(spaces, st.integers(1, 50), st.sampled_from(["cosine", "euclidean", "dot", "hamming"]))
def test_tile_size_and_threads(space, block_rows, geometry):
    embeddings, labels, _ = make(space)
    whole = evaluate(embeddings, labels, metrics=METRICS, geometry=geometry, neighbours=5)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        parts = evaluate(embeddings, labels, metrics=METRICS, geometry=geometry, neighbours=5, block_rows=block_rows)
    finally:
        torch.set_num_threads(before)
    assert parts == whole
    assert torch.equal(parts.neighbours, whole.neighbours)


@laws
@given(spaces, st.sampled_from(["cosine", "euclidean", "dot"]))
def test_candidates_in_low_precision(space, geometry):
    embeddings, labels, _ = make(space)
    names = [name for name in METRICS if name not in ("map", "mrr")]
    exact, coarse = (
        evaluate(embeddings, labels, metrics=names, geometry=geometry, neighbours=5, prefilter=prefilter)
        for prefilter in ("none", "bfloat16")
    )
    assert coarse == exact
    assert torch.equal(coarse.neighbours, exact.neighbours)


@laws
@given(spaces)
def test_metrics_do_not_influence_each_other(space):
    embeddings, labels, _ = make(space)
    together = evaluate(embeddings, labels, metrics=METRICS)
    assert dict(together) == {name: evaluate(embeddings, labels, metrics=name)[name] for name in METRICS}


@laws
@given(spaces)
def test_inequalities_between_metrics(space):
    embeddings, labels, _ = make(space)
    result = evaluate(embeddings, labels)
    assert 0 <= result["map@r"] <= result["r_precision"] + 1e-12 <= 1 + 1e-12
    assert result["precision@1"] == result["recall@1"] <= result["recall@2"] <= result["recall@4"] <= 1
    ranks = evaluate(embeddings, labels, metrics=["map@r", "map", "mrr", "precision@1"])
    assert ranks["map@r"] <= ranks["map"] <= 1
    assert ranks["precision@1"] <= ranks["mrr"] <= 1


OTHERS = ["nmi", "ami", "f1", "auc", "eer", "tar@far=0.1", "opis", "opis@34%", "pi_ratio", "alignment", "uniformity"]


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.integers(0, 2**31), st.integers(3, 6), st.integers(4, 9), st.sampled_from([None, 3]))
def test_invariance_of_clusters_thresholds_and_structure(seed, classes, samples, block_rows):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes).repeat_interleave(samples)
    embeddings = torch.randn(classes, 5, generator=generator, dtype=torch.float64)[labels]
    embeddings = embeddings + 0.7 * torch.randn(len(labels), 5, generator=generator, dtype=torch.float64)
    rotation, _ = torch.linalg.qr(torch.randn(5, 5, generator=generator, dtype=torch.float64))
    order = torch.randperm(len(labels), generator=generator)
    plain = evaluate(embeddings, labels, metrics=OTHERS)
    for changed in (
        evaluate(embeddings[order], labels[order], metrics=OTHERS),
        evaluate(embeddings @ rotation, 2**24 + labels, metrics=OTHERS),
        evaluate(embeddings, labels, metrics=OTHERS, block_rows=block_rows),
    ):
        assert dict(changed) == pytest.approx(dict(plain), rel=1e-9, abs=1e-9)


EXAMPLES = [example for family in list_metrics() for example in family.examples]


@pytest.fixture(scope="module")
def small_space():
    generator = torch.Generator().manual_seed(4)
    labels = torch.arange(9).repeat_interleave(7)
    embeddings = torch.randn(9, 5, generator=generator, dtype=torch.float64)[labels]
    return embeddings + 0.7 * torch.randn(63, 5, generator=generator, dtype=torch.float64), labels


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_registered_metric_depends_on_neither_tiles_threads_order_nor_names(name, small_space, threads):
    embeddings, labels = small_space
    plain = evaluate(embeddings, labels, metrics=name)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
    threads(2)
    for changed in (
        evaluate(embeddings, labels, metrics=name, block_rows=4),
        evaluate(embeddings[order], labels[order], metrics=name),
        evaluate(embeddings, [f"class {label}" for label in labels.tolist()], metrics=name),
    ):
        assert dict(changed) == pytest.approx(dict(plain), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_registered_metric_has_an_interval(name, small_space):
    found = evaluate(*small_space, metrics=name).interval(name, draws=40)
    assert found.low <= found.high
    assert found.classes == 9


def test_the_interval_of_a_median_resamples_medians(small_space):
    embeddings, labels = small_space
    found = evaluate(embeddings, labels, metrics="median_rank")
    statistic = class_statistic(found, "median_rank")
    first = evaluate(embeddings, labels, metrics="mrr").score_per_query["mrr"].reciprocal()
    for drawn in ([1.0] * 9, [0, 0, 0, 0, 0, 0, 0, 2.0, 1.0], [3.0, 0, 1.0, 0, 2.0, 0, 0, 0, 0]):
        ranks = torch.cat([first[labels == label].repeat(int(times)) for label, times in enumerate(drawn)])
        assert statistic.of_weights(np.array([drawn])) == pytest.approx([float(np.median(ranks))])
