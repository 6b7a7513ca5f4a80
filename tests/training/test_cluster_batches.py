"""Batches of a cluster and its impostors, drawn by the clusters and losses that the magnet loss keeps."""

import pytest
import torch

import equimetric as em
from equimetric.batches import ClusterBatches, Groups
from equimetric.batches.clusters import cluster_weights
from equimetric.errors import EquimetricError
from equimetric.losses.magnet import Magnet
from equimetric.training import train

CLUSTERS = torch.tensor([0, 0, 0, 5, 5, 1, 1, 1, 0, 0, 5, 5, 1, 1])
LABELS = torch.tensor([8, 8, 8, 8, 8, 3, 3, 3, 3, 3, 6, 6, 6, 6])
"""Two clusters in each of three classes; their numbers say nothing across classes."""
PLACES = {(8, 0): 0.0, (8, 5): 10.0, (3, 1): 1.0, (3, 0): 13.0, (6, 5): 3.0, (6, 1): 30.0}
"""Where the clusters lie on a line."""
NAMES = list(zip(LABELS.tolist(), CLUSTERS.tolist(), strict=True))
EMBEDDINGS = torch.tensor([[PLACES[name], 0.1 * (-1) ** number] for number, name in enumerate(NAMES)])
NO_LOSSES = torch.full((14,), -1.0)


def build(losses=NO_LOSSES, **options):
    options = {"clusters_per_batch": 3, "samples_per_cluster": 2, "batches": 200, "seed": 1, **options}
    batches = ClusterBatches(LABELS, **options)
    batches.set_groups(Groups(CLUSTERS, losses))
    batches.refresh(EMBEDDINGS, LABELS)
    return batches


def test_a_cluster_comes_with_the_nearest_clusters_of_other_classes():
    seeds = set()
    for batch in build():
        groups = [{NAMES[index] for index in rows} for rows in torch.tensor(batch).view(3, 2).tolist()]
        assert all(len(group) == 1 for group in groups)
        seed, *impostors = (group.pop() for group in groups)
        others = [name for name in PLACES if name[0] != seed[0]]
        assert impostors == sorted(others, key=lambda name: abs(PLACES[name] - PLACES[seed]))[:2]
        seeds.add(seed)
    assert seeds == set(PLACES)


def test_samples_of_a_cluster_are_distinct_if_it_has_enough():
    for batch in build(samples_per_cluster=3):
        for rows in torch.tensor(batch).view(3, 3).tolist():
            size = NAMES.count(NAMES[rows[0]])
            assert len(set(rows)) == min(3, size)


def first_of(batches):
    return [NAMES[batch[0]] for batch in batches]


def test_the_first_cluster_is_drawn_in_proportion_to_its_mean_loss():
    # The means of the clusters are 3, 1, 0 and, where nothing is known, their own mean.
    losses = torch.tensor([2.0, 4.0, -1.0, 1.0, 1.0, 0.0, 0.0, 0.0, -1.0, -1.0, -1.0, -1.0, -1.0, -1.0])
    seeds = first_of(build(losses, batches=4000))
    average = 4 / 3
    weights = {(8, 0): 3, (8, 5): 1, (3, 1): 0.01 * average, (3, 0): average, (6, 5): average, (6, 1): average}
    for name, weight in weights.items():
        assert seeds.count(name) / 4000 == pytest.approx(weight / sum(weights.values()), abs=0.025)


def test_weights_are_equal_as_long_as_nothing_has_a_loss():
    cluster = torch.tensor([0, 0, 1, 2])
    for losses in ([-1.0, -1.0, -1.0, -1.0], [0.0, -1.0, 0.0, -1.0]):
        assert cluster_weights(cluster, torch.tensor(losses)).tolist() == [1, 1, 1]
    assert cluster_weights(cluster, torch.tensor([1.0, 3.0, 6.0, -1.0])).tolist() == [2, 6, 4]


def test_clusters_that_the_objective_renews_are_taken_with_the_next_look_at_embeddings():
    batches = build()
    before = batches.batch(0)
    batches.set_groups(Groups(CLUSTERS.flip(0), NO_LOSSES))
    assert torch.equal(batches.batch(0), before)
    batches.refresh(EMBEDDINGS, LABELS)
    # Of class 3, samples 5 to 9, now only 6, 7 and 8 are together.
    assert [names.count(name) for names in [batches.mined["cluster"][5:10].tolist()] for name in names] == [
        1,
        3,
        3,
        3,
        1,
    ]


def test_without_an_objective_that_keeps_clusters_they_are_found_by_k_means():
    batches = ClusterBatches(
        LABELS, clusters_per_batch=3, samples_per_cluster=2, clusters_per_class=2, batches=50, seed=1
    )
    batches.set_groups(None)
    batches.refresh(EMBEDDINGS, LABELS)
    torch.manual_seed(5)
    other = build(batches=50)
    assert torch.equal(
        batches.mined["cluster"].bincount().sort().values, other.mined["cluster"].bincount().sort().values
    )
    for batch in batches:
        assert all(len({NAMES[index] for index in rows}) == 1 for rows in torch.tensor(batch).view(3, 2).tolist())


def test_batches_that_cannot_be_met_are_refused_with_a_way_out():
    with pytest.raises(EquimetricError, match="cannot be drawn from 14 samples; set the clusters per batch to 10 or"):
        ClusterBatches(LABELS, clusters_per_batch=11, samples_per_cluster=2)
    with pytest.raises(EquimetricError, match="cannot be drawn from 6 clusters; set the clusters per batch to 5 or"):
        build(clusters_per_batch=6)
    assert len(build(clusters_per_batch=5).batch(0)) == 10
    with pytest.raises(EquimetricError, match=r"clusters of 13 samples and weights of shape \(14,\)"):
        Groups(CLUSTERS[:-1], NO_LOSSES)
    with pytest.raises(EquimetricError, match="the clusters of 13 samples, but batches are drawn from 14"):
        build().set_groups(Groups(CLUSTERS[:-1]))
    with pytest.raises(EquimetricError, match="must be a vector of integers"):
        Groups(NO_LOSSES)


def test_samples_of_cluster_minus_one_are_never_drawn():
    left_out = torch.tensor([0, 3, 4, 9])  # the second and third are a whole cluster
    cluster = CLUSTERS.clone()
    cluster[left_out] = -1
    batches = build()
    batches.set_groups(Groups(cluster))
    batches.refresh(EMBEDDINGS, LABELS)
    drawn = torch.tensor(list(batches))
    assert set(drawn.flatten().tolist()) == set(range(14)) - set(left_out.tolist())
    assert (batches.mined["cluster"][left_out] == -1).all()
    assert len(batches.mined["weights"]) == 5
    resumed = ClusterBatches(LABELS, clusters_per_batch=3, samples_per_cluster=2, batches=200, seed=9)
    resumed.load_state_dict(batches.state_dict())
    assert torch.equal(resumed.batch(7), batches.batch(7))
    batches.set_groups(Groups(torch.full((14,), -1)))
    with pytest.raises(EquimetricError, match="every sample has cluster −1"):
        batches.refresh(EMBEDDINGS, LABELS)


def test_groups_without_weights_draw_clusters_uniformly():
    batches = build(torch.arange(14.0))
    batches.set_groups(Groups(CLUSTERS))
    batches.refresh(EMBEDDINGS, LABELS)
    assert torch.equal(batches.mined["weights"], torch.ones(6, dtype=torch.float64))


# -- what the loss keeps


def test_magnet_keeps_the_last_loss_of_every_image_it_has_trained_on():
    objective = em.objective("magnet", images=14, clusters_per_class=2)
    objective.loss.set_clusters(CLUSTERS)
    assert objective.loss.row_groups()[1].tolist() == [-1.0] * 14
    index = torch.tensor([0, 1, 3, 4, 5, 6, 10, 11])
    value = objective(EMBEDDINGS[index], LABELS[index], index=index)
    losses = objective.loss.row_groups()[1]
    torch.testing.assert_close(losses[index].mean(), value)
    assert (losses[[2, 7, 8, 9, 12, 13]] == -1).all()
    kept = losses.clone()
    objective.eval()(2 * EMBEDDINGS[index], LABELS[index], index=index)
    assert torch.equal(objective.loss.row_groups()[1], kept)
    copy = em.objective("magnet", images=14)
    copy.load_state_dict(objective.state_dict())
    assert torch.equal(copy.loss.row_groups()[1], kept)
    assert em.objective("magnet").loss.row_groups() is None


def test_of_an_image_that_is_twice_in_a_batch_the_larger_loss_is_kept():
    loss = Magnet(images=3)
    loss.record(torch.tensor([1, 1, 2]), torch.tensor([5.0, 9.0, 4.0]))
    loss.record(torch.tensor([1, 1]), torch.tensor([2.0, 1.0]))
    assert loss.recorded.tolist() == [-1, 2, 4]


def test_in_training_batches_go_by_the_clusters_and_losses_of_the_loss(tmp_path, monkeypatch):
    given = []
    set_groups = ClusterBatches.set_groups

    def noted(batches, groups):
        given.append(Groups(groups.cluster.clone(), groups.weight.clone()))
        set_groups(batches, groups)

    monkeypatch.setattr(ClusterBatches, "set_groups", noted)
    config = {
        "method": "magnet_clusters",
        "data": {"name": "digits"},
        "model": {"dim": 8},
        "batch": {"kind": "clusters", "classes": 4, "samples": 3},
        "training": {"steps": 6, "validate_every": 3},
    }
    learner = train(config, folder=tmp_path).learner
    first, second = given
    assert (first.weight == -1).all()
    # Three batches of twelve, some of them drawn more than once.
    assert 12 <= (second.weight >= 0).sum() <= 36
    assert first.cluster.unique().tolist() == [0, 1, 2]
    assert len(first) == len(learner.groups().cluster)
