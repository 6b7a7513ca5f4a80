"""Cost of cohort normalisation, on one thread: ratios of CPU seconds, medians of interleaved rounds.

* statistics: mean and deviation of the 50 largest cosines of every sample to a cohort of 5,000, compared with the bare
  product of samples and cohort in blocks of the same size
* scan: `evaluate` on the extended vectors of the mean form, compared with the plain cosines; without the statistics

    python benchmarks/cohort.py
    python benchmarks/cohort.py --rounds 9 --shape 8131x512
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from equimetric.evaluation import Cohort, evaluate
from equimetric.evaluation.engine.cohort_statistics import BLOCK_BYTES, MIN_ROWS, CohortStatistics, cohort_statistics

SHAPES = ("8131x512", "20000x128")
COHORT, NEAREST = 5_000, 50
SCANS = {
    "retrieval": ["recall@1", "r_precision", "map@r"],
    "consistency": ["opis", "opis@10%"],
    "verification": ["tar@far=1e-2", "eer"],
}


def draw(items: int, dimension: int, classes: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(items) % classes
    centres = torch.nn.functional.normalize(torch.randn(classes, dimension, generator=generator))
    noise = torch.nn.functional.normalize(torch.randn(items, dimension, generator=generator))
    return torch.nn.functional.normalize(noise + 0.6 * centres[labels]), labels


def product(unit: torch.Tensor, cohort: torch.Tensor) -> None:
    """The bare product, in the blocks of `cohort_statistics`, into one reused tile."""
    step = max(MIN_ROWS, BLOCK_BYTES // (len(cohort) * unit.element_size()))
    tile = torch.empty(step, len(cohort))
    for start in range(0, len(unit), step):
        rows = unit[start : start + step]
        torch.mm(rows, cohort.T, out=tile[: len(rows)])


class PrecomputedCohort(Cohort):
    """A cohort with precomputed statistics, so that only the scan is timed."""

    precomputed: CohortStatistics

    def set_statistics(self, _: Any) -> tuple[CohortStatistics, CohortStatistics]:
        return self.precomputed, self.precomputed


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def compare(name: str, work: Callable[[], object], base: Callable[[], object], rounds: int) -> None:
    work(), base()
    pairs = [(seconds(work), seconds(base)) for _ in range(rounds)]
    ratio = statistics.median(work_time / base_time for work_time, base_time in pairs)
    work_median, base_median = (statistics.median(times) for times in zip(*pairs, strict=True))
    print(f"  {name:<20}{work_median:8.3f} s  against {base_median:8.3f} s   ratio {ratio:.3f}", flush=True)


def compare_shape(items: int, dimension: int, rounds: int) -> None:
    embeddings, labels = draw(items, dimension, items // 80, 0)
    cohort_vectors, _ = draw(COHORT, dimension, 100, 1)
    print(f"{items} × {dimension}, cohort of {COHORT}, the {NEAREST} nearest")
    measure = partial(cohort_statistics, embeddings, cohort_vectors, NEAREST)
    compare("statistics", measure, partial(product, embeddings, cohort_vectors), rounds)
    cohort = PrecomputedCohort(cohort_vectors, nearest=NEAREST)
    object.__setattr__(cohort, "precomputed", measure())
    for name, metrics in SCANS.items():
        run_plain = partial(evaluate, embeddings, labels, metrics=metrics, prefilter="none")
        compare(f"scan: {name}", partial(run_plain, cohort=cohort), run_plain, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", nargs="+", default=SHAPES)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for shape in args.shape:
        items, dimension = map(int, shape.split("x"))
        compare_shape(items, dimension, args.rounds)


if __name__ == "__main__":
    main()
