"""Objectives that users of other libraries expect, from their definitions: sigmoid, DCL, GIST, AdaFace, MagFace, …"""

import math

import pytest
import torch
from torch.nn.functional import logsigmoid, normalize

import equimetric as em
from equimetric.errors import EquimetricError

LABELS = torch.tensor([0, 0, 0, 1, 1, 2, 2, 3])
NUMBER = len(LABELS)


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def cosines(embeddings, others=None):
    return normalize(embeddings) @ normalize(embeddings if others is None else others).T


def masks(labels=LABELS):
    same = labels[:, None] == labels
    return same & ~torch.eye(len(labels), dtype=torch.bool), ~same


def assert_equal_with_gradient(objective, expected, embeddings, *arguments):
    embeddings = embeddings.clone().requires_grad_()
    parameters = [embeddings, *objective.parameters()]
    found, wanted = objective(embeddings, *arguments), expected(embeddings)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(torch.autograd.grad(found, parameters), torch.autograd.grad(wanted, parameters))


# Sigmoid.


def test_sigmoid_decides_every_pair_by_itself():
    objective = em.objective("sigmoid", initial_scale=4.0, initial_bias=-1.5).double()
    positive, negative = masks()

    def expected(embeddings):
        logits = objective.loss.log_scale.exp() * cosines(embeddings) + objective.loss.bias
        return -(logsigmoid(logits)[positive].sum() + logsigmoid(-logits)[negative].sum()) / NUMBER

    assert_equal_with_gradient(objective, expected, random(NUMBER, 5), LABELS)
    assert objective.loss.log_scale.item() == pytest.approx(math.log(4))


def test_sigmoid_of_two_encoders_is_siglip():
    images, texts, ids = random(6, 5), random(6, 5, seed=1), torch.arange(6)
    signs = 2 * torch.eye(6, dtype=torch.float64) - 1
    expected = -logsigmoid(signs * (10 * cosines(images, texts) - 10)).sum() / 6
    torch.testing.assert_close(em.objective("sigmoid").double()(images, ids, texts, ids), expected)


# Decoupled contrastive.


def test_decoupled_contrastive_leaves_the_positive_out_of_the_denominator():
    positive, negative = masks()

    def expected(embeddings):
        logits = cosines(embeddings) / 0.3
        terms = [logits[a][negative[a]].logsumexp(0) - logits[a, p] for a, p in positive.nonzero().tolist()]
        return torch.stack(terms).mean()

    assert_equal_with_gradient(em.objective("dcl", temperature=0.3), expected, random(NUMBER, 5), LABELS)


def test_a_close_positive_does_not_calm_its_negatives():
    """NT-Xent weakens the push on negatives as the positive comes close, DCL does not."""
    labels, pushes = torch.tensor([0, 0, 1]), {}
    for method in ("ntxent", "dcl"):
        objective = em.objective(method, temperature=0.1).double()
        for angle in (0.1, 1.0):
            embeddings = torch.tensor(
                [[1.0, 0.0], [math.cos(angle), math.sin(angle)], [0.0, -1.0]], dtype=torch.float64
            )
            weights = em.pair_weights(objective, embeddings, labels)
            pushes[method, angle] = weights[0, 2].item()
    assert pushes["ntxent", 0.1] < 1e-3 < pushes["ntxent", 1.0]
    assert pushes["dcl", 0.1] == pytest.approx(pushes["dcl", 1.0])


# GIST.


def kept_negatives(objective, embeddings, labels=LABELS, **options):
    pairs = objective.pairs(embeddings, labels, **options)
    chosen = objective.select(pairs)
    assert torch.equal(chosen.positive, pairs.positive)
    return chosen.negative


@pytest.mark.parametrize(
    ("options", "bound"),
    [
        ({}, lambda closest: closest),
        ({"margin": 0.1}, lambda closest: closest - 0.1),
        ({"margin": 0.1, "margin_kind": "relative"}, lambda closest: 0.9 * closest),
    ],
)
@pytest.mark.parametrize("guided", [False, True])
def test_false_negatives_are_those_a_guide_finds_closer_than_the_closest_positive(guided, options, bound):
    embeddings, guide = random(NUMBER, 3), random(20, 6, seed=1)
    places = torch.tensor([7, 3, 11, 0, 19, 4, 2, 13])
    judged = cosines(guide[places] if guided else embeddings)
    positive, negative = masks()
    expected = torch.zeros_like(negative)
    for i, j in negative.nonzero().tolist():
        closest = judged[i][positive[i]].max() if positive[i].any() else torch.inf
        expected[i, j] = judged[i, j] <= bound(closest)
    found = kept_negatives(
        em.objective("gist", **options, **({"guide": guide} if guided else {})), embeddings, index=places
    )
    assert torch.equal(found, expected)
    assert expected.sum() < negative.sum()


@pytest.mark.parametrize("loss", ["ntxent", "supcon", "dcl", "nca", "multi_similarity"])
def test_any_loss_takes_the_mask(loss):
    embeddings = random(NUMBER, 3)
    positive, negative = masks()
    judged = cosines(embeddings)
    closest = judged.masked_fill(~positive, -torch.inf).amax(1, keepdim=True)
    closest[~positive.any(1)] = torch.inf
    relation = positive, negative & (judged <= closest)
    torch.testing.assert_close(
        em.objective(loss, selection="gist")(embeddings, LABELS), em.objective(loss)(embeddings, relation)
    )


def test_a_guide_is_checked_and_needs_to_know_the_samples():
    guide = random(20, 6)
    objective = em.objective("gist", guide=guide)
    assert not objective.separable, "columns are looked up, too"
    assert em.objective("gist").separable
    assert not objective.state_dict(), "the guide is given, not learned"
    with pytest.raises(EquimetricError, match="gist keeps the guide of 20 images; it needs index="):
        objective(random(NUMBER, 3), LABELS)
    with pytest.raises(EquimetricError, match="gist keeps the guide of 20 images; it needs index="):
        objective(random(NUMBER, 3), LABELS, index=torch.arange(NUMBER) + 15)
    with pytest.raises(EquimetricError, match="guide must be a matrix"):
        em.objective("gist", guide=guide[0])
    with pytest.raises(EquimetricError, match="unknown kind of margin"):
        em.objective("gist", margin_kind="percent")
