import pytest
import torch

from equimetric.ops import masks
from equimetric.ops.masks import columns_of, count_rows, has_any, to_dtype


def some(rows, columns, share, seed=0):
    return torch.rand(rows, columns, generator=torch.Generator().manual_seed(seed)) < share


@pytest.mark.parametrize("columns", [0, 1, 16, 21])
def test_true_entries_of_each_row_are_counted(columns):
    mask = some(6, columns, 0.2)
    assert torch.equal(has_any(mask), mask.any(1))
    assert torch.equal(count_rows(mask), mask.sum(1).int())
    assert torch.equal(to_dtype(mask, torch.float64), mask.double())
    assert torch.equal(count_rows(mask.T), mask.T.sum(1).int())


@pytest.mark.parametrize("many", [0, 2**16])
@pytest.mark.parametrize(("columns", "share"), [(64, 0.03), (61, 0.03), (64, 0.6), (8, 0.0)])
def test_columns_are_packed_to_the_left(columns, share, many, monkeypatch):
    monkeypatch.setattr(masks, "SPARSE_MIN_ENTRIES", many)
    whole = some(9, columns, share, seed=1)
    for mask in (whole, whole[:, ::2], whole.T):
        found, present = columns_of(mask)
        assert present.shape[1] == mask.sum(1).max()
        for row, chosen, entries in zip(found, present, mask, strict=True):
            assert sorted(row[chosen].tolist()) == entries.nonzero().flatten().tolist()
            assert (chosen.int().diff() <= 0).all()
