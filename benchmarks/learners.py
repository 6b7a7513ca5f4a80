"""Time per epoch and memory of every learner beside the single one.

Rows and options are those of a study, by default results/learners/study.toml; every row passes the training images
through once per epoch, whatever the study gives it. Every measurement is a process of its own with one thread; rows
alternate. An epoch is its steps, what the learner does between epochs (clustering, say), and one validation: the CPU
time of a run of five epochs less that of a run of two, by three. Memory is what training adds to the peak of the
process. Printed are medians over the rounds, and ratios to the first row.

    python benchmarks/learners.py
    python benchmarks/learners.py --rounds 3 --rows Single "Naive ensemble" DiVA
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from equimetric.studies.rows import list_rows, run_config
from equimetric.studies.study_file import load_study_config
from equimetric.training import train

STUDY = Path(__file__).parent.parent / "results" / "learners" / "study.toml"
SHORT, LONG = 2, 5


def measure(study: Path, row: str, epochs: int, steps: int) -> dict[str, float]:
    """CPU seconds and added megabytes of one run of a row, and the cost from its result."""
    study_config = load_study_config(study)
    config = run_config(study_config, list_rows(study_config)[row], seed=0, fold=0)
    changed = config.model_dump()
    changed["training"] |= {"steps": epochs * steps, "validate_every": steps, "threads": 1}
    changed["optimizer"] |= {"warmup_steps": 0}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        cost = train(changed, folder=folder).result.cost
        seconds = time.process_time() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"seconds": seconds, "memory": memory / 1024, "passes": cost.forward_passes, "parameters": cost.parameters}


def measure_in_subprocess(study: Path, row: str, epochs: int, steps: int) -> dict[str, float]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--study", str(study), "--one", row, str(epochs), "--steps", str(steps)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    finished = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return json.loads(finished.stdout.splitlines()[-1])


def main() -> None:
    """Measure every row in turn and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", type=Path, default=STUDY)
    parser.add_argument("--rows", nargs="+", help="rows of the study; default: all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=31, help="steps of an epoch; glyphs have 31 batches of 128")
    parser.add_argument("--one", nargs=2, metavar=("ROW", "EPOCHS"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.study, args.one[0], int(args.one[1]), args.steps)))
        return
    all_rows = list_rows(load_study_config(args.study))
    rows = args.rows or [name for name, row in all_rows.items() if row.kind == "trained"]
    epochs: dict[str, list[float]] = {row: [] for row in rows}
    results: dict[str, dict[str, Any]] = {}
    for _ in range(args.rounds):
        for row in rows:
            short, long = (
                measure_in_subprocess(args.study, row, num_epochs, args.steps) for num_epochs in (SHORT, LONG)
            )
            epochs[row].append((long["seconds"] - short["seconds"]) / (LONG - SHORT))
            results[row] = long
    base = rows[0]
    print("| learner | passes to embed | parameters | s per epoch | ratio | MB | ratio |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for row in rows:
        ratio = statistics.median(
            row_time / base_time for row_time, base_time in zip(epochs[row], epochs[base], strict=True)
        )
        memory, parameters = results[row]["memory"], results[row]["parameters"]
        print(
            f"| {row} | {results[row]['passes']} | {parameters:,} | {statistics.median(epochs[row]):.2f} | {ratio:.2f} "
            f"| {memory:.0f} | {memory / results[base]['memory']:.2f} |"
        )


if __name__ == "__main__":
    main()
