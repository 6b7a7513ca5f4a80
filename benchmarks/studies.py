"""Head trainings of a study beside the same training as a bare PyTorch loop, and with pytorch-metric-learning.

A training is a linear head of 1280 → 128 on frozen features, batches of 8 × 4 rows or more, 1,000 steps, a validation
every 100, the test at the end. Ours is a whole run, as a worker of a study executes it: data, building, checks, folder,
result. Whole trainings take turns in one process; printed are medians, and medians of the ratios of neighbours.
Machinery is what a run takes beside its steps, validations and test. Trainings per hour are counted with two processes
at work.

    python benchmarks/studies.py                                  # six methods on made-up features
    python benchmarks/studies.py --methods contrastive arcface --repeats 9 --optimizer rmsprop
    python benchmarks/studies.py --images labels.csv              # features of a frozen EfficientNet-Lite0
    python benchmarks/studies.py --clock cpu                      # where other processes are at work, too

Without pytorch-metric-learning (pip install "equimetric[peers]") only the bare loop is compared.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from equimetric.configuration import load_config
from equimetric.processes import SINGLE
from equimetric.runs.configuration import RunConfig
from equimetric.runs.run_cache import RunCache
from equimetric.threads import use_threads
from equimetric.training import completion, loop, train, train_trial, trials
from equimetric.training.session import Session, open_session
from objectives import peers
from plain_heads import BARE, Clock, Parts, Timing, train_bare, train_peer

FEATURES, DIM, CLASSES, IMAGES, BATCH_CLASSES = 1280, 128, 81, 67, 8
CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "cpu": time.process_time}


def write_features(folder: Path) -> Path:
    """Features of 81 classes with 67 images each, the even classes for training: a data set like grocery81."""
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(CLASSES), IMAGES)
    centres = generator.normal(size=(CLASSES, FEATURES))
    features = (centres[labels] + 4 * generator.normal(size=(len(labels), FEATURES))).astype(np.float32)
    split = np.where(labels % 2, "test", "train")
    np.savez(folder / "features.npz", features=features, labels=labels, split=split)
    return folder / "features.npz"


def configuration(
    method: str, data: dict[str, Any], model: dict[str, Any], batch: int, options: argparse.Namespace
) -> RunConfig:
    values = {
        "method": method,
        "data": data,
        "model": {"dim": DIM, **model},
        "batch": {"classes": BATCH_CLASSES, "samples": batch // BATCH_CLASSES},
        "optimizer": {"name": options.optimizer, "schedule": "constant"},
        "training": {"steps": options.steps, "validate_every": 100},
        "evaluation": {"metrics": ["map@r", "recall@1"]},
    }
    return load_config(values, RunConfig)


@dataclass
class StageTimer:
    """Seconds of a run spent in steps, validations and test, by a clock."""

    clock: Clock
    seconds: float = 0.0

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Time the work of a run inside the block, without checkpoints."""

        def timed(function: Any, sign: int) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                start = self.clock()
                try:
                    return function(*args, **kwargs)
                finally:
                    self.seconds += sign * (self.clock() - start)

            return call

        with ExitStack() as stack:
            for owner, name, sign in (
                (loop, "train_steps", 1),
                (completion, "evaluate_test", 1),
                (Session, "save", -1),
            ):
                stack.enter_context(mock.patch.object(owner, name, timed(getattr(owner, name), sign)))
            yield


def train_ours(config: RunConfig, cache: RunCache, folder: Path, clock: Clock) -> tuple[Timing, float]:
    """A run with the timing of its steps, and its share of overhead."""
    timing, timer, marks = Timing(), StageTimer(clock), [0.0]

    def progress(*_: object) -> None:
        marks.append(time.perf_counter())

    run_folder = Path(tempfile.mkdtemp(dir=folder))
    with timer.measure():
        start = clock()
        trained = train(config, folder=run_folder / "run", progress=progress, cache=cache)
        timing.whole = clock() - start
    every = config.training.validate_every
    # The first step of an epoch begins with a validation.
    timing.steps = [after - before for step, (before, after) in enumerate(pairwise(marks), 1) if step % every > 1]
    timing.scores = dict(trained.metrics)
    return timing, 1 - timer.seconds / timing.whole


def load_parts(config: RunConfig, cache: RunCache) -> tuple[Parts, dict[str, torch.Tensor]]:
    """Inputs of the other loops: features and labels by part, and the initial head of a run."""
    data = cache.data(config)
    session = open_session(config, trials.NULL_FOLDER, data, SINGLE, cache)
    eval_data = session.data
    parts = {
        part: (eval_data.images(part), eval_data.dataset.labels[eval_data.rows(part)])
        for part in ("validation", "test")
    }
    train_part = (session.train_data.images, session.train_data.labels)
    start = {name: values.clone() for name, values in session.learner.network.head.state_dict().items()}
    return Parts(train=train_part, **parts), start


@dataclass
class Row:
    """Measurements of a method."""

    ours: list[Timing] = field(default_factory=list)
    trials: list[float] = field(default_factory=list)
    bare: list[Timing] = field(default_factory=list)
    peer: list[Timing] = field(default_factory=list)
    overhead: list[float] = field(default_factory=list)

    def ratio(self, name: str, base: str) -> str:
        """The median of the ratios of neighbours, and their range."""
        ratios = [a.whole / b.whole for a, b in zip(getattr(self, name), getattr(self, base), strict=True)]
        return f"{statistics.median(ratios):.2f} [{min(ratios):.2f}–{max(ratios):.2f}]" if ratios else "nan"

    def step(self, name: str) -> float:
        return 1000 * statistics.median(statistics.median(timing.steps) for timing in getattr(self, name))

    def whole(self, name: str) -> float:
        return statistics.median(timing.whole for timing in getattr(self, name))


def measure(config: RunConfig, cache: RunCache, folder: Path, repeats: int, clock: Clock) -> Row:
    """Interleaved trainings: a run, the bare loop, a trial, the peer's loop."""
    row = Row()
    parts, start = load_parts(config, cache)
    with_peer = config.method in peers()
    for repeat in range(repeats + 1):
        timing, overhead = train_ours(config, cache, folder, clock)
        bare_timing = train_bare(config, parts, start, clock)
        start_time = clock()
        train_trial(config, cache=cache)
        trial_seconds = clock() - start_time
        peer = train_peer(config, parts, start, clock) if with_peer else None
        if repeat:  # the first ones set things up
            row.ours.append(timing)
            row.overhead.append(overhead)
            row.bare.append(bare_timing)
            row.trials.append(trial_seconds)
            row.peer += [] if peer is None else [peer]
    return row


def report(method: str, row: Row) -> str:
    cells = [
        f"{method:<24}",
        f"{row.step('ours'):>7.3f}{row.step('bare'):>7.3f}{row.step('peer') if row.peer else float('nan'):>7.3f}",
        f"{row.whole('ours'):>8.3f}{statistics.median(row.trials):>8.3f}{row.whole('bare'):>8.3f}",
        f"{row.whole('peer') if row.peer else float('nan'):>8.3f}",
        f"{row.ratio('ours', 'bare'):>20}{row.ratio('peer', 'ours') if row.peer else 'nan':>20}",
        f"{100 * statistics.median(row.overhead):>9.1f} %",
    ]
    return "".join(cells)


def count_per_hour(arguments: list[str], workers: int) -> tuple[float, float]:
    """Runs and trials per hour of some processes that work at the same time, each for half a minute."""
    command = [sys.executable, __file__, *arguments, "--work"]
    rates = []
    for kind in ("run", "trial"):
        processes = [subprocess.Popen([*command, kind], stdout=subprocess.PIPE, text=True) for _ in range(workers)]
        rates.append(sum(float(process.communicate()[0].split()[-1]) for process in processes))
    return rates[0], rates[1]


def work(kind: str, configs: list[RunConfig], folder: Path, clock: Clock, seconds: float = 30.0) -> float:
    """Trainings per hour of this process, method after method, without the first ones, which set things up."""
    cache, num_done, start = RunCache(), -len(configs), 0.0
    while True:
        for config in configs:
            if num_done == 0:
                start = clock()
            if kind == "trial":
                train_trial(config, cache=cache)
            else:
                train(config, folder=Path(tempfile.mkdtemp(dir=folder)) / "run", cache=cache)
            num_done += 1
            if num_done > 0 and clock() - start > seconds:
                return 3600 * num_done / (clock() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=list(BARE))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, nargs="+", default=[4 * BATCH_CLASSES], help="rows of 8 classes")
    parser.add_argument("--optimizer", default="adamw")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--images", help="a manifest of images, for features of a frozen EfficientNet-Lite0")
    parser.add_argument("--label", default="label")
    parser.add_argument("--split", default="split")
    parser.add_argument("--workers", type=int, default=2, help="processes of the count per hour; 0 leaves it out")
    parser.add_argument("--work", choices=("run", "trial"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as scratch, use_threads(1):
        folder = Path(scratch)
        if args.images is None:
            data: dict[str, Any] = {"name": "features", "options": {"file": str(write_features(folder))}}
            model: dict[str, Any] = {}
        else:
            data_options = {"file": args.images, "label": args.label, "split": args.split}
            data = {"name": "manifest", "options": data_options, "transform": "imagenet"}
            model = {"backbone": "efficientnet_lite0", "pretrained": "package", "frozen": True}
        configs = {
            batch: [configuration(method, data, model, batch, args) for method in args.methods] for batch in args.batch
        }
        if args.work:
            print(work(args.work, configs[args.batch[0]], folder, CLOCKS[args.clock]))
            return
        cache = RunCache()
        for batch, batch_configs in configs.items():
            size = f"{BATCH_CLASSES} × {batch // BATCH_CLASSES} rows"
            print(f"heads of 1280 → 128, {size}, {args.steps:,} steps, {args.optimizer}, {args.clock} time")
            print(f"{'':<24}{'ms a step':>14}{'':>7}{'s a training':>25}{'':>7}{'ratios: median [range]':>40}")
            print(
                f"{'method':<24}{'ours':>7}{'bare':>7}{'peer':>7}{'ours':>8}{'trial':>8}{'bare':>8}{'peer':>8}"
                f"{'÷ bare':>20}{'peer ÷':>20}{'machinery':>11}"
            )
            for config in batch_configs:
                row = measure(config, cache, folder, args.repeats, CLOCKS[args.clock])
                print(report(config.method, row), flush=True)
        if args.workers:
            arguments = [argument for argument in sys.argv[1:] if argument != "--work"]
            num_runs, num_trials = count_per_hour(arguments, args.workers)
            rates = f"{num_runs:,.0f} runs or {num_trials:,.0f} trials per hour of {args.clock} time"
            print(f"{args.workers} processes: {rates}")


if __name__ == "__main__":
    main()
