"""Searches of one query: each kernel gives what scoring every item gives, within its bound."""

import numpy as np
import pytest
import torch
from gallery_cases import FORMS, exact_scan, expected_order, hard_data, sides, verification
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from test_bounds import NUMBERS, coded

import equimetric as em
from equimetric.gallery import kernel, scan, search
from equimetric.gallery.candidates import Candidates

ITEMS, QUERIES, DIMENSION = 700, 5, 16
KERNELS = ("codes", "rounded codes", "floats")


@pytest.fixture(params=KERNELS)
def single(request, monkeypatch):
    """Several tiles, of a chosen kernel."""
    monkeypatch.setattr(search, "choose_single_kernel", lambda largest, columns: request.param)
    monkeypatch.setattr(search, "max_query_code", lambda: kernel.HALF)
    monkeypatch.setattr(scan, "MIN_TILE_ITEMS", 192)
    monkeypatch.setattr(scan, "MAX_TILE_ITEMS", 192)
    return request.param


@pytest.fixture(scope="module", params=FORMS)
def case(request, tmp_path_factory):
    """A gallery with removed items, queries, ids and the scores of all pairs."""
    asked, items = hard_data("near the threshold", ITEMS, QUERIES, DIMENSION)
    asked, items = sides(request.param, asked, items)
    gallery = em.Gallery.create(tmp_path_factory.mktemp("case") / "g", verification(request.param, DIMENSION))
    ids = [f"item {number * 7919 % ITEMS:04d}" for number in range(ITEMS)]
    gallery.add(items, ids)
    gallery.remove(ids[:300])
    return gallery, asked, ids[300:], exact_scan(gallery, asked, ids[300:])


def test_one_query_finds_what_the_exact_scan_finds(single, case):
    gallery, asked, ids, scores = case
    sign = 1 if gallery.certificate.cohort is None else -1
    for query, row in zip(asked, scores, strict=True):
        order = expected_order(gallery, row, ids)
        of_id = dict(zip(ids, row, strict=True))
        for k in (1, 10, 250, 1000):
            found = gallery.search(query[None], k)[0]
            assert [match.id for match in found] == order[:k]
            assert [match.score for match in found] == [of_id[one] for one in order[:k]]
        # A score as the threshold: that pair is rejected.
        for threshold in np.quantile(row, [0.02, 0.5], method="nearest"):
            found = gallery.within(query[None], threshold)[0]
            assert [match.id for match in found] == [one for one in order if sign * of_id[one] < sign * threshold]


@given(
    arrays(np.float32, (70, 16), elements=NUMBERS),
    arrays(np.float32, (1, 16), elements=NUMBERS),
    arrays(np.float32, 70, elements=st.floats(-(2.0**43), 2.0**43, width=32)),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_affinities_lie_within_the_error_of_a_rounded_tile(items, query, shifts, shifted):
    items, query, shifts = torch.tensor(items), torch.tensor(query).double(), torch.tensor(shifts)
    affinity = (query @ items.double().T + (shifts.double() if shifted else 0)).numpy()
    products = coded(items, shifts if shifted else None)[0].rounded_products(query)
    middle = products.tile(0, 70).double().numpy() * products.step[:, None]
    assert (np.abs(middle - affinity) <= products.error(0, 70)[:, None]).all()


def test_rounded_products_are_tight_enough_to_be_of_use():
    items = torch.nn.functional.normalize(torch.randn(500, 128), dim=1)
    assert float(coded(items, None)[0].rounded_products(items[:1].double()).error(0, 500).max()) < 0.03


@pytest.fixture
def measured_anew():
    """The choice of this test alone."""
    kernel._measure_single_kernels.cache_clear()
    yield
    kernel._measure_single_kernels.cache_clear()


@pytest.mark.parametrize("wrong", ["missing", "inexact"])
def test_a_rounding_kernel_that_is_missing_or_wrong_is_not_chosen(wrong, monkeypatch, measured_anew):
    def multiply(query, items, scales):
        if wrong == "missing":
            raise NotImplementedError("no kernel")
        return (1.02 * (query.float() @ items.float().T)).bfloat16()

    monkeypatch.setattr(torch, "_weight_int8pack_mm", multiply)
    monkeypatch.setattr(kernel, "_seconds", lambda _: 0.0)
    assert kernel.choose_single_kernel(None, 128) == "floats"


def test_the_fastest_kernel_is_chosen_of_those_that_fit(monkeypatch, measured_anew):
    # Of floats, of codes, of rounded codes: in the order in which they are measured.
    times = iter([3.0, 2.0, 1.0, 3.0, 2.0, 1.0, 3.0])
    monkeypatch.setattr(kernel, "_seconds", lambda _: next(times))
    assert kernel.choose_single_kernel(kernel.FULL, 128) == "rounded codes"
    assert kernel.choose_single_kernel(kernel.FULL, 100) == "codes"
    assert kernel.choose_single_kernel(None, 100) == "floats"


@pytest.mark.parametrize("k", [1, 7, 40, 41])
def test_the_kth_bound_of_one_query_is_that_of_several(k):
    low = np.random.default_rng(0).normal(size=40)
    one = Candidates(np.zeros(40, int), np.arange(40), low, low)
    two = Candidates.join([one, Candidates(np.ones(1, int), np.zeros(1, int), np.zeros(1), np.zeros(1))])
    assert one.kth_low(1, k)[0] == two.kth_low(2, k)[0]
