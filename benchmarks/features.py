"""Features of a frozen backbone: all cores against one core, and against a plain loop of torch.

The three take turns, so that all see the same machine; printed are median seconds and ratios. `cached_features` writes,
synchronises and checks its file in that time, the loop only computes. It runs with torch's own threads, as a script
would that does not set their number, in blocks of as many images.

    python benchmarks/features.py
    python benchmarks/features.py --root my_images --pretrained package --images 600 --rounds 5
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable

import torch
from torch import Tensor

import equimetric as em
from equimetric.backbones import Backbone, build_backbone
from equimetric.data import Dataset
from equimetric.data.decoding import available_cores
from equimetric.runs import features
from equimetric.threads import use_threads


def load(root: str | None, images: int, size: int) -> Dataset:
    """Photos of a folder, in their files until they are needed, or noise in memory."""
    if root is not None:
        dataset = em.load_dataset("folder", root=root, size=size, in_memory=False)
        return dataset.subset(torch.arange(min(images, len(dataset))))
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (images, 3, size, size), dtype=torch.uint8, generator=generator)
    return Dataset("noise", pixels, torch.arange(images) % 2, ("a", "b"), {}, {})


def cached(backbone: Backbone, dataset: Dataset, cores: int) -> Tensor:
    """`cached_features` on this number of cores, with an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["EQUIMETRIC_CACHE"] = folder
        features.available_cores = lambda: cores
        return features.cached_features(backbone, dataset).clone()


def plain_loop(backbone: Backbone, dataset: Dataset, threads: int) -> Tensor:
    """A plain PyTorch loop."""
    blocks = []
    with use_threads(threads), torch.inference_mode():
        for start in range(0, len(dataset), features.BLOCK["cpu"]):
            pixels = dataset.images[start : start + features.BLOCK["cpu"]]
            blocks.append(backbone(backbone.convention.apply(pixels)))
    return torch.cat(blocks)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="efficientnet_lite0")
    parser.add_argument("--pretrained", default=None)
    parser.add_argument("--root", default=None, help="folder of photos, one folder per class; default: noise")
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(0)
    backbone = build_backbone(args.backbone, pretrained=args.pretrained).eval()
    dataset = load(args.root, args.images, args.size)
    cores = available_cores()
    variants: dict[str, Callable[[], Tensor]] = {
        "one core": lambda: cached(backbone, dataset, 1),
        "all cores": lambda: cached(backbone, dataset, cores),
        "plain loop": lambda: plain_loop(backbone, dataset, cores),
    }
    results = {name: compute() for name, compute in variants.items()}
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(args.rounds):
        for name, compute in variants.items():
            start = time.perf_counter()
            compute()
            seconds[name].append(time.perf_counter() - start)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    print(f"{args.backbone}, {len(dataset)} images of {args.size} pixels, {cores} cores, medians of {args.rounds}")
    for name, median in medians.items():
        print(f"  {name:<11} {median:7.2f} s  {len(dataset) / median:7.1f} images/s")
    print(f"one core / all cores    {medians['one core'] / medians['all cores']:.2f}")
    print(f"plain loop / all cores  {medians['plain loop'] / medians['all cores']:.2f}")
    identical = torch.equal(results["one core"], results["all cores"])
    difference = float((results["plain loop"] - results["all cores"]).abs().max())
    print(f"bits of one core and of all cores: {'the same' if identical else 'NOT THE SAME'}")
    print(f"the loop differs by up to {difference:.1e}")


if __name__ == "__main__":
    main()
