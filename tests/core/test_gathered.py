"""Two processes with half a batch each give the loss and the gradients of one process with the whole batch."""

import pytest
import torch
import torch.distributed as dist
from small_methods import OPTIONS

import equimetric as em
from equimetric.errors import EquimetricError
from equimetric.objectives import Context, build_objective
from equimetric.objectives.recipes import recipes

LABELS = torch.tensor([0, 0, 1, 1, 2, 2, 0, 1, 3])
DIMENSION = 5
CONTEXT = Context(classes=4, dim=DIMENSION, images=len(LABELS))
METHODS = sorted(name for name, recipe in recipes().items() if recipe.stands_alone)


def inputs():
    return torch.randn(len(LABELS), 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def loss_and_gradients(method, rows, **options):
    """The loss of some rows of the batch, and the gradients of a linear network and of the objective."""
    torch.manual_seed(1)
    network = torch.nn.Linear(6, DIMENSION).double()
    objective = build_objective(method, {**OPTIONS.get(method, {}), **options}, CONTEXT).double()
    torch.manual_seed(2)
    value = objective(network(inputs()[rows]), LABELS[rows], index=torch.arange(len(LABELS))[rows])
    value.backward()
    parameters = [*network.parameters(), *objective.parameters()]
    return value.detach(), [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]


def work(rank):
    """The losses of half the batch in one of two processes, and the gradients averaged over both."""
    rows = slice(0, 5) if rank == 0 else slice(5, 9)
    results = {}
    for method in METHODS:
        value, gradients = loss_and_gradients(method, rows, gather=True)
        for gradient in gradients:
            dist.all_reduce(gradient)
            gradient /= 2
        results[method] = [value, *gradients]
    return results


@pytest.mark.parametrize("method", METHODS)
def test_two_processes_equal_one(of_two_processes, method):
    value, gradients = loss_and_gradients(method, slice(None))
    for rank in of_two_processes:
        torch.testing.assert_close(rank[method], [value, *gradients])


def test_gathering_without_processes_is_an_error():
    with pytest.raises(EquimetricError, match="init_process_group"):
        em.objective("contrastive", gather=True)(torch.randn(4, 2), torch.tensor([0, 0, 1, 1]))
