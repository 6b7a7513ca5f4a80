"""Gradient equivalence: known equivalences of the Unified View and of formulas, and known differences."""

import pytest
import torch

import equimetric as em
from equimetric.errors import EquimetricError
from equimetric.explain.equivalence import example_batches

CLASSES = {"classes": 8, "dim": 16}


def compare(first, second, batches=None, **options):
    objectives = []
    for method, arguments in (first, second):
        torch.manual_seed(0)
        objectives.append(em.objective(method, **arguments))
    return em.gradient_equivalent(*objectives, batches, **options)


# d² = 2 − 2s of unit vectors; RAW is the multi-similarity loss (eq. 15–17); a softmax without its margin is a softmax.
EQUIVALENT = [
    (("raw", {}), ("multi_similarity", {})),
    (("triplet", {"selection": "semihard", "margin": 0.2}), ("triplet_semihard", {})),
    (("multi_similarity_miner", {}), ("multi_similarity", {"epsilon": 0.1})),
    (("cosface", {**CLASSES, "margin": 0.0}), ("arcface", {**CLASSES, "margin_rad": 0.0})),
    (("contrastive+tcm", {}), ("tcm+contrastive", {})),
    (("contrastive_cosine", {}), ("contrastive_cosine", {"lam": 0.5})),
]
UP_TO_A_FACTOR = [
    (("2*binomial", {}), ("binomial", {}), 2.0),
    (
        ("triplet", {"geometry": "sqeuclidean", "margin": 0.4, "reduction": "mean"}),
        ("triplet", {"geometry": "cosine", "margin": 0.2, "reduction": "mean"}),
        2.0,
    ),
]
DIFFERENT = [
    (("raw", {}), ("multi_similarity_miner", {})),
    (("triplet", {}), ("contrastive", {})),
    (("binomial", {}), ("binomial", {"gamma": 0.4})),
    (("contrastive_cosine", {"lam": 0.5}), ("contrastive_cosine", {"lam": 0.4})),
    (("ntxent", {}), ("ntxent", {"temperature": 0.1})),
    (
        ("triplet", {"geometry": "sqeuclidean", "margin": 0.2, "reduction": "mean"}),
        ("triplet", {"geometry": "cosine", "margin": 0.2, "reduction": "mean"}),
    ),
]


@pytest.mark.parametrize(("first", "second"), EQUIVALENT, ids=lambda side: side[0])
def test_known_equivalences(first, second):
    found = compare(first, second)
    assert found
    assert found.equal
    assert found.factor == 1.0
    assert found.deviation < 1e-9
    assert "are gradient equivalent on 4 batches" in str(found)
    assert sum(batch.largest > 0 for batch in found.batches) >= 3, "something was compared"


@pytest.mark.parametrize(("first", "second", "factor"), UP_TO_A_FACTOR, ids=["twice", "squared distances"])
def test_equivalence_up_to_a_factor_is_another_learning_rate(first, second, factor):
    found = compare(first, second)
    assert not found
    assert found.factor == pytest.approx(factor, rel=1e-12)
    assert f"is {factor:g} times that of" in str(found)


@pytest.mark.parametrize(("first", "second"), DIFFERENT, ids=lambda side: side[0])
def test_known_differences(first, second):
    found = compare(first, second)
    assert not found
    assert found.factor is None
    assert found.deviation > 1e-4
    assert "are not gradient equivalent" in str(found)


@pytest.mark.parametrize(
    "method", ["contrastive_cosine", "triplet", "lifted_generalized", "binomial", "ntxent", "smooth_ap", "fastap"]
)
@pytest.mark.parametrize("number", [0, 3])
def test_theorem_3_1_a_loss_is_equivalent_to_its_own_weights(method, number):
    """On the batch that the weights are of, and on no other; its value is another one."""
    batch, other = list(example_batches())[number], list(example_batches())[1]
    objective = em.objective(method)
    weights = em.pair_weights(objective, *batch)
    weighted = em.objective("weighted", weights=lambda pairs: weights)
    assert em.gradient_equivalent(objective, weighted, [batch])
    assert not em.gradient_equivalent(objective, weighted, [other])
    assert float(objective(*batch)) != pytest.approx(float(weighted(*batch)), rel=1e-6)


def test_equivalence_is_of_batches():
    """A margin that no pair reaches changes nothing; where one does, the batch is named."""
    near, far = (em.objective("contrastive", pos_margin=0.0, neg_margin=margin) for margin in (0.2, 0.3))
    apart, touching = (
        (torch.stack([angle.cos(), angle.sin()], 1), torch.tensor([0, 0, 1, 1]))
        for angle in torch.tensor([[0.0, 0.05, 1.5, 1.55], [0.0, 0.05, 0.3, 0.35]])
    )
    assert em.gradient_equivalent(near, far, [apart])
    found = em.gradient_equivalent(near, far, [apart, touching])
    assert not found
    assert (found.worst, found.batches[0].deviation) == (1, 0.0)
    assert str(found).endswith("; equal on batch 0")


def test_random_draws_are_the_same_for_both_and_nothing_is_changed():
    memory = em.objective("contrastive", references="memory", dim=16, size=64, start_iteration=0)
    state = {name: value.clone() for name, value in memory.state_dict().items()}
    assert em.gradient_equivalent(memory, memory)
    assert all(torch.equal(value, state[name]) for name, value in memory.state_dict().items())
    torch.manual_seed(5)
    generator = torch.get_rng_state()
    margin = em.objective("margin")
    assert em.gradient_equivalent(margin, margin)
    assert torch.equal(torch.get_rng_state(), generator)
    explicit = (*next(example_batches()), torch.randn(5, 16), torch.arange(5))
    assert compare(("contrastive", {}), ("contrastive", {}), [explicit])


def test_batches_without_a_gradient_tell_nothing():
    one_class = (torch.randn(4, 3), torch.zeros(4, dtype=torch.long))
    with pytest.warns(UserWarning, match="is 0 for a batch without negative pairs"):
        found = compare(("triplet", {}), ("ntxent", {}), [one_class])
    assert found.equal
    assert "which tells nothing" in str(found)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((em.objective("triplet"), "triplet"), r"em\.objective\('triplet'\)"),
        ((em.objective("triplet"), em.objective("triplet"), []), "needs one batch or more"),
        ((em.objective("triplet"), em.objective("triplet"), [(torch.arange(4), torch.arange(4))]), "floating-point"),
    ],
)
def test_what_cannot_be_compared_is_an_error(arguments, message):
    with pytest.raises(EquimetricError, match=message):
        em.gradient_equivalent(*arguments)


def test_a_loss_of_every_query_has_no_gradient():
    with pytest.raises(EquimetricError, match="no gradient with reduction='none'"):
        compare(("triplet", {"reduction": "none"}), ("triplet", {}))
