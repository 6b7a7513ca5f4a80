"""A batch that teaches nothing is warned of, once."""

import copy
import pickle
import warnings

import pytest
import torch

import equimetric as em

NEEDS_BOTH = [
    *("triplet", "triplet_semihard", "ntxent", "lifted_generalized"),
    *("smooth_ap", "circle", "multi_similarity_miner"),
]


def embeddings(seed=0, **options):
    return torch.randn(8, 4, generator=torch.Generator().manual_seed(seed), **options)


def messages(function, *arguments):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function(*arguments)
    return [str(one.message) for one in caught]


@pytest.mark.parametrize("method", NEEDS_BOTH)
def test_a_batch_of_one_class_is_warned_of_once(method):
    objective = em.objective(method)
    (message,) = messages(objective, embeddings(), torch.zeros(8, dtype=torch.long))
    assert message == (
        f"'{method}' is 0 for a batch without negative pairs, which teaches nothing: "
        "all that is compared is of one class; a batch needs two classes or more"
    )
    assert messages(objective, embeddings(1), torch.zeros(8, dtype=torch.long)) == []
    assert len(messages(em.objective(method), embeddings(), torch.zeros(8, dtype=torch.long))) == 1


@pytest.mark.parametrize("method", NEEDS_BOTH)
def test_a_batch_of_single_samples_is_warned_of_once(method):
    objective = em.objective(method)
    (message,) = messages(objective, embeddings(), torch.arange(8))
    assert "is 0 for a batch without positive pairs" in message
    assert messages(objective, embeddings(1), torch.arange(8)) == []


def test_other_zeros_are_not_warned_of():
    """Triplets that all hold, a loss that keeps its other part, and references of other classes."""
    labels = torch.tensor([0, 0, 1, 1])
    apart = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]])
    assert float(em.objective("triplet")(apart, labels)) == 0
    assert messages(em.objective("triplet"), apart, labels) == []
    assert messages(em.objective("contrastive"), embeddings(), torch.zeros(8, dtype=torch.long)) == []
    one_class, others = torch.zeros(8, dtype=torch.long), torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
    assert messages(em.objective("ntxent"), embeddings(), one_class, embeddings(1), others) == []


def test_a_term_of_a_sum_is_named():
    found = messages(em.objective("contrastive+triplet"), embeddings(), torch.zeros(8, dtype=torch.long))
    assert ["'triplet' is 0" in message for message in found] == [True]


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("method", ["contrastive", "triplet", "ntxent", "multi_similarity"])
def test_embeddings_that_are_not_finite_are_warned_of_once(method, value):
    wrong = embeddings()
    wrong[3, 1] = value
    objective = em.objective(method)
    labels = torch.arange(4).repeat_interleave(2)
    (message,) = messages(objective, wrong, labels)
    assert message.startswith(f"'{method}' is NaN for a batch with NaN or infinite embeddings, and so are its gra")
    assert messages(objective, wrong, labels) == []
    assert objective(wrong, labels).isnan()


def test_a_compiled_objective_says_nothing_and_has_the_same_value():
    objective = em.objective("triplet")
    compiled = torch.compile(objective, backend="eager", fullgraph=True)
    labels = torch.arange(4).repeat_interleave(2)
    assert messages(compiled, embeddings(), labels) == []
    torch.testing.assert_close(compiled(embeddings(), labels), objective(embeddings(), labels))


def test_what_was_warned_of_is_no_part_of_the_state():
    objective = em.objective("triplet")
    messages(objective, embeddings(), torch.zeros(8, dtype=torch.long))
    assert "batch_warnings" not in objective.state_dict()
    for copied in (copy.deepcopy(objective), pickle.loads(pickle.dumps(objective))):
        assert messages(copied, embeddings(), torch.zeros(8, dtype=torch.long)) == []
