"""Exact duplicates in a batch are legal pairs: what rounding leaves of their distance must not count."""

from math import cos, exp, log1p, radians, sin

import pytest
import torch
from rounding import assert_same_digits
from torch.nn.functional import normalize

import equimetric as em

CLASSES, ALIKE = 40, 30


def duplicated(dtype):
    """Classes of two samples, in most of which both are the same vector."""
    torch.manual_seed(2)
    first = torch.randn(CLASSES, 16, dtype=torch.float64)
    apart = (torch.arange(CLASSES) >= ALIKE)[:, None]
    second = first + apart * torch.randn(CLASSES, 16, dtype=torch.float64)
    return torch.cat([first, second]).to(dtype), torch.arange(CLASSES).repeat(2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_coincident_positives_have_no_noise_that_would_count(dtype):
    embeddings, labels = duplicated(dtype)
    x = normalize(embeddings.double())
    one, other = x[ALIKE:CLASSES], x[CLASSES + ALIKE :]
    noise = torch.cat([(one - other).var(1) / one.var(1), (one - other).var(1) / other.var(1)])
    value = em.objective("snr_contrastive", neg_margin=0.0)(embeddings, labels)
    assert value.item() == pytest.approx(noise.mean().item(), rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("geometry", "power"), [("euclidean", 1), ("sqeuclidean", 2)])
def test_coincident_positives_have_no_distance_that_would_count(geometry, power, dtype):
    embeddings, labels = duplicated(dtype)
    x = normalize(embeddings.double())
    distance = (x[ALIKE:CLASSES] - x[CLASSES + ALIKE :]).norm(dim=1) ** power
    value = em.objective("contrastive", geometry=geometry, neg_margin=0.0)(embeddings, labels)
    assert value.item() == pytest.approx(distance.mean().item(), rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_slack_of_a_coincident_positive_is_exact_and_its_gradient_finite(dtype):
    angle = radians(8.0)
    embeddings = torch.tensor([[1.0, 0.0], [1.0, 0.0], [cos(angle), sin(angle)]], dtype=dtype)
    embeddings.requires_grad_()
    value = em.objective("tuplet_margin", scale=64.0, margin_deg=15.0)(embeddings, torch.tensor([0, 0, 1]))
    expected = log1p(exp(64 * (cos(angle) - cos(radians(15.0)))))
    assert value.item() == pytest.approx(expected, rel=1e-9 if dtype == torch.float64 else 1e-5)
    value.backward()
    assert torch.isfinite(embeddings.grad).all()


def test_of_equally_close_positives_and_negatives_the_first_has_the_gradient():
    pairs = em.objective("ephn").pairs(torch.eye(5), torch.tensor([0, 0, 0, 1, 1]))
    similarity = torch.tensor([[0.0, 0.5, 0.5, 0.25, 0.25]]).expand(5, 5).clone().requires_grad_()
    em.objective("ephn").value(pairs.replace(similarity=similarity)).backward()
    assert (similarity.grad[0] != 0).tolist() == [False, True, False, True, False]


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("triplet", {"mining": "hard"}),
        ("triplet", {"mining": "semihard"}),
        ("triplet", {"mining": "semihard", "reduction": "none"}),
        ("triplet", {"mining": "facenet_semihard"}),
        ("triplet", {"mining": "hard", "geometry": "cosine"}),
        ("triplet", {"mining": "easy_positive_semihard_negative"}),
        ("ephn", {"semihard": True}),
        ("multi_similarity", {"epsilon": 0.0}),
    ],
)
@pytest.mark.parametrize("many_positives", [False, True])
def test_duplicates_of_two_classes_tie_wherever_they_stand(method, options, many_positives, monkeypatch):
    if many_positives:
        monkeypatch.setattr("equimetric.ops.triplets.FEW_POSITIVES", 0)
    objective, labels = em.objective(method, **options), torch.arange(20) % 5
    for seed in range(15):
        generator = torch.Generator().manual_seed(seed)
        embeddings = torch.randn(20, 6, dtype=torch.float64, generator=generator)
        # Of different classes, so that one's positive and negative lie at the same place.
        embeddings[11], embeddings[17] = embeddings[5], embeddings[8]
        order = torch.randperm(20, generator=generator)
        value, moved = objective(embeddings, labels), objective(embeddings[order], labels[order])
        assert_same_digits(moved.sum(), value.sum())
