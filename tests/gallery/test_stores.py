"""Galleries on LanceDB and Qdrant answer as the embedded one, to the last item: both find candidates, one scores."""

import numpy as np
import pytest
import qdrant_client
from gallery_cases import FORMS, KINDS, hard_data, identification, sides, verification, with_threshold

import equimetric as em
from equimetric.errors import EquimetricError, StorageError
from equimetric.gallery import qdrant
from equimetric.gallery.rescored import RescoredGallery

STORES = {"lancedb": {}, "qdrant": {"url": "local"}}
VECTORS = hard_data("random", 60, 1, 8)[1]
IDS = [f"i{number:02d}" for number in range(60)]


@pytest.fixture(params=STORES)
def store(request, monkeypatch):
    """The options of a store; the client's own store of Qdrant is in memory, where it writes nothing to the disk."""
    if request.param == "qdrant":
        client = qdrant_client.QdrantClient(":memory:")
        monkeypatch.setattr(client, "close", lambda: None)
        monkeypatch.setattr(qdrant, "_connect", lambda folder, url: client)
    return {"store": request.param, **STORES[request.param]}


def ids_of(count):
    # Neither the order of adding nor that of scores, with what a query language could misread.
    return [f"it's {(number * 37) % count:04d} \"%_" for number in range(count)]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", [*KINDS[2:], *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS[:2])])
def test_a_store_answers_as_the_embedded_gallery(store, form, kind, tmp_path):
    queries, items = sides(form, *hard_data(kind, 300, 6, 8))
    certificate = verification(form)
    if kind == "near the threshold" and form == "cosine":
        certificate = with_threshold(certificate, 2 * np.sin(0.45))
    ids = ids_of(300)
    galleries = [
        em.Gallery.create(tmp_path / "embedded", certificate, identity="name"),
        em.Gallery.create(tmp_path / "other", certificate, identity="name", **store),
    ]
    for gallery in galleries:
        for start, end in ((0, 200), (200, 201), (201, 300)):
            names = {"name": [f"n{number % 7}" for number in range(start, end)], "n": list(range(start, end))}
            gallery.add(items[start:end], ids[start:end], names)
        gallery.remove(ids[5:300:9])
    embedded, other = galleries
    live = [one for number, one in enumerate(ids) if number < 5 or (number - 5) % 9]
    assert len(other) == len(embedded) == len(live)
    for k in (1, 10, 300):
        assert other.search(queries, k) == embedded.search(queries, k)
    scores = [match.score for match in embedded.search(queries[:1], 300)[0]]
    for threshold in (None, scores[0], scores[40], scores[-1], -1.0, 10.0):
        assert other.within(queries, threshold) == embedded.within(queries, threshold)
    pairs = queries[np.arange(40) % len(queries)], live[:40]
    assert other.verify(*pairs).tolist() == embedded.verify(*pairs).tolist()
    np.testing.assert_array_equal(other.vectors(live[::-1]), embedded.vectors(live[::-1]))
    assert other.names(live) == embedded.names(live)
    assert other.items().to_pydict() == embedded.items().to_pydict()
    assert (live[0] in other, ids[5] in other, 7 in other) == (True, False, False)


def test_identification_is_the_same(store, tmp_path):
    queries, items = hard_data("clustered", 120, 30, 8)
    galleries = []
    for options in ({}, store):
        gallery = em.Gallery.create(tmp_path / f"g{len(galleries)}", identification(), identity="name", **options)
        gallery.add(items, ids_of(120), {"name": [f"n{number % 9}" for number in range(120)]})
        galleries.append(gallery)
    embedded, other = galleries
    assert other.identify(queries) == embedded.identify(queries)
    assert other.count_identities() == 9
    other.remove(ids_of(120)[:9])
    embedded.remove(ids_of(120)[:9])
    assert other.identify(queries) == embedded.identify(queries)


def test_a_store_keeps_its_promises_when_it_is_opened_again(store, tmp_path):
    gallery = em.Gallery.create(tmp_path / "g", verification("euclidean"), **store)
    assert gallery.search(VECTORS[:2], 3) == [[], []]
    assert gallery.within(VECTORS[:2]) == [[], []]
    assert gallery.items().to_pydict() == {"id": []}
    gallery.add(VECTORS[:20], IDS[:20], {"n": list(range(20)), "s": [None] * 10 + ["x"] * 10})
    gallery.add(40 * VECTORS[20:40], IDS[20:40], {"n": list(range(20)), "s": ["y"] * 20})
    found = gallery.search(VECTORS[:3], 9), gallery.items().to_pydict(), gallery.max_length()
    gallery.close()
    opened = em.Gallery.open(tmp_path / "g")
    assert isinstance(opened, RescoredGallery)
    assert (opened.search(VECTORS[:3], 9), opened.items().to_pydict(), opened.max_length()) == found
    opened.remove(["i03"])
    opened.add(VECTORS[50:51], ["i03"], {"n": [1], "s": [None]})
    assert opened.search(VECTORS[50:51], 1)[0][0].id == "i03"


def test_the_client_of_qdrant_keeps_its_own_store_on_the_disk(tmp_path):
    gallery = em.Gallery.create(tmp_path / "g", verification(), store="qdrant", url="local")
    gallery.add(VECTORS[:3], IDS[:3])
    gallery.close()
    opened = em.Gallery.open(tmp_path / "g")
    assert opened.search(VECTORS[:1], 1)[0][0].id == "i00"
    opened.close()


@pytest.mark.parametrize("store", ["qdrant"], indirect=True)
def test_an_addition_that_fails_half_way_leaves_nothing(tmp_path, monkeypatch, store):
    monkeypatch.setattr(qdrant, "POINTS", 4)
    gallery = em.Gallery.create(tmp_path / "g", verification(), **store)
    upsert, calls = gallery._client.upsert, []

    def fail_later(*arguments, **options):
        calls.append(arguments)
        if len(calls) == 3:
            raise ConnectionError("cable")
        upsert(*arguments, **options)

    monkeypatch.setattr(gallery._client, "upsert", fail_later)
    with pytest.raises(StorageError, match=r"did not answer as expected \(cable\)"):
        gallery.add(VECTORS, IDS)
    assert len(gallery) == 0


def test_bad_input_is_refused_as_by_the_embedded_gallery(store, tmp_path):
    gallery = em.Gallery.create(tmp_path / "g", verification(), identity="name", **store)
    names = {"name": ["a"] * 5}
    gallery.add(VECTORS[:5], IDS[:5], names)
    for call, message in (
        (lambda: gallery.add(VECTORS[:5], IDS[:5], names), "the id 'i0.' is in the gallery"),
        (lambda: gallery.add(VECTORS[:5], IDS[5:10]), "give the same columns"),
        (lambda: gallery.add(VECTORS[:5], IDS[5:10], {"name": [None] * 5}), "not all of its values are strings"),
        (lambda: gallery.add(VECTORS[:1, :5], IDS[5:6], {"name": ["a"]}), "have dimension 5"),
        (lambda: gallery.remove(["x", "y"]), "'x' and 1 more are not in the gallery"),
        (lambda: gallery.remove("i00"), "ids are one string"),
        (lambda: gallery.vectors([1]), "is no string"),
        (lambda: gallery.identify(VECTORS[:1]), "promises nothing for identification"),
        (lambda: gallery.search(VECTORS[:1], 0), "k is 0"),
        (lambda: em.Gallery.create(tmp_path / "h", verification(), **store, speed=1), "no option 'speed'"),
    ):
        with pytest.raises(EquimetricError, match=message):
            call()
    assert len(gallery) == 5


def test_a_gallery_moves_to_another_store_and_back(store, tmp_path):
    gallery = em.Gallery.create(tmp_path / "g", verification(), identity="name")
    gallery.add(VECTORS, IDS, {"name": [f"n{number % 5}" for number in range(60)]})
    gallery.remove(IDS[:7])
    moved = gallery.save(tmp_path / "moved", **store)
    assert isinstance(moved, RescoredGallery)
    assert moved.search(VECTORS, 5) == gallery.search(VECTORS, 5)
    back = moved.save(tmp_path / "back")
    assert back.search(VECTORS, 5) == gallery.search(VECTORS, 5)
    assert back.items().to_pydict() == gallery.items().to_pydict()


def test_an_unknown_store_is_one_sentence(tmp_path):
    with pytest.raises(EquimetricError, match=r"unknown store 'lance'; did you mean 'lancedb'\?"):
        em.Gallery.create(tmp_path / "g", verification(), store="lance")
    with pytest.raises(EquimetricError, match="an embedded gallery has no option 'url'"):
        em.Gallery.create(tmp_path / "g", verification(), url="local")


def test_a_server_that_does_not_answer_is_one_sentence(tmp_path):
    with pytest.raises(StorageError, match=r"did not answer as expected .*; check that it runs") as error:
        em.Gallery.create(tmp_path / "g", verification(), store="qdrant", url="http://127.0.0.1:9")
    assert "\n" not in str(error.value)
