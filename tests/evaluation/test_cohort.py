"""Cohort normalisation as inner products of extended vectors, against its formula pair by pair."""

import numpy as np
import pytest
import torch

import equimetric as em
from equimetric.evaluation import Cohort

METRICS = ["recall@1", "map@r", "r_precision", "map", "mrr", "auc", "eer", "tar@far=1e-1", "opis"]
LABELS = torch.arange(48) % 8


@pytest.fixture
def space():
    generator = torch.Generator().manual_seed(4)
    centres = torch.randn(8, 6, generator=generator, dtype=torch.float64)
    embeddings = centres[LABELS] + torch.randn(48, 6, generator=generator, dtype=torch.float64)
    return embeddings, torch.randn(30, 6, generator=generator, dtype=torch.float64)


def unit(vectors):
    return vectors / vectors.norm(dim=1, keepdim=True)


def normalised(first, second, cohort, strength, nearest):
    """s'(x, y) by its formula."""
    rows = []
    for x in unit(first):
        crowd_x = (unit(cohort) @ x).sort(descending=True).values[:nearest].mean()
        row = []
        for y in unit(second):
            crowd_y = (unit(cohort) @ y).sort(descending=True).values[:nearest].mean()
            row.append(x @ y - strength * (crowd_x + crowd_y) / 2)
        rows.append(torch.stack(row))
    return torch.stack(rows)


@pytest.mark.parametrize(("strength", "nearest"), [(0.5, 5), (1.0, 1), (0.25, 100)])
def test_inner_products_of_extended_vectors_are_the_formula(space, strength, nearest):
    embeddings, cohort = space
    queries, items = Cohort(cohort, strength, nearest).extend(embeddings[:20], embeddings[20:])
    expected = normalised(embeddings[:20], embeddings[20:], cohort, strength, nearest)
    torch.testing.assert_close(queries @ items.T, expected, rtol=0, atol=1e-12)


def test_strength_zero_changes_nothing(space):
    embeddings, cohort = space
    # Thresholds of `opis` are scores here, not distances, and every pair is there in both directions.
    plain = em.evaluate(embeddings, LABELS, metrics=METRICS[:-1], neighbours=5)
    ids, vectors = torch.arange(48), unit(embeddings)
    options = {"query_ids": ids, "gallery_ids": ids, "metrics": ["opis"], "geometry": "dot"}
    expected = {**plain, **em.evaluate(vectors, LABELS, vectors, LABELS, **options)}
    with_cohort = em.evaluate(embeddings, LABELS, metrics=METRICS, neighbours=5, cohort=Cohort(cohort, strength=0.0))
    assert dict(with_cohort) == pytest.approx(expected, abs=1e-9)
    assert torch.equal(with_cohort.neighbours, plain.neighbours)
    assert with_cohort.gallery is None
    assert with_cohort.geometry == "cosine, cohort"


def test_neighbours_and_verification_follow_the_normalised_similarity(space):
    embeddings, cohort = space
    expected = normalised(embeddings, embeddings, cohort, 1.0, 5).fill_diagonal_(-torch.inf)
    options = {"metrics": ["recall@1", "eer", "auc"], "neighbours": 4, "cohort": Cohort(cohort, 1.0, 5)}
    found = em.evaluate(embeddings, LABELS, **options)
    assert torch.equal(found.neighbours, expected.argsort(dim=1, descending=True)[:, :4])
    same = (LABELS[:, None] == LABELS).numpy()
    off = ~np.eye(48, dtype=bool)
    positive, negative = (expected.numpy()[off & mask] for mask in (same, ~same))
    auc = (positive[:, None] > negative).mean() + (positive[:, None] == negative).mean() / 2
    assert found["auc"] == pytest.approx(auc, abs=1e-9)


def test_a_gallery_of_its_own(space):
    embeddings, cohort = space
    options = {"metrics": ["recall@1"], "neighbours": 3, "cohort": Cohort(cohort)}
    found = em.evaluate(embeddings[:20], LABELS[:20], embeddings[20:], LABELS[20:], **options)
    expected = normalised(embeddings[:20], embeddings[20:], cohort, 0.5, 50)
    assert torch.equal(found.neighbours, expected.argsort(dim=1, descending=True)[:, :3])
    assert found.gallery == 28


def test_what_makes_no_sense_is_one_sentence(space):
    embeddings, cohort = space
    for options, message in (
        ({"metrics": ["nmi"]}, "'nmi' describes embeddings, which a cohort does not change"),
        ({"geometry": "dot"}, "a cohort normalises cosines"),
    ):
        with pytest.raises(em.EquimetricError, match=message):
            em.evaluate(embeddings, LABELS, cohort=Cohort(cohort), **options)
    with pytest.raises(em.EquimetricError, match="the cohort has dimension 3, the embeddings 6"):
        em.evaluate(embeddings, LABELS, cohort=Cohort(cohort[:, :3]))
    for arguments in ({"strength": 1.5}, {"nearest": 0}):
        with pytest.raises(em.EquimetricError):
            Cohort(cohort, **arguments)
