"""Embeddings on disk: the same results as in memory, without ever being there as a whole."""

import json
import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from spread import evaluate_in_pieces, identical

from equimetric.errors import EquimetricError
from equimetric.evaluation import Cohort, evaluate, list_metrics, mapped_files
from equimetric.evaluation.engine import mapped_vectors
from equimetric.evaluation.engine.inputs import prepare_sets
from equimetric.evaluation.engine.mapped_vectors import MappedVectors, is_mapped
from equimetric.evaluation.files import read_embeddings, read_vectors

EXAMPLES = [example for family in list_metrics() for example in family.examples]
GEOMETRIES = ["cosine", "euclidean", "dot", "hamming", "l1"]


def space(count=200, dimension=16, dtype=np.float32, unit=False):
    generator = np.random.default_rng(4)
    labels = generator.integers(0, 9, count)
    vectors = generator.normal(size=(9, dimension))[labels] + 0.7 * generator.normal(size=(count, dimension))
    if unit:
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors.astype(dtype), labels


@pytest.fixture
def on_disk(tmp_path):
    """Saves an array and maps it."""

    def save_and_map(array, name="space"):
        np.save(tmp_path / f"{name}.npy", array)
        return np.load(tmp_path / f"{name}.npy", mmap_mode="r")

    return save_and_map


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_rows_are_those_of_vectors_in_memory(on_disk, geometry, unit, dtype):
    array, labels = space(dtype=dtype, unit=unit)
    here, there = (prepare_sets(given, labels, geometry=geometry) for given in (array, on_disk(array)))
    assert isinstance(there.queries, MappedVectors)
    assert there.queries.shape == here.queries.shape
    assert torch.equal(there.queries[:], here.queries)
    assert torch.equal(there.queries[3:70:4], here.queries[3:70:4])
    rows = torch.tensor([[5, 3], [199, 0]])
    assert torch.equal(there.queries[rows], here.queries[rows])
    assert there.queries.dtype == here.queries.dtype


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_results_are_those_of_vectors_in_memory(on_disk, geometry):
    array, labels = space()
    unknown = () if geometry in ("cosine", "euclidean") else ("alignment", "uniformity")
    unknown += ("fewshot",) if geometry in ("hamming", "l1") else ()
    metrics = [name for name in EXAMPLES if not name.startswith(unknown)]
    options = {"geometry": geometry, "metrics": metrics, "neighbours": 4, "block_rows": 32}
    here, there = (evaluate(given, labels, **options) for given in (torch.from_numpy(array.copy()), on_disk(array)))
    assert dict(there) == pytest.approx(dict(here), rel=1e-9)
    assert torch.equal(there.neighbours, here.neighbours)
    assert identical(there, evaluate_in_pieces(on_disk(array), labels, **options))


def test_a_gallery_on_disk_and_queries_in_memory(on_disk):
    gallery, labels = space()
    queries, own = gallery[::3].astype(np.float64), labels[::3]
    options = {"metrics": ["map@r", "auc"], "neighbours": 3}
    here, there = (evaluate(queries, own, given, labels, **options) for given in (gallery, on_disk(gallery)))
    assert dict(here) == pytest.approx(dict(there), rel=1e-9)
    assert torch.equal(there.neighbours, here.neighbours)


def test_two_processes_map_the_file_themselves(on_disk):
    array, labels = space(dtype=np.float16)
    options = {"metrics": ["map@r", "opis", "mrr"], "block_rows": 16, "neighbours": 3}
    stored = on_disk(array)
    assert identical(evaluate(stored, labels, **options), evaluate(stored, labels, **options, jobs=2))


def test_a_part_of_a_mapped_array(on_disk):
    array, labels = space()
    there = on_disk(array)[20:180, :8]
    assert is_mapped(there)
    found = prepare_sets(there, labels[20:180]).queries
    assert torch.equal(pickle.loads(pickle.dumps(found))[:], prepare_sets(array[20:180, :8], labels[20:180]).queries)


def test_what_cannot_be_read_row_by_row_is_loaded(on_disk):
    array, labels = space()
    for stored in (on_disk(np.asfortranarray(array), "f"), on_disk(array.astype(">f4"), "swapped")):
        assert not is_mapped(stored)
        assert dict(evaluate(stored, labels)) == dict(evaluate(array, labels))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda file: file.unlink(),
            r"cannot read '.*space.npy' \(No such file or directory\); put the file where all",
        ),
        (lambda file: np.save(file, np.zeros((200, 16), np.float32)), "is not the file that is evaluated"),
    ],
)
def test_other_processes_must_find_the_same_file(on_disk, tmp_path, change, message):
    array, labels = space()
    shipped = pickle.dumps(prepare_sets(on_disk(array), labels).queries)
    change(tmp_path / "space.npy")
    with pytest.raises(EquimetricError, match=message):
        pickle.loads(shipped)


@pytest.mark.parametrize(
    ("value", "geometry", "message"),
    [
        (np.nan, "cosine", "embeddings contain NaN or infinite values in 1 row of 200, the first is row 7"),
        (0.0, "cosine", "contain vectors of length zero"),
        (1e30, "dot", "the embeddings are too long"),
    ],
)
def test_values_that_cannot_be_compared(on_disk, value, geometry, message):
    array, labels = space()
    array[7] = value
    with pytest.raises(EquimetricError, match=message):
        evaluate(on_disk(array), labels, geometry=geometry)


def test_what_needs_all_vectors_in_memory_says_so(on_disk, monkeypatch):
    array, labels = space()
    stored = on_disk(array)
    cohort = Cohort(space(60)[0])
    for options in ({"metrics": "nmi"}, {"metrics": "map@r", "cohort": cohort}):
        assert dict(evaluate(stored, labels, **options)) == dict(evaluate(array, labels, **options))
    monkeypatch.setattr(mapped_vectors, "_available_bytes", lambda: 1000)
    with pytest.raises(EquimetricError, match=r"k-means needs all vectors in memory, 0.0 GiB, and 0.0 GiB are free"):
        evaluate(stored, labels, metrics="nmi")
    with pytest.raises(EquimetricError, match="a cohort needs all vectors in memory"):
        evaluate(stored, labels, cohort=cohort)
    with pytest.raises(EquimetricError, match="of vectors in memory"):
        evaluate(stored, labels, metrics="map@r", prefilter="bfloat16")


@pytest.fixture
def map_all(monkeypatch):
    monkeypatch.setattr(mapped_files, "MAPPED_BYTES", 0)


@pytest.mark.usefixtures("map_all")
def test_files_that_are_mapped(tmp_path):
    array, labels = space()
    np.save(tmp_path / "space.npy", array)
    np.save(tmp_path / "labels.npy", labels)
    named = {"embeddings": array, "labels": labels, "gallery_embeddings": array[:50], "gallery_labels": labels[:50]}
    save_file(named, tmp_path / "space.safetensors", metadata={"made": "here"})
    of_npy = read_embeddings(tmp_path / "space.npy", tmp_path / "labels.npy")
    of_safetensors = read_embeddings(tmp_path / "space.safetensors")
    assert is_mapped(of_npy["embeddings"])
    assert is_mapped(of_safetensors["gallery_embeddings"])
    assert dict(evaluate(**of_npy)) == dict(evaluate(array, labels))
    assert dict(evaluate(**of_safetensors)) == dict(evaluate(array, labels, array[:50], labels[:50]))
    np.testing.assert_array_equal(read_vectors(tmp_path / "space.safetensors"), array)


def test_small_files_are_read(tmp_path):
    array, labels = space()
    save_file({"embeddings": array, "labels": labels, "color": labels % 3}, tmp_path / "space.safetensors")
    found = read_embeddings(tmp_path / "space.safetensors", parents="color")
    assert {name: type(part) for name, part in found.items()} == dict.fromkeys(found, np.ndarray)
    assert set(found) == {"embeddings", "labels", "parents"}


def safetensors_bytes(header, body=b""):
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not a .safetensors file"),
        (b"\xff" * 40, "is not a .safetensors file .its header is too long"),
        (safetensors_bytes([1]), "is not a .safetensors file"),
        (safetensors_bytes({"embeddings": {"dtype": "F32"}}), "is not a .safetensors file"),
        (
            safetensors_bytes({"embeddings": {"dtype": "F32", "shape": [9, 9], "data_offsets": [0, 4]}}),
            "does not have the size of its shape",
        ),
        (
            safetensors_bytes({"embeddings": {"dtype": "F32", "shape": [1, 9], "data_offsets": [0, 36]}}),
            "is not a .safetensors file",
        ),
        (
            safetensors_bytes({"embeddings": {"dtype": "BF16", "shape": [1, 2], "data_offsets": [0, 4]}}, b"1234"),
            "is of type BF16; save it as F16, F32 or F64",
        ),
        (
            safetensors_bytes({"embeddings": {"dtype": "F32", "shape": [1, 1], "data_offsets": [0, 4]}}, b"1234"),
            "has no array 'labels'",
        ),
    ],
)
def test_files_that_are_none(tmp_path, content, message):
    (tmp_path / "space.safetensors").write_bytes(content)
    with pytest.raises(EquimetricError, match=message):
        read_embeddings(tmp_path / "space.safetensors")


def test_labels_that_do_not_belong_to_the_embeddings(tmp_path):
    array, labels = space()
    np.save(tmp_path / "space.npy", array)
    np.save(tmp_path / "labels.npy", labels[:9])
    (tmp_path / "text.npy").write_text("no array")
    for name, message in [
        ("labels.npy", "has 200 embeddings but .* has 9 labels"),
        ("text.npy", "is not an .npy file of labels"),
        ("nowhere.npy", "there is no file"),
    ]:
        with pytest.raises(EquimetricError, match=message):
            read_embeddings(tmp_path / "space.npy", tmp_path / name)


LIMITED = """
    import resource, sys
    import numpy as np
    import torch
    import equimetric as em

    torch.set_num_threads(1)
    em.evaluate(np.random.default_rng(0).normal(size=(600, 64)), np.arange(600) % 60, metrics=["map@r", "opis"])
    used = int(next(line for line in open("/proc/self/status") if line.startswith("VmData")).split()[1]) * 1024
    room = int(sys.argv[1]) * 2**20
    resource.setrlimit(resource.RLIMIT_DATA, (used + room, used + room))
    stored = np.load(sys.argv[2], mmap_mode="r")
    labels = np.arange(len(stored)) % 500
    em.evaluate(stored[:1000], labels[:1000], stored, labels, metrics=["recall@1", "map@10", "auc"])
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA counts mapped memory elsewhere")
@pytest.mark.parametrize(("megabytes", "fits"), [(700, True), (100, False)])
def test_memory_is_bounded_whatever_the_size_of_the_file(tmp_path, megabytes, fits):
    """A file of 1.5 GB, half precision and not at unit length, which would take 3 GB in memory and 3 more as copies."""
    count, dimension = 3_000_000, 256
    stored = np.lib.format.open_memmap(tmp_path / "large.npy", "w+", np.float16, (count, dimension))
    generator = np.random.default_rng(0)
    block = generator.normal(size=(50_000, dimension)).astype(np.float16)
    for start in range(0, count, 50_000):
        stored[start : start + 50_000] = block
        block = np.roll(block, 1, axis=1)
    stored.flush()
    del stored
    script = tmp_path / "limited.py"
    script.write_text(textwrap.dedent(LIMITED))
    command = [sys.executable, str(script), str(megabytes), str(tmp_path / "large.npy")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == fits, done.stderr
