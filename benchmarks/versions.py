"""Two versions of the package side by side: how much slower or larger is the new one?

One process per version stays alive; for every row they take turns in short rounds, so that both see the same machine.
Printed are the ratios new / old of the median CPU times, of the least ones, which other load disturbs less, and of the
peak memory of a step, measured in processes of their own. Only public functions are called, so that versions with
other modules inside can be compared. `--count` adds the ratios of the numbers of operations that torch dispatches and
of the numbers that these write, which do not depend on the machine.

    python benchmarks/versions.py ../old/src src
    python benchmarks/versions.py ../old/src src --rows triplet evaluate --batch 512 --rounds 15
    python benchmarks/versions.py ../old/src src --batch 2048 --dimension 512 --memory
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import chain, combinations
from pathlib import Path
from typing import Any

ROWS = [
    *("contrastive", "triplet", "triplet_semihard", "triplet_batch_hard", "margin", "multi_similarity"),
    *("multi_similarity_miner", "circle", "supcon", "ntxent", "lifted", "lifted_generalized", "tuplet_margin"),
    *("ranked_list", "angular", "fastap", "smooth_ap", "histogram", "snr_contrastive", "tcm", "intra_pair_variance"),
    *("npairs", "normalized_softmax", "proxy_nca_plus_plus", "proxy_anchor", "arcface", "cosface", "sphereface"),
    *("softtriple", "subcenter_arcface", "contrastive_cosine", "evaluate"),
]
"""The methods of benchmarks/objectives.py, and `evaluate` of as many embeddings."""

SAMPLES = 4
ROUND = 0.02
"""Minimum CPU seconds of one round."""


def batch(size: int, dimension: int) -> tuple[Any, Any]:
    """A half-trained space: classes of four, neither collapsed nor random; in no order."""
    import torch

    generator = torch.Generator().manual_seed(0)
    classes = max(2, size // SAMPLES)
    labels = (torch.arange(size) % classes)[torch.randperm(size, generator=generator)]
    centres = torch.randn(classes, dimension, generator=generator)
    return centres[labels] + 1.2 * torch.randn(size, dimension, generator=generator), labels


def make_step(row: str, size: int, dimension: int) -> Callable[[], None]:
    """Forward and backward of a method, or an evaluation."""
    import torch

    import equimetric as em

    torch.manual_seed(0)
    embeddings, labels = batch(size, dimension)
    if row == "evaluate":
        return lambda: em.evaluate(embeddings, labels) and None
    candidates = {"classes": int(labels.max()) + 1, "dim": dimension}
    for names in chain.from_iterable(combinations(candidates, num_options) for num_options in range(3)):
        try:
            objective = em.objective(row, **{name: candidates[name] for name in names})
            break
        except em.EquimetricError as error:
            reason = error
    else:
        raise reason

    def step() -> None:
        leaf = embeddings.detach().requires_grad_()
        objective(leaf, labels).backward()

    return step


def count(step: Callable[[], None]) -> tuple[int, int]:
    """Operations that torch dispatches in a step, and the numbers that they write."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counter(TorchDispatchMode):
        calls = written = 0

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            self.calls += 1
            # Views write nothing.
            if not getattr(function, "is_view", False):
                outputs = result if isinstance(result, tuple | list) else (result,)
                self.written += sum(output.numel() for output in outputs if isinstance(output, torch.Tensor))
            return result

    with Counter() as counter:
        step()
    return counter.calls, counter.written


def serve() -> None:
    """Answer requests on stdin: a row to prepare, a number of repeats to time, or "count"."""
    import torch

    torch.set_num_threads(1)
    step = None
    for line in sys.stdin:
        request = json.loads(line)
        if isinstance(request, list):
            step = make_step(*request)
            step()
        assert step is not None
        if request == "count":
            print(json.dumps(count(step)), flush=True)
            continue
        repeat = request if isinstance(request, int) else 1
        start = time.process_time()
        for _ in range(repeat):
            step()
        print((time.process_time() - start) / repeat, flush=True)


def peak_growth(make_sized: Callable[[int], Callable[[], None]], size: int) -> float:
    """MB by which the peak memory of this process grows during a step of this size, after a small one."""

    def status(field: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(field))

    make_sized(32)()
    step = make_sized(size)
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    step()
    return (status("VmHWM") - before) / 1024


class Version:
    """A source tree with a process that times its steps."""

    def __init__(self, tree: str) -> None:
        self.environment = {**os.environ, "PYTHONPATH": str(Path(tree).resolve()), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "--serve"]
        # Freed blocks are kept: whether they return to the system depends on what a process freed before, and decides
        # more about the time of a step than its operations do.
        allocator = {"MALLOC_MMAP_THRESHOLD_": "1073741824", "MALLOC_TRIM_THRESHOLD_": "4294967296"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**self.environment, **allocator}
        )

    def ask(self, request: object) -> Any:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def memory(self, row: str, size: int, dimension: int) -> float:
        command = [sys.executable, __file__, "--measure-memory", row, str(size), str(dimension)]
        # Large blocks go back to the system at once, so that peak memory is that of live tensors.
        environment = {**self.environment, "MALLOC_MMAP_THRESHOLD_": "65536"}
        finished = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        return float(finished.stdout)

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def compare(old: Version, new: Version, row: str, size: int, dimension: int, rounds: int) -> tuple[float, ...]:
    """Milliseconds of the new version; the ratios new / old of the medians and of the least over the rounds."""
    single = max(version.ask([row, size, dimension]) for version in (old, new))
    repeat = max(1, int(ROUND / max(single, 1e-6)))
    times: dict[Version, list[float]] = {old: [], new: []}
    for round_index in range(rounds):
        for version in (old, new) if round_index % 2 else (new, old):
            times[version].append(version.ask(repeat))
    medians, minima = ([reduce(times[version]) for version in (old, new)] for reduce in (statistics.median, min))
    return 1000 * medians[1], medians[1] / medians[0], minima[1] / minima[0]


def compare_launches(trees: tuple[str, str], row: str, size: int, options: argparse.Namespace) -> tuple[float, ...]:
    """`compare` in fresh processes, medians over the launches: memory placement differs between processes."""
    launches = []
    for _ in range(options.launches):
        old, new = Version(trees[0]), Version(trees[1])
        launches.append(compare(old, new, row, size, options.dimension, options.rounds))
        old.close()
        new.close()
    return tuple(statistics.median(column) for column in zip(*launches, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", nargs="?", help="folder that holds the package `equimetric`, e.g. src")
    parser.add_argument("new", nargs="?")
    parser.add_argument("--rows", nargs="+", default=ROWS, metavar="METHOD", help="methods, or `evaluate`")
    parser.add_argument("--batch", type=int, nargs="+", default=[32, 512])
    parser.add_argument("--dimension", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--launches", type=int, default=0, help="medians over this many fresh processes")
    parser.add_argument("--count", action="store_true", help="compare the numbers of operations as well")
    parser.add_argument("--memory", action="store_true", help="compare peak memory as well")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--measure-memory", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve()
        return
    if args.measure_memory:
        row, size, dimension = args.measure_memory
        print(peak_growth(lambda size: make_step(row, size, int(dimension)), int(size)))
        return
    if not args.new:
        parser.error("give two source trees, the old and the new")
    old, new = Version(args.old), Version(args.new)
    for size in args.batch:
        print(f"\nB = {size}, d = {args.dimension}, {args.rounds} rounds, 1 thread")
        columns = f"{'':<24}{'ms':>9}{'new ÷ old':>11}{'of least':>10}"
        columns += f"{'calls':>8}{'written':>9}" if args.count else ""
        print(columns + (f"{'MB':>9}{'new ÷ old':>11}" if args.memory else ""))
        for row in args.rows:
            milliseconds, ratio, of_least = (
                compare_launches((args.old, args.new), row, size, args)
                if args.launches
                else compare(old, new, row, size, args.dimension, args.rounds)
            )
            line = f"{row:<24}{milliseconds:>9.2f}{ratio:>11.3f}{of_least:>10.3f}"
            if args.count:
                for version in (old, new):
                    version.ask([row, size, args.dimension])
                (calls, written), (old_calls, old_written) = new.ask("count"), old.ask("count")
                line += f"{calls / old_calls:>8.3f}{written / old_written:>9.3f}"
            if args.memory:
                before, after = (version.memory(row, size, args.dimension) for version in (old, new))
                line += f"{after:>9.1f}{after / max(before, 0.1):>11.3f}"
            print(line, flush=True)
    old.close()
    new.close()


if __name__ == "__main__":
    main()
