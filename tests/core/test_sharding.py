"""Two processes that share the class weights give the loss and gradients of one process that has them all."""

import pytest
import torch
import torch.distributed as dist

import equimetric as em
from equimetric.errors import EquimetricError
from equimetric.objectives import Context, build_objective

LABELS = torch.tensor([0, 0, 1, 4, 2, 2, 0, 1, 3, 3, 5])
CLASSES, DIMENSION = 7, 5
"""An odd number of classes, of which one does not occur: the shards are of different sizes."""
CASES = {
    "arcface": ("arcface", {}),
    "softmax with bias": ("softmax", {"bias": True}),
    "normalized softmax, smoothed": ("normalized_softmax", {"label_smoothing": 0.1}),
    "large margin": ("large_margin_softmax", {}),
    "sphereface": ("sphereface", {}),
    "proxy anchor": ("proxy_anchor", {}),
    "proxy triplet": ("proxy_triplet", {}),
    "proxy nca": ("proxy_nca", {}),
    "subcentres": ("subcenter_arcface", {}),
    "softtriple": ("softtriple", {"per_class": 3}),
    "a quarter of the classes": ("arcface", {"sample_rate": 0.25}),
    "all but one class": ("large_margin_softmax", {"sample_rate": 0.9}),
    "all but one class, three centres each": ("subcenter_arcface", {"sample_rate": 0.9}),
    "all but one class, with bias": ("softmax", {"sample_rate": 0.9, "bias": True}),
    "nearest proxies": ("proxy_nca", {"assignment": "dynamic"}),
}


def inputs():
    return torch.randn(len(LABELS), 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def loss_and_gradients(case, rows, **options):
    """The loss of some rows of the batch, and the gradients of a linear network and of weights and biases."""
    method, own = CASES[case]
    torch.manual_seed(1)
    network = torch.nn.Linear(6, DIMENSION).double()
    context = Context(classes=CLASSES, dim=DIMENSION, images=len(LABELS))
    objective = build_objective(method, {**own, **options}, context).double()
    references = objective.references
    weights = torch.randn(
        CLASSES, references.per_class, DIMENSION, dtype=torch.float64, generator=torch.Generator().manual_seed(3)
    )
    biases = torch.arange(CLASSES, dtype=torch.float64) / 10
    start = sum(references.shard.sizes[: references.shard.rank])
    here = slice(start, start + references.shard.size)
    references.weight.data = weights[here].flatten(0, 1)
    if references.bias is not None:
        references.bias.data = biases[here]
    torch.manual_seed(2)
    value = objective(network(inputs()[rows]), LABELS[rows])
    value.backward()
    gradients = [parameter.grad for parameter in objective.references.parameters()]
    return value.detach(), [parameter.grad for parameter in network.parameters()], gradients


def work(rank):
    """The losses of half the batch with half the classes in one of two processes; the network's averaged gradients."""
    rows = slice(0, 7) if rank == 0 else slice(7, 11)
    results = {"mistakes": mistakes()}
    for case in CASES:
        value, network, weights = loss_and_gradients(case, rows, gather=True, sharded=True)
        for gradient in network:
            dist.all_reduce(gradient)
            gradient /= 2
        results[case] = [value, network, weights]
    return results


def with_a_seed_of_its_own():
    torch.manual_seed(dist.get_rank())
    objective = em.objective("arcface", classes=4, dim=3, sharded=True, sample_rate=0.5)
    return objective(torch.randn(2, 3), torch.arange(2))


def mistakes():
    """In a process of several: what is refused, and the first rows drawn for the own classes."""
    said = []
    objective = em.objective("arcface", classes=4, dim=3, sharded=True)
    for attempt in (
        lambda: objective(torch.randn(3, 3), torch.arange(3) + dist.get_rank()),
        lambda: objective(torch.randn(2 + dist.get_rank(), 3), torch.zeros(2 + dist.get_rank(), dtype=torch.int64)),
        lambda: em.objective("arcface", classes=3, dim=3, sharded=True, static=True),
        with_a_seed_of_its_own,
    ):
        with pytest.raises(EquimetricError) as refused:
            attempt()
        said.append(str(refused.value))
    torch.manual_seed(5)
    drawn = em.objective("arcface", classes=4, dim=3, sharded=True).references.weight.data
    return [said, drawn, torch.rand(())]


@pytest.mark.parametrize("case", CASES)
def test_two_processes_with_half_the_classes_equal_one_with_all(of_two_processes, case):
    value, network, weights = loss_and_gradients(case, slice(None))
    first, second = (rank[case] for rank in of_two_processes)
    for rank in (first, second):
        torch.testing.assert_close(rank[:2], [value, network])
    shares = [torch.cat(parts) for parts in zip(first[2], second[2], strict=True)]
    torch.testing.assert_close(shares, weights)
    per_class = len(weights[0]) // CLASSES
    assert [len(part[2][0]) // per_class for part in (first, second)] == [4, 3]


def test_different_batches_and_seeds_and_static_proxies_are_errors(of_two_processes):
    for rank in of_two_processes:
        other_labels, other_size, static, other_seed = rank["mistakes"][0]
        assert "give gather=True" in other_labels
        assert "give gather=True" in other_size
        assert "nothing to shard" in static
        assert "call torch.manual_seed with one seed for all" in other_seed


def test_shards_start_from_different_rows_and_leave_the_global_generator_alike(of_two_processes):
    (_, one, drawn_by_one), (_, other, drawn_by_other) = (rank["mistakes"] for rank in of_two_processes)
    assert one.shape == other.shape == (2, 3)
    assert not torch.isclose(one, other).any()
    assert drawn_by_one == drawn_by_other


def test_sharding_without_processes_is_an_error():
    with pytest.raises(EquimetricError, match="init_process_group"):
        em.objective("arcface", classes=4, dim=3, sharded=True)
