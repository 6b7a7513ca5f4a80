"""The logits of objectives that classify by a softmax over proxies."""

import pytest
import torch
from rounding import assert_same_digits

import equimetric as em
from equimetric.errors import EquimetricError
from equimetric.objectives import Context, build_objective

CLASSES, DIMENSION = 4, 6
LABELS = torch.arange(CLASSES).repeat_interleave(4)
WITHOUT_MARGIN = {
    "softmax": {},
    "softmax biased": {"bias": True},
    "normalized_softmax": {"temperature": 0.1},
    "cosface": {"margin": 0.0},
    "arcface": {"margin_rad": 0.0, "scale": 16.0},
    "proxy_nca_plus_plus": {},
    "softtriple": {"delta": 0.0, "tau": 0.0},
}
WITH_MARGIN = {"cosface": {"margin": 0.0}, "arcface": {"margin_rad": 0.0}, "softtriple": {"delta": 0.0}}


def build(method, **options):
    torch.manual_seed(1)
    return em.objective(method.split()[0], classes=CLASSES, dim=DIMENSION, **options).double()


def batch():
    return torch.randn(16, DIMENSION, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("method", WITHOUT_MARGIN)
def test_their_cross_entropy_is_the_loss_without_a_margin(method):
    objective = build(method, **WITHOUT_MARGIN[method])
    logits = objective.logits(batch())
    assert logits.shape == (16, CLASSES)
    assert_same_digits(torch.nn.functional.cross_entropy(logits, LABELS), objective(batch(), LABELS))


@pytest.mark.parametrize("method", WITH_MARGIN)
def test_they_have_no_margin(method):
    assert_same_digits(build(method).logits(batch()), build(method, **WITH_MARGIN[method]).logits(batch()))


def test_a_sum_has_those_of_its_one_classifier():
    objective = build("contrastive+normalized_softmax")
    assert_same_digits(objective.logits(batch()), objective.objectives[1].logits(batch()))


def test_they_have_gradients_and_change_nothing():
    objective = build("adaface").train()
    state = {key: value.clone() for key, value in objective.state_dict().items()}
    embeddings = batch().requires_grad_()
    objective.logits(embeddings).sum().backward()
    assert embeddings.grad.any()
    assert objective.training
    assert objective.references.training
    assert all(torch.equal(value, state[key]) for key, value in objective.state_dict().items())


def test_sampled_classes_are_all_there():
    objective = build("arcface", sample_rate=0.5).train()
    assert objective.logits(batch()).shape == (16, CLASSES)


@pytest.mark.parametrize("method", ["contrastive", "proxy_anchor", "nca", "softmax+0.5*normalized_softmax"])
def test_without_one_softmax_over_classes_there_are_none(method):
    objective = build_objective(method, {}, Context(classes=CLASSES, dim=DIMENSION, images=16)).double()
    with pytest.raises(EquimetricError, match=r"(no|2) softmax over proxies of classes, so no logits; objective\.p"):
        objective.logits(batch())
