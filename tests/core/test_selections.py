"""Selections by rule against worked values and against double loops written from their definitions."""

import pytest
import torch
from choosing import LABELS, ROWS, WORKED, float64, listed, negatives, pairs_of, positives, random_embeddings, select

import equimetric as em
from equimetric.pairs import Pairs


@pytest.mark.parametrize("case", WORKED["vthm"], ids=lambda case: case["id"])
def test_vthm_keeps_the_worked_pairs(case):
    data = WORKED["sets"][case["set"]]
    pairs = pairs_of(float64(data["embeddings"]), torch.tensor(data["labels"]))
    chosen = select("vthm", pairs, **case["options"])
    assert [row.nonzero()[:, 0].tolist() for row in chosen.positive] == case["positives_per_anchor"]
    assert [row.nonzero()[:, 0].tolist() for row in chosen.negative] == case["negatives_per_anchor"]


@pytest.mark.parametrize("margin", [0.0, 0.1, 0.7])
def test_vthm_and_multi_similarity_are_one_rule(margin):
    for seed in range(5):
        pairs = pairs_of(random_embeddings(seed))
        s = pairs.similarity
        for chosen in (select("vthm", pairs, epsilon=margin), select("multi_similarity", pairs, epsilon=margin)):
            for a in ROWS:
                both = positives(a) and negatives(a)
                hard_p = [p for p in positives(a) if both and s[a, p] < max(s[a, n] for n in negatives(a)) + margin]
                hard_n = [n for n in negatives(a) if both and s[a, n] > min(s[a, p] for p in positives(a)) - margin]
                assert chosen.positive[a].nonzero()[:, 0].tolist() == hard_p
                assert chosen.negative[a].nonzero()[:, 0].tolist() == hard_n


@pytest.mark.parametrize("geometry", ["cosine", "euclidean", "sqeuclidean"])
@pytest.mark.parametrize(("inner", "outer"), [(0.2, 0.8), (0.0, 2.0), (0.9, 1.2)])
def test_pair_margin(geometry, inner, outer):
    x = torch.nn.functional.normalize(random_embeddings())
    distance = (x[:, None] - x[None]).norm(dim=2)
    if geometry == "sqeuclidean":
        distance = distance.square()
    chosen = select("pair_margin", pairs_of(geometry=geometry), pos_margin=inner, neg_margin=outer, geometry=geometry)
    for a in ROWS:
        assert chosen.positive[a].nonzero()[:, 0].tolist() == [p for p in positives(a) if distance[a, p] > inner]
        assert chosen.negative[a].nonzero()[:, 0].tolist() == [n for n in negatives(a) if distance[a, n] < outer]


def test_pair_margin_shares_its_margins_with_a_contrastive_loss():
    plain = em.objective("contrastive", pos_margin=0.3, neg_margin=0.9)
    narrowed = em.objective("contrastive", pos_margin=0.3, neg_margin=0.9, selection="pair_margin")
    embeddings = random_embeddings()
    torch.testing.assert_close(narrowed(embeddings, LABELS), plain(embeddings, LABELS))


def nearest_to(values, candidates, largest):
    return (max if largest else min)(candidates, key=lambda j: values[j].item())


def brute_force_extremes(name, s, a):
    """The triples of one anchor, by definition."""
    own, other = positives(a), negatives(a)
    if not own or not other:
        return []
    closest_n = nearest_to(s[a], other, largest=True)
    if name == "batch_hard":
        return [(a, nearest_to(s[a], own, largest=False), closest_n)]
    closest_p = nearest_to(s[a], own, largest=True)
    if name == "easy_positive_hard_negative":
        return [(a, closest_p, closest_n)]
    if name == "easy_positive_semihard_negative":
        beyond = [n for n in other if s[a, n] < s[a, closest_p]]
        return [(a, closest_p, nearest_to(s[a], beyond, largest=True))] if beyond else []
    triples = []
    for p in own:
        beyond = [n for n in other if s[a, n] < s[a, p]]
        negative = nearest_to(s[a], beyond, largest=True) if beyond else nearest_to(s[a], other, largest=False)
        triples.append((a, p, negative))
    return triples


@pytest.mark.parametrize(
    "name", ["batch_hard", "easy_positive_hard_negative", "easy_positive_semihard_negative", "facenet_semihard"]
)
@pytest.mark.parametrize("geometry", ["cosine", "sqeuclidean"])
def test_extremes(name, geometry):
    for seed in range(5):
        pairs = pairs_of(random_embeddings(seed), geometry=geometry)
        expected = [triple for a in ROWS for triple in brute_force_extremes(name, pairs.similarity, a)]
        assert listed(select(name, pairs, geometry=geometry)) == sorted(expected)


BANDS = {
    "violating": lambda v, margin: v > -margin,
    "hard": lambda v, margin: v >= 0,
    "semihard": lambda v, margin: -margin < v < 0,
}


@pytest.mark.parametrize("name", BANDS)
@pytest.mark.parametrize("margin", [0.05, 0.4])
def test_bands(name, margin):
    pairs = pairs_of()
    s = pairs.similarity
    options = {} if name == "hard" else {"margin": margin}
    expected = [
        (a, p, n)
        for a in ROWS
        for p in positives(a)
        for n in negatives(a)
        if BANDS[name]((s[a, n] - s[a, p]).item(), margin)
    ]
    assert expected
    assert listed(select(name, pairs, **options).triplets()) == sorted(expected)


@pytest.mark.parametrize(
    "name", ["vthm", "pair_margin", "random_soft_hard", "random_semihard", "pads", "spectral_switch"]
)
@pytest.mark.parametrize("labels", [[0, 1, 2, 3], [0, 0, 0, 0], [0], [1, 1], [0, 0, 1, 2]])
@pytest.mark.parametrize("loss", ["triplet", "contrastive", "margin_loss"])
def test_degenerate_batches_are_finite(name, labels, loss):
    torch.manual_seed(0)
    objective = em.objective(loss, selection=name)
    for embeddings in (torch.randn(len(labels), 5), torch.ones(len(labels), 5), torch.zeros(len(labels), 5)):
        embeddings.requires_grad_()
        value = objective(embeddings, torch.tensor(labels))
        value.backward()
        assert torch.isfinite(value)
        assert torch.isfinite(embeddings.grad).all()


@pytest.mark.parametrize(
    "name", ["vthm", "pair_margin", "random_soft_hard", "random_semihard", "pads", "spectral_switch"]
)
def test_a_few_rows_at_a_time_work_too(name, monkeypatch):
    monkeypatch.setattr("equimetric.ops.chunks.MIN_CHUNKED_PAIRS", 1)
    monkeypatch.setattr("equimetric.ops.chunks.CHUNK_ENTRIES", 3 * len(LABELS))
    embeddings = random_embeddings().requires_grad_()
    torch.manual_seed(0)
    value = em.objective("triplet", selection=name, margin=0.5).double()(embeddings, LABELS)
    value.backward()
    assert value > 0
    assert torch.isfinite(embeddings.grad).all()


@pytest.mark.parametrize(
    "name", ["batch_hard", "easy_positive_hard_negative", "easy_positive_semihard_negative", "facenet_semihard"]
)
def test_a_weight_of_two_equals_a_doubled_reference(name):
    """A triple per anchor is one triple, however often its positive is there; one per positive pair counts by these."""
    pairs = pairs_of()
    times = torch.ones(len(LABELS), dtype=torch.int64)
    times[[1, 4, 6]] = torch.tensor([2, 3, 2])
    columns = torch.arange(len(LABELS)).repeat_interleave(times)
    repeated_columns = Pairs(
        pairs.similarity[:, columns], pairs.positive[:, columns], pairs.negative[:, columns], geometry=pairs.geometry
    )
    weighted = pairs.weighted(times.to(pairs.similarity.dtype).expand_as(pairs.similarity))
    for reduction in ("mean", "sum"):
        objective = em.objective("triplet", selection=name, margin=0.3, reduction=reduction)
        torch.testing.assert_close(objective.value(weighted), objective.value(repeated_columns))


def test_selections_have_aliases():
    pairs = pairs_of()
    chosen, expected = select("ms_masks", pairs, epsilon=0.3), select("multi_similarity", pairs, epsilon=0.3)
    assert torch.equal(chosen.positive, expected.positive)
    assert torch.equal(chosen.negative, expected.negative)
    torch.manual_seed(0)
    drawn = listed(select("dw_probs", pairs))
    torch.manual_seed(0)
    assert drawn == listed(select("distance_weighted", pairs))
