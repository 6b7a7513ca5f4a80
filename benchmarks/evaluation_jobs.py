"""Evaluation in several processes, on embeddings that are mapped from a file.

Vectors of classes around centres are written to an .npy file in a temporary folder and evaluated from there, query =
gallery, or with --queries the first of them against all others. Every measurement is a process of its own; contenders
alternate, so that all run under the same load. Elapsed seconds and CPU seconds, of the process and its workers, are
medians over the rounds; memory is the peak of what is not a mapped file, of the process and of its largest worker. The
results of all contenders are compared bit for bit.

    python benchmarks/evaluation_jobs.py
    python benchmarks/evaluation_jobs.py --rows 1000000 --rounds 1 --only "one thread" "two processes"
    python benchmarks/evaluation_jobs.py --rows 1000000 --queries 16384 --rounds 2 --only "one thread" "two processes"
    python benchmarks/evaluation_jobs.py --tiles

With --tiles: the CPU time of a tile, 1,024 queries against 16,384 of the items, from which that of any number of rows
follows: see "Larger than memory, several processes" in docs/evaluation.md.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

CONTENDERS: dict[str, dict[str, Any]] = {
    "one thread": {"threads": 1},
    "two threads": {"threads": 2},
    "two processes": {"threads": 1, "jobs": 2},
    "ray, two tasks": {"threads": 1, "jobs": 2, "engine": "ray"},
}
METRICS = {"neighbours": "recall@1,map@r", "thresholds": "opis", "both": "recall@1,map@r,opis"}
IMAGES_PER_CLASS = 10
POLL_SECONDS = 0.1
TILE_ROWS, TILE_ITEMS = (1024, 4096), 2**19
BANDS = 2


def write_vectors(file: Path, rows: int, dimension: int, dtype: str) -> None:
    """Unit vectors of classes of ten, in random order."""
    generator = np.random.default_rng(0)
    stored = np.lib.format.open_memmap(file, "w+", dtype, (rows, dimension))
    labels = np.load(file.with_name("labels.npy"))
    for start in range(0, rows, 2**16):
        chunk = labels[start : start + 2**16]
        centres = np.stack([np.random.default_rng(label).normal(size=dimension) for label in chunk])
        vectors = 0.5 * centres + generator.normal(size=centres.shape)
        stored[start : start + 2**16] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    stored.flush()


def measure(folder: Path, metrics: str, options: dict[str, Any]) -> dict[str, Any]:
    """Evaluate once, in this process."""
    import torch

    from equimetric.evaluation import evaluate

    torch.set_num_threads(options.pop("threads"))
    queries = options.pop("queries")
    names = metrics.split(",")
    evaluate(np.random.default_rng(0).normal(size=(600, 8)), np.arange(600) % 60, metrics=names)  # loads the kernels
    vectors, labels = np.load(folder / "vectors.npy", mmap_mode="r"), np.load(folder / "labels.npy")
    sets = (vectors[:queries], labels[:queries], vectors[queries:], labels[queries:]) if queries else (vectors, labels)
    with watch_memory() as memory:
        cpu, wall = cpu_seconds(), time.perf_counter()
        result = evaluate(*sets, metrics=names, progress=True, **options)
        wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
    scores = {name: float(value).hex() for name, value in result.items()}
    return {"wall": wall, "cpu": cpu, "path": result.path, "found": scores, **memory}


def measure_tiles(folder: Path, metrics: str, block_rows: int) -> dict[str, Any]:
    """The CPU seconds of a tile, of some bands against all items; the first band loads the kernels."""
    import torch

    from equimetric.evaluation import evaluate
    from equimetric.evaluation.engine import plan

    times: list[float] = []
    plan.GATHERED_BYTES = 0  # as for more vectors than are gathered to compute every pair once

    def read_some_bands(task: Any, _: Any) -> None:
        advance = lambda tiles: None  # noqa: E731
        task.read(range(1), advance)
        bands = range(1, 1 + BANDS)
        start = time.process_time()
        task.read(bands, advance)
        times.append((time.process_time() - start) / task.plan.count_tiles(bands))
        raise KeyboardInterrupt

    torch.set_num_threads(1)
    sys.modules[evaluate.__module__].choose_runner = lambda jobs, engine: read_some_bands  # type: ignore[attr-defined]
    sets = np.load(folder / "vectors.npy", mmap_mode="r"), np.load(folder / "labels.npy")
    with watch_memory() as memory, suppress(KeyboardInterrupt):
        evaluate(*sets, metrics=metrics.split(","), block_rows=block_rows)
    return {"seconds": times[0], **memory}


def cpu_seconds() -> float:
    """CPU seconds of this process and of its finished children."""
    usages = (resource.getrusage(kind) for kind in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


@contextmanager
def watch_memory() -> Iterator[dict[str, float]]:
    """Track the peak megabytes, without mapped files, of this process from here on, and of its largest child."""
    memory, stop, before = dict.fromkeys(("own", "worker"), 0.0), threading.Event(), anonymous_megabytes(os.getpid())

    def watch() -> None:
        while not stop.wait(POLL_SECONDS):
            memory["own"] = max(memory["own"], anonymous_megabytes(os.getpid()) - before)
            children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
            memory["worker"] = max([memory["worker"], *(anonymous_megabytes(int(child)) for child in children)])

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield memory
    finally:
        stop.set()
        watcher.join()


def anonymous_megabytes(process: int) -> float:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon"))


def run(folder: Path, metrics: str, options: dict[str, Any] | int) -> dict[str, Any]:
    """Measure in a process of its own: an evaluation with some options, or tiles of a number of rows."""
    arguments = json.dumps([str(folder), metrics, options])
    threads = options["threads"] if isinstance(options, dict) else 1
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "RAY_USAGE_STATS_ENABLED": "0"}
    command = [sys.executable, __file__, "--measure", arguments]
    finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return json.loads(finished.stdout.splitlines()[-1])


def compare(folder: Path, args: argparse.Namespace, rows: int) -> None:
    only = args.only
    for kind in args.metrics:
        results_by_name: dict[str, list[dict[str, Any]]] = {name: [] for name in only}
        for _ in range(args.rounds):
            for name in only:
                results_by_name[name].append(run(folder, METRICS[kind], CONTENDERS[name] | {"queries": args.queries}))
        against = f"{args.queries:,} queries against the rest of " if args.queries else ""
        print(f"{against}{rows:,} rows, {METRICS[kind]} ({results_by_name[only[0]][0]['path']})")
        base_results = results_by_name[only[0]]
        print("  " + ", ".join(f"{metric} {bits}" for metric, bits in base_results[0]["found"].items()))
        for name, results in results_by_name.items():
            wall, cpu = (statistics.median(result[key] for result in results) for key in ("wall", "cpu"))
            ratios = [result["wall"] / base["wall"] for result, base in zip(results, base_results, strict=True)]
            identical = all(result["found"] == base_results[0]["found"] for result in results)
            process_mb, worker_mb = (max(result[key] for result in results) for key in ("own", "worker"))
            print(
                f"  {name:<16} {wall:8.1f} s  {cpu:8.1f} CPU s  {statistics.median(ratios):5.2f} × {only[0]}  "
                f"{process_mb:6.0f} MB{f' + {worker_mb:.0f} MB in a worker' if worker_mb else ''}  "
                f"{'same bits' if identical else 'OTHER RESULT'}",
                flush=True,
            )


def show_tiles(folder: Path, rows: int, dimension: int, rounds: int) -> None:
    for dtype in ("float32", "float16"):
        write_vectors(folder / "vectors.npy", rows, dimension, dtype)
        for kind, metrics in METRICS.items():
            for block_rows in TILE_ROWS if kind == "neighbours" else TILE_ROWS[:1]:
                results = [run(folder, metrics, block_rows) for _ in range(rounds)]
                times = [1000 * result["seconds"] for result in results]
                print(
                    f"{block_rows} queries × {2**24 // block_rows} of {rows:,} items, {dimension} dimensions, {dtype}, "
                    f"{metrics}: {statistics.median(times):.1f} ms a tile "
                    f"({', '.join(f'{milliseconds:.1f}' for milliseconds in times)}) "
                    f"and {max(result['own'] for result in results):.0f} MB",
                    flush=True,
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, help="by default 50,000")
    parser.add_argument(
        "--queries", type=int, default=0, help="how many rows are compared with the others; by default all"
    )
    parser.add_argument("--dimension", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=["one thread", "two threads", "two processes"], choices=CONTENDERS)
    parser.add_argument("--metrics", nargs="+", default=["neighbours", "thresholds"], choices=METRICS)
    parser.add_argument("--tiles", action="store_true", help="measure tiles instead")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        folder, metrics, options = json.loads(args.measure)
        function = measure if isinstance(options, dict) else measure_tiles
        print(json.dumps(function(Path(folder), metrics, options)))
        return
    rows = args.rows or (TILE_ITEMS if args.tiles else 50_000)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        labels = np.random.default_rng(1).permutation(np.arange(rows) // IMAGES_PER_CLASS)
        np.save(folder / "labels.npy", labels)
        if args.tiles:
            show_tiles(folder, rows, args.dimension, args.rounds)
            return
        write_vectors(folder / "vectors.npy", rows, args.dimension, "float32")
        compare(folder, args, rows)


if __name__ == "__main__":
    main()
