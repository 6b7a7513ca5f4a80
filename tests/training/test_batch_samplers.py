"""What all batch samplers promise, and what sets each apart."""

import pytest
import torch
from sampling_cases import EMBEDDINGS, LABELS, OPTIONS, SIZES, epochs, make

from equimetric.batches import (
    BATCHES,
    ClassBalancedBatches,
    EpisodeBatches,
    ExhaustiveBatches,
    FixedTripletBatches,
    HardClassBatches,
    NeighbourClassBatches,
    NPairBatches,
    ShardedBatches,
    SuperclassBatches,
    build_batches,
)
from equimetric.errors import EquimetricError
from equimetric.registry import read_declarations


@pytest.mark.parametrize("name", BATCHES)
def test_every_batch_is_of_the_same_size_and_an_epoch_of_its_length(name):
    batches = make(name)
    first = list(batches)
    assert len(first) == len(batches) > 1
    assert {len(batch) for batch in first} == {batches.units_per_batch * batches.samples_per_unit}


@pytest.mark.parametrize("name", BATCHES)
def test_every_sample_is_reached(name):
    reached = {index for epoch in epochs(make(name), 30) for batch in epoch for index in batch}
    assert reached == set(range(len(LABELS)))


@pytest.mark.parametrize("name", BATCHES)
def test_same_seed_same_batches_other_seed_or_epoch_other_batches(name):
    batches = make(name)
    first, second = epochs(batches, 2)
    assert epochs(make(name), 2) == [first, second]
    assert list(make(name, seed=5)) != first
    assert first != second
    batches.set_epoch(1)
    assert list(batches) == second


@pytest.mark.parametrize("name", BATCHES)
def test_resumes_in_the_middle_of_an_epoch_without_looking_at_embeddings_again(name):
    undisturbed = make(name)
    expected = epochs(undisturbed, 3)
    broken_off = make(name)
    list(broken_off)
    iterator = iter(broken_off)
    begun = [next(iterator), next(iterator)]
    resumed = make(name, seed=99, refresh=False)
    resumed.load_state_dict(broken_off.state_dict())
    assert [begun + list(resumed), list(resumed)] == expected[1:]


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_depends_on_nothing_drawn_before(name):
    batches, again = make(name), make(name)
    expected = list(batches)
    torch.manual_seed(17)
    assert [again.batch(number).tolist() for number in reversed(range(len(again)))] == expected[::-1]


@pytest.mark.parametrize("name", BATCHES)
def test_every_sampler_says_what_it_does(name):
    assert "atches" in BATCHES[name].summary()
    assert not BATCHES[name].summary().endswith(".")


def test_samplers_are_declared_in_their_files():
    declared = {found.name: found.summary for found in read_declarations("equimetric.batches", "batches")}
    assert declared == {name: kind.summary() for name, kind in BATCHES.items()}


@pytest.mark.parametrize("name", BATCHES)
def test_labels_must_be_a_vector(name):
    with pytest.raises(EquimetricError, match="non-empty vector"):
        make(name, labels=torch.zeros(0, dtype=torch.int64), refresh=False)


TOO_MANY = {
    "class_balanced": {"classes_per_batch": 7},
    "exhaustive": {"classes_per_batch": 7},
    "n_pairs": {"classes_per_batch": 7},
    "episodes": {"nc": 7},
    "fixed_triplets": {"triples": 201},
    "hard_classes": {"candidates": 7},
    "neighbour_classes": {"classes_per_batch": 7},
    "hierarchy": {"neighbourhood": 4},
    "smart_mining": {"triples": 33},
    "superclasses": {"classes_per_superclass": 4},
    "clusters": {"clusters_per_batch": 25},
}
TOO_FEW = {name: {next(iter(options)): 0} for name, options in OPTIONS.items()}


@pytest.mark.parametrize("name", BATCHES)
def test_impossible_batches_are_refused_with_a_way_out(name):
    with pytest.raises(EquimetricError, match=r"cannot be drawn from \d+.*; set .* or fewer"):
        make(name, **TOO_MANY[name])
    with pytest.raises(EquimetricError, match="must be at least 1"):
        make(name, **TOO_FEW[name])


@pytest.mark.parametrize("name", ["class_balanced", "exhaustive", "neighbour_classes", "hierarchy", "superclasses"])
def test_classes_and_samples_are_exact_and_rows_grouped_by_class(name):
    batches = make(name)
    for batch in batches:
        by_class = LABELS[batch].view(batches.units_per_batch, -1)
        assert (by_class == by_class[:, :1]).all()
        assert len(by_class[:, 0].unique()) == 4
        assert len(set(batch)) == len(batch), "every class has enough samples"


def test_samples_with_replacement_repeat_though_the_class_is_large():
    batches = ClassBalancedBatches(LABELS, classes_per_batch=3, samples_per_class=4, replacement=True, batches=200)
    repeats = 0
    for batch in batches:
        assert LABELS[batch].unique(return_counts=True)[1].tolist() == [4, 4, 4]
        repeats += len(set(batch)) < len(batch)
    # Of a class of four samples, four draws are all different with probability 4!/4⁴ = 0.09.
    assert repeats > 180


@pytest.mark.parametrize(
    "name", ["class_balanced", "n_pairs", "hard_classes", "neighbour_classes", "hierarchy", "clusters"]
)
def test_an_epoch_is_one_pass_unless_its_length_is_given(name):
    batches = make(name)
    assert len(batches) == len(LABELS) // (batches.units_per_batch * batches.samples_per_unit)
    assert len(list(make(name, batches=7))) == 7


# -- exhaustive


@pytest.mark.parametrize(("classes", "samples"), [(1, 1), (2, 1), (3, 2), (4, 2), (6, 1), (2, 4), (5, 4)])
def test_exhaustive_batches_use_no_sample_twice_and_leave_no_batch_undone(classes, samples):
    batches = ExhaustiveBatches(LABELS, classes_per_batch=classes, samples_per_class=samples)
    for epoch in epochs(batches, 3):
        used = [index for batch in epoch for index in batch]
        assert len(set(used)) == len(used)
        left = {label: size - sum(LABELS[used] == label).item() for label, size in SIZES.items()}
        assert sum(rest >= samples for rest in left.values()) < classes
        for batch in epoch:
            assert LABELS[batch].unique(return_counts=True)[1].tolist() == [samples] * classes


def test_exhaustive_batches_use_everything_where_classes_are_equal():
    labels = torch.arange(5).repeat(6)
    batches = ExhaustiveBatches(labels, classes_per_batch=5, samples_per_class=3)
    assert sorted(index for batch in batches for index in batch) == list(range(30))


def test_exhaustive_batches_warn_of_classes_that_are_never_drawn_and_refuse_too_few():
    with pytest.warns(UserWarning, match="3 of 6 classes have fewer than 5 samples"):
        batches = ExhaustiveBatches(LABELS, classes_per_batch=3, samples_per_class=5)
    assert set(LABELS[torch.tensor(list(batches)).flatten()].tolist()) == {7, 2**40, 12}
    with pytest.raises(EquimetricError, match="only 3 classes have 5 samples or more, fewer than the 4"):
        ExhaustiveBatches(LABELS, classes_per_batch=4, samples_per_class=5)


# -- superclasses


def test_superclass_batches_hold_classes_of_a_few_superclasses():
    labels = torch.arange(24).repeat_interleave(3)
    superclass = labels // 6
    batches = SuperclassBatches(
        labels, superclass=superclass, superclasses_per_batch=3, classes_per_superclass=4, samples_per_class=2
    )
    drawn = set()
    for batch in batches:
        of_units = labels[batch].view(12, 2)
        assert (of_units == of_units[:, :1]).all()
        assert len(of_units[:, 0].unique()) == 12
        groups = superclass[batch].view(3, 8)
        assert (groups == groups[:, :1]).all()
        assert len(groups[:, 0].unique()) == 3
        drawn.add(tuple(sorted(groups[:, 0].tolist())))
    assert len(drawn) > 1


def test_superclasses_with_too_few_classes_are_not_drawn():
    labels, superclass = torch.tensor([0, 0, 1, 1, 2, 2, 3]), ["a", "a", "a", "a", "b", "b", "a"]
    options = {"superclass": superclass, "classes_per_superclass": 2, "samples_per_class": 2}
    batches = SuperclassBatches(labels, superclasses_per_batch=1, batches=20, **options)
    assert 2 not in {label for batch in batches for label in labels[batch].tolist()}
    with pytest.raises(
        EquimetricError, match="of which 1 have as many classes; set the classes of each superclass to 1"
    ):
        SuperclassBatches(labels, superclasses_per_batch=2, **options)
    with pytest.raises(EquimetricError, match="set superclasses_per_batch to 2 or fewer"):
        SuperclassBatches(labels, superclasses_per_batch=3, **options)
    with pytest.raises(EquimetricError, match="every class belongs to one"):
        SuperclassBatches(labels, **{**options, "superclass": [1, 2, 3, 4, 5, 6, 7]})
    with pytest.raises(EquimetricError, match="7 samples but 3 superclasses"):
        SuperclassBatches(labels, **{**options, "superclass": [1, 2, 3]})
    with pytest.raises(EquimetricError, match="a divisor of 5"):
        build_batches("superclasses", labels, classes=5, samples=2, batches=3, options={"superclass": superclass})


# -- N-pairs


@pytest.mark.parametrize("same_image", [0.0, 0.1, 1.0])
def test_n_pairs_are_anchors_then_positives(same_image):
    alike = 0
    for batch in NPairBatches(LABELS, classes_per_batch=5, batches=200, same_image=same_image):
        anchors, positives = torch.tensor(batch).view(2, 5)
        assert (LABELS[anchors] == LABELS[positives]).all()
        assert len(LABELS[anchors].unique()) == 5
        alike += int((anchors == positives).sum())
    assert alike / 1000 == pytest.approx(same_image, abs=0.05)
    assert (alike == 0) == (same_image == 0)


def test_a_class_of_one_image_pairs_it_with_itself():
    for batch in NPairBatches(torch.tensor([0, 0, 1]), classes_per_batch=2, batches=20, same_image=0.0):
        anchors, positives = torch.tensor(batch).view(2, 2)
        assert (anchors == positives).tolist() == (anchors == 2).tolist()


@pytest.mark.parametrize("kind", [NPairBatches, HardClassBatches])
def test_same_image_must_be_a_probability(kind):
    with pytest.raises(EquimetricError, match="between 0 and 1"):
        kind(LABELS, classes_per_batch=2, same_image=1.2)


# -- episodes


def test_episodes_have_disjoint_support_and_queries_of_distinct_classes():
    batches = EpisodeBatches(LABELS, nc=3, ns=1, nq=3, episodes=4, batches=40)
    overlap = 0
    for batch in batches:
        episodes = LABELS[batch].view(4, 3, 4)
        assert (episodes == episodes[:, :, :1]).all()
        assert all(len(episode.unique()) == 3 for episode in episodes)
        overlap += len(episodes.unique()) == len(SIZES)
        for rows in torch.tensor(batch).view(4, 12).tolist():
            assert len(set(rows)) == 12
    assert overlap, "episodes of a batch draw their classes independently"


def test_episodes_without_class_replacement_meet_every_class_before_any_again():
    batches = EpisodeBatches(LABELS, nc=3, ns=2, nq=2, episodes=2, batches=5, class_replacement=False)
    for epoch in epochs(batches, 3):
        for batch in epoch:
            assert set(LABELS[batch].tolist()) == set(SIZES)
    odd = EpisodeBatches(LABELS, nc=4, ns=2, nq=2, batches=40, class_replacement=False)
    assert set(LABELS[torch.tensor(list(odd)).flatten()].tolist()) == set(SIZES)


def test_episodes_leave_small_classes_out_with_a_warning():
    with pytest.warns(UserWarning, match="3 of 6 classes have fewer than 5 samples and are left out"):
        batches = EpisodeBatches(LABELS, nc=3, ns=3, nq=2, batches=20)
    drawn = torch.tensor(list(batches))
    assert set(LABELS[drawn.flatten()].tolist()) == {7, 2**40, 12}
    assert all(len(set(rows)) == 15 for rows in drawn.tolist())


def test_episodes_repeat_samples_where_too_few_classes_are_large():
    with pytest.warns(UserWarning, match="only 2 classes have 6 samples, fewer than the 5 of an episode: 6 classes"):
        batches = EpisodeBatches(LABELS, nc=5, ns=1, nq=5, batches=50)
    for batch in batches:
        for rows in torch.tensor(batch).view(5, 6):
            support, queries = set(rows[:1].tolist()), set(rows[1:].tolist())
            assert not support & queries
            size = SIZES[LABELS[rows[0]].item()]
            assert len(queries) == min(5, size - 1)
    with pytest.raises(EquimetricError, match=r"need as many classes with two samples or more, but there are 1"):
        EpisodeBatches(torch.tensor([0, 0, 1, 2]), nc=2, ns=2, nq=2)


# -- several processes


@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize("world_size", [1, 2])
def test_the_parts_of_all_processes_are_exactly_the_batch(name, world_size):
    whole = list(make(name))
    parts = [list(ShardedBatches(make(name), rank, world_size)) for rank in range(world_size)]
    for number, batch in enumerate(whole):
        shares = [part[number] for part in parts]
        assert {len(share) for share in shares} == {len(batch) // world_size}
        assert sorted(index for share in shares for index in share) == sorted(batch)


@pytest.mark.parametrize(
    "name", ["class_balanced", "exhaustive", "neighbour_classes", "hierarchy", "episodes", "clusters"]
)
def test_parts_joined_in_order_of_rank_are_the_batch_row_by_row(name):
    parts = zip(*(ShardedBatches(make(name), rank, 2) for rank in range(2)), strict=True)
    assert [first + second for first, second in parts] == list(make(name))


def test_uneven_parts_are_still_exactly_the_batch():
    parts = list(zip(*(ShardedBatches(make("class_balanced"), rank, 3) for rank in range(3)), strict=True))
    assert [[len(part) for part in batch] for batch in parts] == [[3, 3, 6]] * len(parts)
    assert [[*first, *second, *third] for first, second, third in parts] == list(make("class_balanced"))


def test_a_stream_of_parts_goes_on_with_the_next_epoch():
    expected = [batch for epoch in epochs(ShardedBatches(make("class_balanced"), 1, 2), 2) for batch in epoch]
    stream = ShardedBatches(make("class_balanced"), 1, 2).stream()
    assert [next(stream).tolist() for _ in expected] == expected


def test_parts_keep_whole_classes_pairs_and_triples():
    for batch in ShardedBatches(make("class_balanced"), 1, 2):
        assert LABELS[batch].unique(return_counts=True)[1].tolist() == [3, 3]
    for batch in ShardedBatches(make("n_pairs"), 0, 2):
        anchors, positives = torch.tensor(batch).view(2, 2)
        assert (LABELS[anchors] == LABELS[positives]).all()
    for batch in ShardedBatches(make("smart_mining"), 1, 2):
        anchors, positives, negatives = LABELS[batch].view(2, 3).T
        assert (anchors == positives).all()
        assert (anchors != negatives).all()


def test_shards_resume_and_go_to_an_epoch_as_the_whole_does():
    sharded = ShardedBatches(make("class_balanced"), 1, 2)
    expected = epochs(sharded, 2)[1]
    sharded.set_epoch(1)
    next(iter(sharded))
    resumed = ShardedBatches(make("class_balanced"), 1, 2)
    resumed.load_state_dict(sharded.state_dict())
    assert list(resumed) == expected[1:]
    assert len(resumed) == len(expected)


@pytest.mark.parametrize(
    ("rank", "world_size", "message"),
    [(0, 5, "cannot be shared by 5"), (2, 2, "is 0 … 1, got 2"), (0, 0, "must be at least 1")],
)
def test_parts_that_cannot_be_are_refused(rank, world_size, message):
    with pytest.raises(EquimetricError, match=message):
        ShardedBatches(make("class_balanced"), rank, world_size)


# -- fixed triplets


def test_fixed_triplets_are_anchors_positives_and_negatives():
    for batch in make("fixed_triplets"):
        triples = torch.tensor(batch).view(-1, 3)
        anchor, positive, negative = LABELS[triples].unbind(1)
        assert (anchor == positive).all()
        assert (anchor != negative).all()
        assert (triples[:, 0] != triples[:, 1]).all()


def test_every_epoch_has_the_same_triples_in_another_order():
    first, second = (
        sorted(tuple(one) for batch in epoch for one in torch.tensor(batch).view(-1, 3).tolist())
        for epoch in epochs(make("fixed_triplets"), 2)
    )
    assert first == second
    assert len(first) == 200
    assert len(set(first)) > 150
    assert first != sorted(
        tuple(one) for batch in make("fixed_triplets", seed=5) for one in torch.tensor(batch).view(-1, 3).tolist()
    )


def test_all_classes_are_anchors_and_negatives_equally_often_however_large():
    batches = FixedTripletBatches(LABELS, triples=6000, set_size=6000)
    anchor, _, negative = LABELS[batches.batch(0).view(-1, 3)].unbind(1)
    for role in (anchor, negative):
        counts = role.unique(return_counts=True)[1]
        assert counts.min() > 900
        assert counts.max() < 1100


def test_a_class_of_one_sample_has_negatives_only():
    labels = torch.tensor([0, 0, 1])
    batches = FixedTripletBatches(labels, triples=20, set_size=20)
    triples = batches.batch(0).view(-1, 3)
    assert set(triples[:, 2].tolist()) == {2}
    with pytest.raises(EquimetricError, match="two samples or more"):
        FixedTripletBatches(torch.arange(3), triples=1)
    with pytest.raises(EquimetricError, match="two classes"):
        FixedTripletBatches(torch.zeros(4, dtype=torch.int64), triples=1)


# -- mined


SHAPES = {
    "class_balanced": (4, 3, {}, {"units": 4, "samples": 3}),
    "exhaustive": (4, 2, {}, {"units": 4, "samples": 2}),
    "n_pairs": (4, 2, {"same_image": 0.0}, {"units": 4, "samples": 2}),
    "episodes": (4, 3, {"episodes": 2, "ns": 2}, {"units": 2, "samples": 6}),
    "fixed_triplets": (5, 3, {"set_size": 50}, {"units": 5, "samples": 3}),
    "hard_classes": (4, 2, {"candidates": 5}, {"units": 4, "samples": 2}),
    "neighbour_classes": (4, 3, {}, {"units": 4, "samples": 3}),
    "hierarchy": (6, 2, {"neighbourhood": 3}, {"units": 6, "samples": 2}),
    "smart_mining": (5, 3, {"neighbours": 9}, {"units": 5, "samples": 3}),
    "superclasses": (4, 3, {"superclass": OPTIONS["superclasses"]["superclass"]}, {"units": 4, "samples": 3}),
    "clusters": (5, 3, {"clusters_per_class": 2}, {"units": 5, "samples": 3}),
}


@pytest.mark.parametrize("kind", BATCHES)
def test_batches_by_name_have_classes_times_samples_rows(kind):
    classes, samples, options, expected = SHAPES[kind]
    batches = build_batches(kind, LABELS, classes=classes, samples=samples, batches=5, seed=4, options=options)
    batches.refresh(lambda: EMBEDDINGS, LABELS)
    assert type(batches) is BATCHES[kind]
    assert {"units": batches.units_per_batch, "samples": batches.samples_per_unit} == expected
    stream = batches.stream()
    assert {len(next(stream)) for _ in range(12)} == {classes * samples}
    given = {option: value for option, value in options.items() if option != "episodes"}
    assert {option: getattr(batches, option) for option in given} == given


def test_episodes_by_name_halve_the_samples_unless_ns_is_given():
    batches = build_batches("episodes", LABELS, classes=3, samples=4, batches=5)
    assert (batches.nc, batches.ns, batches.nq) == (3, 2, 2)


@pytest.mark.parametrize(
    ("kind", "classes", "samples", "options", "message"),
    [
        ("n_pair", 4, 2, {}, "unknown batch.kind 'n_pair'; did you mean 'n_pairs'"),
        ("n_pairs", 4, 4, {}, "a pair has 2 samples, got 4; set batch.samples to 2"),
        ("hard_classes", 4, 1, {}, "set batch.samples to 2"),
        ("smart_mining", 4, 4, {}, "a triple has 3 samples"),
        ("fixed_triplets", 4, 2, {}, "a triple has 3 samples"),
        ("episodes", 4, 4, {"episodes": 3}, "4 classes cannot be shared equally by 3 episodes"),
        ("episodes", 4, 4, {"ns": 4}, "ns below it"),
        ("hierarchy", 4, 2, {}, "to a divisor of 4"),
        ("hierarchy", 4, 2, {"neighbourhood": 3}, "to a divisor of 4"),
        ("n_pairs", 4, 2, {"same_imag": 0.1}, "have no option 'same_imag'; did you mean 'same_image'"),
        ("n_pairs", 4, 2, {"seed": 3}, "have no option 'seed'"),
        ("class_balanced", 4, 2, {"samples_per_class": 3}, "follows from batch.classes and batch.samples and is 2"),
    ],
)
def test_names_and_shapes_that_do_not_fit_are_refused_with_a_way_out(kind, classes, samples, options, message):
    with pytest.raises(EquimetricError, match=message):
        build_batches(kind, LABELS, classes=classes, samples=samples, batches=5, options=options)


@pytest.mark.parametrize("name", BATCHES)
def test_a_stream_goes_on_over_epochs_and_from_a_saved_state(name):
    batches = make(name)
    expected = [batch for epoch in epochs(make(name), 3) for batch in epoch]
    stream = batches.stream()
    first = [next(stream).tolist() for _ in range(len(batches))]
    resumed = make(name, refresh=False)
    resumed.load_state_dict(batches.state_dict())
    stream = resumed.stream()
    assert first + [next(stream).tolist() for _ in range(2 * len(batches))] == expected


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("class_balanced", {"classes_per_batch": 2.0}),
        ("class_balanced", {"classes_per_batch": True}),
        ("class_balanced", {"batches": 2.5}),
        ("class_balanced", {"seed": "a"}),
        ("n_pairs", {"classes_per_batch": "2"}),
        ("episodes", {"nc": 2.0}),
        ("exhaustive", {"samples_per_class": 2.0}),
        ("smart_mining", {"triples": 3.0}),
    ],
)
def test_sizes_and_seeds_are_whole_numbers(kind, options):
    with pytest.raises(EquimetricError, match="must be a whole number"):
        make(kind, **options)


def test_labels_and_embeddings_of_another_kind_are_refused():
    with pytest.raises(EquimetricError, match=r"convert with labels.long\(\)"):
        make("class_balanced", labels=LABELS.double())
    with pytest.raises(EquimetricError, match="epoch must be a whole number"):
        make("class_balanced").set_epoch("a")
    for embeddings in (None, "x"):
        with pytest.raises(EquimetricError, match="embeddings must be a tensor"):
            make("neighbour_classes", refresh=False).refresh(embeddings, LABELS)


def test_the_state_of_another_kind_of_batches_is_refused():
    labels = torch.arange(6).repeat_interleave(4)
    plain = ClassBalancedBatches(labels, classes_per_batch=3, samples_per_class=2)
    mined = NeighbourClassBatches(labels, classes_per_batch=3, samples_per_class=2)
    with pytest.raises(EquimetricError, match="not the state of NeighbourClassBatches: it lacks mined"):
        mined.load_state_dict(plain.state_dict())
