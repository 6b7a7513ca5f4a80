"""Numbers that are equal up to rounding, whatever processor and library computed them.

Compiled code adds in another order on another processor, and a cancellation makes the difference grow. What may differ
follows the largest number that is compared: an entry that is 0 but for rounding has no digits of its own. Comparisons
of bits (`torch.equal`, `==`, `rtol=0, atol=0`) stand only where both sides take the same path in the same settings:
a run and its resumption, a tensor and its copy.
"""

from collections.abc import Mapping

import torch

__all__ = ["assert_same_digits", "largest_difference"]


def list_tensors(values):
    """The tensors of a tensor, an array, a number, or of sequences and mappings of them, in order; None has none."""
    if isinstance(values, Mapping):
        return [tensor for key in values for tensor in list_tensors(values[key])]
    if isinstance(values, list | tuple):
        return [tensor for value in values for tensor in list_tensors(value)]
    return [] if values is None else [torch.as_tensor(values).detach()]


def assert_same_digits(found, expected, digits=9):
    """All finite numbers agree within 10^−digits of the largest of them, all others are the same.

    Gradients of several parameters are given together: the largest of all is their scale.
    """
    if isinstance(expected, Mapping):
        assert found.keys() == expected.keys()
        found = {key: found[key] for key in expected}
    found, expected = list_tensors(found), list_tensors(expected)
    finite = [tensor[tensor.isfinite()].double().abs() for tensor in expected]
    scale = max((float(numbers.max()) for numbers in finite if numbers.numel()), default=0.0)
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=scale * 10.0**-digits, equal_nan=True)


def largest_difference(numbers, case):
    """Of a value and its gradients from those of a worked case, relative to the largest number above 1."""
    stored = [case["value"]], case["gradients"]
    differences = []
    for group, other in zip((numbers[:1], numbers[1:]), stored, strict=True):
        expected = [torch.tensor(one, dtype=torch.float64) for one in other[: len(group)]]
        scale = max([1.0, *(one.abs().max().item() for one in expected)])
        assert len(group) == len(expected)
        differences += [(one - given).abs().max().item() / scale for one, given in zip(group, expected, strict=True)]
    return max(differences)
