"""Queries per second and memory of the certified gallery, beside exact and approximate search elsewhere.

The 10 nearest of made unit vectors, clustered as embeddings are: 2,000 classes around centres. Every measurement is a
process of its own with one thread, which opens an index that was written before; contenders alternate, so that all run
under the same load. Queries come alone, or 16, 512, 1,000 or 10,000 at a time; rates are those of the median call, by
time of the processor, so that other work on the machine counts as little as possible; `--elapsed` takes the time that
passes. Memory is what the process has after its searches, and at its peak, above what it had before it opened the
index, so vectors of the index count and libraries do not. 'Equal' is the share of queries with exactly the neighbours
of a scan in float64.

    python benchmarks/search.py --peers PEERS/bin/python OLDER/bin/python
    python benchmarks/search.py --items 1000000 --batches 1 16 512 --peers PEERS/bin/python --rounds 1 --indexes FOLDER

Peers run under interpreters of environments of their own: pip install numpy faiss-cpu usearch lancedb, and for the
second one numpy faiss-cpu==1.13.2, the last release built by other hands. One that is not installed is named and
skipped. Each faiss is measured at its best: with its scan and with matrix products, of which the installed one chooses
by a threshold (1.15 multiplies from 128,000 numbers of queries on, 1.13 from 20 queries), with its code for AVX-512 and
for AVX2, and with the right kernel of OpenBLAS, which on virtual machines may not recognise the processor. 'as
installed' changes none of these. Ratios are to the fastest of faiss and NumPy for each number of queries in each round.

'AVX2' keeps every library to the instructions of processors without AVX-512 and VNNI, 'floats' the gallery to float32
vectors. `--indexes` keeps what was written: a graph of a million vectors takes minutes.
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

from evaluation import memory, reset_memory

DIMENSION, CLASSES, K = 128, 2_000, 10
BATCHES = (1, 16, 512, 1_000, 10_000)
CALLS, CALL_SECONDS = 20, 1.0
"""Calls of one batch size end with these, or after this time, but not before the first."""
SCAN_BATCH = 512
"""A scan takes every query by itself: with more queries its rate stays."""
NUMPY_CHUNK_SIZE = 64
"""Queries per product of NumPy, which holds all their similarities in memory."""
SMALL = 2_000
"""Items of the warm-up index."""
COMPARED = 128
"""Queries whose neighbours are compared with those of a scan in float64."""
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
    calibration_vectors = (0.7 * centres[labels] + draw.standard_normal((240, DIMENSION))).astype(np.float32)
    gallery = em.Gallery.create(
        folder, em.Certificate.from_calibration(em.calibrate(calibration_vectors, labels, far=0.05))
    )
    gallery.add(vectors, [f"{index:08d}" for index in range(len(vectors))])


def open_gallery(folder: Path, name: str = "gallery") -> Search:
    import equimetric as em

    gallery = em.Gallery.open(folder / name)
    return lambda queries: [[int(match.id) for match in matches] for matches in gallery.search(queries, K)]


def open_float_gallery(folder: Path) -> Search:
    """The gallery with float32 products, as on machines where products of codes are not faster."""
    from equimetric.gallery import search

    search.max_query_code = lambda: None  # type: ignore[assignment]
    search.choose_single_kernel = lambda largest, columns: "floats"
    return open_gallery(folder)


def write_lance_gallery(folder: Path) -> None:
    import equimetric as em

    em.Gallery.open(folder / "gallery").save(folder / "lance.gallery", store="lancedb")


def open_lance_gallery(folder: Path) -> Search:
    return open_gallery(folder, "lance.gallery")


def open_numpy(folder: Path) -> Search:
    items = np.load(folder / "items.npy")

    def search(queries: Any) -> Any:
        similarity = queries @ items.T
        nearest = np.argpartition(-similarity, K, axis=1)[:, :K]
        order = np.argsort(-np.take_along_axis(similarity, nearest, 1), axis=1)
        return np.take_along_axis(nearest, order, 1).tolist()

    return lambda queries: [
        row
        for start in range(0, len(queries), NUMPY_CHUNK_SIZE)
        for row in search(queries[start : start + NUMPY_CHUNK_SIZE])
    ]


def write_faiss(folder: Path, file: str) -> None:
    import faiss

    index = faiss.index_factory(DIMENSION, file, faiss.METRIC_INNER_PRODUCT)
    index.add(np.load(folder / "items.npy"))
    faiss.write_index(index, str(folder / file))


def open_faiss(folder: Path, blas_threshold: int | None = None) -> Search:
    """The flat index, whose threshold between its scan and matrix products may be set."""
    import faiss

    faiss.omp_set_num_threads(1)
    if blas_threshold is not None:
        faiss.cvar.distance_compute_blas_threshold = blas_threshold
    index = faiss.IndexFlatIP(DIMENSION)
    index.add(np.load(folder / "items.npy", mmap_mode="r"))
    return lambda queries: index.search(queries, K)[1].tolist()


def open_faiss_scan(folder: Path) -> Search:
    return open_faiss(folder, 2**30)


def open_faiss_products(folder: Path) -> Search:
    return open_faiss(folder, 0)


def open_faiss_hnsw(folder: Path) -> Search:
    """A graph search for 8 K neighbours, scored again."""
    import faiss

    faiss.omp_set_num_threads(1)
    index = faiss.read_index(str(folder / "HNSW32"))
    index.hnsw.efSearch = 8 * K
    items = np.load(folder / "items.npy", mmap_mode="r")

    def search(queries: Any) -> Any:
        nearest = np.sort(index.search(queries, 8 * K)[1], axis=1)
        scores = np.einsum("qd,qkd->qk", queries, items[nearest])
        return np.take_along_axis(nearest, np.argsort(-scores, axis=1, kind="stable")[:, :K], 1).tolist()

    return search


def open_usearch(folder: Path) -> Search:
    from usearch.index import MetricKind, search

    items = np.load(folder / "items.npy")
    return lambda queries: np.atleast_2d(search(items, queries, K, MetricKind.IP, exact=True, threads=1).keys).tolist()


def write_lancedb(folder: Path) -> None:
    import lancedb
    import pyarrow as pa

    items = np.load(folder / "items.npy")
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(items.ravel()), DIMENSION)
    data = pa.table({"id": pa.array(range(len(items))), "vector": vectors})
    lancedb.connect(folder / "lance").create_table("items", data)


def open_lancedb(folder: Path) -> Search:
    import lancedb

    table = lancedb.connect(folder / "lance").open_table("items")

    def search_one(query: Any) -> list[int]:
        results = table.search(query).distance_type("dot").bypass_vector_index().limit(K).select(["id", "_distance"])
        return list(results.to_arrow().column("id").to_pylist())

    return lambda queries: [search_one(query) for query in queries]


AVX2 = ", AVX2"
LIBRARIES_AVX2 = {
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
    "FAISS_SIMD_LEVEL": "AVX2",
    "FAISS_OPT_LEVEL": "AVX2",
}
CODE_AVX2 = ", AVX2 code"
"""faiss itself by its code for AVX2, which can be faster, while OpenBLAS keeps AVX-512."""
OLDER = "older faiss"
OURS = {
    "gallery": open_gallery,
    f"gallery{AVX2}": open_gallery,
    "gallery, floats": open_float_gallery,
    "gallery in LanceDB": open_lance_gallery,
}
FAISS: dict[str, Callable[[Path], Search]] = {
    f"{build} {kind}{code}": opened
    for build in ("faiss", OLDER)
    for kind, opened in (("scan", open_faiss_scan), ("products", open_faiss_products))
    for code in ("", CODE_AVX2, AVX2)
    # Products are of OpenBLAS, whichever code faiss itself has.
    if (kind, code) != ("products", CODE_AVX2)
}
PEERS: dict[str, Callable[[Path], Search]] = {
    "numpy": open_numpy,
    f"numpy{AVX2}": open_numpy,
    **FAISS,
    "faiss as installed": open_faiss,
    "faiss hnsw, rescored": open_faiss_hnsw,
    "usearch exact": open_usearch,
    "lancedb, no index": open_lancedb,
}
EXACT_PEERS = ("numpy", f"numpy{AVX2}", *FAISS)
CONTENDERS = {**OURS, **PEERS}
WRITERS: dict[str, Callable[[Path], None]] = {
    "faiss hnsw, rescored": lambda folder: write_faiss(folder, "HNSW32"),
    "lancedb, no index": write_lancedb,
    "gallery in LanceDB": write_lance_gallery,
}
ONE_BY_ONE = ("lancedb, no index", "gallery in LanceDB")
"""Contenders that take one query per call."""


def measure(name: str, folder: Path, batches: list[int], results: Path) -> dict[str, Any]:
    """Opening, searching in batches of all sizes, and memory of one contender, in this process."""
    if name in OURS:
        import torch

        torch.set_num_threads(1)
    # Libraries take memory of their own at their first calls.
    warm_up = CONTENDERS[name](folder / "small")
    for size in (1, 16, SMALL):
        warm_up(np.load(folder / "small" / "queries.npy")[:size])
    queries, before = np.load(folder / "queries.npy"), reset_memory()
    start = time.perf_counter()
    search = CONTENDERS[name](folder)
    opened = time.perf_counter() - start
    search(queries[:1])
    rates: dict[str, dict[str, float]] = {"cpu": {}, "elapsed": {}}
    for size in batches[:1] if name in ONE_BY_ONE else batches:
        if " scan" in name and size > SCAN_BATCH:
            break
        times: list[tuple[float, float]] = []
        while not times or (sum(cpu for cpu, _ in times) < CALL_SECONDS and len(times) < CALLS):
            times.append(_time(search, queries[_rows(len(times), size, len(queries))]))
        for clock, seconds in zip(rates, zip(*times, strict=True), strict=True):
            rates[clock][str(size)] = size / statistics.median(seconds)
    resident, peak = memory("VmRSS") - before, memory("VmHWM") - before
    results.write_text(json.dumps(search(queries[:COMPARED])))
    return {"opened": opened, **rates, "resident": resident, "peak": peak}


def _rows(call: int, size: int, queries: int) -> slice:
    """The queries of a call: different ones from call to call, where there are enough."""
    start = call * size % (queries - size + 1)
    return slice(start, start + size)


def _time(search: Search, queries: Any) -> tuple[float, float]:
    """CPU seconds and elapsed seconds."""
    passed, start = time.perf_counter(), time.process_time()
    search(queries)
    return time.process_time() - start, time.perf_counter() - passed


def run_in_subprocess(name: str, folder: Path, peers: list[str], task: str, *arguments: str) -> Any:
    """The JSON output of a contender's task in a separate process, or {"missing": reason} where it fails."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    if name in EXACT_PEERS:
        environment["OPENBLAS_CORETYPE"] = "SkylakeX" if "avx512f" in Path("/proc/cpuinfo").read_text() else "Haswell"
    if name.endswith(CODE_AVX2):
        environment |= {"FAISS_SIMD_LEVEL": "AVX2", "FAISS_OPT_LEVEL": "AVX2"}
    if name.endswith(AVX2):
        environment |= LIBRARIES_AVX2
    if name.startswith(OLDER) and len(peers) < 2:
        return {"missing": "no interpreter with an older faiss was given"}
    python = sys.executable if name in OURS else peers[name.startswith(OLDER)]
    command = [python, __file__, task, name, "--folder", str(folder), *arguments]
    finished = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if finished.returncode:
        return {"missing": finished.stderr.strip().splitlines()[-1]}
    return json.loads(finished.stdout.splitlines()[-1])


def write_indexes(folder: Path, items: int, queries: int, chosen: list[str], peers: list[str]) -> None:
    """Write vectors and the indexes of all contenders; existing ones are kept."""
    seconds_file = folder / "written.json"
    seconds = json.loads(seconds_file.read_text()) if seconds_file.exists() else {}
    for name in ["vectors", "gallery", *(writer for writer in WRITERS if writer in chosen)]:
        if name in seconds:
            continue
        start = time.perf_counter()
        if name == "vectors":
            folder.mkdir(parents=True, exist_ok=True)
            make_vectors(folder, items, queries)
        elif name == "gallery":
            make_gallery(folder / "gallery", np.load(folder / "items.npy"))
        elif "missing" in run_in_subprocess(name, folder, peers, "--write"):
            continue
        seconds[name] = round(time.perf_counter() - start, 1)
        print(f"{name} of {items}: written in {seconds[name]} s", file=sys.stderr)
        seconds_file.write_text(json.dumps(seconds))


def measure_in_subprocess(name: str, folder: Path, peers: list[str], batches: list[int]) -> dict[str, Any]:
    """The measurements of a contender, and the neighbours that it finds."""
    results, sizes = folder / "found.json", map(str, batches)
    result = dict(run_in_subprocess(name, folder, peers, "--measure", "--results", str(results), "--batches", *sizes))
    print(f"{name}: {result}", file=sys.stderr, flush=True)
    if "missing" not in result:
        result["found"] = json.loads(results.read_text())
    return result


def exact_neighbours(folder: Path, count: int = COMPARED) -> list[list[int]]:
    """The nearest by a scan in float64, sorted by number."""
    items = np.load(folder / "items.npy", mmap_mode="r")
    queries = np.load(folder / "queries.npy")[:count].astype(np.float64)
    best, scores = np.empty((len(queries), 0), np.int64), np.empty((len(queries), 0))
    for start in range(0, len(items), 20_000):
        chunk = items[start : start + 20_000].astype(np.float64)
        scores = np.concatenate([scores, queries @ chunk.T], axis=1)
        best = np.concatenate([best, np.tile(np.arange(start, start + len(chunk)), (len(queries), 1))], axis=1)
        nearest = np.argpartition(-scores, K, axis=1)[:, :K]
        scores, best = np.take_along_axis(scores, nearest, 1), np.take_along_axis(best, nearest, 1)
    return [sorted(row) for row in best.tolist()]


Round = dict[str, dict[str, Any]]


def fastest_peer(results: Round, clock: str, size: str, avx2: bool) -> float | None:
    """The highest rate of exact peers in a round; with AVX2 alone, of those that were kept to it."""
    names = [name for name in EXACT_PEERS if name.endswith(AVX2) or not avx2]
    rates = [rate for name in names if (rate := rate_of(results, name, clock, size)) is not None]
    return max(rates, default=None)


def rate_of(results: Round, name: str, clock: str, size: str) -> float | None:
    """Queries per second of a contender in a round; None where it did not run."""
    value = results.get(name, {}).get(clock, {}).get(size)
    return None if value is None else float(value)


def print_table(chosen: list[str], rounds: list[Round], exact: list[list[int]], clock: str, sizes: list[str]) -> None:
    """Median rates with their range over the rounds, memory, and the share of exact answers."""
    print("queries/s at a time:      " + "".join(f"{size:>22}" for size in sizes), end="")
    print(f"{'MB':>7}{'peak MB':>9}{'opened s':>10}{'equal':>8}")
    for name in chosen:
        results = [round_results[name] for round_results in rounds]
        reason = next((result["missing"] for result in results if "missing" in result), None)
        if reason is not None:
            print(f"{name:<28}not run: {reason}")
            continue
        print(f"{name:<26}", end="")
        for size in sizes:
            rates = [rate for run in rounds if (rate := rate_of(run, name, clock, size)) is not None]
            text = f"{statistics.median(rates):,.0f} [{min(rates):,.0f}–{max(rates):,.0f}]" if rates else ""
            print(f"{text:>22}", end="")
        resident, peak, opened = (
            statistics.median(run[value] for run in results) for value in ("resident", "peak", "opened")
        )
        equal = [sorted(row) == exact_row for row, exact_row in zip(results[0]["found"], exact, strict=True)]
        print(f"{resident:>7.0f}{peak:>9.0f}{opened:>10.4f}{np.mean(equal):>8.1%}")


def print_ratios(rounds: list[Round], clock: str, sizes: list[str]) -> None:
    """The rates of our contenders as multiples of the fastest exact peer's: medians over rounds, and the range."""
    for name in ("gallery", f"gallery{AVX2}", "gallery, floats"):
        print(f"{name + ' ÷ fastest peer':<32}", end="")
        for size in sizes:
            pairs = [
                (rate_of(run, name, clock, size), fastest_peer(run, clock, size, name.endswith(AVX2))) for run in rounds
            ]
            ratios = [ours / peer for ours, peer in pairs if ours is not None and peer is not None]
            text = f"{statistics.median(ratios):.2f} [{min(ratios):.2f}–{max(ratios):.2f}]" if ratios else ""
            print(f"{text:>20}", end="")
        print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=50_000)
    parser.add_argument("--batches", type=int, nargs="+", default=list(BATCHES), help="queries at a time")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--peers", nargs="+", default=[sys.executable], help="interpreters of the peers, and of an older faiss"
    )
    parser.add_argument("--skip", nargs="+", default=[], choices=CONTENDERS, metavar="CONTENDER")
    parser.add_argument("--indexes", type=Path, help="folder in which indexes are written once, and kept")
    parser.add_argument("--elapsed", action="store_true", help="rates by the time that passes")
    parser.add_argument("--measure", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("--write", choices=WRITERS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--results", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args.measure, args.folder, args.batches, args.results)))
        return
    if args.write:
        WRITERS[args.write](args.folder)
        print(json.dumps({}))
        return

    chosen = [name for name in CONTENDERS if name not in args.skip]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) if args.indexes is None else args.indexes / str(args.items)
        write_indexes(folder, args.items, max(BATCHES), chosen, args.peers)
        write_indexes(folder / "small", SMALL, SMALL, chosen, args.peers)
        rounds = [
            {contender: measure_in_subprocess(contender, folder, args.peers, args.batches) for contender in chosen}
            for _ in range(args.rounds)
        ]
        clock, sizes = "elapsed" if args.elapsed else "cpu", list(map(str, args.batches))
        print(f"{args.items} × {DIMENSION}, {K} nearest, {args.rounds} rounds, by {clock} time: medians [range]")
        print_table(chosen, rounds, exact_neighbours(folder), clock, sizes)
        print_ratios(rounds, clock, sizes)


if __name__ == "__main__":
    main()
