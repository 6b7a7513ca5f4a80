"""Values that change over training: curricula of pairs and triples, and the decayed gamma of structured clustering."""

from math import ceil, floor

import pytest
import torch
from choosing import LABELS, ROWS, listed, negatives, pairs_of, positives, random_embeddings

import equimetric as em
from equimetric.errors import EquimetricError


def curriculum(selection, **options):
    method = "contrastive" if selection == "curriculum" else "triplet"
    return em.objective(method, selection=selection, **options)


def band(difficulties, low, high):
    """The entries of a list of (difficulty, entry) between two shares of it, easiest first."""
    ascending = [entry for _, entry in sorted(difficulties)]
    return sorted(ascending[floor(low * len(ascending)) : ceil(high * len(ascending))])


STEPS = [(0, 0.0, 0.25), (10, 0.25, 0.5), (30, 0.75, 1.0), (45, 0.75, 1.0)]


@pytest.mark.parametrize(("step", "low", "high"), STEPS)
def test_the_band_of_pairs_moves_with_the_step(step, low, high):
    pairs, objective = pairs_of(), curriculum("curriculum", start=(0.0, 0.25), end=(0.75, 1.0), curriculum_steps=30)
    objective.set_step(step)
    chosen, s = objective.selection(pairs), pairs.similarity
    # A pair and its mirror image tie, so both are kept.
    own = band([(-s[a, p].item(), (a, p)) for a in ROWS for p in positives(a) if a < p], low, high)
    other = band([(s[a, n].item(), (a, n)) for a in ROWS for n in negatives(a) if a < n], low, high)
    for mask, expected in ((chosen.positive, own), (chosen.negative, other)):
        found = [(a, b) for a, b in mask.nonzero().tolist() if a < b]
        # Shares of twice as many pairs may end within such two.
        assert set(expected) <= set(found)
        assert len(found) <= len(expected) + 2
        assert torch.equal(mask, mask.T)


@pytest.mark.parametrize(("step", "low", "high"), STEPS)
def test_the_band_of_triples_moves_with_the_step(step, low, high):
    objective = curriculum("curriculum_triplets", start=(0.0, 0.25), end=(0.75, 1.0), curriculum_steps=30)
    objective.set_step(step)
    pairs = pairs_of()
    s = pairs.similarity
    triples = [(a, p, n) for a in ROWS for p in positives(a) for n in negatives(a)]
    difficulties = [((s[a, n] - s[a, p]).item(), (a, p, n)) for a, p, n in triples]
    assert listed(objective.selection(pairs)) == band(difficulties, low, high)


def test_the_widest_band_keeps_all_whatever_the_step():
    options = {"start": (0.0, 1.0), "end": (0.0, 1.0), "reduction": "mean"}
    embeddings = random_embeddings()
    for selection, plain in (
        ("curriculum", em.objective("contrastive", reduction="mean")),
        ("curriculum_triplets", em.objective("triplet", reduction="mean")),
    ):
        objective = curriculum(selection, **options)
        for step in (0, 1, 10**6):
            objective.set_step(step)
            torch.testing.assert_close(objective(embeddings, LABELS), plain(embeddings, LABELS))


@pytest.mark.parametrize("selection", ["curriculum", "curriculum_triplets"])
def test_shares_are_of_samples_by_their_weight(selection):
    embeddings, weight = random_embeddings(), torch.arange(len(LABELS)) % 3
    objective = curriculum(selection, end=(0.4, 0.8), curriculum_steps=2, reduction="mean")
    objective.set_step(1)
    repeated = torch.repeat_interleave(torch.arange(len(LABELS)), weight)
    copies = repeated[:, None] == repeated
    rows, labels = embeddings[repeated], LABELS[repeated]
    expected = objective(rows, labels, rows, labels, self_mask=copies)
    torch.testing.assert_close(objective(embeddings, LABELS, sample_weight=weight.double()), expected)


@pytest.mark.parametrize("selection", ["curriculum", "curriculum_triplets"])
def test_the_step_is_in_the_state(selection):
    first, second = (curriculum(selection, curriculum_steps=8) for _ in range(2))
    first.set_step(5)
    assert first.selection.band() == (0.0, 0.8125)
    second.load_state_dict(first.state_dict())
    assert second.selection.band() == first.selection.band()
    summed = 2 * first + second
    summed.set_step(8)
    assert first.selection.band() == second.selection.band() == (0.0, 1.0)


@pytest.mark.parametrize(
    "wrong", [(0.5, 0.5), (0.6, 0.2), (-0.1, 0.5), (0.0, 1.5), (0.5,), 0.5, "ab", (0.0, float("nan"))]
)
def test_a_band_is_two_rising_shares(wrong):
    with pytest.raises(EquimetricError, match="end of a curriculum must be two rising shares"):
        curriculum("curriculum", end=wrong)


def test_gamma_decays_in_stairs_and_resumes():
    options = {"gamma": 8.0, "decay": 0.5, "decay_steps": 3}
    decayed = em.objective("structured_clustering", **options)
    embeddings = random_embeddings()
    for step, gamma in enumerate([8.0, 8.0, 8.0, 4.0, 4.0, 4.0, 2.0]):
        decayed.set_step(step)
        plain = em.objective("structured_clustering", gamma=gamma)
        torch.testing.assert_close(decayed(embeddings, LABELS), plain(embeddings, LABELS), rtol=0, atol=0)
    resumed = em.objective("structured_clustering", **options)
    assert resumed(embeddings, LABELS) != decayed(embeddings, LABELS)
    resumed.load_state_dict(decayed.state_dict())
    assert resumed.loss.gamma == 2.0
    assert resumed(embeddings, LABELS) == decayed(embeddings, LABELS)


def test_a_constant_gamma_keeps_no_state():
    assert em.objective("structured_clustering").state_dict() == {}
    with pytest.raises(EquimetricError, match="decay must be a number above 0 and up to 1"):
        em.objective("structured_clustering", decay=1.1)
