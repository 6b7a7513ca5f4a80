"""Forward and backward of a classification loss over very many classes, all of them or a sampled share (Partial FC).

The floor is the product of the unit embeddings with as many class weights, forward and backward, alone. Memory is the
growth of the peak during a step, each in a process of its own; the class weights and their gradient are there before.

    python benchmarks/sampled_classes.py
    python benchmarks/sampled_classes.py --method cosface --batch 1024 --classes 1000000 --rates 0.3 0.1 0.01
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

import equimetric as em

Step = Callable[[], None]


def sampled_step(options: argparse.Namespace, rate: float) -> Step:
    torch.manual_seed(0)
    objective = em.objective(options.method, classes=options.classes, dim=options.dimension, sample_rate=rate)
    weight = objective.references.weight
    weight.grad = torch.zeros_like(weight)
    embeddings, labels = torch.randn(options.batch, options.dimension), torch.randint(options.classes, (options.batch,))
    return lambda: objective(embeddings.detach().requires_grad_(), labels).backward()


def floor_step(options: argparse.Namespace, rate: float) -> Step:
    columns = int(rate * options.classes)
    embeddings, weight = torch.randn(options.batch, options.dimension), torch.randn(columns, options.dimension)
    grad_output = torch.ones(options.batch, columns)
    return lambda: (embeddings.requires_grad_() @ weight.requires_grad_().T).backward(grad_output)


def fastest(step: Step, rounds: int = 3) -> float:
    """Milliseconds of the fastest of some rounds after a first."""
    step()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return 1000 * min(times)


def measure_memory(options: argparse.Namespace, rate: float) -> None:
    def status(field: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(field))

    step = sampled_step(options, rate)
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    step()
    print(json.dumps((status("VmHWM") - before) / 1024))


def peak_growth(rate: float) -> float:
    """MB by which the peak of a fresh process grows during one step."""
    # Large blocks go back to the system at once, so that the peak is that of live tensors.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    command = [sys.executable, *sys.argv, "--measure-memory", str(rate)]
    return float(json.loads(subprocess.run(command, capture_output=True, env=environment, check=True).stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="arcface")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--classes", type=int, default=200_000)
    parser.add_argument("--dimension", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rates", type=float, nargs="+", default=[1.0, 0.3, 0.1])
    parser.add_argument("--measure-memory", type=float, help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.measure_memory is not None:
        measure_memory(args, args.measure_memory)
        return
    print(f"{args.method}, B = {args.batch}, {args.classes} classes, d = {args.dimension}")
    print(f"{'rate':>8}{'ms':>10}{'× floor':>10}{'MB':>8}")
    for rate in args.rates:
        milliseconds, floor = fastest(sampled_step(args, rate)), fastest(floor_step(args, rate))
        print(f"{rate:>8g}{milliseconds:>10.0f}{milliseconds / floor:>10.2f}{peak_growth(rate):>8.0f}", flush=True)


if __name__ == "__main__":
    main()
