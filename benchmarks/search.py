"""Queries per second and memory of the certified gallery, beside exact and approximate search elsewhere.

The 10 nearest of made unit vectors, clustered as embeddings are: 2,000 classes around centres. Every measurement is a
process of its own with one thread; contenders alternate, so that all run under the same load. Seconds are those of the
processor. Memory is the peak above what the process had before it opened the index, so vectors of the index count and
libraries do not. 'Equal' is the share of queries with exactly the neighbours of a scan in float64.

    python benchmarks/search.py --items 50000 --peers PEERS/bin/python
    python benchmarks/search.py --items 1000000 --peers PEERS/bin/python --rounds 1 --skip "faiss hnsw, rescored"

Peers run under the interpreter of an environment of their own: pip install numpy faiss-cpu usearch lancedb. One that is
not installed is named and skipped. faiss multiplies by OpenBLAS, which on virtual machines may not recognise the
processor: 'right kernel' sets OPENBLAS_CORETYPE.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from evaluation import RIGHT_KERNEL, memory, reset_memory

DIMENSION, CLASSES, K = 128, 2_000, 10
SINGLE = 20
"""Queries that are asked one by one."""
SMALL = 2_000
"""Items of the index that warms a library up."""
Search = Callable[[Any], Any]


def make_vectors(folder: Path, items: int, queries: int) -> None:
    """Unit vectors of classes around centres, and queries of the same classes."""
    draw = np.random.default_rng(0)
    centres = draw.standard_normal((CLASSES, DIMENSION), np.float32)
    for name, count in (("items", items), ("queries", queries)):
        vectors = draw.standard_normal((count, DIMENSION), np.float32)
        vectors += 0.7 * centres[draw.integers(CLASSES, size=count)]
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        np.save(folder / f"{name}.npy", vectors)


def make_gallery(folder: Path, vectors: Any) -> None:
    """A gallery of vectors, under a certificate of made classes."""
    import torch

    import equimetric as em

    torch.set_num_threads(1)
    draw = np.random.default_rng(1)
    labels = np.repeat(np.arange(40), 6)
    centres = draw.standard_normal((40, DIMENSION))
    known = (0.7 * centres[labels] + draw.standard_normal((240, DIMENSION))).astype(np.float32)
    gallery = em.Gallery.create(folder, em.Certificate.of(em.calibrate(known, labels, far=0.05)))
    gallery.add(vectors, [f"{number:08d}" for number in range(len(vectors))])


def open_gallery(folder: Path) -> Search:
    import equimetric as em

    gallery = em.Gallery.open(folder / "gallery")
    return lambda queries: [[int(match.id) for match in found] for found in gallery.search(queries, K)]


def open_float_gallery(folder: Path) -> Search:
    """As where the processor has no fast products of int8."""
    from equimetric.gallery import search

    search.multiplies_codes_fast = lambda: False  # type: ignore[assignment]
    return open_gallery(folder)


def open_numpy(folder: Path) -> Search:
    items = np.load(folder / "items.npy")

    def search(queries: Any) -> Any:
        similarity = queries @ items.T
        nearest = np.argpartition(-similarity, K, axis=1)[:, :K]
        order = np.argsort(-np.take_along_axis(similarity, nearest, 1), axis=1)
        return np.take_along_axis(nearest, order, 1).tolist()

    return search


def open_faiss_flat(folder: Path) -> Search:
    import faiss

    faiss.omp_set_num_threads(1)
    index = faiss.IndexFlatIP(DIMENSION)
    _add_in_pieces(index, folder)
    return lambda queries: index.search(queries, K)[1].tolist()


def open_faiss_hnsw(folder: Path) -> Search:
    """A graph, 8 neighbours for each that is wanted, scored again."""
    import faiss

    faiss.omp_set_num_threads(1)
    index = faiss.IndexHNSWFlat(DIMENSION, 32, faiss.METRIC_INNER_PRODUCT)
    _add_in_pieces(index, folder)
    index.hnsw.efSearch = 8 * K
    items = np.load(folder / "items.npy", mmap_mode="r")

    def search(queries: Any) -> Any:
        found = np.sort(index.search(queries, 8 * K)[1], axis=1)
        scores = np.einsum("qd,qkd->qk", queries, items[found])
        return np.take_along_axis(found, np.argsort(-scores, axis=1, kind="stable")[:, :K], 1).tolist()

    return search


def _add_in_pieces(index: Any, folder: Path) -> None:
    """So that only the copy of the index stays in memory."""
    items = np.load(folder / "items.npy", mmap_mode="r")
    for start in range(0, len(items), 50_000):
        index.add(np.array(items[start : start + 50_000]))


def open_usearch(folder: Path) -> Search:
    from usearch.index import MetricKind, search

    items = np.load(folder / "items.npy")
    return lambda queries: search(items, queries, K, MetricKind.IP, exact=True, threads=1).keys.tolist()


def open_lancedb(folder: Path) -> Search:
    import lancedb
    import pyarrow as pa

    items = np.load(folder / "items.npy", mmap_mode="r")
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.array(items).ravel()), DIMENSION)
    data = pa.table({"id": pa.array(range(len(items))), "vector": vectors})
    table = lancedb.connect(folder / "lance").create_table("items", data, mode="overwrite")

    def one(query: Any) -> list[int]:
        found = table.search(query).distance_type("dot").bypass_vector_index().limit(K).select(["id", "_distance"])
        return list(found.to_arrow().column("id").to_pylist())

    return lambda queries: [one(query) for query in queries]


OURS = {"gallery": open_gallery, "gallery, float32 scan": open_float_gallery}
PEERS: dict[str, Callable[[Path], Search]] = {
    "numpy": open_numpy,
    "faiss flat": open_faiss_flat,
    f"faiss flat{RIGHT_KERNEL}": open_faiss_flat,
    "faiss hnsw, rescored": open_faiss_hnsw,
    "usearch exact": open_usearch,
    "lancedb, no index": open_lancedb,
}
CONTENDERS = {**OURS, **PEERS}


def measure(name: str, folder: Path, results: Path) -> dict[str, Any]:
    """Opening, searching together and one by one, and memory of one contender, in this process."""
    if name in OURS:
        import torch

        torch.set_num_threads(1)
    try:
        CONTENDERS[name](folder / "small")(np.load(folder / "small" / "queries.npy"))
    except ImportError as error:
        return {"missing": str(error).splitlines()[0]}
    queries, before = np.load(folder / "queries.npy"), reset_memory()
    start = time.perf_counter()
    search = CONTENDERS[name](folder)
    opened = time.perf_counter() - start
    search(queries[:1])
    start = time.process_time()
    found = search(queries)
    together = time.process_time() - start
    start = time.process_time()
    for query in queries[:SINGLE]:
        search(query[None])
    single = time.process_time() - start
    peak = memory("VmHWM") - before
    results.write_text(json.dumps(found))
    return {"opened": opened, "together": len(queries) / together, "single": SINGLE / single, "megabytes": peak}


def measure_apart(name: str, folder: Path, peers: str) -> dict[str, Any]:
    """The same in a process of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    if name.endswith(RIGHT_KERNEL):
        environment["OPENBLAS_CORETYPE"] = "SkylakeX" if "avx512f" in Path("/proc/cpuinfo").read_text() else "Haswell"
    results = folder / "found.json"
    python = sys.executable if name in OURS else peers
    command = [python, __file__, "--measure", name, "--folder", str(folder), "--results", str(results)]
    finished = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if finished.returncode:
        return {"missing": finished.stderr.strip().splitlines()[-1]}
    measured = dict(json.loads(finished.stdout.splitlines()[-1]))
    print(f"{name}: {measured}", file=sys.stderr, flush=True)
    if "missing" not in measured:
        measured["found"] = json.loads(results.read_text())
    return measured


def exact_neighbours(folder: Path) -> list[list[int]]:
    """The nearest by a scan in float64."""
    items, queries = np.load(folder / "items.npy", mmap_mode="r"), np.load(folder / "queries.npy").astype(np.float64)
    scores = np.concatenate(
        [queries @ items[start : start + 20_000].astype(np.float64).T for start in range(0, len(items), 20_000)], axis=1
    )
    nearest = np.argpartition(-scores, K, axis=1)[:, :K]
    return [sorted(row) for row in nearest.tolist()]


def print_table(chosen: list[str], rounds: list[dict[str, dict[str, Any]]], exact: list[list[int]]) -> None:
    """Medians, and ratios within the rounds."""
    base = f"faiss flat{RIGHT_KERNEL}"
    print(f"{'':<26}{'queries/s':>10}{'÷ faiss':>9}{'one by one':>12}{'÷ faiss':>9}{'MB':>8}{'÷ faiss':>9}", end="")
    print(f"{'opened s':>10}{'equal':>8}")
    for name in chosen:
        taken = [one[name] for one in rounds]
        if "missing" in taken[0]:
            print(f"{name:<26}not run: {taken[0]['missing']}")
            continue
        print(f"{name:<26}", end="")
        for key, width in (("together", 10), ("single", 12), ("megabytes", 8)):
            print(f"{statistics.median(run[key] for run in taken):>{width}.0f}", end="")
            ratios = [one[name][key] / one[base][key] for one in rounds if key in one.get(base, {})]
            print(f"{statistics.median(ratios):>9.2f}" if ratios else " " * 9, end="")
        same = [sorted(row) == right for row, right in zip(taken[0]["found"], exact, strict=True)]
        print(f"{statistics.median(run['opened'] for run in taken):>10.3f}{np.mean(same):>8.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=50_000)
    parser.add_argument("--queries", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", default=sys.executable, help="interpreter of the environment of the peers")
    parser.add_argument("--skip", nargs="+", default=[], choices=CONTENDERS, metavar="CONTENDER")
    parser.add_argument("--measure", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--results", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.folder, options.results)))
        return

    chosen = [name for name in CONTENDERS if name not in options.skip]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "small").mkdir()
        for some, items, queries in ((folder, options.items, options.queries), (folder / "small", SMALL, 32)):
            make_vectors(some, items, queries)
            make_gallery(some / "gallery", np.load(some / "items.npy"))
        rounds = [{one: measure_apart(one, folder, options.peers) for one in chosen} for _ in range(options.rounds)]
        print(f"{options.items} × {DIMENSION}, {options.queries} queries, {K} nearest, {options.rounds} rounds")
        print_table(chosen, rounds, exact_neighbours(folder))


if __name__ == "__main__":
    main()
