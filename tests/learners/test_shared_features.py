"""Triples of three classes and inside classes, and the learner that shares features."""

import pytest
import torch
from making import batch_for, make, require_training_only

import equimetric as em
from equimetric.errors import EquimetricError
from equimetric.geometry import unit
from equimetric.learners import Batch
from equimetric.learners.modules.triples import triple_terms, triples_inside_classes, triples_of_three_classes

NAME = "shared_features"


@pytest.fixture
def labels():
    return torch.arange(20) % 5


@pytest.fixture
def embedding():
    return torch.randn(20, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True)


def test_triples_have_three_classes(embedding, labels):
    torch.manual_seed(0)
    drawn = torch.cat([triples_of_three_classes(embedding, labels) for _ in range(300)])
    classes = labels[drawn].sort(1).values
    assert (classes.diff(dim=1) > 0).all()
    assert len(triples_of_three_classes(embedding, labels)[:, 0].unique()) == 20, "one of every anchor"
    # Positives are drawn uniformly: of anchors of class 0 with negatives of class 1, from the three other classes.
    chosen = drawn[(labels[drawn[:, 0]] == 0) & (labels[drawn[:, 2]] == 1)]
    shares = labels[chosen[:, 1]].bincount(minlength=5) / len(chosen)
    assert shares[2:].tolist() == pytest.approx([1 / 3] * 3, abs=0.1)


def test_negatives_of_three_classes_are_near(embedding, labels):
    torch.manual_seed(0)
    drawn = torch.cat([triples_of_three_classes(embedding, labels) for _ in range(50)])
    points = unit(embedding.detach())
    assert ((points[drawn[:, 0]] - points[drawn[:, 2]]).norm(dim=1) < 1.4).all()


def test_triples_inside_classes_have_one_class_and_three_samples():
    labels = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2])
    torch.manual_seed(0)
    drawn = torch.cat([triples_inside_classes(labels) for _ in range(50)])
    classes = labels[drawn]
    assert (classes == classes[:, :1]).all()
    assert (drawn.sort(1).values.diff(dim=1) > 0).all()
    assert set(drawn[:, 0].tolist()) == {0, 1, 2, 5, 6, 7, 8}, "two samples of a class make no triple"


def test_too_few_classes_or_samples_are_errors(embedding):
    with pytest.raises(EquimetricError, match=r"three classes or more; raise batch\.classes"):
        triples_of_three_classes(embedding, torch.arange(20) % 2)
    with pytest.raises(EquimetricError, match=r"set batch\.samples = 3"):
        triples_inside_classes(torch.arange(20) // 2)


def test_the_terms_of_triples_are_those_of_the_triplet_loss(embedding, labels):
    torch.manual_seed(0)
    triples = triples_of_three_classes(embedding, labels)
    batch = Batch(embedding, labels, torch.arange(20))
    (value,) = triple_terms(em.objective("triplet", margin=0.1), embedding, triples, batch).values()
    anchor, positive, negative = (unit(embedding)[rows] for rows in triples.unbind(1))
    violation = ((anchor - positive).norm(dim=1) - (anchor - negative).norm(dim=1) + 0.1).clamp_min(0)
    torch.testing.assert_close(value, violation.mean())


def test_a_loss_without_triples_is_an_error():
    with pytest.raises(EquimetricError, match="'proxy_anchor' takes none; choose a method of pairs or triples"):
        make(NAME, method="proxy_anchor")


def test_embeddings_ignore_what_only_training_needs():
    learner = make(NAME)
    require_training_only(learner, batch_for(learner))
    assert {name: rows.shape[1] for name, rows in learner.members(learner.outputs(batch_for(learner))).items()} == {
        "class": 4,
        "shared": 4,
    }
