"""Sample weights of losses that read a batch as a whole, against loops."""

from itertools import combinations
from math import exp, log, radians, sqrt, tan

import pytest
import torch
from torch.nn.functional import normalize

import equimetric as em
from equimetric.components import LOSSES
from equimetric.ops.medoids import MedoidSearch

LABELS = torch.tensor([0, 0, 1, 1, 2, 2, 2, 3])
WEIGHTS = torch.tensor([0.0, 2.5, 0.5, 1.25, 1.0, 0.0, 3.0, 2.0], dtype=torch.float64)


def embeddings(seed=0, rows=8, dim=4):
    return torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def dot(one, other):
    return float(one @ other)


@pytest.mark.parametrize("symmetric", [False, True])
def test_n_pairs_count_by_their_anchor_and_their_references(symmetric):
    labels = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 3])
    weights = torch.tensor([0.0, 2.5, 0.5, 1.25, 1.0, 0.0, 3.0, 2.0, 1.0], dtype=torch.float64)
    x, w = embeddings(rows=9), weights.tolist()
    pairs = [(1, 2), (3, 4), (6, 7)]  # without the samples of weight 0, and without the class of one sample
    total = 0.0
    for a, p in pairs:
        others = [pair for pair in pairs if pair != (a, p)]
        value = log(1 + sum(w[q] * exp(dot(x[a], x[q]) - dot(x[a], x[p])) for _, q in others))
        if symmetric:
            reverse = log(1 + sum(w[b] * exp(dot(x[b], x[p]) - dot(x[a], x[p])) for b, _ in others))
            value = (value + reverse) / 2
        total += w[a] * (value + 0.002 / 4 * (dot(x[a], x[a]) + dot(x[p], x[p])))
    objective = em.objective("npairs", symmetric=symmetric)
    value = objective(x, labels, sample_weight=weights)
    assert value.item() == pytest.approx(total / sum(w[a] for a, _ in pairs), rel=1e-12)


def test_angular_n_pairs_count_by_their_anchor_and_their_references():
    x, w = normalize(embeddings()), [2.0, 1.0, 0.5, 3.0, 1.5, 0.25, 9.0, 9.0]
    pairs, squared = [(0, 1), (2, 3), (4, 5)], tan(radians(40)) ** 2
    total = 0.0
    for a, p in pairs:
        own = 2 * (1 + squared) * dot(x[a], x[p])
        others = [w[q] * exp(4 * squared * dot(x[a] + x[p], x[q]) - own) for b, q in pairs if b != a]
        total += w[a] * log(1 + sum(others))
    objective = em.objective("angular_npair", alpha_deg=40.0)
    value = objective(embeddings(), LABELS, sample_weight=torch.tensor(w).double())
    assert value.item() == pytest.approx(total / (2.0 + 0.5 + 1.5), rel=1e-12)


@pytest.mark.parametrize("method", ["npairs", "angular_npair", "angular_npairs_combo"])
def test_values_of_n_pairs_are_those_of_their_anchors(method):
    x, w = embeddings(), torch.tensor([2.0, 1, 0.5, 3, 1.5, 1, 1, 1], dtype=torch.float64)

    def value(reduction, **weights):
        return em.objective(method, reduction=reduction)(x, LABELS, **weights)

    terms = value("none")
    assert (terms > 0).nonzero()[:, 0].tolist() == [0, 2, 4]
    torch.testing.assert_close(value("query"), terms)
    torch.testing.assert_close(value("mean"), terms.sum() / 3)
    torch.testing.assert_close(value("mean"), em.objective(method)(x, LABELS))
    torch.testing.assert_close(value("sum"), terms.sum())
    torch.testing.assert_close(value("batch"), terms.sum() / 8)
    weighted = value("none", sample_weight=w)
    torch.testing.assert_close(value("mean", sample_weight=w), weighted.sum() / (2 + 0.5 + 1.5))
    with pytest.raises(em.EquimetricError, match="'sum' or 'none', got 'average'"):
        value("average")


def test_values_of_soft_n_pairs():
    x = embeddings()
    values = em.objective("npairs", repeated="soft", symmetric=True, reduction="query")(x, LABELS)
    assert (values[:7] > 0).all()
    torch.testing.assert_close(
        em.objective("npairs", repeated="soft", symmetric=True)(x, LABELS), values.sum() / (values > 0).sum()
    )
    with pytest.raises(em.EquimetricError, match="has the reductions 'mean' and 'query'"):
        em.objective("npairs", repeated="soft", reduction="sum")(x, LABELS)


def test_soft_n_pairs_of_repeated_rows():
    times, labels = torch.tensor([1, 2, 3, 0, 1, 2, 1, 2]), LABELS
    rows = torch.arange(8).repeat_interleave(times)
    objective = em.objective("npairs", repeated="soft", symmetric=True)
    x = embeddings()
    repeated = objective(x[rows], labels[rows], x[rows], labels[rows], self_mask=rows[:, None] == rows)
    torch.testing.assert_close(objective(x, labels, sample_weight=times), repeated)
    columns = torch.arange(8).repeat_interleave(times.flip(0))
    y = embeddings(1)
    weighted = objective(x, labels, y, labels, sample_weight=times, reference_weight=times.flip(0))
    torch.testing.assert_close(weighted, objective(x[rows], labels[rows], y[columns], labels[columns]))


@pytest.mark.parametrize("cascade", [False, True])
@pytest.mark.parametrize("ratios", [(1.0, 0.5, 0.2), (0.7, 0.3)])
def test_hdc_takes_the_hardest_share_of_weighted_pairs(ratios, cascade):
    x, y, w = embeddings(dim=6), LABELS.tolist(), WEIGHTS.tolist()
    every = list(combinations(range(8), 2))
    left = {same: {(i, j): w[i] * w[j] for i, j in every if (y[i] == y[j]) == same} for same in (True, False)}
    number = {same: sum(times.values()) for same, times in left.items()}
    expected = 0.0
    for ratio, member in zip(ratios, torch.chunk(x, len(ratios), 1), strict=True):
        unit = normalize(member)
        total = count = 0.0
        for same in (True, False):
            losses = {}
            for i, j in left[same]:
                squared = float((unit[i] - unit[j]).square().sum())
                losses[i, j] = squared if same else 10 * (1 - squared)
            room, kept = ratio * number[same], {}
            for pair in sorted(losses, key=losses.get, reverse=True):
                kept[pair] = min(room, left[same][pair]) if losses[pair] > 0 else 0.0
                room -= kept[pair]
                total, count = total + kept[pair] * losses[pair], count + kept[pair]
            if cascade:
                left[same] = kept
        expected += total / count
    value = em.objective("hdc", ratios=ratios, cascade=cascade)(x, LABELS, sample_weight=WEIGHTS)
    assert value.item() == pytest.approx(expected, rel=1e-9)


def weighted_nmi(labels, clusters, weights):
    def entropy(*partitions):
        cells = {}
        for *cell, weight in zip(*partitions, weights, strict=True):
            cells[tuple(cell)] = cells.get(tuple(cell), 0.0) + weight
        return -sum(n / sum(weights) * log(n / sum(weights)) for n in cells.values())

    mutual = entropy(labels) + entropy(clusters) - entropy(labels, clusters)
    return mutual / sqrt(entropy(labels) * entropy(clusters))


@pytest.mark.parametrize("gamma", [0.0, 1.0, 20.0])
@pytest.mark.parametrize("seed", range(3))
def test_structured_clustering_scores_weighted_clusterings(seed, gamma):
    x = normalize(embeddings(seed))
    present = [i for i, w in enumerate(WEIGHTS.tolist()) if w]
    labels, w = LABELS[present].tolist(), WEIGHTS[present].tolist()
    distance = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")[present][:, present]
    d, rows = distance.tolist(), range(len(present))
    true = -sum(
        min(sum(w[i] * d[i][c] for i in rows if labels[i] == one) for c in rows if labels[c] == one)
        for one in set(labels)
    )
    member = torch.unique(LABELS[present], return_inverse=True)[1]
    search = MedoidSearch(distance, member, gamma, WEIGHTS[present])
    medoids = search.swap(search.greedy(), 5).tolist()

    def score(medoids):
        nearest = [min(medoids, key=lambda c: d[i][c]) for i in rows]
        return -sum(w[i] * d[i][c] for i, c in zip(rows, nearest, strict=True)) + gamma * (
            1 - weighted_nmi(labels, nearest, w)
        )

    value = em.objective("structured_clustering", gamma=gamma)(embeddings(seed), LABELS, sample_weight=WEIGHTS)
    assert value.item() == pytest.approx(max(0.0, score(medoids) - true), abs=1e-9)
    # No single exchange inside a cluster is better; greedy search and exchanges need not find the best of all.
    assert score(medoids) <= max(map(score, combinations(rows, len(medoids)))) + 1e-9


def test_hier_draws_by_weight_and_counts_triples_by_their_sample(monkeypatch):
    torch.manual_seed(0)
    objective = em.objective("hier", dim=4, proxies=5, topk=3, per_anchor=400).double()
    loss, drawn = objective.loss, []
    original = loss.draw_triples
    loss.draw_triples = lambda *given: drawn.append(original(*given)) or drawn[-1]
    monkeypatch.setattr(
        "equimetric.ops.special.ancestor_hinges",
        lambda _, triples, counts, **__: torch.dot(counts, triples[0].double()),
    )
    weights = torch.tensor([1.0, 4.0, 0.0, 1.0, 2.0, 1.0, 1.0, 3.0], dtype=torch.float64)
    value = objective(embeddings(), LABELS, sample_weight=weights)
    i, j, k = drawn[0]
    assert 2 not in set(drawn[0].flatten().tolist()), "a sample of weight 0 is absent"
    mean = (weights[i] * i).sum() / weights[i].sum()
    torch.testing.assert_close(value, mean + drawn[1][0].double().mean())
    for columns in (j, k):
        seen = torch.stack([columns[i == anchor].bincount(minlength=8) for anchor in i.unique()]).double()
        share = seen / seen.sum(1, keepdim=True)
        expected = weights * (seen > 0)
        torch.testing.assert_close(share, expected / expected.sum(1, keepdim=True), atol=0.08, rtol=0)


CONTINUOUS = {
    "magnet": {},
    "spectral": {},
    "pddm": {"dim": 4},
    "bier": {"dim": 4},
    "hdc": {"ratios": (1.0, 0.5)},
    "manifold": {"dim": 4, "classes": 4, "proxies": 3},
    "vicreg": {},
    "dynamic_soft_margin": {},
    "group": {"dim": 4, "classes": 4, "anchors": 1},
    "intra_batch": {"dim": 4, "classes": 4},
    "contextual": {"k": 3},
    "hist": {"dim": 4, "classes": 4, "hidden": 5},
    "mean_similarity": {},
}


@pytest.mark.parametrize("method", CONTINUOUS)
def test_a_little_more_weight_changes_a_loss_a_little(method):
    torch.manual_seed(0)
    objective = em.objective(method, **CONTINUOUS[method]).double().eval()
    more = WEIGHTS + torch.tensor([0.0, 1, -1, 0, 1, 0, 0, 0], dtype=torch.float64) * 1e-4
    values = []
    for weights in (WEIGHTS, more):
        torch.manual_seed(1)
        values.append(objective(embeddings(), LABELS, sample_weight=weights).item())
    assert 0 < abs(values[1] - values[0]) < 1e-2


def test_magnet_keeps_no_loss_of_absent_images():
    objective = em.objective("magnet", images=8).double()
    objective.loss.set_clusters(torch.arange(8) % 2)
    objective(embeddings(), LABELS, index=torch.arange(8), sample_weight=WEIGHTS)
    assert ((objective.loss.recorded < 0) == (WEIGHTS == 0)).all()


@pytest.mark.parametrize("method", sorted(name for name, loss in LOSSES.items() if loss.takes == "batch"))
def test_class_weights_of_batch_losses_are_sample_weights_by_label(method):
    loss, by_class = LOSSES[method], torch.tensor([0.5, 2.0, 1.5, 0.0])
    if "batch" not in loss.reference_kinds:
        pytest.skip("compares proxies")
    sizes = {"dim": 4, "classes": 4, "members": 2, "topk": 3, **({} if method == "dreml" else {"proxies": 3})}
    options = {name: value for name, value in sizes.items() if name in loss.options}
    values = []
    for given in ({"class_weight": by_class}, {}):
        torch.manual_seed(0)
        objective = em.objective(method, **options, **given).double()
        torch.manual_seed(1)
        values.append(objective(embeddings(), LABELS, **({} if given else {"sample_weight": by_class[LABELS]})))
    torch.testing.assert_close(*values)


def test_a_selection_may_not_weigh_the_pairs_of_a_whole_batch():
    objective = em.objective("magnet")
    pairs = objective.pairs(embeddings(), LABELS, sample_weight=WEIGHTS)
    with pytest.raises(em.EquimetricError, match="one weight for each sample"):
        objective.value(pairs.weighted(2 * torch.ones_like(pairs.similarity)))
