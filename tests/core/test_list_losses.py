"""Losses over lists, histograms, quadruples and clusterings, against worked values and double loops."""

import json
from itertools import product
from pathlib import Path

import pytest
import torch

import equimetric as em
from equimetric.errors import EquimetricError
from equimetric.losses.hierarchical_triplet import class_tree
from equimetric.losses.pddm import PositionDependentMetric
from equimetric.losses.recall_at_k import mixed_pairs
from equimetric.losses.structured_clustering import MedoidSearch
from equimetric.pairs import Pairs
from equimetric.registry import LOSSES

WORKED = json.loads((Path(__file__).parents[1] / "worked_values" / "list_losses.json").read_text())
LABELS = torch.tensor([5, 0, 9, 0, 5, 9, -3, 0, 9, 5, 0, 7])
"""Unsorted classes of 3, 4, 3 samples and two singletons."""


def float64(values):
    return torch.tensor(values, dtype=torch.float64)


def worked_set(name):
    return float64(WORKED["sets"][name]["embeddings"]), torch.tensor(WORKED["sets"][name]["labels"])


def batch(seed=0, dimension=4):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(len(LABELS), dimension, generator=generator, dtype=torch.float64, requires_grad=True)


def unit(vectors):
    return vectors / vectors.norm(dim=1, keepdim=True)


def ranked_lists(labels=LABELS):
    """For each sample, its positives and its negatives."""
    everyone = range(len(labels))
    return [
        ([j for j in everyone if j != i and labels[j] == labels[i]], [j for j in everyone if labels[j] != labels[i]])
        for i in everyone
    ]


def assert_equal_with_gradient(value, expected, embeddings):
    torch.testing.assert_close(value, expected)
    (gradient,) = torch.autograd.grad(value, embeddings, retain_graph=True)
    (expected_gradient,) = torch.autograd.grad(expected, embeddings)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-6, atol=1e-9)


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
        monkeypatch.setattr("equimetric.rowwise.LARGE", 1)
        monkeypatch.setattr("equimetric.rowwise.CHUNK_ENTRIES", rows_at_a_time * (len(LABELS) + include_query))
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
    mixed = mixed_pairs(pairs, float64(case["inputs"]["mix_alphas"]))
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
        monkeypatch.setattr("equimetric.rowwise.LARGE", large)
        monkeypatch.setattr("equimetric.rowwise.CHUNK_ENTRIES", entries)
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


def nmi(labels, clusters):
    joint = torch.zeros(max(labels) + 1, max(clusters) + 1, dtype=torch.float64)
    for label, cluster in zip(labels, clusters, strict=True):
        joint[label, cluster] += 1 / len(labels)
    rows, columns = joint.sum(1), joint.sum(0)

    def entropy(p):
        return -torch.special.xlogy(p, p).sum()

    norm = (entropy(rows) * entropy(columns)).sqrt()
    return ((entropy(rows) + entropy(columns) - entropy(joint)) / norm).item() if norm > 1e-12 else 0.0


def clustering_by_loops(distance, labels, gamma, sweeps):
    """Greedy medoids, then exchanges, written from the definition."""
    everyone, classes = range(len(labels)), max(labels) + 1

    def assign(medoids):
        return [medoids.index(i) if i in medoids else min(range(len(medoids)), key=lambda k: distance[i][medoids[k]])
                for i in everyone]  # fmt: skip

    def delta(medoids):
        return 1 - nmi(labels, assign(medoids))

    def best(candidates, score):
        chosen, top = None, -float("inf")
        for candidate in candidates:
            if (value := score(candidate)) > top + 1e-12:
                chosen, top = candidate, value
        return chosen

    def energy(medoids):
        return -sum(min(distance[i][c] for c in medoids) for i in everyone)

    medoids = []
    for _ in range(classes):
        others = [c for c in everyone if c not in medoids]
        medoids.append(best(others, lambda c: energy([*medoids, c]) + gamma * delta([*medoids, c])))
    for _ in range(sweeps):
        cluster = assign(medoids)
        for k in range(classes):
            members = [i for i in everyone if cluster[i] == k]

            def score(c, k=k, members=members):
                return -sum(distance[i][c] for i in members) + gamma * delta([*medoids[:k], c, *medoids[k + 1 :]])

            medoids[k] = best(members, score)
    truth = sum(
        max(-sum(distance[i][c] for i in own) for c in own)
        for own in ([i for i in everyone if labels[i] == label] for label in range(classes))
    )
    return medoids, max(0.0, energy(medoids) + gamma * delta(medoids) - truth)


@pytest.mark.parametrize("sweeps", [0, 5])
@pytest.mark.parametrize("gamma", [0.0, 1.0, 30.0])
@pytest.mark.parametrize("seed", range(3))
def test_structured_clustering_finds_the_medoids_of_the_definition(seed, gamma, sweeps, monkeypatch):
    # Few tables at once, so that the bound on what can win is used.
    monkeypatch.setattr("equimetric.losses.structured_clustering.CONTINGENCY_ENTRIES", 60)
    embeddings, member = batch(seed), torch.unique(LABELS, return_inverse=True)[1]
    with torch.no_grad():
        distance = torch.cdist(unit(embeddings), unit(embeddings), compute_mode="donot_use_mm_for_euclid_dist")
    medoids, expected = clustering_by_loops(distance.tolist(), member.tolist(), gamma, sweeps)
    search = MedoidSearch(distance, member, gamma)
    assert search.exchange(search.greedy(), sweeps).tolist() == medoids
    value = em.objective("structured_clustering", gamma=gamma, pam_iters=sweeps)(embeddings, LABELS)
    assert value.item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("case", [case for case in WORKED["losses"] if "medoids" in case], ids=lambda case: case["id"])
def test_worked_medoids(case):
    embeddings, labels = worked_set(case["set"])
    search = MedoidSearch(torch.cdist(embeddings, embeddings), labels, case["options"]["gamma"])
    greedy = search.greedy()
    assert greedy.tolist() == case["greedy_medoids"]
    medoids = search.exchange(greedy, case["options"]["pam_iters"])
    assert medoids.tolist() == case["medoids"]
    assert search.one_minus_nmi(search.assign(medoids)[None], len(medoids)).item() == pytest.approx(
        case["parts"]["one_minus_nmi"], abs=1e-9
    )


def test_structured_clustering_with_duplicates_keeps_medoids_their_own():
    embeddings = torch.ones(6, 2, dtype=torch.float64)
    search = MedoidSearch(torch.cdist(embeddings, embeddings), torch.tensor([0, 0, 1, 1, 2, 2]), 1.0)
    medoids = search.exchange(search.greedy(), 2)
    assert search.assign(medoids)[medoids].tolist() == [0, 1, 2]


def test_worked_spectral_and_its_closed_gradient():
    embeddings, labels = worked_set("W2")
    value = em.objective("spectral")(embeddings.requires_grad_(), labels)
    assert value.item() == pytest.approx(WORKED["spectral"]["expected"], abs=1e-6)
    value.backward()
    with torch.no_grad():
        inverse = torch.linalg.pinv(embeddings)
        indicator = torch.nn.functional.one_hot(labels).double()
        classes = indicator @ torch.linalg.pinv(indicator)
        residual = torch.eye(len(labels)) - embeddings @ inverse
        torch.testing.assert_close(embeddings.grad, -2 * residual @ classes @ inverse.T)


def test_spectral_is_the_distance_of_projectors_also_without_full_rank():
    embeddings = batch(7, 3)
    for columns in ([0, 1, 2], [0, 1, 1]):
        features = embeddings[:, columns]
        indicator = (LABELS[:, None] == LABELS.unique()).double()
        projectors = [matrix @ torch.linalg.pinv(matrix, rtol=1e-10) for matrix in (features, indicator)]
        expected = (projectors[0] - projectors[1]).square().sum() / 2
        torch.testing.assert_close(em.objective("spectral")(features, LABELS), expected)


def magnet_by_loops(embeddings, clusters, labels, alpha):
    means = {c: embeddings[[i for i, d in enumerate(clusters) if d == c]].mean(0) for c in set(clusters)}
    class_of = dict(zip(clusters, labels, strict=True))
    own = [(embeddings[i] - means[c]).square().sum() for i, c in enumerate(clusters)]
    variance = sum(own) / (len(clusters) - 1)
    terms = []
    for i, label in enumerate(labels):
        others = [c for c in means if class_of[c] != label]
        repelled = sum((-(embeddings[i] - means[c]).square().sum() / (2 * variance)).exp() for c in others).log()
        terms.append((own[i] / (2 * variance) + alpha + repelled).relu())
    return sum(terms) / len(terms)


@pytest.mark.parametrize("alpha", [0.0, 1.0, 4.0])
def test_magnet_with_classes_as_clusters(alpha):
    embeddings, labels = batch(8), LABELS.tolist()
    expected = magnet_by_loops(embeddings, labels, labels, alpha)
    assert_equal_with_gradient(em.objective("magnet", alpha=alpha)(embeddings, LABELS), expected, embeddings)


def test_worked_magnet_with_clusters_of_images():
    inputs = WORKED["magnet"]["inputs"]
    clusters = torch.tensor(inputs["clusters"])
    labels = torch.tensor(inputs["cluster_class"])[clusters]
    objective = em.objective("magnet", images=len(labels) + 3, **WORKED["magnet"]["options"])
    # Cluster numbers are told apart inside a class only.
    objective.loss.set_clusters(torch.cat([torch.zeros(3, dtype=torch.int64), torch.tensor([0, 0, 1, 1, 0, 0])]))
    value = objective(float64(inputs["r"]), labels, index=torch.arange(3, 9))
    assert value.item() == pytest.approx(WORKED["magnet"]["expected"], abs=1e-6)
    copy = em.objective("magnet", images=len(labels) + 3)
    copy.load_state_dict(objective.state_dict())
    assert copy(float64(inputs["r"]), labels, index=torch.arange(3, 9)) == value


def test_magnet_says_what_its_clusters_need():
    objective = em.objective("magnet", images=4)
    with pytest.raises(EquimetricError, match="index"):
        objective(batch(), LABELS)
    with pytest.raises(EquimetricError, match="4"):
        objective.loss.set_clusters(torch.zeros(5, dtype=torch.int64))
    with pytest.raises(EquimetricError, match="images"):
        em.objective("magnet").loss.set_clusters(torch.zeros(5, dtype=torch.int64))


def test_worked_pddm_score():
    case = WORKED["pddm_score"]
    module, given = PositionDependentMetric(dim=2).double(), {k: float64(v) for k, v in case["inputs"].items()}
    for layer, letter in ((module.difference, "u"), (module.position, "v"), (module.joint, "c"), (module.readout, "s")):
        layer.weight.data = given[f"W{letter}"].reshape(layer.weight.shape)
        layer.bias.data = given[f"b{letter}"].reshape(layer.bias.shape)
    assert module.score(given["xi"], given["xj"]).item() == pytest.approx(case["expected"], abs=case["tolerance"])
    assert module.score(given["xj"], given["xi"]).item() == pytest.approx(case["expected"], abs=case["tolerance"])


@pytest.mark.parametrize("options", [{}, {"hidden": 7, "a": 0.1, "b": 2.0, "lam": 0.3}])
def test_pddm_takes_the_hardest_quadruplet_of_each_anchor(options, monkeypatch):
    monkeypatch.setattr("equimetric.losses.pddm.CHUNK_ENTRIES", 300)
    torch.manual_seed(9)
    embeddings, objective = batch(9), em.objective("pddm", dim=4, **options).double()
    module, x = objective.loss, unit(embeddings)
    scores = torch.stack([torch.stack([module.score(one, other) for other in x]) for one in x])
    distance = (x[:, None] - x[None]).square().sum(2)
    lists, learned, plain = ranked_lists(), [], []
    for i, (positives, negatives) in enumerate(lists):
        if positives:
            j = min(positives, key=lambda p: scores[i, p].item())
            k = max(negatives, key=lambda n: scores[i, n].item())
            n = max(lists[j][1], key=lambda n: scores[j, n].item())
            learned.append(
                (module.a + scores[i, k] - scores[i, j]).relu() + (module.a + scores[j, n] - scores[i, j]).relu()
            )
            plain.append(
                (module.b + distance[i, j] - distance[i, k]).relu()
                + (module.b + distance[i, j] - distance[j, n]).relu()
            )
    expected = torch.stack(learned).mean() + module.lam * torch.stack(plain).mean()
    value = objective(embeddings, LABELS)
    assert_equal_with_gradient(value, expected, embeddings)


def test_pddm_refuses_another_dimension():
    with pytest.raises(EquimetricError, match="dim=…"):
        em.objective("pddm", dim=3).double()(batch(), LABELS)


def test_worked_class_tree():
    case = WORKED["class_tree"]
    tree = class_tree(*worked_set(case["inputs"]["set"]), **case["options"])
    for name in ("class_distance", "within_class", "thresholds"):
        torch.testing.assert_close(getattr(tree, name), float64(case["expected"][name]), rtol=0, atol=1e-6)
    low, middle, high = (tree.thresholds[level].item() for level in (0, 1, 4))
    assert tree.merged_at.tolist() == [[low, middle, high], [middle, low, high], [high, high, low]]
    objective = em.objective("hierarchical_triplet", **case["options"]).double()
    embeddings, labels = worked_set(case["inputs"]["set"])
    objective.loss.build_tree(embeddings, labels)
    assert objective.loss.margins(objective.pairs(embeddings, labels))[0, 2].item() == pytest.approx(1.088786, abs=1e-6)


def merged_by_loops(distance, threshold):
    """Which classes hang together through distances below the threshold: repeated until nothing changes."""
    together = (distance < threshold) | torch.eye(len(distance), dtype=torch.bool)
    for _ in range(len(distance)):
        together = (together.double() @ together.double()) > 0
    return together


@pytest.mark.parametrize("seed", range(4))
def test_classes_merge_at_the_lowest_level_that_connects_them(seed):
    embeddings = batch(seed).detach() + 1.5 * torch.eye(4).double()[LABELS % 4]
    tree = class_tree(embeddings, LABELS, 8)
    x = unit(embeddings)
    squared = (x[:, None] - x[None]).square().sum(2)
    for a, one in enumerate(tree.class_ids):
        own = squared[LABELS.eq(one)][:, LABELS.eq(one)]
        torch.testing.assert_close(tree.within_class[a], own.sum() / max(1, len(own) * (len(own) - 1)))
        for b, other in enumerate(tree.class_ids):
            torch.testing.assert_close(tree.class_distance[a, b], squared[LABELS.eq(one)][:, LABELS.eq(other)].mean())
    expected = torch.full_like(tree.merged_at, 4.0)
    for threshold in reversed(tree.thresholds.tolist()):
        expected[merged_by_loops(tree.class_distance, threshold)] = threshold
    torch.testing.assert_close(tree.merged_at, expected)
    several = (LABELS[:, None] == tree.class_ids).sum(0) > 1
    torch.testing.assert_close(tree.thresholds[0], tree.within_class[several].mean())


def hierarchical_by_loops(embeddings, margin):
    distance = (unit(embeddings)[:, None] - unit(embeddings)[None]).square().sum(2)
    terms = [
        (distance[a, p] - distance[a, n] + margin(a, n)).relu()
        for a, (positives, negatives) in enumerate(ranked_lists())
        for p, n in product(positives, negatives)
    ]
    return torch.stack(terms).mean() / 2


def test_hierarchical_triplet_takes_its_margins_from_the_tree():
    embeddings = batch(10)
    objective = em.objective("hierarchical_triplet", beta=0.2, levels=8, margin=0.4).double()
    expected = hierarchical_by_loops(embeddings, lambda a, n: 0.4)
    assert_equal_with_gradient(objective(embeddings, LABELS), expected, embeddings)
    tree = objective.loss.build_tree(batch(11).detach(), LABELS)
    place = [tree.class_ids.tolist().index(label) for label in LABELS.tolist()]
    expected = hierarchical_by_loops(
        embeddings, lambda a, n: 0.2 + tree.merged_at[place[a], place[n]] - tree.within_class[place[a]]
    )
    value = objective(embeddings, LABELS)
    assert_equal_with_gradient(value, expected, embeddings)
    copy = em.objective("hierarchical_triplet", beta=0.2, levels=8).double()
    copy.load_state_dict(objective.state_dict())
    assert copy(embeddings, LABELS) == value
    with pytest.raises(EquimetricError, match="class 8 is not in the tree"):
        objective(embeddings, torch.where(LABELS == 7, 8, LABELS))
    with pytest.raises(EquimetricError, match="one class id"):
        objective.loss.build_tree(embeddings, LABELS[:-1])


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
    chosen = em.objective(name, selection="multi_similarity", **options).double()
    with pytest.raises(EquimetricError, match="selection='all'"):
        chosen(embeddings, LABELS)


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
    assert LOSSES[name].not_monotone
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
