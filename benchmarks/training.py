"""The training loop beside its bare work, and beside a plain PyTorch loop with pytorch-metric-learning.

Bare work is forward, loss, backward and optimiser step on the same batches, which lie ready: what the loop adds to it
is drawing, indexing and preparing batches, learning rates, checks and logging. The plain loop is a DataLoader with the
peer's sampler and loss, and the same network, preparation and optimiser. All three take turns, step by step, in one
process; printed are medians, and medians of the ratios of neighbouring steps.

    python benchmarks/training.py
    python benchmarks/training.py --steps 200 --methods contrastive arcface --threads 2

Without pytorch-metric-learning (pip install "equimetric[peers]") only the bare work is compared.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from equimetric.configuration import load_config
from equimetric.data import Dataset
from equimetric.learners import Batch
from equimetric.runs.building import build_learner
from equimetric.runs.configuration import RunConfig
from equimetric.runs.data import load_run_data
from equimetric.runs.regimes import fit_to_data
from equimetric.runs.result import DataShape
from equimetric.training import train
from equimetric.training.optimizers import build_optimizer
from equimetric.training.sampling import build_run_batches
from objectives import median_ratio, peers

WARM_UP = 5

Step = Callable[[], None]


def bare_step(config: RunConfig, training: Dataset, shape: DataShape) -> Step:
    learner = build_learner(config, shape)
    optimizer = build_optimizer(learner, config.optimizer)
    ready = iter(
        [
            Batch(learner.prepare(training.images[chosen]), training.labels[chosen], chosen)
            for chosen in islice(build_run_batches(config, training.labels).stream(), config.training.steps)
        ]
    )
    learner.train()

    def step() -> None:
        batch = next(ready)
        losses = learner.losses(learner.outputs(batch), batch)
        optimizer.zero_grad()
        sum(losses.values()).backward()
        optimizer.step()

    return step


def plain_step(config: RunConfig, training: Dataset, shape: DataShape) -> Step:
    from pytorch_metric_learning import samplers
    from torch.utils.data import DataLoader, TensorDataset

    network = build_learner(config, shape).network
    loss_function, miner = peers()[config.method](shape.classes, config.model.dim)
    optimizer = torch.optim.AdamW(
        [
            {"params": network.parameters(), "lr": config.optimizer.lr, "weight_decay": config.optimizer.weight_decay},
            {"params": loss_function.parameters(), "lr": config.optimizer.objective_lr, "weight_decay": 0.0},
        ]
    )
    size = config.batch.classes * config.batch.samples
    sampler = samplers.MPerClassSampler(
        training.labels, m=config.batch.samples, batch_size=size, length_before_new_iter=10**5
    )
    stored = TensorDataset(training.images, training.labels)
    batches: Iterator[tuple[Tensor, Tensor]] = iter(DataLoader(stored, batch_size=size, sampler=sampler))
    network.train()

    def step() -> None:
        images, labels = next(batches)
        embeddings = network(images.to(torch.float32) / 127.5 - 1)
        pairs = miner(embeddings, labels) if miner else None
        loss = loss_function(embeddings, labels, pairs)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        loss.item()

    return step


def measure(method: str, steps: int, threads: int) -> dict[str, list[float]]:
    """Seconds of every step of each contender; the others take their steps in the progress callback of the loop."""
    config = load_config(
        {
            "method": method,
            "data": {"transform": "none"},
            "training": {"steps": steps + WARM_UP, "validate_every": steps + WARM_UP, "threads": threads},
        },
        RunConfig,
    )
    data = load_run_data(config.data)
    config = fit_to_data(config, data.shape)
    training = data.dataset.subset(data.split.train)
    steps_by_name = {"bare": bare_step(config, training, data.shape)}
    if method in peers():
        steps_by_name["peer"] = plain_step(config, training, data.shape)
    times: dict[str, list[float]] = {name: [] for name in ("ours", *steps_by_name)}
    step_start = time.perf_counter()

    def take_turns(step_index: int, _: object) -> None:
        nonlocal step_start
        times["ours"].append(time.perf_counter() - step_start)
        # In alternating order, so that none always follows the same one.
        for name, step in list(steps_by_name.items())[:: 1 if step_index % 2 else -1]:
            start = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - start)
        step_start = time.perf_counter()

    with tempfile.TemporaryDirectory() as folder:
        train(config, folder=Path(folder) / "run", progress=take_turns)
    # The first steps set things up, the last one ends in a validation.
    return {name: values[WARM_UP:-1] for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--methods", nargs="+", default=["contrastive", "multi_similarity_miner", "margin", "arcface"])
    args = parser.parse_args()
    print(f"small_cnn on glyphs, 32 × 4 images, {args.threads} threads, {args.steps} steps")
    print(f"{'method':<24}{'ms a step':>10}{'÷ bare':>9}{'peer ÷ ours':>13}")
    for method in args.methods:
        times = measure(method, args.steps, args.threads)
        row = f"{method:<24}{1000 * statistics.median(times['ours']):>10.2f}{median_ratio(times, 'ours', 'bare'):>9.3f}"
        print(row + (f"{median_ratio(times, 'peer', 'ours'):>13.2f}" if "peer" in times else ""), flush=True)


if __name__ == "__main__":
    main()
