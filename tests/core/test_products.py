import pytest
import torch
from rounding import assert_same_digits

from equimetric.geometry import GEOMETRIES
from equimetric.ops import products
from equimetric.ops.products import inner_products, negative_distance, sparse_gradient, unit


def vectors(rows=6, seed=0):
    return torch.randn(rows, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def off_diagonal(matrix):
    """Without the self-distances, whose root has no gradient."""
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
    monkeypatch.setattr(products, "STRIP_SIZE", 2)
    monkeypatch.setattr(products, "BACKWARD_ROWS", 4)
    striped = measure(x, x)
    torch.testing.assert_close(striped, whole, rtol=1e-12, atol=1e-7 if measure is negative_distance else 1e-12)
    assert torch.autograd.gradcheck(lambda x: off_diagonal(measure(x, x)), (x,))
    assert torch.autograd.gradgradcheck(lambda x: off_diagonal(measure(x, x)), (x,))


def draw_sparse(rows, columns, entries):
    """A matrix of zeros but for some entries, the first of them where a set coincides with itself."""
    gradient = torch.zeros(rows, columns, dtype=torch.float64)
    places = torch.randperm(rows * columns, generator=torch.Generator().manual_seed(3))[:entries]
    gradient.view(-1)[places] = torch.randn(entries, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    gradient[0, 0] = 1.5
    return gradient


@pytest.mark.parametrize("within", [True, False])
@pytest.mark.parametrize("measure", [inner_products, negative_distance, GEOMETRIES["snr"].measure])
def test_sparse_backward_equals_dense_backward(measure, within, monkeypatch):
    queries = vectors(30).requires_grad_()
    references = queries if within else torch.cat([queries.detach()[:1], vectors(19, seed=1)]).requires_grad_()
    wanted = (queries,) if within else (queries, references)
    gradient = draw_sparse(30, len(references), 11)
    dense = torch.autograd.grad(measure(queries, references), wanted, gradient)
    monkeypatch.setattr(products, "SPARSE_MIN_ENTRIES", 0)
    monkeypatch.setattr(products, "SPARSE_RATIO", 4)
    with torch.no_grad():
        assert sparse_gradient(gradient).is_sparse
    few = torch.autograd.grad(measure(queries, references), wanted, gradient)
    for found, expected in zip(few, dense, strict=True):
        assert_same_digits(found, expected, digits=11)
    repeated = torch.autograd.grad(measure(queries, references), wanted, gradient, create_graph=True)
    assert all(part.requires_grad for part in repeated)
    assert_same_digits(repeated, dense, digits=11)


def test_few_entries_are_found_where_they_are_few():
    gradient = draw_sparse(400, 300, 500).float()
    with torch.no_grad():
        found = sparse_gradient(gradient)
        torch.testing.assert_close(found.to_dense(), gradient, rtol=0, atol=0)
        in_columns = sparse_gradient(gradient.T.contiguous().T)
        torch.testing.assert_close(in_columns.to_dense(), gradient, rtol=0, atol=0)
        assert sparse_gradient(torch.ones(400, 300)) is None
        assert sparse_gradient(torch.ones(()).expand(400, 300)) is None
        # More than a few, and none of them in the rows that are sampled first.
        hidden = torch.zeros(400, 300)
        hidden[1:17] = 1
        assert sparse_gradient(hidden) is None
        assert sparse_gradient(torch.zeros(400, 300)).coalesce().values().numel() == 0
        assert sparse_gradient(gradient[:100]) is None, "small matrices are not searched"
    assert sparse_gradient(gradient) is None, "double backward stays dense"


def test_snr_within_one_set_equals_snr_between_two_copies():
    one, other = vectors().requires_grad_(), vectors().requires_grad_()
    within, between = GEOMETRIES["snr"].measure(one, one), GEOMETRIES["snr"].measure(one, other)
    torch.testing.assert_close(within, between)
    grad_output = torch.arange(36.0, dtype=torch.float64).view(6, 6)
    (found,) = torch.autograd.grad(within, one, grad_output)
    torch.testing.assert_close(found, sum(torch.autograd.grad(between, (one, other), grad_output)))


@pytest.mark.parametrize("name", sorted(set(GEOMETRIES) - {"snr", "none"}))
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
