import itertools
import math
from collections import Counter

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans as LloydOfScikitLearn
from sklearn.cluster import kmeans_plusplus
from sklearn.metrics import adjusted_mutual_info_score, normalized_mutual_info_score
from torch.nn.functional import normalize

import equimetric.ops.kmeans as kmeans_module
from equimetric.errors import EquimetricError
from equimetric.evaluation import evaluate
from equimetric.evaluation.metrics import partitions
from equimetric.evaluation.metrics.clustering import ClusterAssignments
from equimetric.evaluation.metrics.partitions import (
    Contingency,
    adjusted_mutual_information,
    normalized_mutual_information,
    pairwise_f1,
)
from equimetric.ops import blocks
from equimetric.ops.blocks import sum_by_group
from equimetric.ops.kmeans import kmeans

WORKED = np.array([0, 0, 0, 1, 1, 1, 2, 2, 2, 2]), np.array([0, 0, 1, 1, 1, 1, 2, 2, 1, 2])


def blobs(classes, each, dimension, spread, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes).repeat_interleave(each)
    centres = normalize(torch.randn(classes, dimension, generator=generator, dtype=dtype), dim=1)
    noise = torch.randn(len(labels), dimension, generator=generator, dtype=dtype)
    return normalize(centres[labels] + spread * noise, dim=1), labels


@pytest.mark.parametrize("geometry", ["cosine", "euclidean"])
@pytest.mark.parametrize("scale", [2.0**-126, 1e-30, 1e-18, 1e18, 1e30, 2.0**126])
def test_very_short_and_very_long_vectors_form_the_same_clusters(scale, geometry):
    points, labels = blobs(6, 8, 12, 0.4)
    points = points * torch.linspace(0.5, 1.5, len(points))[:, None]
    options = {"metrics": ["nmi", "f1"], "geometry": geometry}
    plain, scaled = evaluate(points, labels, **options), evaluate(points * scale, labels, **options)
    assert 0.3 < plain["nmi"] < 1
    assert dict(scaled) == dict(plain)
    before, after = (Counter(result.detail(ClusterAssignments).clusters[0]) for result in (plain, scaled))
    assert before == after


def test_worked_example():
    table = Contingency.from_labels(*WORKED)
    assert normalized_mutual_information(table) == pytest.approx(0.579418790841, abs=1e-11)
    assert normalized_mutual_information(table, "geometric") == pytest.approx(0.579645500964, abs=1e-11)
    assert adjusted_mutual_information(table) == pytest.approx(0.422619131781, abs=1e-11)
    assert pairwise_f1(table) == pytest.approx(0.538461538462, abs=1e-11)


@pytest.mark.parametrize(
    ("points", "classes", "clusters"), [(500, 7, 9), (2000, 300, 200), (50, 50, 20), (40, 2, 3), (30, 1, 4), (30, 5, 1)]
)
@pytest.mark.parametrize("average", ["arithmetic", "geometric"])
def test_information_equals_that_of_scikit_learn(points, classes, clusters, average):
    generator = np.random.default_rng(points)
    truth = generator.integers(classes, size=points)
    # Half of the points keep their class, so that the partitions share information.
    found = np.where(generator.random(points) < 0.5, truth % clusters, generator.integers(clusters, size=points))
    table = Contingency.from_labels(truth, found)
    expected = normalized_mutual_info_score(truth, found, average_method=average)
    assert normalized_mutual_information(table, average) == pytest.approx(expected, abs=1e-12)
    expected = adjusted_mutual_info_score(truth, found, average_method=average)
    assert adjusted_mutual_information(table, average) == pytest.approx(expected, abs=1e-9)


def test_expected_information_is_the_mean_over_all_orders():
    truth, found = np.array([0, 0, 0, 1, 1, 2, 2]), np.array([0, 0, 1, 1, 1, 1, 2])
    orders = [Contingency.from_labels(truth, found[list(order)]) for order in itertools.permutations(range(7))]
    mean = math.fsum(partitions._information(table) for table in orders) / len(orders)
    assert partitions.expected_information(orders[0].class_sizes, orders[0].cluster_sizes) == pytest.approx(
        mean, rel=1e-12
    )


def test_large_parts_must_overlap():
    truth, found = np.repeat([0, 1, 2], [17, 2, 1]), np.roll(np.repeat([0, 1], [15, 5]), 4)
    expected = adjusted_mutual_info_score(truth, found)
    assert adjusted_mutual_information(Contingency.from_labels(truth, found)) == pytest.approx(expected, abs=1e-11)


def test_expected_information_in_small_pieces(monkeypatch):
    generator = np.random.default_rng(0)
    table = Contingency.from_labels(generator.integers(9, size=300), generator.integers(30, size=300))
    whole = partitions.expected_information(table.class_sizes, table.cluster_sizes)
    monkeypatch.setattr(partitions, "EXPECTATION_TERMS", 1)
    assert partitions.expected_information(table.class_sizes, table.cluster_sizes) == pytest.approx(whole, rel=1e-14)


def test_f1_counts_pairs():
    generator = np.random.default_rng(3)
    truth, found = generator.integers(5, size=60), generator.integers(4, size=60)
    pairs = list(itertools.combinations(range(60), 2))
    both = sum(truth[i] == truth[j] and found[i] == found[j] for i, j in pairs)
    precision = both / sum(found[i] == found[j] for i, j in pairs)
    recall = both / sum(truth[i] == truth[j] for i, j in pairs)
    expected = 2 * precision * recall / (precision + recall)
    assert pairwise_f1(Contingency.from_labels(truth, found)) == pytest.approx(expected, rel=1e-13)


def test_scores_of_single_parts():
    same, one, alone = np.array([3, 3, 8, 8]), np.zeros(4, dtype=int), np.arange(4)
    for metric in (normalized_mutual_information, adjusted_mutual_information, pairwise_f1):
        assert metric(Contingency.from_labels(same, -same)) == 1
        assert metric(Contingency.from_labels(one, one)) == 1
        assert metric(Contingency.from_labels(alone, alone[::-1])) == 1
    for metric in (normalized_mutual_information, adjusted_mutual_information):
        assert metric(Contingency.from_labels(same, one)) == metric(Contingency.from_labels(one, same)) == 0


def test_names_and_order_do_not_matter():
    truth, found = WORKED
    order = np.random.default_rng(0).permutation(len(truth))
    renamed = Contingency.from_labels(np.array(["b", "a", "c"])[truth][order], torch.from_numpy(7 - found[order]))
    assert adjusted_mutual_information(renamed) == pytest.approx(0.422619131781, abs=1e-11)


def test_invalid_tables():
    with pytest.raises(EquimetricError, match="3 classes but 2 clusters"):
        Contingency.from_labels(np.zeros(3), np.zeros(2))
    with pytest.raises(EquimetricError, match="unknown average"):
        normalized_mutual_information(Contingency.from_labels(*WORKED), "harmonic")


@pytest.mark.parametrize("spherical", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_separated_clusters_are_found(spherical, dtype):
    points, labels = blobs(30, 8, 16, 0.001, dtype=dtype)
    found = kmeans(points, 30, spherical=spherical)
    assert found.converged
    assert pairwise_f1(Contingency.from_labels(labels, found.assignment)) == 1
    assert found.centres.dtype == dtype


def test_lloyd_from_the_same_seeds_as_scikit_learn():
    points, _ = blobs(12, 20, 6, 0.5, dtype=torch.float64)
    squared_norms = points.square().sum(dim=1)
    seeds = points[kmeans_module._init_seeds(points, squared_norms, 12, seed=0)]
    found = kmeans(points, 12, iterations=100)
    peer = LloydOfScikitLearn(12, init=seeds.numpy(), n_init=1, max_iter=100, tol=0).fit(points.numpy())
    assert found.converged
    assert found.iterations > 3
    assert found.assignment.tolist() == peer.labels_.tolist()
    assert found.inertia == pytest.approx(peer.inertia_, rel=1e-9)


def test_spherical_centres_are_unit_vectors_that_only_improve():
    points, _ = blobs(10, 30, 8, 0.8, dtype=torch.float64)
    runs = [kmeans(points, 10, iterations=count, spherical=True) for count in range(1, 8)]
    for run in runs:
        torch.testing.assert_close(run.centres.norm(dim=1), torch.ones(10, dtype=torch.float64))
    assert all(later.inertia <= earlier.inertia for earlier, later in itertools.pairwise(runs))
    assert runs[-1].inertia < runs[0].inertia
    cosine = (points * runs[-1].centres[runs[-1].assignment]).sum(dim=1)
    assert runs[-1].inertia == pytest.approx(float((2 - 2 * cosine).sum()), rel=1e-9)


def test_no_cluster_is_ever_empty():
    points = torch.tensor([[1.0, 0], [1, 0], [1, 0], [0, 1], [0, 1], [-1, 0]])
    for seed in range(5):
        found = kmeans(points, 5, seed=seed)
        assert found.assignment.bincount(minlength=5).min() >= 1
    points, _ = blobs(40, 3, 4, 0.5)
    assert kmeans(points, 100).assignment.bincount(minlength=100).min() >= 1
    assert kmeans(points, 120).assignment.sort().values.tolist() == list(range(120))


def test_an_empty_cluster_takes_the_farthest_point_it_can():
    assignment = torch.tensor([0, 0, 0, 2, 4, 4])
    squared_distance = torch.tensor([0.1, 0.7, 0.7, 9.0, 0.2, 0.3])
    kmeans_module._fill_empty_clusters(assignment, squared_distance, 5)
    # Point 3 is the farthest but alone in its cluster; 1 and 2 tie, so the lower index goes first.
    assert assignment.tolist() == [0, 1, 3, 2, 4, 4]
    assert squared_distance.tolist() == pytest.approx([0.1, 0, 0, 9, 0.2, 0.3])


def test_a_block_of_candidates_is_distributed_like_single_draws():
    points = torch.tensor([[0.0], [1.0], [1.2], [3.0]])
    start = np.array([0.0, 1.0, 1.44, 9.0])  # squared distances to the first seed, point 0
    generator = np.random.default_rng(0)
    blocks = [
        kmeans_module._accept_candidates(points, start, kmeans_module._draw_indices(start, (4,), generator), generator)
        for _ in range(8_000)
    ]
    firsts = Counter(int(block[0]) for block in blocks)
    for point in (1, 2, 3):
        assert firsts[point] / len(blocks) == pytest.approx(start[point] / start.sum(), abs=0.02)
    for first in (1, 2, 3):
        seconds = Counter(int(block[1]) for block in blocks if len(block) > 1 and block[0] == first)
        left = np.minimum(start, (points[:, 0].numpy() - points[first, 0].item()) ** 2)
        for point in {1, 2, 3} - {first}:
            assert seconds[point] / seconds.total() == pytest.approx(left[point] / left.sum(), abs=0.04)


def test_the_gain_of_a_seed():
    points, _ = blobs(5, 6, 4, 0.5, dtype=torch.float64)
    squared_norms = points.square().sum(dim=1)
    nearest = torch.cdist(points, points[[3, 11]]).square().amin(dim=1)
    gains = kmeans_module._compute_gains(points, squared_norms, nearest, np.array([0, 3, 20]))
    for candidate, gain in zip((0, 3, 20), gains, strict=True):
        after = torch.minimum(nearest, (points - points[candidate]).square().sum(dim=1))
        assert gain == pytest.approx(float((nearest - after).sum()), abs=1e-12)


def test_seeds_are_as_good_as_those_of_scikit_learn():
    points, _ = blobs(80, 25, 16, 0.25, dtype=torch.float64)

    def spread(seeds):
        return float(torch.cdist(points, seeds).square().amin(dim=1).sum())

    squared_norms = points.square().sum(dim=1)
    ours = [spread(points[kmeans_module._init_seeds(points, squared_norms, 80, seed)]) for seed in range(5)]
    theirs = [spread(torch.from_numpy(kmeans_plusplus(points.numpy(), 80, random_state=seed)[0])) for seed in range(5)]
    assert np.mean(ours) < 1.03 * np.mean(theirs)


def test_seeds_are_distinct_and_spread_out():
    points, labels = blobs(200, 4, 32, 0.0005)
    seeds = kmeans_module._init_seeds(points, points.double().square().sum(dim=1), 200, seed=1)
    assert len(seeds.unique()) == 200
    # With clusters this tight, k-means++ practically never takes two seeds from one.
    assert len(labels[seeds].unique()) == 200


def test_the_seed_determines_the_result():
    points, _ = blobs(20, 10, 8, 0.7)
    first, again, other = (
        kmeans(points, 20, seed=1),
        kmeans(points, 20, seed=1),
        kmeans(points, 20, seed=2),
    )
    assert first.assignment.tolist() == again.assignment.tolist()
    assert first.assignment.tolist() != other.assignment.tolist()


@pytest.mark.parametrize("tile_bytes", [1, 4000])
def test_tiles_change_nothing(monkeypatch, tile_bytes):
    points, _ = blobs(20, 10, 8, 0.3)
    whole = kmeans(points, 20)
    for module in (kmeans_module, blocks):
        monkeypatch.setattr(module, "TILE_BYTES", tile_bytes)
    tiled = kmeans(points, 20)
    assert tiled.assignment.tolist() == whole.assignment.tolist()
    torch.testing.assert_close(tiled.centres, whole.centres)


def test_sums_by_group():
    vectors = torch.tensor([[3.0, 4.0], [0.0, 2.0], [6.0, 8.0]])
    group = torch.tensor([2, 0, 2])
    assert sum_by_group(vectors, group, 3).tolist() == [[0, 2], [0, 0], [9, 12]]
    torch.testing.assert_close(
        sum_by_group(vectors, group, 3, unit=True), torch.tensor([[0, 1], [0, 0], [1.2, 1.6]], dtype=torch.float64)
    )


def test_invalid_clusterings():
    points = torch.eye(4)
    for clusters in (0, 5):
        with pytest.raises(EquimetricError, match="4 points cannot form"):
            kmeans(points, clusters)
    with pytest.raises(EquimetricError, match="at least 1"):
        kmeans(points, 2, iterations=0)
    with pytest.raises(EquimetricError, match="clustering_runs is 0"):
        evaluate(points, [0, 0, 1, 1], metrics=["nmi"], clustering_runs=0)


def test_metrics_of_an_evaluation_are_means_over_runs():
    points, labels = blobs(10, 12, 8, 0.6)
    names = ["nmi", "nmi_geometric", "ami", "f1"]
    result = evaluate(points, labels, metrics=names, clustering_runs=3, clustering_seed=5)
    found = result.detail(ClusterAssignments).clusters
    assert found.shape == (3, 120)
    tables = [Contingency.from_labels(labels, run) for run in found]
    assert result["nmi"] == pytest.approx(np.mean([normalized_mutual_information(table) for table in tables]))
    assert result["ami"] == pytest.approx(np.mean([adjusted_mutual_information(table) for table in tables]))
    assert result["f1"] == pytest.approx(np.mean([pairwise_f1(table) for table in tables]))
    assert result["nmi"] <= result["nmi_geometric"] < 1
    assert len({tuple(run) for run in found.tolist()}) == 3


def test_centres_are_unit_vectors_for_cosine_by_default():
    points, labels = blobs(20, 10, 16, 1.5)

    def clusters(**options):
        return evaluate(points, labels, metrics=["nmi"], **options).detail(ClusterAssignments).clusters.tolist()

    assert clusters() == clusters(clustering_spherical=True) != clusters(clustering_spherical=False)
    assert clusters(geometry="euclidean") == clusters(geometry="euclidean", clustering_spherical=False)


def test_with_a_gallery_the_queries_are_clustered():
    points, labels = blobs(5, 8, 8, 0.001)
    # The gallery has one more class: the queries form only five clusters.
    gallery, gallery_labels = blobs(6, 2, 8, 0.001)
    result = evaluate(points, labels, gallery, gallery_labels, metrics=["f1"])
    assert result["f1"] == 1
    assert result.detail(ClusterAssignments).clusters.shape == (1, 40)
