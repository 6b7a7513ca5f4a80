"""Bounds of products of codes: never broken, whatever the vectors; and the choice between codes and floats."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from equimetric.gallery import kernel
from equimetric.gallery.codes import ItemCodes, choose_balance, choose_scale, encode, encode_queries
from equimetric.gallery.tiles import CodedItems, FloatItems

NUMBERS = st.floats(-1e6, 1e6, width=32)


def coded(items, shifts, balance=1.0):
    plain = ItemCodes(1.0, balance, 0.0, 0.0)
    balanced = plain.balance_items(items)
    shift = 0.0 if shifts is None else float(shifts.abs().max())
    common = ItemCodes(choose_scale(float(balanced.abs().max())), balance, float(balanced.norm(dim=1).max()), shift)
    codes, residuals = encode(balanced, common.scale)
    shifts = None if shifts is None else shifts.numpy()
    return CodedItems(codes.numpy(), residuals.numpy(), shifts, common), FloatItems(items.numpy(), shifts, common)


@given(arrays(np.float32, (7, 6), elements=NUMBERS), arrays(np.float32, (3, 6), elements=NUMBERS))
@settings(max_examples=100, deadline=None)
def test_the_error_of_a_product_of_codes_is_within_its_bound(items, queries):
    items, queries = torch.tensor(items), torch.tensor(queries).double()
    some, _ = coded(items, None)
    asked = encode_queries(queries, some.common)
    codes = torch.from_numpy(some.codes)
    difference = (asked.codes.double() @ codes.T.double() * asked.unit[:, None] - queries @ items.double().T).abs()
    bound = torch.stack([asked.error(some.common, float(residual)) for residual in some.residuals], 1)
    assert bool((difference <= bound * (1 + 1e-9) + 1e-30).all())
    assert bool((torch.from_numpy(some.codes).int().abs() <= 127).all())


@given(
    arrays(np.float32, (70, 6), elements=NUMBERS),
    arrays(np.float32, (3, 6), elements=NUMBERS),
    arrays(np.float32, 70, elements=st.floats(-(2.0**43), 2.0**43, width=32)),
    st.sampled_from([0.25, 1.0, 64.0]),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_affinities_lie_within_the_error_of_a_tile(items, queries, shifts, balance, shifted):
    items, queries, shifts = torch.tensor(items), torch.tensor(queries).double(), torch.tensor(shifts)
    affinity = queries @ items.double().T + (shifts.double() if shifted else 0)
    for form in coded(items, shifts if shifted else None, balance):
        products = form.products(queries)
        middle = products.tile(0, 70).double() * products.unit[:, None]
        assert bool(((middle - affinity).abs() <= products.error(0, 70)[:, None]).all())


def test_codes_are_tight_enough_to_be_of_use():
    """Of unit vectors in 128 dimensions, similarities are known to some hundredths."""
    items = torch.nn.functional.normalize(torch.randn(500, 128), dim=1)
    some, floats = coded(items, None)
    assert float(some.products(items[:9].double()).error(0, 500).max()) < 0.03
    assert float(floats.products(items[:9].double()).error(0, 500).max()) < 3e-5


def test_a_scale_is_kept_while_vectors_fit():
    first = choose_scale(1.0)
    assert choose_scale(1.05, first) == choose_scale(0.1, first) == first
    assert choose_scale(1.2, first) == pytest.approx(1.2 * first)
    assert choose_scale(0.0) == 1


def test_halves_are_brought_to_one_range_by_a_power_of_two():
    items = torch.cat([torch.full((3, 4), 0.1), torch.full((3, 4), 1.7)], 1)
    assert choose_balance(items, True) == 16
    assert choose_balance(items, False) == 1


@pytest.mark.parametrize("wrong", ["missing", "saturates"])
def test_without_exact_products_of_codes_floats_are_used(wrong, monkeypatch):
    def multiply(queries, items):
        if wrong == "missing":
            raise NotImplementedError("no kernel")
        return torch.full((len(queries), items.shape[1]), -(2**15), dtype=torch.int32)

    monkeypatch.setattr(torch, "_int_mm", multiply)
    kernel.multiplies_codes_fast.cache_clear()
    assert not kernel.multiplies_codes_fast()
    kernel.multiplies_codes_fast.cache_clear()
