"""Memory that searches do not keep."""

import ctypes

import numpy as np
import pytest
from gallery_cases import hard_data, verification

import equimetric as em
from equimetric.gallery import search
from equimetric.gallery.array_files import append_rows, forget_pages, map_rows
from equimetric.gallery.working_memory import release_free_memory


def test_rows_whose_pages_were_forgotten_are_read_again(tmp_path):
    rows = np.arange(5000, dtype=np.float32)
    append_rows(tmp_path / "rows", 0, rows)
    mapped = map_rows(tmp_path / "rows", 5000, (), np.float32)
    assert mapped.sum() == rows.sum()
    forget_pages(mapped)
    assert (mapped == rows).all()
    forget_pages(rows)  # not mapped: nothing to let go of
    assert rows[-1] == 4999


@pytest.mark.parametrize(("queries", "released"), [(3, 0), (4, 1), (9, 1)])
def test_a_search_of_many_queries_releases_what_it_took(queries, released, monkeypatch, tmp_path):
    monkeypatch.setattr(search, "QUERIES", 4)
    calls = list[None]()
    monkeypatch.setattr(search, "release_free_memory", lambda: calls.append(None))
    asked, items = hard_data("random", 20, queries, 8)
    gallery = em.Gallery.create(tmp_path / "g", verification())
    gallery.add(items, [str(number) for number in range(20)])
    gallery.search(asked, 2)
    assert len(calls) == released


def test_a_library_that_keeps_no_free_memory_is_let_be(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    release_free_memory()
