import pytest
import torch

from equimetric import products
from equimetric.geometry import GEOMETRIES
from equimetric.products import inner_products, negative_distance, unit


def vectors(rows=6, seed=0):
    return torch.randn(rows, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def off_diagonal(matrix):
    """Without the self-distances, whose root has no slope."""
    return matrix[~torch.eye(len(matrix), dtype=torch.bool)]


@pytest.mark.parametrize(
    "function",
    [
        unit,
        lambda x: inner_products(x, x),
        lambda x: off_diagonal(negative_distance(x, x)),
        lambda x: negative_distance(x, vectors(5, seed=1)),
        lambda x: negative_distance(vectors(5, seed=1), x),
        lambda x: off_diagonal(GEOMETRIES["snr"].measure(x, x)),
    ],
)
def test_first_and_second_derivatives(function):
    x = vectors().requires_grad_()
    assert torch.autograd.gradcheck(function, (x,))
    assert torch.autograd.gradgradcheck(function, (x,))


@pytest.mark.parametrize("measure", [inner_products, negative_distance, GEOMETRIES["snr"].measure])
def test_strip_by_strip_is_the_same_with_both_derivatives(measure, monkeypatch):
    x = vectors(9).requires_grad_()
    whole = measure(x, x)
    monkeypatch.setattr(products, "STRIP", 2)
    monkeypatch.setattr(products, "WAY_BACK", 4)
    striped = measure(x, x)
    torch.testing.assert_close(striped, whole, rtol=1e-12, atol=1e-7 if measure is negative_distance else 1e-12)
    assert torch.autograd.gradcheck(lambda x: off_diagonal(measure(x, x)), (x,))
    assert torch.autograd.gradgradcheck(lambda x: off_diagonal(measure(x, x)), (x,))


def test_noise_within_one_set_is_that_between_two_equal_ones():
    one, other = vectors().requires_grad_(), vectors().requires_grad_()
    within, between = GEOMETRIES["snr"].measure(one, one), GEOMETRIES["snr"].measure(one, other)
    torch.testing.assert_close(within, between)
    upstream = torch.arange(36.0, dtype=torch.float64).view(6, 6)
    (found,) = torch.autograd.grad(within, one, upstream)
    torch.testing.assert_close(found, sum(torch.autograd.grad(between, (one, other), upstream)))


@pytest.mark.parametrize("name", sorted(set(GEOMETRIES) - {"snr"}))
def test_geometries_work_under_transforms_of_torch_func(name):
    geometry, x = GEOMETRIES[name], vectors()

    def value(points):
        points = unit(points)
        return (geometry.measure(points, points) * torch.arange(36.0).view(6, 6)).triu(1).sum()

    plain = x.clone().requires_grad_()
    value(plain).backward()
    torch.testing.assert_close(torch.func.grad(value)(x), plain.grad)


def test_zero_vectors_and_coincident_points_have_bounded_gradients():
    x = torch.zeros(3, 4, dtype=torch.float64)
    x[1:] = 1
    x.requires_grad_()
    negative_distance(unit(x), unit(x)).sum().backward()
    assert torch.isfinite(x.grad).all()
    assert x.grad.abs().max() < 10


@pytest.mark.parametrize("loss", ["contrastive_cosine", "multi_similarity", "ntxent", "supcon", "circle", "binomial"])
def test_torch_func_grad_over_the_similarity_matrix(loss):
    import equimetric as em

    objective = em.objective(loss).double()
    pairs = objective.pairs(vectors(8), torch.arange(4).repeat_interleave(2))
    found = torch.func.grad(lambda s: objective.value(pairs.replace(similarity=s)))(pairs.similarity.detach())
    similarity = pairs.similarity.detach().requires_grad_()
    (expected,) = torch.autograd.grad(objective.value(pairs.replace(similarity=similarity)), similarity)
    torch.testing.assert_close(found, expected)
