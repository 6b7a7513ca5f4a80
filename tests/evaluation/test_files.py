import sys

import numpy as np
import pytest

from equimetric.errors import EquimetricError
from equimetric.evaluation import evaluate
from equimetric.evaluation.files import read_cohort, read_embeddings

EMBEDDINGS = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
NAMES = ["cat", "cat", "dog", "dog", "eel", "eel"]


def write_csv(file, text, encoding="utf-8"):
    file.write_bytes(text.encode(encoding))
    return file


def write_parquet(file, columns):
    # Imported here: the other file types are read without it.
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.table(columns), file)
    return file


@pytest.fixture
def vectors(tmp_path):
    file = tmp_path / "space.npy"
    np.save(file, EMBEDDINGS)
    return file


def test_arrays_of_an_npz_file(tmp_path):
    file = tmp_path / "space.npz"
    arrays = {"embeddings": EMBEDDINGS, "labels": np.array(NAMES), "gallery_embeddings": EMBEDDINGS[:2]}
    np.savez(file, **arrays, gallery_labels=np.array(NAMES[:2]))
    stored = read_embeddings(file)
    assert set(stored) == {"embeddings", "labels", "gallery_embeddings", "gallery_labels"}
    np.testing.assert_array_equal(stored["gallery_embeddings"], EMBEDDINGS[:2])
    assert stored["labels"].tolist() == NAMES


def test_an_npy_file_with_labels_beside_it(vectors):
    write_csv(vectors.with_suffix(".csv"), "file,label\n" + "".join(f"{n}.png,{n // 2}\n" for n in range(6)))
    stored = read_embeddings(vectors)
    np.testing.assert_array_equal(stored["embeddings"], EMBEDDINGS)
    assert stored["labels"].tolist() == [0, 0, 1, 1, 2, 2]
    assert evaluate(**stored) == evaluate(EMBEDDINGS, [0, 0, 1, 1, 2, 2])


def test_a_label_file_given_by_name(vectors, tmp_path):
    labels = write_csv(tmp_path / "other.csv", '"label"\r\n' + "".join(f'"{name}"\r\n' for name in NAMES), "utf-8-sig")
    stored = read_embeddings(str(vectors), labels=str(labels))
    assert stored["labels"].tolist() == NAMES
    assert evaluate(**stored) == evaluate(EMBEDDINGS, NAMES)


def test_numbers_with_leading_zeros_are_names(vectors):
    write_csv(vectors.with_suffix(".csv"), "label\n07\n7\n0\n0\n-1\n-1\n")
    assert read_embeddings(vectors)["labels"].tolist() == ["07", "7", "0", "0", "-1", "-1"]
    write_csv(vectors.with_suffix(".csv"), "label\n7\n7\n0\n0\n-1\n-1\n")
    assert read_embeddings(vectors)["labels"].tolist() == [7, 7, 0, 0, -1, -1]


def test_queries_and_gallery_in_one_table(vectors):
    sides = ["query", "gallery"] * 3
    lines = "".join(f"{name}, {side}\n" for name, side in zip(NAMES, sides, strict=True))
    write_csv(vectors.with_suffix(".csv"), "label, set\n" + lines)
    stored = read_embeddings(vectors)
    np.testing.assert_array_equal(stored["embeddings"], EMBEDDINGS[::2])
    np.testing.assert_array_equal(stored["gallery_embeddings"], EMBEDDINGS[1::2])
    assert stored["labels"].tolist() == stored["gallery_labels"].tolist() == NAMES[::2]
    assert evaluate(**stored).gallery == 3


@pytest.mark.parametrize("labels", [NAMES, [5, 5, 6, 6, 2**40, 2**40]], ids=["strings", "integers"])
@pytest.mark.parametrize("encoded", [False, True], ids=["plain", "categories"])
@pytest.mark.parametrize("kind", ["list", "large_list", "fixed_size_list", "columns"])
def test_a_parquet_file(tmp_path, labels, encoded, kind):
    import pyarrow

    if kind == "columns":
        vectors = {f"x{number}": EMBEDDINGS[:, number] for number in range(3)} | {"path": ["a"] * 6, "id": range(6)}
    else:
        types = {
            "list": pyarrow.list_(pyarrow.float32()),
            "large_list": pyarrow.large_list(pyarrow.float32()),
            "fixed_size_list": pyarrow.list_(pyarrow.float32(), 3),
        }
        vectors = {"path": ["a"] * 6, "embedding": pyarrow.array(EMBEDDINGS.tolist(), types[kind])}
    column = pyarrow.array(labels).dictionary_encode() if encoded else pyarrow.array(labels)
    stored = read_embeddings(write_parquet(tmp_path / "space.parquet", {**vectors, "label": column}))
    np.testing.assert_array_equal(stored["embeddings"], EMBEDDINGS)
    assert stored["embeddings"].dtype == np.float32
    assert stored["labels"].tolist() == labels
    assert evaluate(**stored) == evaluate(EMBEDDINGS, labels)


def test_queries_and_gallery_in_a_parquet_file(tmp_path):
    columns = {"embedding": EMBEDDINGS.tolist(), "label": NAMES, "set": ["query", "gallery"] * 3}
    stored = read_embeddings(write_parquet(tmp_path / "space.parquet", columns))
    np.testing.assert_allclose(stored["gallery_embeddings"], EMBEDDINGS[1::2])
    assert stored["gallery_labels"].tolist() == NAMES[1::2]


def test_without_pyarrow_it_says_what_to_install(tmp_path, monkeypatch):
    file = tmp_path / "space.parquet"
    file.write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(EquimetricError, match="pip install pyarrow"):
        read_embeddings(file)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"embedding": [[1.0], [2.0]], "class": [0, 1]}, "has no column 'label' but embedding, class"),
        ({"embedding": [[1.0], [2.0, 3.0]], "label": [0, 1]}, "embedding 0 .* 1 dimensions but embedding 1 has 2"),
        ({"embedding": ["a", "b"], "label": [0, 1]}, "is of type string; it must hold lists of numbers"),
        ({"embedding": [[1.0], None], "label": [0, 1]}, "column 'embedding' .* has empty entries"),
        ({"embedding": [[1.0], [2.0]], "label": ["a", None]}, "column 'label' .* has empty entries"),
        ({"x": [1, 2], "label": [0, 1]}, "neither a column 'embedding' of lists nor floating-point columns"),
        ({"x": [1.0, 2.0], "label": [0, 1], "set": ["query", "galery"]}, "did you mean 'gallery'"),
        ({"x": [1.0, 2.0], "label": [0, 1], "set": ["query", "query"]}, "must name both queries and gallery"),
    ],
)
def test_malformed_parquet_files(tmp_path, columns, message):
    with pytest.raises(EquimetricError, match=message):
        read_embeddings(write_parquet(tmp_path / "space.parquet", columns))


def test_a_text_file_is_not_parquet(tmp_path):
    with pytest.raises(EquimetricError, match=r"is not a \.parquet file"):
        read_embeddings(write_csv(tmp_path / "space.parquet", "no numbers"))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"embedding": [[1.0, 2.0], [2.0, None]], "label": [0, 1]}, "NaN or infinite values in 1 row of 2"),
        ({"embedding": [["a"], ["b"]], "label": [0, 1]}, "embeddings are of type object"),
        ({"embedding": [[1.0], [2.0]], "label": [0.5, 1.0]}, "labels are of type float64"),
        ({"x": np.zeros(0), "label": np.zeros(0, dtype=int)}, "are empty"),
    ],
)
def test_readable_files_that_cannot_be_evaluated(tmp_path, columns, message):
    stored = read_embeddings(write_parquet(tmp_path / "space.parquet", columns))
    with pytest.raises(EquimetricError, match=message):
        evaluate(**stored)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name\n" + "a\n" * 6, "has no column 'label' \\(its first line reads 'name'\\)"),
        ("", "has no column 'label'"),
        ("label\n" + "a\n" * 5, "6 embeddings but .* has 5 labels"),
        ("label,file\n" + "a,b\n" * 5 + ",b\n", "row 5 of .* has no label"),
        ("file,label\n" + "a,b\n" * 5 + "a\n", "row 5 of .* has no label"),
        ('label\n"a\n' + "a\n" * 5, "is not a .csv file in UTF-8"),
        ("label,set\n" + "a,train\n" * 6, "unknown entry of column 'set' .* 'train'"),
    ],
)
def test_malformed_labels(vectors, text, message):
    write_csv(vectors.with_suffix(".csv"), text)
    with pytest.raises(EquimetricError, match=message):
        read_embeddings(vectors)


def test_files_that_cannot_be_read(tmp_path, vectors):
    with pytest.raises(EquimetricError, match="there is no file"):
        read_embeddings(tmp_path / "missing.npz")
    with pytest.raises(EquimetricError, match=r"space\.csv.* with the labels of"):
        read_embeddings(vectors)
    with pytest.raises(EquimetricError, match=r"is not a \.csv file in UTF-8"):
        read_embeddings(vectors, labels=write_csv(tmp_path / "latin.csv", "label\nÄ\n", "latin-1"))
    with pytest.raises(
        EquimetricError, match=r"not one of the file types that can be read: \.npz, \.safetensors, \.parquet"
    ):
        read_embeddings(write_csv(tmp_path / "space.txt", "1 2"))
    for name, message in (
        ("x.npz", "is not an .npz file"),
        ("x.npy", "is not an .npy file"),
        ("x.parquet", "is not a"),
    ):
        with pytest.raises(EquimetricError, match=message):
            read_embeddings(write_csv(tmp_path / name, "no numbers"))
    objects = tmp_path / "objects.npy"
    np.save(objects, np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(EquimetricError, match=r"is not an \.npy file of numbers"):
        read_embeddings(objects)
    flat = tmp_path / "flat.npy"
    np.save(flat, np.zeros(4))
    with pytest.raises(EquimetricError, match=r"shape \(4,\); it must be \(N, D\)"):
        read_embeddings(flat)
    archive = tmp_path / "space.npz"
    np.savez(archive, embeddings=EMBEDDINGS, labels=np.arange(6))
    with pytest.raises(EquimetricError, match="holds its own labels"):
        read_embeddings(archive, labels=tmp_path / "space.csv")
    # An archive named .npy, and an array named .npz.
    archive.rename(tmp_path / "archive.npy")
    with pytest.raises(EquimetricError, match=r"is not an \.npy file"):
        read_embeddings(tmp_path / "archive.npy")
    with pytest.raises(EquimetricError, match=r"is not an \.npz file"):
        read_embeddings(vectors.rename(tmp_path / "array.npz"))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"embeddings": EMBEDDINGS}, "has no array 'labels'"),
        ({"embedings": EMBEDDINGS, "labels": np.arange(6)}, "did you mean 'embeddings'"),
    ],
)
def test_malformed_archives(tmp_path, arrays, message):
    np.savez(tmp_path / "space.npz", **arrays)
    with pytest.raises(EquimetricError, match=message):
        read_embeddings(tmp_path / "space.npz")


def test_a_cohort_is_read_with_or_without_labels(tmp_path):
    vectors, labels = np.eye(4, dtype=np.float32), np.array(["a", "a", "b", "c"])
    np.savez(tmp_path / "labelled.npz", embeddings=vectors, labels=labels)
    np.savez(tmp_path / "bare.npz", embeddings=vectors)
    np.save(tmp_path / "bare.npy", vectors)
    np.savez(tmp_path / "both.npz", embeddings=vectors[:2], labels=labels[:2], cohort_embeddings=vectors)
    np.savez(
        tmp_path / "sides.npz",
        **{
            f"{side}{kind}": array
            for side in ("", "gallery_")
            for kind, array in (("embeddings", vectors), ("labels", labels))
        },
    )
    for name, kinds in (("labelled.npz", 2), ("bare.npz", 1), ("bare.npy", 1), ("both.npz", 1)):
        found = read_cohort(tmp_path / name)
        assert list(found) == ["embeddings", "labels"][:kinds]
        assert np.array_equal(found["embeddings"], vectors)
    assert read_cohort(tmp_path / "labelled.npz", embedded_only=True) is None
    assert list(read_cohort(tmp_path / "both.npz", embedded_only=True)) == ["embeddings"]
    assert list(read_embeddings(tmp_path / "both.npz")) == ["embeddings", "labels"]
    with pytest.raises(EquimetricError, match="a cohort is one set of embeddings"):
        read_cohort(tmp_path / "sides.npz")
    with pytest.raises(EquimetricError, match="there is no file"):
        read_cohort(tmp_path / "nothing.npz")
