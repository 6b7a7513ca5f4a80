"""Matryoshka: prefixes of one embedding, each with an objective of its own."""

import pytest
import torch
from making import make, make_batch, require_training_only

from equimetric.errors import EquimetricError
from equimetric.geometry import unit
from equimetric.learners.matryoshka import halved_sizes


def test_sizes_are_halved_down_to_eight():
    assert halved_sizes(64) == [64, 32, 16, 8]
    assert halved_sizes(100) == [100, 50, 25, 12]
    assert halved_sizes(5) == [5]


def test_members_are_prefixes_of_the_embedding():
    learner = make("matryoshka").eval()
    batch = make_batch()
    outputs = learner.outputs(batch)
    embedding = learner.embedding(outputs)
    members = learner.members(outputs)
    assert list(members) == ["first4", "first2"]
    for size in (4, 2):
        torch.testing.assert_close(members[f"first{size}"], unit(embedding[:, :size]))


def test_the_loss_is_the_weighted_sum_over_prefixes():
    options = {"sizes": [2, 8, 4], "weights": [0.5, 1.0, 3.0]}
    learner = make("matryoshka", method="proxy_anchor", learner={"options": options}).train()
    batch = make_batch()
    outputs = learner.outputs(batch)
    objectives = {8: learner.objective, **learner.prefix_objectives}
    assert [next(one.parameters()).shape[1] for one in objectives.values()] == [8, 4, 2]
    expected = sum(
        weight * objectives[size](outputs["embedding"][:, :size], batch.labels)
        for size, weight in zip(options["sizes"], options["weights"], strict=True)
    )
    torch.testing.assert_close(sum(learner.losses(outputs, batch).values()), expected)


def test_dimensions_beyond_a_prefix_do_not_matter_to_it():
    learner = make("matryoshka").train()
    batch = make_batch()
    rows = learner.outputs(batch)["embedding"].detach().requires_grad_()
    terms = learner.losses({"embedding": rows}, batch)
    small = sum(value for name, value in terms.items() if name.startswith("first2 "))
    (gradient,) = torch.autograd.grad(small, rows)
    assert gradient[:, 2:].abs().max() == 0
    assert gradient[:, :2].abs().max() > 0


def test_the_cost_is_that_of_one_network():
    cost = require_training_only(make("matryoshka", method="arcface"), make_batch())
    assert (cost.forward_passes, cost.dim, cost.training_only) == (1, 8, 3 * (8 + 4 + 2))


def test_wrong_options_are_refused():
    with pytest.raises(EquimetricError, match=r"the largest model\.dim = 8"):
        make("matryoshka", learner={"options": {"sizes": [4, 2]}})
    with pytest.raises(EquimetricError, match="weights must be 2 numbers above 0"):
        make("matryoshka", learner={"options": {"sizes": [8, 4], "weights": [1.0]}})
    with pytest.raises(EquimetricError, match="sizes must be a list of whole numbers"):
        make("matryoshka", learner={"options": {"sizes": [8, 0]}})
