"""Bounds of products of codes: never broken, whatever the vectors; and the choice between codes and floats."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from equimetric.gallery import kernel
from equimetric.gallery.codes import ItemQuantizer, choose_balance, choose_scale, encode, encode_queries
from equimetric.gallery.kernel import FULL, HALF
from equimetric.gallery.tiles import CodedItems, FloatItems

NUMBERS = st.floats(-1e6, 1e6, width=32)


def coded(items, shifts, balance=1.0):
    plain = ItemQuantizer(1.0, balance, 0.0, 0.0)
    balanced = plain.balance_items(items)
    shift = 0.0 if shifts is None else float(shifts.abs().max())
    common = ItemQuantizer(choose_scale(float(balanced.abs().max())), balance, float(balanced.norm(dim=1).max()), shift)
    codes, residuals = encode(balanced, common.scale)
    shifts = None if shifts is None else shifts.numpy()
    return CodedItems(codes.numpy(), residuals.numpy(), shifts, common), FloatItems(items.numpy(), shifts, common)


@given(
    arrays(np.float32, (7, 6), elements=NUMBERS),
    arrays(np.float32, (3, 6), elements=NUMBERS),
    st.sampled_from([FULL, HALF]),
)
@settings(max_examples=100, deadline=None)
def test_the_error_of_a_product_of_codes_is_within_its_bound(items, queries, largest):
    items, queries = torch.tensor(items), torch.tensor(queries).double()
    some, _ = coded(items, None)
    asked = encode_queries(queries, some.quantizer, largest)
    codes = torch.from_numpy(some.codes)
    products = (asked.codes.double() @ codes.T.double()).numpy() * asked.step[:, None]
    difference = np.abs(products - (queries @ items.double().T).numpy())
    bound = np.stack([asked.error(some.quantizer, float(residual)) for residual in some.residuals], 1)
    assert (difference <= bound * (1 + 1e-9) + 1e-30).all()
    assert bool((torch.from_numpy(some.codes).int().abs() <= 127).all())
    assert bool((asked.codes.int().abs() <= largest).all())


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
    affinity = (queries @ items.double().T + (shifts.double() if shifted else 0)).numpy()
    codes, floats = coded(items, shifts if shifted else None, balance)
    for products in (
        codes.products(queries, FULL),
        codes.products(queries, HALF),
        floats.products(queries),
        floats.products(queries[:1]),
    ):
        middle = products.tile(0, 70).double().numpy() * products.step[:, None]
        assert (np.abs(middle - affinity[: len(middle)]) <= products.error(0, 70)[:, None]).all()


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


def test_the_error_of_a_tile_is_that_of_its_largest_residual():
    """Blocks of items keep theirs; tiles begin and end anywhere."""
    items = torch.randn(3000, 4)
    some, _ = coded(items, None)
    products = some.products(items[:3].double())
    for first, last in ((0, 1), (100, 1024), (1023, 1025), (64, 2999), (2048, 3000), (2990, 3000)):
        largest = float(some.residuals[first:last].max())
        assert (products.error(first, last) >= products.queries.error(some.quantizer, largest)).all()


@pytest.mark.parametrize("largest", [FULL, HALF])
@pytest.mark.parametrize("queries", [1, 2, 5, 16, 65])
def test_products_of_codes_are_those_of_integers(queries, largest):
    if largest == FULL and kernel.max_query_code() == HALF:
        pytest.skip("this processor adds products of the full range in 16 bits")
    draw = np.random.default_rng(queries)
    asked = draw.integers(-largest, largest, (queries, 33), np.int8, endpoint=True)
    items = draw.integers(-FULL, FULL, (301, 33), np.int8, endpoint=True)
    asked[0], items[::3], items[1::3] = largest, FULL, -FULL
    products = kernel.multiply_codes(torch.from_numpy(asked), torch.from_numpy(items), largest)
    assert (products.numpy() == asked.astype(int) @ items.astype(int).T).all()


@pytest.fixture
def measured_anew():
    """The choice of this test alone."""
    kernel.max_query_code.cache_clear()
    yield
    kernel.max_query_code.cache_clear()


@pytest.mark.parametrize("wrong", ["missing", "saturates"])
def test_without_exact_products_of_codes_floats_are_used(wrong, monkeypatch, measured_anew):
    def multiply(queries, items):
        if wrong == "missing":
            raise NotImplementedError("no kernel")
        return torch.full((len(queries), items.shape[1]), -(2**15), dtype=torch.int32)

    monkeypatch.setattr(torch, "_int_mm", multiply)
    assert kernel.max_query_code() is None


@pytest.mark.parametrize("single", [True, False])
def test_where_pairs_of_products_are_added_in_16_bits_queries_have_smaller_codes(single, monkeypatch, measured_anew):
    """As instructions before VNNI do it: the first factor is unsigned, or with `single` the one of a single row."""

    def multiply(first, second):
        if single and second.shape[1] == 1:
            return _multiply_pairs(second.T, first).T
        return _multiply_pairs(first, second.T)

    monkeypatch.setattr(torch, "_int_mm", multiply)
    monkeypatch.setattr(kernel, "ITEMS", 64)
    monkeypatch.setattr(kernel, "MAX_TIME_RATIO", np.inf)
    assert kernel.max_query_code() == HALF


def _multiply_pairs(unsigned, signed):
    """(M, N) products of (M, C) int8, moved by 128, with (N, C) int8; every two are added within 16 bits."""
    products = (unsigned.long() + 128)[:, None] * signed.long()
    pairs = products.unflatten(2, (-1, 2)).sum(3).clamp(-(2**15), 2**15 - 1)
    return (pairs.sum(2) - 128 * signed.long().sum(1)).int()
