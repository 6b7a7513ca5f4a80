"""Reduced hinges, by autograd, with a known gradient for one hinge, and for both at once, against their definition."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from rounding import assert_same_digits

import equimetric as em
from equimetric.ops import hinges
from equimetric.ops.chunks import RatioCollector
from equimetric.ops.hinges import Affine, Hinge, sum_hinges
from equimetric.ops.ratios import defer_ratios

NEAR, FAR = -0.2, 0.3


@contextmanager
def collecting() -> Iterator[None]:
    """As when a large batch is computed a few rows at a time."""
    with defer_ratios(RatioCollector()):
        yield


@pytest.fixture(params=["plain", "known gradient", "by rows"])
def way(request, monkeypatch):
    monkeypatch.setattr(hinges, "SMALL_NUMEL", 2**14 if request.param == "plain" else 0)
    monkeypatch.setattr(hinges, "SPARSE_RATIO", 0)
    if request.param == "by rows":
        with collecting():
            yield request.param
    else:
        yield request.param


def batch(rows=6, columns=7, seed=0):
    """Values of which some lie on the boundaries, and two masks without a common entry; some entries are in neither."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(rows, columns, dtype=torch.float64, generator=generator)
    kind = torch.randint(5, (rows, columns), generator=generator)
    kind[1], kind[2, kind[2] == 1] = 0, 2
    few, many = kind == 1, kind >= 2
    values[0, :2], few[0, :2], many[0, :2] = NEAR, True, False
    values[3, :2], few[3, :2], many[3, :2] = FAR, False, True
    return values.requires_grad_(), few, many


def hinge(values, mask, boundary, *, below, factor=1.0):
    excess = boundary - Affine(values) if below else Affine(values) - boundary
    return Hinge(excess, mask, factor)


def expected(values, mask, boundary, below, weight, reduction, power, inclusive):
    """One hinge, term by term, as the table of reductions has it."""
    rows, terms, active = [], [], 0.0
    for row in range(len(values)):
        own, times = [], []
        for column in range(values.shape[1]):
            if not mask[row, column]:
                continue
            excess = boundary - values[row, column] if below else values[row, column] - boundary
            count = 1.0 if weight is None else float(weight[row, column])
            reached = excess >= 0 if inclusive else excess > 0
            active += count * bool(reached)
            own.append(count * excess.relu() ** power)
            times.append(count)
        if own:
            rows.append((sum(own), sum(times)))
            terms += own
    if reduction == "none":
        return terms
    total = sum(own for own, _ in rows)
    divisor = {
        "nonzero": active,
        "mean": sum(times for _, times in rows),
        "sum": 1.0,
        "batch": len(values),
        "valid": len(rows),
    }
    if reduction == "anchor":
        return sum(own / times for own, times in rows) / len(rows)
    return total / divisor[reduction]


@pytest.mark.parametrize("reduction", ["nonzero", "mean", "sum", "batch", "valid", "anchor"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("power", "inclusive"), [(1, False), (1, True), (2, False)])
@pytest.mark.parametrize("negated", [False, True])
def test_both_hinges_are_reduced_as_their_definition_says(way, reduction, weighted, power, inclusive, negated):
    values, few, many = batch()
    weight = torch.arange(1.0, 43.0, dtype=torch.float64).view(6, 7) if weighted else None
    pull = hinge(values, few, NEAR, below=not negated, factor=0.7)
    push = hinge(values, many, FAR, below=negated, factor=1.3)
    found = sum_hinges(pull, push, weight, reduction, power=power, inclusive=inclusive)
    wanted = sum(
        factor * expected(values, mask, boundary, below, weight, reduction, power, inclusive)
        for mask, boundary, below, factor in ((few, NEAR, not negated, 0.7), (many, FAR, negated, 1.3))
    )
    assert_same_digits(found, wanted, digits=11)
    gradients = [torch.autograd.grad(value, values)[0] for value in (found, wanted)]
    # On a boundary the derivative of a hinge is a convention: 0 by relu, ±1 where it counts as reached.
    apart = (values != NEAR) & (values != FAR)
    assert_same_digits(gradients[0][apart], gradients[1][apart], digits=11)


def test_every_term_of_both_hinges_in_order():
    values, few, many = batch()
    found = sum_hinges(hinge(values, few, NEAR, below=True), hinge(values, many, FAR, below=False), None, "none")
    wanted = [
        term
        for mask, boundary, below in ((few, NEAR, True), (many, FAR, False))
        for term in expected(values, mask, boundary, below, None, "none", 1, False)
    ]
    torch.testing.assert_close(found, torch.stack(wanted))


def test_values_may_lie_in_memory_in_any_order(monkeypatch):
    monkeypatch.setattr(hinges, "SMALL_NUMEL", 0)
    monkeypatch.setattr(hinges, "SPARSE_RATIO", 0)
    values, few, many = batch()
    turned = values.detach().T.contiguous().T.requires_grad_()
    assert not turned.is_contiguous()
    found, wanted = (
        sum_hinges(hinge(given, few, NEAR, below=True), hinge(given, many, FAR, below=False), None, "nonzero")
        for given in (turned, values)
    )
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(torch.autograd.grad(found, turned)[0], torch.autograd.grad(wanted, values)[0])


def test_hinges_are_fused_only_for_dense_masks(monkeypatch):
    """Both are fused only for masks that hold almost everything; the value is the same without."""
    monkeypatch.setattr(hinges, "SMALL_NUMEL", 0)
    values, few, many = batch()
    pull, push = hinge(values, few, NEAR, below=True), hinge(values, many, FAR, below=False)
    at_once = hinges.fuse_hinges(pull, push, "nonzero", inclusive=False)
    assert at_once is None
    separately = sum_hinges(pull, push, None, "nonzero")
    monkeypatch.setattr(hinges, "SPARSE_RATIO", 0)
    together = hinges.fuse_hinges(pull, push, "nonzero", inclusive=False)
    torch.testing.assert_close(together, separately)


@pytest.mark.parametrize("reduction", ["batch", "valid", "anchor", "sum"])
def test_reductions_of_a_large_batch_by_rows(reduction, monkeypatch):
    """What is divided by the number of rows is summed up over the parts of a batch, and so is that number."""
    generator = torch.Generator().manual_seed(1)
    embeddings = torch.randn(60, 8, dtype=torch.float64, generator=generator)
    labels = torch.randint(25, (60,), generator=generator)
    objective = em.objective("contrastive", reduction=reduction)
    leaves = [embeddings.clone().requires_grad_() for _ in range(2)]
    values = [objective(leaves[0], labels)]
    monkeypatch.setattr("equimetric.ops.chunks.MIN_CHUNKED_PAIRS", 1)
    monkeypatch.setattr("equimetric.ops.chunks.CHUNK_ENTRIES", 60 * 7)
    values.append(objective(leaves[1], labels))
    for value in values:
        value.backward()
    torch.testing.assert_close(*values)
    torch.testing.assert_close(leaves[0].grad, leaves[1].grad)


def test_an_unknown_reduction_is_refused_with_a_hint():
    with pytest.raises(em.EquimetricError, match="did you mean 'nonzero'"):
        em.objective("contrastive", reduction="nonzeros")(torch.randn(4, 3), torch.tensor([0, 0, 1, 1]))
