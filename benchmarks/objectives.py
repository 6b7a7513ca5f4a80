"""Forward and backward of every objective on embeddings, beside pytorch-metric-learning and beside the floor.

The floor is S = X·Xᵀ forward and backward alone. Where a method compares with learned references W, one more line
compares it with its own product X·Wᵀ, forward and backward: ten centres per class are more columns than the batch.
Peer and ours take turns in one process, many times; printed are medians of the ratios. Memory is the growth of the
peak, measured in a process of its own.

    python benchmarks/objectives.py                              # B = 32, 128, 512; d = 128; all threads
    python benchmarks/objectives.py --batch 2048 --dimension 512 --threads 1
    python benchmarks/objectives.py --only triplet ntxent --memory
    python benchmarks/objectives.py --clock cpu --threads 1       # where other processes are at work, too

Without pytorch-metric-learning (pip install "equimetric[peers]") only ours and the floor are timed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import torch

from equimetric.errors import EquimetricError
from equimetric.objectives import Context, Objective, ObjectiveSum, build_objective, parse_method
from versions import SAMPLES, batch, peak_growth

Step = Callable[[], None]
MINUTE = 60.0
ADDRESS_SPACE = 20 * 2**30
"""Bytes of address space; a peer that needs more fails instead of exhausting the machine."""


def peers() -> dict[str, Callable[[int, int], tuple]]:
    """Method → constructor of the peer's (loss, miner) from the number of classes and the dimension."""
    try:
        from pytorch_metric_learning import distances, losses, miners, regularizers
    except ImportError:
        return {}
    cosine = distances.CosineSimilarity
    return {
        "contrastive": lambda c, d: (losses.ContrastiveLoss(pos_margin=0, neg_margin=1), None),
        "triplet": lambda c, d: (losses.TripletMarginLoss(margin=0.05), None),
        "triplet_semihard": lambda c, d: (
            losses.TripletMarginLoss(margin=0.2),
            miners.TripletMarginMiner(margin=0.2, type_of_triplets="semihard"),
        ),
        "triplet_batch_hard": lambda c, d: (losses.TripletMarginLoss(margin=0.2), miners.BatchHardMiner()),
        "margin": lambda c, d: (losses.MarginLoss(), miners.DistanceWeightedMiner()),
        "multi_similarity": lambda c, d: (losses.MultiSimilarityLoss(alpha=2, beta=50, base=0.5), None),
        "multi_similarity_miner": lambda c, d: (
            losses.MultiSimilarityLoss(alpha=2, beta=50, base=0.5),
            miners.MultiSimilarityMiner(epsilon=0.1),
        ),
        "circle": lambda c, d: (losses.CircleLoss(m=0.4, gamma=80), None),
        "supcon": lambda c, d: (losses.SupConLoss(temperature=0.1), None),
        "ntxent": lambda c, d: (losses.NTXentLoss(temperature=0.07), None),
        "lifted": lambda c, d: (losses.LiftedStructureLoss(), None),
        "lifted_generalized": lambda c, d: (losses.GeneralizedLiftedStructureLoss(), None),
        "tuplet_margin": lambda c, d: (losses.TupletMarginLoss(), None),
        "ranked_list": lambda c, d: (losses.RankedListLoss(margin=0.4, Tn=10), None),
        "angular": lambda c, d: (losses.AngularLoss(alpha=45), None),
        "fastap": lambda c, d: (losses.FastAPLoss(), None),
        "smooth_ap": lambda c, d: (losses.SmoothAPLoss(), None),
        "histogram": lambda c, d: (losses.HistogramLoss(n_bins=100), None),
        "snr_contrastive": lambda c, d: (losses.SignalToNoiseRatioContrastiveLoss(), None),
        "tcm": lambda c, d: (losses.ThresholdConsistentMarginLoss(), None),
        "intra_pair_variance": lambda c, d: (losses.IntraPairVarianceLoss(), None),
        "npairs": lambda c, d: (
            losses.NPairsLoss(embedding_regularizer=regularizers.LpRegularizer(), embedding_reg_weight=0.002),
            None,
        ),
        "normalized_softmax": lambda c, d: (losses.NormalizedSoftmaxLoss(c, d, temperature=0.05), None),
        "proxy_nca_plus_plus": lambda c, d: (losses.ProxyNCALoss(c, d, softmax_scale=9), None),
        "proxy_anchor": lambda c, d: (losses.ProxyAnchorLoss(c, d), None),
        "arcface": lambda c, d: (losses.ArcFaceLoss(c, d), None),
        "cosface": lambda c, d: (losses.CosFaceLoss(c, d), None),
        "sphereface": lambda c, d: (losses.SphereFaceLoss(c, d), None),
        "softtriple": lambda c, d: (
            losses.SoftTripleLoss(
                c, d, weight_regularizer=regularizers.SparseCentersRegularizer(c, 10), weight_reg_weight=0.2
            ),
            None,
        ),
        "subcenter_arcface": lambda c, d: (losses.SubCenterArcFaceLoss(num_classes=c, embedding_size=d), None),
        "contrastive_cosine": lambda c, d: (
            losses.ContrastiveLoss(pos_margin=1, neg_margin=0.5, distance=cosine()),
            None,
        ),
    }


def build(method: str, labels: torch.Tensor, dimension: int) -> Objective | ObjectiveSum:
    classes = int(labels.max()) + 1
    return build_objective(method, {}, Context(classes=classes, dim=dimension, images=len(labels)))


def our_step(method: str, size: int, dimension: int) -> Step:
    embeddings, labels = batch(size, dimension)
    objective = build(method, labels, dimension)

    def step() -> None:
        leaf = embeddings.detach().requires_grad_()
        objective(leaf, labels).backward()

    return step


def peer_step(build_peer: Callable[[int, int], tuple], size: int, dimension: int) -> Step:
    embeddings, labels = batch(size, dimension)
    loss, miner = build_peer(int(labels.max()) + 1, dimension)

    def step() -> None:
        leaf = embeddings.detach().requires_grad_()
        loss(leaf, labels, miner(leaf, labels) if miner else None).backward()

    return step


def floor_step(size: int, dimension: int) -> Step:
    embeddings, _ = batch(size, dimension)
    grad_output = torch.ones(size, size)

    def step() -> None:
        leaf = embeddings.detach().requires_grad_()
        (leaf @ leaf.T).backward(grad_output)

    return step


def product_step(method: str, size: int, dimension: int) -> Step | None:
    """X·Wᵀ forward and backward, W the learned references of a method; None where it has none."""
    embeddings, labels = batch(size, dimension)
    objective = build(method, labels, dimension)
    weights = [part.references.weight for _, part in objective.parts() if hasattr(part.references, "weight")]
    if not weights:
        return None
    references = torch.cat(weights).detach().clone().requires_grad_()
    grad_output = torch.ones(size, len(references))

    def step() -> None:
        leaf = embeddings.detach().requires_grad_()
        references.grad = None
        (leaf @ references.T).backward(grad_output)

    return step


CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
clock = CLOCKS["wall"]


def seconds(step: Step, repeat: int) -> float:
    start = clock()
    for _ in range(repeat):
        step()
    return (clock() - start) / repeat


def compare(steps: dict[str, Step], budget: float) -> dict[str, list[float]]:
    """Interleaved times of each step; the slowest decides how many rounds fit into the budget.

    In a round each is repeated for a twentieth of a second: the first repeat, on memory and caches that the others have
    used, costs a step of a few milliseconds half as much again. Where one round takes more than a minute, as some peers
    do, it is the only one, after a first of ours alone.
    """
    for name in ("floor", "ours"):
        steps[name]()
    single = {name: seconds(step, 1) for name, step in steps.items()}
    repeat = {name: max(1, int(0.05 / max(single[name], 1e-6))) for name in steps}
    one_round = sum(single[name] * repeat[name] for name in steps)
    if one_round > MINUTE:
        return {name: [seconds] for name, seconds in single.items()}
    rounds = max(3, min(15, int(budget / one_round)))
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            times[name].append(seconds(step, repeat[name]))
    return times


def median_ratio(times: dict[str, list[float]], name: str, base: str) -> float:
    """The median of the ratios of neighbouring times."""
    return statistics.median(a / b for a, b in zip(times[name], times[base], strict=True))


def measure_memory(method: str, side: str, size: int, dimension: int) -> float | None:
    """MB by which the peak of a fresh process grows during one step; None where it fails."""
    command = [sys.executable, __file__, "--measure-memory", method, side, str(size), str(dimension)]
    # Large blocks go back to the system at once, so that the peak is that of live tensors.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    finished = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    return json.loads(finished.stdout) if finished.returncode == 0 else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, nargs="+", default=[32, 128, 512])
    parser.add_argument("--dimension", type=int, nargs="+", default=[128])
    parser.add_argument("--threads", type=int, nargs="+", default=[os.cpu_count() or 1])
    parser.add_argument("--only", nargs="+", help="methods; by default all that the peer has")
    parser.add_argument("--memory", action="store_true", help="measure peak memory as well")
    parser.add_argument("--seconds", type=float, default=2.0, help="budget of one row")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--without-peer", action="store_true")
    parser.add_argument("--measure-memory", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    global clock
    clock = CLOCKS[args.clock]
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    if args.measure_memory:
        method, side, size, dimension = args.measure_memory
        build_step = {"ours": partial(our_step, method), "peer": partial(peer_step, peers().get(method))}[side]
        print(json.dumps(peak_growth(lambda size: build_step(size, int(dimension)), int(size))))
        return
    peer_losses = {} if args.without_peer else peers()
    for method in args.only or ():
        try:
            parse_method(method)
        except EquimetricError as error:
            parser.error(str(error))
    methods = (
        args.only or list(peer_losses) or ["contrastive", "triplet", "multi_similarity_miner", "margin", "arcface"]
    )
    for threads in args.threads:
        torch.set_num_threads(threads)
        for size in args.batch:
            for dimension in args.dimension:
                print(f"\nB = {size}, d = {dimension}, M = {SAMPLES}, {threads} threads")
                print(
                    f"{'method':<24}{'ms':>9}{'× floor':>9}{'peer ÷ ours':>13}"
                    + ("   MB ours / peer" if args.memory else "")
                )
                for method in methods:
                    steps = {"floor": floor_step(size, dimension), "ours": our_step(method, size, dimension)}
                    product = product_step(method, size, dimension)
                    if product is not None:
                        steps["product"] = product
                    note = ""
                    if method in peer_losses:
                        try:
                            # A small batch first: whatever is set up once is not measured.
                            peer_step(peer_losses[method], 32, dimension)()
                            steps["peer"] = peer_step(peer_losses[method], size, dimension)
                            times = compare(steps, args.seconds)
                        except (RuntimeError, MemoryError, ValueError, IndexError) as error:
                            note = "  peer fails: " + str(error).splitlines()[0][:50]
                            del steps["peer"]
                    if "peer" not in steps:
                        times = compare(steps, args.seconds)
                    milliseconds = 1000 * statistics.median(times["ours"])
                    row = f"{method:<24}{milliseconds:>9.2f}{median_ratio(times, 'ours', 'floor'):>9.2f}"
                    row += f"{median_ratio(times, 'peer', 'ours'):>13.2f}" if "peer" in steps else f"{'':>13}"
                    if args.memory:
                        sizes = [measure_memory(method, side, size, dimension) for side in ("ours", "peer")]
                        row += "   " + " / ".join("fails" if mb is None else f"{mb:.0f}" for mb in sizes)
                    print(row + note, flush=True)
                    if "product" in steps:
                        print(
                            f"{'  beside its own product':<33}{median_ratio(times, 'ours', 'product'):>9.2f}",
                            flush=True,
                        )


if __name__ == "__main__":
    main()
