"""Two processes with half a batch each give the loss and the gradients of one process with the whole batch."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import equimetric as em
from equimetric.catalogue import Context, build_objective, recipes
from equimetric.errors import EquimetricError

LABELS = torch.tensor([0, 0, 1, 1, 2, 2, 0, 1, 3])
DIMENSION = 5
CONTEXT = Context(classes=4, dim=DIMENSION, images=len(LABELS))
METHODS = sorted(recipes())


def inputs():
    return torch.randn(len(LABELS), 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def loss_and_gradients(method, rows, **options):
    """The loss of some rows of the batch, and the gradients of a linear network and of the objective."""
    torch.manual_seed(1)
    network = torch.nn.Linear(6, DIMENSION).double()
    objective = build_objective(method, options, CONTEXT).double()
    torch.manual_seed(2)
    value = objective(network(inputs()[rows]), LABELS[rows], index=torch.arange(len(LABELS))[rows])
    value.backward()
    parameters = [*network.parameters(), *objective.parameters()]
    return value.detach(), [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]


WORKER = """
import sys, torch, torch.distributed as dist
sys.path.insert(0, sys.argv[1])
from test_gathered import METHODS, loss_and_gradients
rank, port, out = int(sys.argv[2]), sys.argv[3], sys.argv[4]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
rows = slice(0, 5) if rank == 0 else slice(5, 9)
results = {}
for method in METHODS:
    value, gradients = loss_and_gradients(method, rows, gather=True)
    for gradient in gradients:
        dist.all_reduce(gradient)
        gradient /= 2
    results[method] = [value, *gradients]
torch.save(results, f"{out}/rank{rank}.pt")
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def of_two_processes(tmp_path_factory):
    out = tmp_path_factory.mktemp("ranks")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    here = str(Path(__file__).parent)
    processes = [subprocess.Popen([sys.executable, "-c", WORKER, here, str(rank), port, str(out)]) for rank in (0, 1)]
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
    return [torch.load(out / f"rank{rank}.pt", weights_only=True) for rank in (0, 1)]


@pytest.mark.parametrize("method", METHODS)
def test_two_processes_equal_one(of_two_processes, method):
    value, gradients = loss_and_gradients(method, slice(None))
    for rank in of_two_processes:
        torch.testing.assert_close(rank[method], [value, *gradients])


def test_gathering_without_processes_is_refused():
    with pytest.raises(EquimetricError, match="init_process_group"):
        em.objective("contrastive", gather=True)(torch.randn(4, 2), torch.tensor([0, 0, 1, 1]))
