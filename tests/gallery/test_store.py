"""What a gallery keeps: items, metadata, deletions, copies; and what it refuses, in one sentence."""

import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from gallery_cases import cohort, exact_scan, hard_data, identification, small_data, verification, with_threshold

import equimetric as em
from equimetric.errors import EquimetricError, EquimetricWarning
from equimetric.gallery.manifest import Manifest

VECTORS = hard_data("random", 60, 1, 8)[1]
IDS = [f"i{number:02d}" for number in range(60)]


@pytest.fixture
def gallery(tmp_path):
    return em.Gallery.create(tmp_path / "g", verification())


def test_items_and_metadata_come_back_as_they_were(gallery):
    columns = {
        "name": [f"Grüße {number} 😀" for number in range(60)],
        "price": [number / 3 if number % 4 else None for number in range(60)],
        "tags": [["a"] * (number % 3) for number in range(60)],
        "box": [{"x": number, "y": -number} for number in range(60)],
    }
    # Sizes that are merged, and one that is not.
    for start, end in ((0, 20), (20, 21), (21, 22), (22, 30), (30, 60)):
        gallery.add(VECTORS[start:end], IDS[start:end], {name: values[start:end] for name, values in columns.items()})
    for opened in (gallery, em.Gallery.open(gallery.folder)):
        assert opened.items().to_pydict() == {"id": IDS, **columns}
        np.testing.assert_allclose(
            opened.vectors(IDS[::-1]), (VECTORS / np.linalg.norm(VECTORS, axis=1, keepdims=True))[::-1], rtol=1e-6
        )
        assert len(opened) == 60
        assert "i07" in opened
        assert "i7" not in opened
        assert 7 not in opened


def test_many_small_additions_leave_few_files(gallery):
    for number in range(40):
        gallery.add(VECTORS[number : number + 1], IDS[number : number + 1])
    assert len(list(gallery.folder.glob("items-*.parquet"))) <= 7
    assert gallery.items().column("id").to_pylist() == IDS[:40]


def test_larger_vectors_are_coded_at_another_scale(tmp_path):
    gallery = em.Gallery.create(tmp_path / "g", verification("euclidean"))
    for number, factor in enumerate((1, 0.5, 3, 3.1, 40)):
        gallery.add(factor * VECTORS[number * 10 : number * 10 + 10], IDS[number * 10 : number * 10 + 10])
    assert len(list(gallery.folder.glob("codes-*"))) == 1
    assert Manifest.read(gallery.folder).codes == 5
    scores = exact_scan(gallery, VECTORS[:3], IDS[:50])
    for found, row in zip(gallery.search(VECTORS[:3], 50), scores, strict=True):
        assert [match.score for match in found] == sorted(row)


def test_a_removed_id_may_be_added_again(gallery):
    gallery.add(VECTORS[:5], IDS[:5])
    gallery.remove(["i03", "i01"])
    assert gallery.items().column("id").to_pylist() == ["i00", "i02", "i04"]
    assert {match.id for match in gallery.search(VECTORS[3:4], 9)[0]} == {"i00", "i02", "i04"}
    gallery.add(VECTORS[50:51], ["i03"])
    opened = em.Gallery.open(gallery.folder)
    assert opened.search(VECTORS[50:51], 1)[0][0].id == "i03"
    opened.remove(["i03"])
    assert len(opened) == 3


def test_a_saved_copy_has_no_removed_rows(gallery, tmp_path):
    gallery.add(VECTORS[:50], IDS[:50], {"n": list(range(50))})
    gallery.remove(IDS[5:45])
    copy = gallery.save(tmp_path / "copy")
    assert copy.items().to_pydict() == gallery.items().to_pydict()
    assert copy.search(VECTORS, 5) == gallery.search(VECTORS, 5)
    assert (copy.folder / "vectors.f32").stat().st_size == 10 * 8 * 4
    assert Manifest.read(copy.folder).removed is None
    with pytest.raises(EquimetricError, match="exists; give a new folder"):
        gallery.save(tmp_path / "copy")


def test_readers_keep_their_state_until_they_refresh(gallery):
    gallery.add(VECTORS[:10], IDS[:10])
    reader = em.Gallery.open(gallery.folder)
    before = reader.search(VECTORS[20:22], 20)
    other = em.Gallery.open(gallery.folder)
    other.add(9 * VECTORS[20:40], IDS[20:40])
    other.remove(IDS[:5])
    assert reader.search(VECTORS[20:22], 20) == before
    assert reader.items().num_rows == 10
    reader.refresh()
    assert len(reader) == 25
    # The first one, too, sees what was added before it adds.
    with pytest.raises(EquimetricError, match="the id 'i20' is in the gallery; remove that item first"):
        gallery.add(VECTORS[:1], ["i20"])


def test_identification_names_or_says_nobody(tmp_path):
    embeddings, labels = small_data(8)
    enrolled = np.arange(240) % 6 < 4
    known = enrolled & (labels < 20)
    gallery = em.Gallery.create(tmp_path / "g", identification(), identity="name")
    names = [f"class {label}" for label in labels[known]]
    gallery.add(embeddings[known], [f"{number:03d}" for number in np.flatnonzero(known)], {"name": names})
    probes = ~enrolled
    certificate = gallery.certificate
    for probe, found in zip(embeddings[probes], gallery.identify(embeddings[probes]), strict=True):
        distance = certificate.distances(probe[None], embeddings[known]).numpy()
        nearest = distance.argmin()
        if certificate.accepts(float(distance[nearest])):
            assert found.name == names[nearest]
            assert found.score == pytest.approx(distance[nearest], abs=1e-6)
        else:
            assert found == (None, None, None)
    named = [one.name for one in gallery.identify(embeddings[probes])]
    own = [f"class {label}" for label in labels[probes]]
    assert sum(name == right for name, right in zip(named, own, strict=True)) >= 30
    assert sum(name is None for name in named) >= 20


def test_the_majority_of_the_nearest_is_named(tmp_path):
    certificate = replace(identification(by="nearest", k=3), threshold=1.0)
    gallery = em.Gallery.create(tmp_path / "g", certificate, identity="name")
    angle = np.array([0.1, 0.2, -0.3, 1.5])
    vectors = np.zeros((4, 8), "f4")
    vectors[:, 0], vectors[:, 1] = np.cos(angle), np.sin(angle)
    gallery.add(vectors, list("abcd"), {"name": ["Ada", "Bo", "Bo", "Cy"]})
    (found,) = gallery.identify(np.eye(8, dtype="f4")[:1])
    assert (found.name, found.id) == ("Bo", "b")
    gallery.remove(["c"])
    assert gallery.identify(np.eye(8, dtype="f4")[:1])[0].name == "Ada"


def test_more_identities_than_certified_are_warned_of(tmp_path):
    gallery = em.Gallery.create(tmp_path / "g", identification())
    gallery.add(VECTORS, IDS)
    with pytest.warns(EquimetricWarning, match="has 60 identities, and its certificate holds for 20"):
        gallery.identify(VECTORS[:1])


def test_one_gallery_may_have_a_certificate_for_each_task(tmp_path):
    gallery = em.Gallery.create(tmp_path / "g", [verification(), identification()])
    gallery.add(VECTORS[:9], IDS[:9])
    opened = em.Gallery.open(tmp_path / "g", certificate=identification())
    assert opened.certificates == (verification(), identification())
    assert opened.verify(VECTORS[:2], IDS[:2]).tolist() == [True, True]
    assert opened.verify(VECTORS[:2], -VECTORS[:2]).tolist() == [False, False]
    assert [one.name for one in opened.identify(VECTORS[:2])] == IDS[:2]


def one_sentence(error):
    return "\n" not in str(error.value) and re.search(r"[;:,] ", str(error.value))


REFUSED = {
    "other dimension": (lambda g: g.add(VECTORS[:, :5], IDS), "have dimension 5, those of this gallery 8; embed with"),
    "other queries": (lambda g: g.search(VECTORS[:, :5]), "queries have dimension 5"),
    "NaN": (lambda g: g.add(VECTORS * np.nan, IDS), "NaN or infinite"),
    "zero": (lambda g: g.add(0 * VECTORS, IDS), "length zero"),
    "zero query": (lambda g: g.search(0 * VECTORS), "length zero"),
    "no vectors": (lambda g: g.add(VECTORS[:0], []), "empty"),
    "too few ids": (lambda g: g.add(VECTORS, IDS[:3]), "60 vectors but 3 ids; give exactly one"),
    "an id twice": (lambda g: g.add(VECTORS[:2], ["a", "a"]), "'a' occurs more than once"),
    "numbers as ids": (lambda g: g.add(VECTORS[:2], [1, 2]), "the id 1 is no string"),
    "one string": (lambda g: g.add(VECTORS[:2], "ab"), "ids are one string"),
    "a list": (lambda g: g.add(VECTORS[:2], ["a", "b"], [1, 2]), "metadata are of type list"),
    "column id": (lambda g: g.add(VECTORS[:2], ["a", "b"], {"id": [1, 2]}), "rename it"),
    "short column": (lambda g: g.add(VECTORS[:2], ["a", "b"], {"n": [1]}), "1 values of 'n'"),
    "mixed column": (lambda g: g.add(VECTORS[:2], ["a", "b"], {"n": [1, "x"]}), "'n' cannot be stored"),
    "unknown id": (lambda g: g.remove(["x", "y"]), "'x' and 1 more are not in the gallery"),
    "a task": (lambda g: g.identify(VECTORS), "of verification, whose threshold promises nothing for identification"),
    "k": (lambda g: g.search(VECTORS, 0), "k is 0; give a whole number"),
    "threshold": (lambda g: g.within(VECTORS, float("nan")), "the threshold is nan"),
    "pairs": (lambda g: g.verify(VECTORS[:2], VECTORS[:3]), "2 queries and 3 items"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_in_one_sentence_and_changes_nothing(case, gallery):
    call, message = REFUSED[case]
    with pytest.raises(EquimetricError, match=re.escape(message)) as error:
        call(gallery)
    assert one_sentence(error)
    assert Manifest.read(gallery.folder).version == 0


def test_later_metadata_have_the_columns_of_the_first(gallery):
    gallery.add(VECTORS[:2], ["a", "b"], {"n": [1, 2]})
    for metadata in ({}, {"m": [1]}, {"n": [1], "m": [2]}, {"n": ["x"]}):
        with pytest.raises(EquimetricError, match=r"give the same columns|cannot be stored as int64"):
            gallery.add(VECTORS[2:3], ["c"], metadata)
    gallery.add(VECTORS[2:3], ["c"], pa.table({"n": [3]}))
    assert gallery.items().column("n").to_pylist() == [1, 2, 3]


def test_identities_need_names(tmp_path):
    gallery = em.Gallery.create(tmp_path / "g", verification(), identity="name")
    for metadata, message in (({"n": [1]}, "lack 'name'"), ({"name": [1]}, "strings"), ({"name": [None]}, "strings")):
        with pytest.raises(EquimetricError, match=message):
            gallery.add(VECTORS[:1], ["a"], metadata)


def test_class_means_need_one_item_for_each_identity(tmp_path):
    gallery = em.Gallery.create(tmp_path / "g", identification(by="mean"), identity="name")
    gallery.add(VECTORS[:2], ["a", "b"], {"name": ["Ada", "Ada"]})
    with pytest.raises(EquimetricError, match="class means, and the gallery has several items of one identity"):
        gallery.identify(VECTORS[:1])


CERTIFIED = replace(verification(), model="abc", preprocessing="resize 224")


def test_another_certificate_model_or_preprocessing_is_refused(tmp_path):
    em.Gallery.create(tmp_path / "g", CERTIFIED)
    em.Gallery.open(tmp_path / "g", certificate=CERTIFIED, model="abc", preprocessing="resize 224")
    others = {
        "the model 'abc', not 'xyz'": {"model": "xyz"},
        "preprocessing 'resize 224', not 'resize 256'": {"preprocessing": "resize 256"},
        "certificate with model 'abc', not 'xyz'": {"certificate": replace(CERTIFIED, model="xyz")},
        "certificate with threshold": {"certificate": with_threshold(CERTIFIED, 0.1)},
        "certificate with dimension 8, not 9": {"certificate": verification("cosine", 9)},
        "with geometry 'cosine', not 'euclidean'": {"certificate": verification("euclidean")},
        "of verification, not of identification": {"certificate": identification()},
        "another certificate of verification, of": {"certificate": replace(CERTIFIED, date="2020-01-01")},
    }
    for message, options in others.items():
        with pytest.raises(EquimetricError, match=re.escape(message)) as error:
            em.Gallery.open(tmp_path / "g", **options)
        assert one_sentence(error)


def test_certificates_of_one_gallery_are_for_the_same_vectors(tmp_path):
    for given, message in (
        ([], "a gallery needs a certificate"),
        ([verification(), verification()], "2 certificates of verification"),
        ([CERTIFIED, identification()], "differ in model: 'abc' and None"),
        (["threshold.json"], "not under str; read one with Certificate.load"),
    ):
        with pytest.raises(EquimetricError, match=re.escape(message)):
            em.Gallery.create(tmp_path / "g", given)


@pytest.mark.parametrize("form", ["mean", "full"])
def test_with_a_cohort_both_sides_are_told_apart(form, tmp_path):
    gallery = em.Gallery.create(tmp_path / "g", verification(form))
    queries, items = cohort(form, 8).extend(VECTORS)
    gallery.add(items, IDS)
    for call, message in (
        (lambda: gallery.add(VECTORS, IDS), "dimension 8, and this gallery compares vectors that a cohort extends to"),
        (lambda: gallery.add(queries, IDS), "no gallery vectors of a cohort"),
        (lambda: gallery.search(items), "no query vectors of a cohort"),
    ):
        with pytest.raises(EquimetricError, match=message):
            call()
    plain = verification(form).scores(VECTORS[:20], VECTORS[20:40], cohort(form, 8)).numpy()
    found = [{match.id: match.score for match in one} for one in gallery.search(queries[:20], 60)]
    np.testing.assert_allclose([one[IDS[20 + n]] for n, one in enumerate(found)], plain, atol=1e-5)


def test_folders_that_are_no_gallery(tmp_path):
    with pytest.raises(EquimetricError, match=r"there is no gallery in .*; make one with equimetric index"):
        em.Gallery.open(tmp_path / "nowhere")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(EquimetricError, match="is not empty"):
        em.Gallery.create(tmp_path / "full", verification())
    (tmp_path / "full" / "file").unlink()
    (tmp_path / "full" / "verification.json").touch()  # what a killed `create` leaves
    assert len(em.Gallery.create(tmp_path / "full", verification())) == 0


NAMES = ["gallery.json", "vectors.f32", "codes-1.i8", "items-1.parquet", "verification.json", "removed-2.npy"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("damage", ["missing", "short"])
def test_a_damaged_gallery_is_named(name, damage, gallery):
    gallery.add(VECTORS, IDS)
    gallery.remove(IDS[:3])
    file = gallery.folder / name
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(EquimetricError, match=r"damaged|missing|there is no|cannot be read"):
        em.Gallery.open(gallery.folder).items()
