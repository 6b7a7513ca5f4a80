"""Certified search gives what scoring every item gives: items, decisions, scores, order."""

import numpy as np
import pytest
from gallery_cases import FORMS, KINDS, exact_scan, expected_order, hard_data, sides, verification, with_threshold

import equimetric as em
from equimetric.gallery import scan, search

ITEMS, QUERIES = 700, 9


@pytest.fixture(params=[127, 63, None], ids=["codes", "half codes", "floats"])
def kernel(request, monkeypatch):
    """Several tiles, of integers or of floats."""
    monkeypatch.setattr(search, "max_query_code", lambda: request.param)
    monkeypatch.setattr(scan, "MIN_TILE_ITEMS", 192)
    monkeypatch.setattr(scan, "MAX_TILE_ITEMS", 192)
    monkeypatch.setattr(search, "QUERIES", 4)
    monkeypatch.setattr(search, "PAIRS", 50)
    return request.param


def filled(folder, form, kind, *, dimension=8, scale=1.0, removed=60):
    """A gallery with a tenth of its items removed again, queries, and the ids that are left."""
    asked, items = hard_data(kind, ITEMS, QUERIES, dimension)
    asked, items = sides(form, scale * asked, scale * items)
    gallery = em.Gallery.create(folder, verification(form, dimension))
    # In no order, so that rows and ids are ordered differently.
    ids = [f"item {number * 7919 % ITEMS:04d}" for number in range(ITEMS)]
    for start in range(0, ITEMS, 300):
        gallery.add(items[start : start + 300], ids[start : start + 300])
    gallery.remove(ids[:removed])
    return gallery, asked, ids[removed:]


@pytest.fixture(scope="module", params=[f"{form}, {kind}" for form in FORMS for kind in KINDS])
def case(request, tmp_path_factory):
    """A gallery of one form and kind, queries, ids, and the scores of all pairs."""
    gallery, asked, ids = filled(tmp_path_factory.mktemp("case") / "g", *request.param.split(", "))
    return gallery, asked, ids, exact_scan(gallery, asked, ids)


def test_the_nearest_are_those_of_the_exact_scan(kernel, case):
    gallery, asked, ids, scores = case
    for k in (1, 10, 45):
        for found, row in zip(gallery.search(asked, k), scores, strict=True):
            of_id = dict(zip(ids, row, strict=True))
            assert [match.id for match in found] == expected_order(gallery, row, ids)[:k]
            assert [match.score for match in found] == [of_id[match.id] for match in found]
            assert [match.accepted for match in found] == [
                bool(gallery.certificate.accepts(of_id[match.id])) for match in found
            ]


def test_all_items_within_a_threshold_are_those_of_the_exact_scan(kernel, case):
    gallery, asked, ids, scores = case
    sign = 1 if gallery.certificate.cohort is None else -1
    # Thresholds that are scores themselves: those pairs are rejected, and what is closer by one rounding accepted.
    for threshold in (*np.quantile(scores, [0.01, 0.2, 0.6], method="nearest"), gallery.certificate.threshold):
        for found, row in zip(gallery.within(asked, threshold), scores, strict=True):
            accepted = {one for one, score in zip(ids, row, strict=True) if sign * score < sign * threshold}
            assert {match.id for match in found} == accepted
            order = [one for one in expected_order(gallery, row, ids) if one in accepted]
            assert [match.id for match in found] == order


def test_decisions_are_those_of_the_certificate(kernel, tmp_path):
    asked, items = hard_data("near the threshold", 400, 6, 8)
    plain = em.Gallery.create(tmp_path / "plain", verification())
    plain.add(items, [f"{n:03d}" for n in range(400)])
    ids = plain.items().column("id").to_pylist()
    threshold = np.median(exact_scan(plain, asked, ids)[0])
    certificate = with_threshold(verification(), threshold)
    gallery = em.Gallery.create(tmp_path / "g", certificate)
    gallery.add(items, ids)
    for query, found in zip(asked, gallery.within(asked), strict=True):
        decided = certificate.decide(query[None], gallery.vectors(ids)).numpy()
        assert {match.id for match in found} == set(np.array(ids)[decided])
        assert all(match.accepted for match in found)
        assert gallery.verify(np.repeat(query[None], 400, 0), ids).tolist() == decided.tolist()


@pytest.mark.parametrize("scale", [1e-12, 1e-3, 1e4, 1e12])
def test_the_scale_of_euclidean_vectors_changes_no_order(kernel, scale, tmp_path):
    gallery, asked, ids = filled(tmp_path / "g", "euclidean", "clustered", scale=scale)
    for found, row in zip(gallery.search(asked, 20), exact_scan(gallery, asked, ids), strict=True):
        assert [match.id for match in found] == expected_order(gallery, row, ids)[:20]


def test_queries_far_from_all_items(kernel, tmp_path):
    """Shifts exceed the products by far, and zero is a query like any other."""
    gallery, asked, ids = filled(tmp_path / "g", "euclidean", "random", scale=1e3)
    for factor in (0.0, 1e-9, 1e5):
        far = asked * np.float32(factor)
        for found, row in zip(gallery.search(far, 5), exact_scan(gallery, far, ids), strict=True):
            assert [match.id for match in found] == expected_order(gallery, row, ids)[:5]


def test_vectors_with_one_large_entry(kernel, tmp_path):
    """The coarsest codes there are: one entry takes all of the range."""
    asked, items = hard_data("random", 300, 5, 8)
    items[::3, 0] += 50
    gallery = em.Gallery.create(tmp_path / "g", verification())
    ids = [f"{n:03d}" for n in range(300)]
    gallery.add(items[1::3], ids[1::3])
    gallery.add(items[::3], ids[::3])
    ids = gallery.items().column("id").to_pylist()
    for found, row in zip(gallery.search(asked, 9), exact_scan(gallery, asked, ids), strict=True):
        assert [match.id for match in found] == expected_order(gallery, row, ids)[:9]


def test_equal_scores_are_ordered_by_id(kernel, tmp_path):
    gallery = em.Gallery.create(tmp_path / "g", verification())
    one = hard_data("random", 1, 1, 8)[1]
    gallery.add(np.repeat(one, 5, 0), ["d", "b", "e", "a", "c"])
    gallery.add(one, ["aa"])
    assert [match.id for match in gallery.search(one, 4)[0]] == ["a", "aa", "b", "c"]
    gallery.remove(["aa"])
    assert [match.id for match in gallery.search(one, 9)[0]] == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize("most", [1, 600])
def test_many_candidates_are_searched_in_parts(kernel, most, monkeypatch, tmp_path):
    gallery, asked, _ = filled(tmp_path / "g", "cosine", "duplicates")
    before = gallery.search(asked, 30), gallery.within(asked)
    monkeypatch.setattr(scan, "MAX_CANDIDATES", most)
    assert (gallery.search(asked, 30), gallery.within(asked)) == before


def test_an_empty_gallery_finds_nothing(tmp_path):
    gallery = em.Gallery.create(tmp_path / "g", verification())
    asked, items = hard_data("random", 2, 3, 8)
    assert gallery.search(asked) == gallery.within(asked) == [[], [], []]
    gallery.add(items, ["a", "b"])
    gallery.remove(["b", "a"])
    assert gallery.search(asked) == gallery.within(asked) == [[], [], []]
    assert len(gallery) == 0


def test_reduced_precision_of_the_caller_changes_nothing(tmp_path, monkeypatch):
    import torch

    monkeypatch.setattr(search, "max_query_code", lambda: None)
    gallery, asked, _ = filled(tmp_path / "g", "cosine", "near the threshold", dimension=64)
    before = gallery.search(asked, 20)
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu", torch.bfloat16):
            assert gallery.search(asked, 20) == before
    finally:
        torch.set_float32_matmul_precision("highest")
