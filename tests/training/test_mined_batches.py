"""Batches mined from the embeddings of the training set: neighbours, hierarchies, hard classes, smart mining."""

import math

import pytest
import torch
from sampling_cases import EMBEDDINGS, LABELS, MINED, SIZES, make

from equimetric.batches import (
    BATCHES,
    Batches,
    HardClassBatches,
    HierarchyBatches,
    NeighbourClassBatches,
    SmartMiningBatches,
)
from equimetric.batches.hard_classes import hard_classes
from equimetric.errors import EquimetricError


@pytest.mark.parametrize("name", MINED)
def test_mined_batches_need_embeddings_that_fit(name):
    batches = make(name, refresh=False)
    with pytest.raises(EquimetricError, match=r"call refresh\(embeddings, labels\)"):
        batches.batch(0)
    with pytest.raises(EquimetricError, match="one row for each of the 32 samples"):
        batches.refresh(EMBEDDINGS[:5], LABELS)
    with pytest.raises(EquimetricError, match="not those that the batches were made for"):
        batches.refresh(EMBEDDINGS, LABELS.flip(0))
    with pytest.raises(EquimetricError, match="not finite"):
        batches.refresh(EMBEDDINGS / 0, LABELS)


@pytest.mark.parametrize("name", MINED)
def test_a_view_is_called_and_the_batches_keep_no_tie_to_its_tensor(name):
    embeddings = EMBEDDINGS.clone()
    batches = make(name, refresh=False)
    batches.refresh(lambda: embeddings, LABELS)
    embeddings.fill_(1.0)
    assert list(batches) == list(make(name))


@pytest.mark.parametrize("name", MINED)
def test_other_embeddings_give_other_batches(name):
    batches = make(name)
    before = list(batches)
    batches.set_epoch(0)
    batches.refresh(EMBEDDINGS.flip(0), LABELS)
    assert list(batches) != before


def members(label):
    return (label == LABELS).nonzero()[:, 0]


def unit(embeddings):
    return torch.nn.functional.normalize(embeddings.double())


def class_order(label, distance):
    """The other classes, the nearest first."""
    return sorted((other for other in SIZES if other != label), key=lambda other: distance(label, other))


def centre_distance(first, second):
    x = unit(EMBEDDINGS)
    return (x[members(first)].mean(0) - x[members(second)].mean(0)).norm().item()


def mean_squared_distance(first, second):
    x = unit(EMBEDDINGS)
    return (x[members(first)][:, None] - x[members(second)][None]).square().sum(2).mean().item()


def test_neighbour_classes_are_those_with_the_nearest_centres():
    for batch in make("neighbour_classes", batches=30):
        first, *others = LABELS[batch].view(4, 3)[:, 0].tolist()
        assert others == class_order(first, centre_distance)[:3]


def test_neighbour_classes_start_from_classes_by_weight():
    batches = make("neighbour_classes", batches=200)
    batches.weigh_classes(torch.tensor([0.0, 3.0, 1.0, 0.0, 0.0, 0.0]))
    batches.refresh(EMBEDDINGS, LABELS)
    resumed = make("neighbour_classes", batches=200, refresh=False)
    resumed.load_state_dict(batches.state_dict())
    first = [LABELS[batch[0]].item() for batch in resumed]
    assert set(first) == {3, 5}, "the second and third of the class ids in order"
    assert first.count(3) / 200 == pytest.approx(0.75, abs=0.12)
    with pytest.raises(EquimetricError, match="6 finite numbers"):
        batches.weigh_classes(torch.ones(5))


def test_hierarchy_batches_take_the_nearest_classes_that_are_free():
    passed_over = 0
    for batch in make("hierarchy", batches=30, neighbourhood=3):
        classes = LABELS[batch].view(6, 3)[:, 0].tolist()
        anchors = {classes[0], classes[3]}
        for start, taken in ((0, anchors), (3, {*anchors, *classes[:3]})):
            order = class_order(classes[start], mean_squared_distance)
            assert classes[start + 1 : start + 3] == [c for c in order if c not in taken][:2]
            passed_over += order[:2] != classes[start + 1 : start + 3]
    assert passed_over


def test_hard_classes_are_added_greedily_by_their_violation():
    generator = torch.Generator().manual_seed(0)
    anchors, positives = torch.randn(2, 9, 4, generator=generator, dtype=torch.float64)
    chosen = [0]
    while len(chosen) < 5:

        def violation(c):
            terms = []
            for i in chosen:
                terms.append(math.log1p(math.exp(anchors[c] @ positives[i] - anchors[c] @ positives[c])))
                terms.append(math.log1p(math.exp(anchors[i] @ positives[c] - anchors[i] @ positives[i])))
            return sum(terms) / len(terms)

        chosen.append(max((c for c in range(9) if c not in chosen), key=violation))
    assert hard_classes(anchors @ positives.T, 5) == chosen


def test_hard_class_batches_are_pairs_of_distinct_classes_that_lie_close_together():
    # Two clusters of three classes: the hardest companions of a class are those of its own cluster.
    cluster = {7: 0, -1: 0, 2**40: 0, 3: 1, 12: 1, 5: 1}
    embeddings = torch.tensor([[4.0, 0.0] if cluster[label] == 0 else [0.0, 4.0] for label in LABELS.tolist()])
    batches = HardClassBatches(LABELS, classes_per_batch=3, batches=30, same_image=0.0)
    batches.refresh(embeddings, LABELS)
    for batch in batches:
        anchors, positives = torch.tensor(batch).view(2, 3)
        assert (LABELS[anchors] == LABELS[positives]).all()
        assert (anchors != positives).all()
        assert len(LABELS[anchors].unique()) == 3
        assert len({cluster[label] for label in LABELS[anchors].tolist()}) == 1


def test_hard_classes_need_as_many_candidates_as_they_choose():
    with pytest.raises(EquimetricError, match="candidates must be at least 4, got 3"):
        make("hard_classes", candidates=3)


# -- smart mining


@pytest.mark.parametrize(("rank", "neighbours"), [(1.0, 10), (3.7, 10), (10.0, 10), (29.9, 200)])
def test_smart_mining_takes_the_first_negative_from_rank_on_and_a_positive_beyond_it(rank, neighbours):
    x = unit(EMBEDDINGS)
    distance = (x[:, None] - x[None]).norm(dim=2)
    batches = make("smart_mining", batches=24, neighbours=neighbours)
    batches.rank = rank
    seen = {"farther": 0, "fallback": 0}
    for batch in batches:
        for a, p, n in torch.tensor(batch).view(4, 3).tolist():
            assert p != a
            assert LABELS[p] == LABELS[a] != LABELS[n]
            near = [j for j in distance[a].argsort().tolist() if j != a][:neighbours]
            others = [place for place, j in enumerate(near) if LABELS[j] != LABELS[a]]
            beyond = [place for place in others if place + 1 >= int(rank)]
            assert n == near[beyond[0] if beyond else others[-1]]
            own = [j for j in members(LABELS[a]).tolist() if j != a]
            farther = [j for j in own if distance[a, j] > distance[a, n]]
            seen["farther" if farther else "fallback"] += 1
            assert p in (farther or own)
            if not farther and len(own) <= 5:
                assert p == max(own, key=lambda j: distance[a, j].item())
    assert seen["farther"]
    assert bool(seen["fallback"]) == (rank > 20)


def test_smart_mining_meets_every_anchor_once_per_pass_but_none_that_is_alone():
    labels = torch.cat([LABELS, torch.tensor([100, 101])])
    batches = SmartMiningBatches(labels, triples=4, neighbours=10)
    batches.refresh(torch.cat([EMBEDDINGS, EMBEDDINGS[:2]]), labels)
    anchors = [index for batch in batches for index in batch[::3]]
    assert sorted(anchors) == list(range(len(LABELS)))
    for useless in (torch.zeros(4, dtype=torch.int64), torch.arange(4)):
        with pytest.raises(EquimetricError, match="at least two classes, one of them with two samples"):
            SmartMiningBatches(useless, triples=2)


def test_smart_mining_finds_a_negative_though_all_neighbours_are_of_the_own_class():
    labels = torch.arange(2).repeat_interleave(10)
    embeddings = torch.cat([torch.eye(2)[:1].repeat(10, 1), torch.eye(2)[1:].repeat(10, 1)])
    batches = SmartMiningBatches(labels, triples=5, neighbours=3)
    batches.refresh(embeddings + 0.01 * torch.randn(20, 2, generator=torch.Generator().manual_seed(0)), labels)
    for batch in batches:
        anchors, positives, negatives = torch.tensor(batch).view(5, 3).T
        assert (labels[anchors] == labels[positives]).all()
        assert (labels[anchors] != labels[negatives]).all()
        assert (anchors != positives).all()


def test_the_controller_keeps_the_share_of_active_triples_in_bounds():
    batches = make("smart_mining", interval=3)
    for active, expected in ((4, 1.1), (4, 1.21), (3, 1.21), (2, 1.21), (1, 1.089), (0, 1.0), (0, 1.0)):
        before = batches.rank
        for _ in range(2):
            batches.record(active, 4)
            assert batches.rank == before
        batches.record(active, 4)
        assert batches.rank == pytest.approx(expected)
    for _ in range(3 * 40):
        batches.record(4, 4)
    assert batches.rank == 10, "no farther than the list of neighbours is long"
    with pytest.raises(EquimetricError, match="of 4 triples 5 cannot be active"):
        batches.record(5, 4)


def test_the_controller_is_part_of_the_state():
    batches = make("smart_mining", interval=3)
    batches.rank = 5.0
    batches.record(4, 4)
    batches.record(4, 4)
    resumed = make("smart_mining", interval=3, refresh=False)
    resumed.load_state_dict(batches.state_dict())
    assert list(resumed) == list(batches)
    resumed.record(4, 4)
    assert resumed.rank == pytest.approx(5.5)


@pytest.mark.parametrize("name", BATCHES)
def test_samplers_that_override_observe_say_that_they_adapt(name):
    kind = BATCHES[name]
    assert kind.adapts == (kind.observe is not Batches.observe)
    assert kind.adapts == (name == "smart_mining")


def test_hierarchy_and_neighbours_differ_where_a_class_is_wide():
    # The wide class 1 has a near centre but far samples.
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    angles = torch.tensor([-2.0, 2.0, -72.5, 72.5, 58.0, 62.0]).deg2rad()
    embeddings = torch.stack([angles.cos(), angles.sin()], 1)
    nearest = {}
    for kind, options in (
        (NeighbourClassBatches, {"classes_per_batch": 2}),
        (HierarchyBatches, {"anchor_classes": 1, "neighbourhood": 2}),
    ):
        batches = kind(labels, samples_per_class=2, **options)
        batches.refresh(embeddings, labels)
        nearest[kind] = batches.mined["nearest"][:, 0].tolist()
    assert nearest[HierarchyBatches] == [2, 0, 0]
    assert nearest[NeighbourClassBatches] == [1, 0, 1]


@pytest.mark.parametrize(("margin", "active"), [(-2.0, 0), (0.2, 1), (0.5, 2), (0.7, 3), (5.0, 4)])
def test_the_controller_observes_how_many_triples_violate_the_margin(margin, active):
    # Four anchors at 0°, positives and negatives at these angles; ‖x − y‖² = 2 − 2 cos.
    angles = torch.tensor([[0.0] * 4, [60.0, 90.0, 30.0, 0.0], [80.0, 45.0, 45.0, 180.0]]).deg2rad()
    gaps = [2 * (positive.cos() - negative.cos()).item() for positive, negative in angles[1:].T]
    assert gaps == pytest.approx([0.6527, -1.4142, 0.3178, 4.0], abs=1e-4)
    batches = make("smart_mining", margin=margin)
    batches.observe(3 * torch.stack([angles.cos(), angles.sin()], 2).transpose(0, 1).flatten(0, 1))
    assert batches.state_dict()["controller"] == {"rank": 1.0, "steps": 1, "active": active, "seen": 4}
