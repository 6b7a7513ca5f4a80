"""Losses over lists, histograms and quadruples, against worked values and double loops."""

from itertools import product

import pytest
import torch
from list_batches import LABELS, WORKED, assert_equal_with_gradient, batch, float64, ranked_lists, unit, worked_set

import equimetric as em
from equimetric.components import LOSSES
from equimetric.errors import EquimetricError
from equimetric.losses.recall_at_k import mix_pairs
from equimetric.pairs import Pairs


@pytest.mark.parametrize("case", WORKED["losses"], ids=lambda case: case["id"])
def test_worked_values(case):
    embeddings, labels = worked_set(case["set"])
    value = em.objective(case["method"], **case["options"])(embeddings.requires_grad_(), labels)
    assert value.item() == pytest.approx(case["value"], abs=case["tolerance"])
    value.backward()
    if "gradient" in case:
        torch.testing.assert_close(embeddings.grad, float64(case["gradient"]), rtol=0, atol=case["gradient_tolerance"])


def test_worked_smooth_ap_plus_tcm():
    value = em.objective("smooth_ap+tcm")(*worked_set("W2"))
    assert value.item() == pytest.approx(WORKED["smooth_ap_plus_tcm"]["expected"], abs=1e-6)


def hat(position, node):
    return (1 - (position - node).abs()).relu()


@pytest.mark.parametrize("num_nodes", [2, 9, 33])
def test_histogram_is_a_double_sum_over_pairs(num_nodes):
    embeddings = batch()
    similarity = unit(embeddings) @ unit(embeddings).T
    counts = [[similarity.sum() * 0 for _ in range(num_nodes)] for _ in range(2)]
    for i, lists in enumerate(ranked_lists()):
        for side, others in enumerate(lists):
            for j, node in product(others, range(num_nodes)):
                counts[side][node] = counts[side][node] + hat((similarity[i, j] + 1) * (num_nodes - 1) / 2, node)
    positive, negative = (torch.stack(side) / torch.stack(side).sum().detach() for side in counts)
    expected = sum(negative[r] * positive[: r + 1].sum() for r in range(num_nodes))
    assert_equal_with_gradient(em.objective("histogram", num_nodes=num_nodes)(embeddings, LABELS), expected, embeddings)


@pytest.mark.parametrize("num_bins", [1, 7, 10])
def test_fastap_is_average_precision_of_soft_counts(num_bins):
    embeddings = batch(1)
    similarity = unit(embeddings) @ unit(embeddings).T
    terms = []
    for i, (positives, negatives) in enumerate(ranked_lists()):
        if not positives:
            continue
        position = (2 - 2 * similarity[i]) * num_bins / 4
        h = [sum(hat(position[j], node) for j in positives) for node in range(num_bins + 1)]
        every = [h[node] + sum(hat(position[j], node) for j in negatives) for node in range(num_bins + 1)]
        precision = sum(
            h[node] * sum(h[: node + 1]) / sum(every[: node + 1])
            for node in range(num_bins + 1)
            if sum(every[: node + 1]) > 0
        )
        terms.append(1 - precision / len(positives))
    expected = sum(terms) / len(terms)
    assert_equal_with_gradient(em.objective("fastap", num_bins=num_bins)(embeddings, LABELS), expected, embeddings)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize(("tau", "include_query"), [(0.01, False), (0.2, False), (0.2, True)])
def test_smooth_ap_is_average_precision_with_sigmoids(tau, include_query, normalize):
    embeddings = batch(2)
    points = unit(embeddings) if normalize else embeddings
    similarity = points @ points.T
    terms = []
    for q, (positives, negatives) in enumerate(ranked_lists()):
        if not positives:
            continue
        positives = positives + [q] * include_query
        precision = 0
        for i in positives:
            before = {j: torch.sigmoid((similarity[q, j] - similarity[q, i]) / tau) for j in positives + negatives}
            rank_among_positives = 1 + sum(before[j] for j in positives if j != i)
            precision = precision + rank_among_positives / (1 + sum(before[j] for j in before if j != i))
        terms.append(1 - precision / len(positives))
    objective = em.objective("smooth_ap", tau=tau, include_query=include_query, normalize=normalize)
    assert_equal_with_gradient(objective(embeddings, LABELS), sum(terms) / len(terms), embeddings)


def recall_by_loops(similarity, labels, ks, tau1, tau2, include_query):
    terms = []
    for q, (positives, negatives) in enumerate(ranked_lists(labels)):
        if not positives:
            continue
        ranked = positives + negatives + [q] * include_query
        recall = 0
        for k in (min(k, len(labels)) for k in ks):
            found = 0
            for i in positives:
                rank = 1 + sum(torch.sigmoid((similarity[q, j] - similarity[q, i]) / tau2) for j in ranked if j != i)
                found = found + torch.sigmoid((k - rank) / tau1)
            recall = recall + found.clamp_max(k) / min(k, len(positives))
        terms.append(1 - recall / len(ks))
    return sum(terms) / len(terms)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("rows_at_a_time", [None, 5])
@pytest.mark.parametrize("include_query", [False, True])
@pytest.mark.parametrize(("ks", "tau1", "tau2"), [((1, 2, 4, 8, 16), 1.0, 0.01), ((2,), 0.1, 0.2)])
def test_recall_at_k_is_a_soft_count_of_soft_ranks(
    ks, tau1, tau2, include_query, rows_at_a_time, normalize, monkeypatch
):
    if rows_at_a_time:
        monkeypatch.setattr("equimetric.ops.chunks.MIN_CHUNKED_PAIRS", 1)
        monkeypatch.setattr("equimetric.ops.chunks.CHUNK_ENTRIES", rows_at_a_time * (len(LABELS) + include_query))
    embeddings = batch(3)
    points = unit(embeddings) if normalize else embeddings
    options = {"ks": ks, "tau1": tau1, "tau2": tau2, "include_query": include_query}
    objective = em.objective("recall_at_k_surrogate", normalize=normalize, **options)
    expected = recall_by_loops(points @ points.T, LABELS, **options)
    assert_equal_with_gradient(objective(embeddings, LABELS), expected, embeddings)


def test_worked_simix():
    case = WORKED["simix"]
    objective = em.objective("recall_at_k_surrogate", **case["options"])
    pairs = objective.pairs(float64(case["inputs"]["embeddings"]), torch.tensor(case["inputs"]["labels"]))
    mixed = mix_pairs(pairs, float64(case["inputs"]["mix_alphas"]))
    assert objective.value(mixed).item() == pytest.approx(case["expected"], abs=case["tolerance"])


@pytest.mark.parametrize("include_query", [False, True])
def test_simix_is_the_loss_of_a_batch_with_virtual_samples(include_query, monkeypatch):
    embeddings, options = batch(4), {"ks": (1, 3), "tau1": 1.0, "tau2": 0.1, "include_query": include_query}
    first, second = ((LABELS[:, None] == LABELS).triu(1)).nonzero(as_tuple=True)
    torch.manual_seed(8)
    share = torch.rand(len(first), dtype=torch.float64)[:, None]
    real = unit(embeddings)
    everyone = torch.cat([real, share * real[first] + (1 - share) * real[second]])
    expected = recall_by_loops(everyone @ everyone.T, torch.cat([LABELS, LABELS[first]]), **options)
    objective = em.objective("recall_at_k_surrogate", simix=True, **options)
    for large, entries in ((2**20, 2**18), (1, 100)):
        monkeypatch.setattr("equimetric.ops.chunks.MIN_CHUNKED_PAIRS", large)
        monkeypatch.setattr("equimetric.ops.chunks.CHUNK_ENTRIES", entries)
        torch.manual_seed(8)
        value = objective(embeddings, LABELS)
        torch.testing.assert_close(value, expected)
        (gradient,) = torch.autograd.grad(value, embeddings)
        (expected_gradient,) = torch.autograd.grad(expected, embeddings, retain_graph=True)
        torch.testing.assert_close(gradient, expected_gradient)


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize(("margin1", "margin2"), [(0.2, 0.1), (1.0, 0.5), (-0.1, 3.0)])
def test_quadruplet_is_a_mean_over_quadruples(margin1, margin2, squared):
    embeddings = batch(5)
    distance = (unit(embeddings)[:, None] - unit(embeddings)[None] + torch.eye(len(LABELS))[..., None]).norm(dim=2)
    distance = distance.square() if squared else distance
    triples, quadruples = [], []
    lists, y = ranked_lists(), LABELS.tolist()
    for a, (positives, negatives) in enumerate(lists):
        for p in positives:
            triples += [(distance[a, p] - distance[a, n] + margin1).relu() for n in negatives]
            quadruples += [
                (distance[a, p] - distance[k, n] + margin2).relu()
                for k, n in product(negatives, negatives)
                if y[k] != y[n]
            ]
    expected = torch.stack(triples).mean() + torch.stack(quadruples).mean()
    objective = em.objective("quadruplet", margin1=margin1, margin2=margin2, squared=squared)
    assert_equal_with_gradient(objective(embeddings, LABELS), expected, embeddings)


def test_quadruplet_of_two_classes_is_its_triplet_part():
    embeddings, labels = batch(6), torch.tensor([0, 1] * 6)
    value = em.objective("quadruplet", margin1=0.3, margin2=5.0)(embeddings, labels)
    torch.testing.assert_close(value, em.objective("triplet", margin=0.3, reduction="mean")(embeddings, labels))


RELATIVE = ["histogram", "fastap", "smooth_ap", "recall_at_k_surrogate", "quadruplet", "structured_clustering"]


@pytest.mark.parametrize("labels", [torch.arange(len(LABELS)), torch.zeros_like(LABELS)])
@pytest.mark.parametrize("name", [*RELATIVE, "hierarchical_triplet", "pddm"])
def test_nothing_to_compare_is_zero_with_gradient_zero(name, labels):
    embeddings = batch()
    value = em.objective(name, **({"dim": 4} if name == "pddm" else {})).double()(embeddings, labels)
    value.backward()
    assert value == 0
    assert (embeddings.grad == 0).all()


WHOLE = ["spectral", "magnet", "structured_clustering", "pddm"]


@pytest.mark.parametrize("name", WHOLE)
def test_losses_of_a_whole_batch_refuse_other_references_and_selections(name):
    options = {"dim": 4} if name == "pddm" else {}
    objective, embeddings = em.objective(name, **options).double(), batch()
    with pytest.raises(EquimetricError, match="batch"):
        objective(embeddings, LABELS, embeddings[:5], LABELS[:5])
    with pytest.raises(EquimetricError, match="batch"):
        objective(embeddings, LABELS, embeddings, LABELS)
    with pytest.raises(EquimetricError, match="selection='all'"):
        em.objective(name, selection="multi_similarity", **options)
    narrowed = objective.pairs(embeddings, LABELS).weighted(torch.ones(len(LABELS), len(LABELS)))
    with pytest.raises(EquimetricError, match="selection='all'"):
        objective.value(narrowed)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("histogram", {"num_nodes": 1}),
        ("fastap", {"num_bins": 0}),
        ("structured_clustering", {"gamma": -1.0}),
        ("hierarchical_triplet", {"levels": 0}),
        ("recall_at_k_surrogate", {"ks": [0, 1]}),
    ],
)
def test_impossible_options_are_refused(name, options):
    with pytest.raises(EquimetricError, match=next(iter(options))):
        em.objective(name, **options)(batch(), LABELS)


@pytest.mark.parametrize("name", ["fastap", "smooth_ap", "recall_at_k_surrogate"])
def test_queries_are_ranked_one_by_one_also_against_an_explicit_reference_set(name):
    embeddings = batch(12).detach()
    objective, itself = em.objective(name), torch.eye(len(LABELS), dtype=torch.bool)
    several = torch.tensor([len(positives) > 0 for positives, _ in ranked_lists()])
    total = sum(
        several[part].sum() * objective(embeddings[part], LABELS[part], embeddings, LABELS, self_mask=itself[part])
        for part in (slice(0, 5), slice(5, 12))
    )
    torch.testing.assert_close(total / several.sum(), objective(embeddings, LABELS))


def test_quadruplet_tells_the_classes_of_an_explicit_reference_set():
    """The queries' own columns, a class with one query, and references of classes that no query has."""
    embeddings, queries = batch(13), [0, 1, 2, 3, 4, 6]
    distance = (unit(embeddings)[:, None] - unit(embeddings)[None] + torch.eye(len(LABELS))[..., None]).norm(dim=2)
    y, everyone = LABELS.tolist(), range(len(LABELS))
    pairs_of_class = [(a, p) for a, p in product(queries, everyone) if a != p and y[a] == y[p]]
    triples = [
        (distance[a, p] - distance[a, n] + 0.2).relu()
        for (a, p), n in product(pairs_of_class, everyone)
        if y[n] != y[a]
    ]
    quadruples = [
        (distance[a, p] - distance[k, n] + 0.1).relu()
        for (a, p), k, n in product(pairs_of_class, queries, everyone)
        if len({y[a], y[k], y[n]}) == 3
    ]
    expected = torch.stack(triples).mean() + torch.stack(quadruples).mean()
    itself = torch.eye(len(LABELS), dtype=torch.bool)[queries]
    value = em.objective("quadruplet")(embeddings[queries], LABELS[queries], embeddings, LABELS, self_mask=itself)
    assert_equal_with_gradient(value, expected, embeddings)


@pytest.mark.parametrize(
    ("name", "options", "positives", "negatives"),
    [
        # From node u = 2, where positives rule, halfway to node u = 0, which holds negatives only.
        ("fastap", {"num_bins": 2}, [0.5, 0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0]),
        # Ahead of one positive, below a negative that it does not come near.
        ("smooth_ap", {"tau": 0.01}, [0.505, 0.5], [0.9]),
        # Behind a positive that has better chances to be among the first k.
        ("recall_at_k_surrogate", {"ks": [1]}, [0.495, 0.5], [0.9]),
    ],
)
def test_a_positive_may_be_pushed_away_as_documented(name, options, positives, negatives):
    assert "monotone" in LOSSES[name].exempt
    similarity = float64([positives + negatives]).requires_grad_()
    is_positive = torch.arange(len(positives) + len(negatives))[None] < len(positives)
    em.objective(name, **options).loss(em.Pairs(similarity, is_positive, ~is_positive)).backward()
    assert similarity.grad[0, 0] > 0


def test_smooth_ap_leaves_out_queries_without_negatives():
    similarity = float64([[0.9, 0.1, 0.5], [0.3, 0.2, 0.8]])
    positive = torch.tensor([[True, False, True], [True, True, True]])
    objective = em.objective("smooth_ap", tau=0.3)
    both, first = Pairs(similarity, positive, ~positive), Pairs(similarity[:1], positive[:1], ~positive[:1])
    torch.testing.assert_close(objective.value(both), objective.value(first))
