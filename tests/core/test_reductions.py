"""Log-sum-exps with a backward of their own, for large batches, against plain autograd for small ones."""

import pytest
import torch

from equimetric.ops import exponentials
from equimetric.ops.exponentials import log_sum_exp


@pytest.fixture(params=["small", "large"])
def size(request, monkeypatch):
    monkeypatch.setattr(exponentials, "SMALL_NUMEL", 2**14 if request.param == "small" else 0)
    return request.param


def some(rows=4, columns=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(rows, columns, dtype=torch.float64, generator=generator)
    return values, torch.rand(rows, columns, generator=generator) < 0.6


@pytest.mark.usefixtures("size")
def test_log_sum_exp_with_both_derivatives():
    values, mask = some()
    mask[0] = True
    values.requires_grad_()
    expected = torch.stack([row[chosen].logsumexp(0) for row, chosen in zip(values, mask, strict=True)])
    torch.testing.assert_close(log_sum_exp(values, mask), expected)
    assert torch.autograd.gradcheck(lambda v: log_sum_exp(v, mask), (values,))
    assert torch.autograd.gradgradcheck(lambda v: log_sum_exp(v, mask), (values,))


@pytest.mark.usefixtures("size")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_log_sum_exp_outside_its_mask_and_of_an_empty_row(dtype):
    values = torch.tensor([[0.0, -900.0, torch.inf], [1.0, 2.0, 3.0]], dtype=dtype, requires_grad=True)
    mask = torch.tensor([[True, True, False], [False, False, False]])
    result = log_sum_exp(values, mask)
    assert result[0] == 0
    assert result[1] < -1e29
    (gradient,) = torch.autograd.grad(result.sum(), values)
    assert torch.equal(gradient[~mask], torch.zeros(4, dtype=dtype))
    assert gradient[0, 0] == 1
