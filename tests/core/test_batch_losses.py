"""Losses that score a batch as a whole: clusterings, subspaces, trees of classes, learned metrics."""

from itertools import product

import numpy as np
import pytest
import torch
from list_batches import LABELS, WORKED, assert_equal_with_gradient, batch, float64, ranked_lists, unit, worked_set

import equimetric as em
from equimetric.errors import EquimetricError
from equimetric.losses.hierarchical_triplet import build_class_tree
from equimetric.losses.pddm import PositionDependentMetric
from equimetric.ops.contingency import Agreement, Moves
from equimetric.ops.special import MedoidSearch


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
    # Few trials at once, so that the bound on what can win is used, and clusters are tried again after an exchange.
    monkeypatch.setattr("equimetric.ops.medoids.FIRST_TRIALS", 2)
    embeddings, member = batch(seed), torch.unique(LABELS, return_inverse=True)[1]
    with torch.no_grad():
        distance = torch.cdist(unit(embeddings), unit(embeddings), compute_mode="donot_use_mm_for_euclid_dist")
    medoids, expected = clustering_by_loops(distance.tolist(), member.tolist(), gamma, sweeps)
    search = MedoidSearch(distance, member, gamma)
    assert search.swap(search.greedy(), sweeps).tolist() == medoids
    value = em.objective("structured_clustering", gamma=gamma, pam_iters=sweeps)(embeddings, LABELS)
    assert value.item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("case", [case for case in WORKED["losses"] if "medoids" in case], ids=lambda case: case["id"])
def test_worked_medoids(case):
    embeddings, labels = worked_set(case["set"])
    search = MedoidSearch(torch.cdist(embeddings, embeddings), labels, case["options"]["gamma"])
    greedy = search.greedy()
    assert greedy.tolist() == case["greedy_medoids"]
    medoids = search.swap(greedy, case["options"]["pam_iters"])
    assert medoids.tolist() == case["medoids"]
    delta = search.agreement.one_minus_nmi(search.nearest(medoids).counts).item()
    assert delta == pytest.approx(case["parts"]["one_minus_nmi"], abs=1e-9)


def test_structured_clustering_with_duplicates_keeps_medoids_their_own():
    embeddings = torch.ones(6, 2, dtype=torch.float64)
    search = MedoidSearch(torch.cdist(embeddings, embeddings), torch.tensor([0, 0, 1, 1, 2, 2]), 1.0)
    medoids = search.swap(search.greedy(), 2)
    assert search.nearest(medoids).cluster[medoids].tolist() == [0, 1, 2]


@pytest.mark.parametrize("trials", [1, 5, 128])
@pytest.mark.parametrize("seed", range(4))
def test_medoids_among_ties_are_those_of_the_definition(seed, trials, monkeypatch):
    monkeypatch.setattr("equimetric.ops.medoids.FIRST_TRIALS", trials)
    generator = torch.Generator().manual_seed(seed)
    # Points of a grid: many coincide, and many distances are equal.
    points = torch.randint(0, 4, (18, 2), generator=generator).double()
    member = torch.unique(torch.randint(0, 6, (18,), generator=generator), return_inverse=True)[1]
    distance = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    for gamma in (0.5, 5.0, 50.0):
        medoids, _ = clustering_by_loops(distance.tolist(), member.tolist(), gamma, 3)
        search = MedoidSearch(distance, member, gamma)
        assert search.swap(search.greedy(), 3).tolist() == medoids


@pytest.mark.parametrize("weighted", [False, True])
def test_agreement_after_moves_is_that_of_the_moved_clustering(weighted):
    generator = np.random.default_rng(0)
    member, cluster = generator.integers(0, 5, 40), generator.integers(0, 6, 40)
    weight = generator.integers(1, 4, 40) * 0.3 if weighted else None
    agreement = Agreement(member, weight)
    trials = np.stack([np.where(generator.random(40) < share, generator.integers(0, 7, 40), cluster)
                       for share in (0.0, 0.1, 0.5, 1.0)])  # fmt: skip
    trial, sample = (trials != cluster).nonzero()
    updated = agreement.one_minus_nmi(agreement.count(cluster, 7), Moves(trial, sample, trials[trial, sample]), 4)
    counted = [agreement.one_minus_nmi(agreement.count(one, 7)).item() for one in trials]
    np.testing.assert_allclose(updated, counted, rtol=0, atol=1e-12)
    if not weighted:
        np.testing.assert_allclose(counted, [1 - nmi(member.tolist(), one.tolist()) for one in trials], atol=1e-12)


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
    # Cluster numbers differ inside a class only.
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
    monkeypatch.setattr("equimetric.ops.products.PAIRWISE_CHUNK_ENTRIES", 300)
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
    tree = build_class_tree(*worked_set(case["inputs"]["set"]), **case["options"])
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
    tree = build_class_tree(embeddings, LABELS, 8)
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
