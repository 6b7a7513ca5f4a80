"""Cost of `evaluate`: CPU seconds and memory, compared with the bare matrix product and with other libraries.

Precision@1, R-precision and MAP@R of a trained space, query = gallery. Every measurement is a separate process with its
own peak memory; contenders alternate, so that all run under the same load. Memory excludes the embeddings and the
libraries. Ratios are medians over the rounds.

    python benchmarks/evaluation.py --shape cars
    python benchmarks/evaluation.py --shape products --rounds 1
    python benchmarks/evaluation.py --shape large --only product equimetric --rounds 1
    python benchmarks/evaluation.py --shape third --only "half product" "opis alone" "opis, all forms, noise"
    python benchmarks/evaluation.py --doubling --rounds 1

A library that is not installed is named and skipped. faiss multiplies by OpenBLAS, which on virtual machines may not
recognise the processor: 'pml+faiss, right kernel' sets OPENBLAS_CORETYPE.
"""

import argparse
import ctypes
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SHAPES = {
    "cars": (8_131, 512, 98),
    "products": (60_502, 512, 11_316),
    "third": (20_000, 512, 3_740),
    "large": (250_000, 512, 40_000),
    "15,000": (15_000, 512, 2_806),
    "30,000": (30_000, 512, 5_612),
    "60,000": (60_000, 512, 11_224),
}
DOUBLED = ("15,000", "30,000", "60,000")
RESULTS = ("precision@1", "r_precision", "map@r")
RIGHT_KERNEL = ", right kernel"


def space(shape: str, kind: str) -> tuple[Any, Any]:
    """Unit vectors: classes around centres, random vectors, or classes with a tenth of duplicates."""
    import torch

    items, dimension, classes = SHAPES[shape]
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(items) % classes
    embeddings = torch.randn(items, dimension, generator=generator)
    centres = torch.nn.functional.normalize(torch.randn(classes, dimension, generator=generator), dim=1)
    norms = embeddings.norm(dim=1, keepdim=True)
    for start in range(0, items, 4096):
        rows = slice(start, start + 4096)
        pull = 0.0 if kind == "random" else 0.35
        embeddings[rows] = torch.nn.functional.normalize(embeddings[rows] / norms[rows] + pull * centres[labels[rows]])
    if kind == "duplicates":
        copies = len(embeddings[::10])
        embeddings[::10] = embeddings[torch.randint(items, (copies,), generator=generator)]
    return embeddings, labels


def product(embeddings: Any, _: Any) -> None:
    """The bare product, in the blocks of `evaluate`, into one reused tile: faster than in one piece."""
    import torch

    tile = torch.empty(256, len(embeddings))
    for row in range(0, len(embeddings), 256):
        queries = embeddings[row : row + 256]
        for column in range(0, len(embeddings), 1024):
            columns = slice(column, column + 1024)
            torch.mm(queries, embeddings[columns].T, out=tile[: len(queries), columns])


def equimetric(embeddings: Any, labels: Any, **options: Any) -> dict[str, float]:
    from equimetric.evaluation import evaluate

    return dict(evaluate(embeddings, labels, metrics=RESULTS, **options))


def equimetric_with_ranks(embeddings: Any, labels: Any) -> dict[str, float]:
    from equimetric.evaluation import evaluate

    return dict(evaluate(embeddings, labels, metrics=[*RESULTS, "mrr", "map"]))


def equimetric_with_opis(embeddings: Any, labels: Any) -> dict[str, float]:
    from equimetric.evaluation import evaluate

    return dict(evaluate(embeddings, labels, metrics=[*RESULTS, "opis", "opis@10%"], calibration_points=1000))


def half_product(embeddings: Any, _: Any) -> None:
    """As `product`, each pair once: what metrics of pairs need within one set."""
    import torch

    tile = torch.empty(256, len(embeddings))
    for row in range(0, len(embeddings), 256):
        queries = embeddings[row : row + 256]
        for column in range(row, len(embeddings), 1024):
            columns = slice(column, min(column + 1024, len(embeddings)))
            torch.mm(queries, embeddings[columns].T, out=tile[: len(queries), columns])


OPIS = ("opis", "opis@10%")


def opis(embeddings: Any, labels: Any) -> dict[str, float]:
    """OPIS alone, at its default number of thresholds."""
    from equimetric.evaluation import evaluate

    return dict(evaluate(embeddings, labels, metrics=OPIS))


def opis_with_noise(embeddings: Any, labels: Any) -> dict[str, float]:
    """All forms of OPIS, and what sampling contributes to each."""
    from equimetric.evaluation import evaluate

    names = [name.replace("opis", form) for form in ("opis", "opis_far", "opis_frr") for name in (*OPIS, "opis_noise")]
    return dict(evaluate(embeddings, labels, metrics=names))


PASSES = 4


def centre_products(embeddings: Any, labels: Any) -> None:
    """The bare products of `PASSES` passes of k-means: all points with one centre per class."""
    import torch

    centres = embeddings[: int(labels.max()) + 1]
    tile = torch.empty(256, len(centres))
    for _ in range(PASSES):
        for row in range(0, len(embeddings), 256):
            queries = embeddings[row : row + 256]
            torch.mm(queries, centres.T, out=tile[: len(queries)])


def kmeans_passes(embeddings: Any, labels: Any) -> None:
    """As many passes of k-means as `centre_products` has: one for the seeds and one for each update."""
    import torch

    from equimetric.ops.kmeans import lloyd

    seeds = torch.randperm(len(embeddings), generator=torch.Generator().manual_seed(0))[: int(labels.max()) + 1]
    # One update takes two passes, before and after it, and never ends early.
    for _ in range(PASSES // 2):
        lloyd(embeddings, seeds, iterations=1, spherical=True)


def equimetric_bfloat16(embeddings: Any, labels: Any) -> dict[str, float]:
    return equimetric(embeddings, labels, prefilter="bfloat16")


def pytorch_metric_learning(embeddings: Any, labels: Any) -> dict[str, float]:
    import faiss  # noqa: F401  (without it the library fails later)
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    names = {"precision_at_1": "precision@1", "r_precision": "r_precision", "mean_average_precision_at_r": "map@r"}
    calculator = AccuracyCalculator(include=tuple(names), k="max_bin_count")
    scores = calculator.get_accuracy(embeddings, labels)
    return {names[name]: float(value) for name, value in scores.items()}


def torchmetrics(embeddings: Any, labels: Any) -> dict[str, float]:
    import torch
    from torchmetrics.functional.retrieval import (
        retrieval_average_precision,
        retrieval_precision,
        retrieval_r_precision,
    )

    sums = dict.fromkeys(RESULTS, 0.0)
    for start in range(0, len(labels), 256):
        similarity = embeddings[start : start + 256] @ embeddings.T
        for row, values in enumerate(similarity):
            not_self = torch.arange(len(labels)) != start + row
            values, target = values[not_self], labels[not_self] == labels[start + row]
            relevant = int(target.sum())
            sums["precision@1"] += float(retrieval_precision(values, target, top_k=1))
            sums["r_precision"] += float(retrieval_r_precision(values, target))
            # Its average precision divides by the relevant items found; MAP@R divides by all.
            precision = float(retrieval_precision(values, target, top_k=relevant))
            sums["map@r"] += float(retrieval_average_precision(values, target, top_k=relevant)) * precision
    return {name: total / len(labels) for name, total in sums.items()}


def open_metric_learning(embeddings: Any, labels: Any) -> dict[str, float]:
    """Its search, and CMC, precision and MAP at the largest R: it has neither R-precision nor MAP@R."""
    import torch
    from oml.functional.knn import batched_knn
    from oml.functional.metrics import calc_retrieval_metrics

    ids, deepest = torch.arange(len(labels)), int(labels.bincount().max()) - 1
    _, retrieved, relevant = batched_knn(embeddings, ids, ids, top_n=deepest, labels_gt=labels)
    scores = calc_retrieval_metrics(
        retrieved, relevant, cmc_top_k=(1,), precision_top_k=(deepest,), map_top_k=(deepest,), verbose=False
    )
    return {"precision@1": float(scores["cmc"][1])}


CONTENDERS: dict[str, Callable[[Any, Any], dict[str, float] | None]] = {
    "product": product,
    "equimetric": equimetric,
    "equimetric + mrr + map": equimetric_with_ranks,
    "equimetric + opis": equimetric_with_opis,
    "half product": half_product,
    "opis alone": opis,
    "opis, all forms, noise": opis_with_noise,
    "centre products": centre_products,
    "k-means passes": kmeans_passes,
    "equimetric, bfloat16 first": equimetric_bfloat16,
    "pml+faiss": pytorch_metric_learning,
    f"pml+faiss{RIGHT_KERNEL}": pytorch_metric_learning,
    "open-metric-learning": open_metric_learning,
    "torchmetrics": torchmetrics,
}
COMPARED_WITH = {
    "centre products": "centre products",
    "k-means passes": "centre products",
    "opis alone": "half product",
    "opis, all forms, noise": "opis alone",
}
"""Base of the ratio column, where it is not the product of all pairs."""
QUERY_BY_QUERY = ("torchmetrics",)
"""These sort every row in full: only for the small shape, unless named."""


def measure(name: str, shape: str, kind: str, threads: int) -> dict[str, Any]:
    """CPU seconds, elapsed seconds and memory of one contender, in this process."""
    import torch

    torch.set_num_threads(threads)
    small = torch.nn.functional.normalize(torch.randn(600, 512), dim=1), torch.arange(600) % 60
    try:
        CONTENDERS[name](*small)  # the first call imports and loads the kernels
    except ImportError as error:
        return {"missing": str(error).splitlines()[0]}
    embeddings, labels = space(shape, kind)
    before = reset_memory()
    cpu, wall = time.process_time(), time.perf_counter()
    scores = CONTENDERS[name](embeddings, labels)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {"cpu": cpu, "wall": wall, "megabytes": memory("VmHWM") - before, "found": scores}


def reset_memory() -> float:
    """Return free memory and reset the peak; the megabytes in use."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


def memory(name: str) -> float:
    """Megabytes of this process under a name of Linux's /proc/self/status."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024


def measure_in_subprocess(name: str, shape: str, kind: str, threads: int) -> dict[str, Any]:
    """The same in a separate process."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
    if name.endswith(RIGHT_KERNEL):
        flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
        environment["OPENBLAS_CORETYPE"] = "SkylakeX" if "avx512f" in flags else "Haswell"
    command = [sys.executable, __file__, "--measure", name, "--shape", shape, "--space", kind]
    command += ["--threads", str(threads)]
    finished = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if finished.returncode:
        return {"missing": finished.stderr.strip().splitlines()[-1]}
    return dict(json.loads(finished.stdout.splitlines()[-1]))


def print_doubling(name: str, kind: str, threads: int, rounds: int) -> None:
    """Print the growth of time and memory as the set doubles twice."""
    print(f"{name}, {kind}, {threads} threads, {rounds} rounds")
    print(f"{'':<12}{'CPU s':>9}{'×':>7}{'MB':>8}{'×':>7}")
    previous: tuple[float, float] | None = None
    for shape in DOUBLED:
        results = [measure_in_subprocess(name, shape, kind, threads) for _ in range(rounds)]
        if "missing" in results[0]:
            print(f"{shape:<12}not run: {results[0]['missing']}")
            return
        cpu, megabytes = (statistics.median(run[key] for run in results) for key in ("cpu", "megabytes"))
        print(f"{shape:<12}{cpu:>9.2f}", f"{cpu / previous[0]:>6.2f}" if previous else " " * 6, end="")
        print(f"{megabytes:>8.0f}", f"{megabytes / previous[1]:>6.2f}" if previous else "")
        previous = cpu, megabytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="cars")
    parser.add_argument("--space", choices=["trained", "random", "duplicates"], default="trained")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, metavar="CONTENDER")
    parser.add_argument("--doubling", action="store_true", help="cost of doubling the set, for each of --only")
    parser.add_argument("--measure", choices=CONTENDERS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args.measure, args.shape, args.space, args.threads)))
        return

    if args.doubling:
        for name in args.only or ["equimetric"]:
            print_doubling(name, args.space, args.threads, args.rounds)
        return

    items, dimension, classes = SHAPES[args.shape]
    chosen = args.only or [name for name in CONTENDERS if args.shape == "cars" or name not in QUERY_BY_QUERY]
    rounds = [
        {name: measure_in_subprocess(name, args.shape, args.space, args.threads) for name in chosen}
        for _ in range(args.rounds)
    ]
    print(f"{items} × {dimension}, {classes} classes, {args.space}, {args.threads} threads, {args.rounds} rounds")
    print(f"{'':<28}{'CPU s':>9}{'s':>9}{'MB':>8}{'× product':>11}{'÷ equimetric':>14}")
    for name in chosen:
        results = [round_results[name] for round_results in rounds]
        if "missing" in results[0]:
            print(f"{name:<28}not run: {results[0]['missing']}")
            continue
        cpu, wall, megabytes = (statistics.median(run[key] for run in results) for key in ("cpu", "wall", "megabytes"))
        print(f"{name:<28}{cpu:>9.2f}{wall:>9.2f}{megabytes:>8.0f}", end="")
        for base, width in ((COMPARED_WITH.get(name, "product"), 11), ("equimetric", 14)):
            ratios = [
                round_results[name]["cpu"] / round_results[base]["cpu"]
                for round_results in rounds
                if "cpu" in round_results.get(base, {})
            ]
            print(f"{statistics.median(ratios):>{width}.2f}" if ratios else " " * width, end="")
        scores = results[0]["found"]
        print("   " + " ".join(f"{scores[key]:.6f}" for key in RESULTS if key in scores) if scores else "")


if __name__ == "__main__":
    main()
