"""What must not change the scores of a space: order, class names, rotation, and the length of its vectors."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from equimetric.evaluation import evaluate

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
    plain, permuted = evaluate(embeddings, labels), evaluate(embeddings[order], labels[order])
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
    assert evaluate(embeddings, names[labels]) == evaluate(embeddings, labels)
    assert evaluate(embeddings, [f"class {label}" for label in labels.tolist()]) == evaluate(embeddings, labels)


@laws
@given(spaces)
def test_rotation_and_length(space):
    embeddings, labels, generator = make(space)
    dimension = embeddings.shape[1]
    rotation, _ = torch.linalg.qr(torch.randn(dimension, dimension, generator=generator, dtype=torch.float64))
    lengths = 0.01 + 10 * torch.rand(len(labels), 1, generator=generator, dtype=torch.float64)
    assert evaluate(lengths * embeddings @ rotation, labels) == evaluate(embeddings, labels)


@laws
@given(spaces)
def test_metrics_keep_their_order(space):
    embeddings, labels, _ = make(space)
    result = evaluate(embeddings, labels)
    assert 0 <= result["map@r"] <= result["r_precision"] + 1e-12 <= 1 + 1e-12
    assert result["precision@1"] == result["recall@1"] <= result["recall@2"] <= result["recall@4"] <= 1
