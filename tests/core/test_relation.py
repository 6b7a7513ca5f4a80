"""From labels to masks: which pairs are positive, which negative."""

import pytest
import torch

import equimetric as em
from equimetric.batches import ClassBalancedBatches, build_batches
from equimetric.errors import EquimetricError
from equimetric.references.relation import label_masks


def float64(values):
    return torch.tensor(values, dtype=torch.float64)


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("queries", [5, 700])
def test_class_ids_of_any_size_match_where_they_are_equal(queries):
    ids = torch.tensor([-(2**62), 2**24, 2**24 + 1, 7, 2**62])
    labels, reference_labels = ids[torch.arange(queries) % 4], ids[torch.arange(500) % 5]
    positive, negative = label_masks(labels, reference_labels, (queries, 500))
    assert torch.equal(positive, labels[:, None] == reference_labels)
    assert torch.equal(negative, ~positive)
    positive, negative = label_masks(labels, labels, (queries, queries), same_set=True)
    assert torch.equal(positive, (labels[:, None] == labels) & ~torch.eye(queries, dtype=torch.bool))
    assert torch.equal(negative, labels[:, None] != labels)


def test_a_sample_without_any_label_is_not_its_own_negative():
    labels = torch.tensor([[0, 0], [1, 0], [1, 1]], dtype=torch.bool)
    positive, negative = label_masks(labels, labels, (3, 3), same_set=True)
    assert positive.tolist() == [[False, False, False], [False, False, True], [False, True, False]]
    assert negative.tolist() == [[False, True, True], [True, False, False], [True, False, False]]


def test_multi_hot_labels_are_positive_where_they_share_one():
    labels = torch.tensor([[1, 0, 1], [0, 0, 1], [0, 1, 0], [0, 0, 0]])
    for given in (labels, labels.bool(), labels.float()):
        pairs = em.objective("contrastive").pairs(random(4, 2), given)
        assert pairs.positive.tolist() == [[j != i and {i, j} == {0, 1} for j in range(4)] for i in range(4)]
        assert torch.equal(pairs.negative, ~pairs.positive & ~torch.eye(4, dtype=torch.bool))


def test_one_hot_labels_are_class_ids():
    labels = torch.tensor([2, 0, 0, 1, 2])
    one_hot = torch.nn.functional.one_hot(labels)
    embeddings, references = random(5, 3), random(4, 3, seed=1)
    reference_labels = torch.tensor([0, 1, 2, 2])
    objective = em.objective("multi_similarity")
    assert objective(embeddings, one_hot) == objective(embeddings, labels)
    by_id = objective(embeddings, labels, references, reference_labels)
    assert objective(embeddings, one_hot, references, torch.nn.functional.one_hot(reference_labels)) == by_id


def test_masks_are_the_relation_itself():
    labels = torch.tensor([0, 1, 0, 1])
    embeddings, objective = random(4, 3), em.objective("contrastive")
    same = labels[:, None] == labels[None, :]
    assert objective(embeddings, (same, ~same)) == objective(embeddings, labels)
    references, reference_labels = random(6, 3, seed=1), torch.tensor([0, 1, 1, 0, 2, 2])
    same = labels[:, None] == reference_labels[None, :]
    by_id = objective(embeddings, labels, references, reference_labels)
    assert objective(embeddings, (same, ~same), references) == by_id
    nothing = torch.zeros(4, 4, dtype=torch.bool)
    assert objective(embeddings, (nothing, nothing)) == 0


YES = torch.ones(4, 4, dtype=torch.bool)
IDS = torch.tensor([0, 0, 1, 1])


@pytest.mark.parametrize(
    ("labels", "reference_labels", "message"),
    [
        ((YES, YES), None, "must not overlap"),
        ((YES, ~YES[:, :3]), None, r"negative mask must be a bool matrix of shape \(4, 4\)"),
        ((YES.float(), ~YES), None, "positive mask must be a bool"),
        ((YES,), None, "pair \\(positive, negative\\)"),
        (torch.zeros(3, 2, dtype=torch.bool), None, "one row per embedding"),
        (2 * torch.ones(4, 2, dtype=torch.int64), None, "only 0 and 1"),
        (torch.zeros(4, 2, 2, dtype=torch.int64), None, "one class id per embedding"),
        ((YES, ~YES), IDS, "leave reference_labels out"),
        (IDS, torch.eye(4, dtype=torch.int64), "of one kind"),
        (torch.eye(4, dtype=torch.int64), torch.zeros(4, 3, dtype=torch.int64), "4 columns, reference_labels 3"),
    ],
)
def test_labels_that_do_not_fit_are_errors(labels, reference_labels, message):
    references = [] if reference_labels is None else [random(4, 2, seed=1), reference_labels]
    with pytest.raises(EquimetricError, match=message):
        em.objective("contrastive")(random(4, 2), labels, *references)


def test_lists_and_arrays_are_errors_that_say_how_to_convert_them():
    objective, labels = em.objective("contrastive"), torch.tensor([0, 0, 1, 1])
    for arguments in ((random(4, 2), [0, 0, 1, 1]), (random(4, 2), labels.numpy())):
        with pytest.raises(EquimetricError, match=r"torch.as_tensor\(labels\)"):
            objective(*arguments)
    with pytest.raises(EquimetricError, match=r"torch.as_tensor\(labels\)"):
        em.objective("arcface", classes=2, dim=2)(random(4, 2), [0, 0, 1, 1])
    with pytest.raises(EquimetricError, match=r"torch.as_tensor\(labels\)"):
        ClassBalancedBatches([0, 0, 1, 1], classes_per_batch=2, samples_per_class=2)


def test_self_mask_must_fit():
    with pytest.raises(EquimetricError, match="self_mask must be a bool matrix"):
        em.objective("contrastive")(random(4, 2), IDS, random(3, 2), IDS[:3], self_mask=YES)


@pytest.mark.parametrize("references", ["proxies", "memory"])
def test_proxies_and_memories_need_class_ids(references):
    options = {"classes": 2, "dim": 2} if references == "proxies" else {"dim": 2}
    objective = em.objective("contrastive", references=references, **options)
    for labels in (torch.eye(4, dtype=torch.int64), (YES, ~YES)):
        with pytest.raises(EquimetricError, match="one class id per embedding"):
            objective(random(4, 2), labels)
    with pytest.raises(EquimetricError, match="takes no reference_embeddings"):
        objective(random(4, 2), IDS, random(4, 2), IDS)
    with pytest.raises(EquimetricError, match="have dimension 3"):
        objective(random(4, 3), IDS)


def test_masks_cannot_be_gathered():
    with pytest.raises(EquimetricError, match="not masks"):
        em.objective("contrastive", gather=True)(random(4, 2), (YES, ~YES))


@pytest.mark.parametrize("method", ["contrastive", "proxy_anchor", "supcon"])
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.tensor([[0], [1], [0], [1]]), r"got shape \(4, 1\) for 4 embeddings; give labels.squeeze\(1\)"),
        (torch.tensor([[3], [3], [7], [7]]), r"got shape \(4, 1\) for 4 embeddings; give labels.squeeze\(1\)"),
        (torch.tensor([True, True, False, False]), r"got torch.bool; convert two classes with labels.long\(\)"),
        (torch.tensor([0.0, 0.0, 1.0, 1.0]), r"got torch.float32: .*; convert with labels.long\(\)"),
    ],
)
def test_labels_of_other_kinds_say_what_to_do(method, labels, message):
    objective = em.objective(method, **({"classes": 8, "dim": 3} if method == "proxy_anchor" else {}))
    with pytest.raises(EquimetricError, match=message):
        objective(torch.randn(4, 3), labels)


def test_reference_labels_of_other_kinds_say_what_to_do():
    embeddings, labels = torch.randn(4, 3), torch.tensor([0, 0, 1, 1])
    with pytest.raises(EquimetricError, match=r"give reference_labels.squeeze\(1\)"):
        em.objective("contrastive")(embeddings, labels, embeddings, labels[:, None])
    with pytest.raises(EquimetricError, match=r"with reference_labels.long\(\)"):
        em.objective("contrastive")(embeddings, labels, embeddings, labels > 0)


def test_batches_of_labels_in_a_column_say_what_to_do():
    with pytest.raises(EquimetricError, match=r"got shape \(4, 1\); give labels.squeeze\(1\)"):
        build_batches("class_balanced", torch.tensor([[0], [0], [1], [1]]), classes=2, samples=2, batches=1)
