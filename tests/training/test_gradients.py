"""Two passes through the network give the gradients of one; accumulated batches the mean of theirs."""

import pytest
import torch
from rounding import assert_same_digits
from torch import nn

from equimetric.backbones import EmbeddingNetwork
from equimetric.errors import EquimetricError
from equimetric.learners import Batch, SingleObjectiveLearner
from equimetric.objectives import compose
from equimetric.processes import Processes
from equimetric.training import train
from equimetric.training.distributed import Trainable
from equimetric.training.gradients import backward
from equimetric.training.placement import Placement

CPU = Placement(torch.device("cpu"))
LABELS = torch.arange(6).repeat_interleave(4)


def make(dropout=0.0, method="proxy_anchor", **options):
    torch.manual_seed(3)
    head = nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Dropout(dropout), nn.Linear(16, 5))
    return SingleObjectiveLearner(EmbeddingNetwork(None, head), compose(method, **options)).double()


def batch():
    images = torch.randn(24, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    return Batch(images, LABELS, torch.arange(24))


def gradients(learner, **options):
    torch.manual_seed(8)
    terms = backward(Trainable(learner), batch(), CPU, Processes(), **options)
    return terms, [parameter.grad for parameter in learner.parameters()], torch.rand(3)


class InParts(SingleObjectiveLearner):
    """One pass that goes through the network in parts, with one graph over all of them."""

    def outputs(self, batch):
        return {"embedding": torch.cat([self.network(part) for part in torch.split(batch.images, 7)])}


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("proxy_anchor", {"classes": 6, "dim": 5}),
        ("multi_similarity", {}),
        ("recall_at_k_surrogate", {"simix": True}),
        ("intra_batch", {"classes": 6, "dim": 5, "heads": 1}),
        ("hist", {"classes": 6, "dim": 5, "hidden": 4}),
    ],
)
def test_two_passes_equal_one_pass_over_the_same_parts_bit_for_bit(dropout, method, options):
    learner = make(dropout, method, **options)
    plain = InParts(learner.network, learner.objective)
    expected = gradients(plain)
    learner.zero_grad(set_to_none=True)
    two_passes = gradients(learner, at_once=7)
    assert expected[0].keys() == two_passes[0].keys()
    assert all(torch.equal(expected[0][name], two_passes[0][name]) for name in expected[0])
    assert len(expected[1]) == len(two_passes[1]) > 3
    assert all(torch.equal(one, other) for one, other in zip(expected[1], two_passes[1], strict=True))
    assert torch.equal(expected[2], two_passes[2]), "what is drawn next is the same"


def test_two_passes_equal_one_over_the_whole_batch_up_to_rounding():
    whole = gradients(make(method="proxy_anchor", classes=6, dim=5))
    parts = gradients(make(method="proxy_anchor", classes=6, dim=5), at_once=5)
    assert_same_digits(whole[1], parts[1], digits=11)


def test_a_batch_that_fits_at_once_passes_once():
    learner = make(classes=6, dim=5)
    calls = []
    learner.network.register_forward_hook(lambda *given: calls.append(len(given[2])))
    gradients(learner, at_once=24)
    assert calls == [24]
    gradients(learner, at_once=16)
    assert calls[1:] == [16, 8, 8, 16], "the second time backwards"


def test_the_batches_see_all_embeddings_once():
    seen = []
    learner = make(classes=6, dim=5)
    backward(Trainable(learner), batch(), CPU, Processes(), at_once=7, observe=seen.append)
    assert [tuple(one.shape) for one in seen] == [(24, 5)]
    assert not seen[0].requires_grad


def test_a_share_scales_the_gradient_and_shares_add_up():
    once, twice = make(classes=6, dim=5), make(classes=6, dim=5)
    _, expected, _ = gradients(once)
    gradients(twice, scale=0.25)
    _, added, _ = gradients(twice, scale=0.75)
    assert_same_digits(added, expected, digits=11)


def test_half_precision_products_with_full_precision_objective():
    learner = make(method="contrastive").float()
    outputs = []
    learner.network.register_forward_hook(lambda *given: outputs.append(given[2].dtype))
    images = batch().images.float()
    terms = backward(
        Trainable(learner), Batch(images, LABELS, torch.arange(24)), Placement(CPU.device, "bfloat16"), Processes()
    )
    assert outputs == [torch.bfloat16]
    assert all(parameter.grad.dtype == torch.float32 for parameter in learner.parameters())
    full = make(method="contrastive").float()
    expected = backward(Trainable(full), Batch(images, LABELS, torch.arange(24)), CPU, Processes())
    assert terms["loss"].item() == pytest.approx(expected["loss"].item(), rel=0.05)
    assert terms["loss"].item() != expected["loss"].item()


def test_batch_statistics_of_parts_are_refused(tmp_path):
    config = {
        "method": "contrastive",
        "data": {"name": "digits"},
        "model": {"dim": 8},
        "batch": {"classes": 3, "samples": 4, "at_once": 5},
        "training": {"steps": 2, "validate_every": 2},
    }
    # The second would come to it at the last step only, and is refused before the first all the same.
    for number, model in enumerate([{"dim": 8}, {"dim": 8, "freeze": {"backbone": 1}}]):
        with pytest.raises(EquimetricError, match=r"normalise each part by its own .*frozen_batch_norm = true"):
            train({**config, "model": model}, folder=tmp_path / f"refused{number}")
    for number, model in enumerate([{"frozen_batch_norm": True}, {"freeze": ["backbone"]}, {"frozen": True}]):
        trained = train({**config, "model": {"dim": 8, **model}}, folder=tmp_path / f"frozen{number}")
        assert trained.metrics["map@r"] > 0
