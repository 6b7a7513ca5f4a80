"""What loading costs beyond the decoding it cannot do without.

The bare decode is written out here with nothing but Pillow: open, JPEG draft mode where decoding is fast, convert,
resize, crop, mirror; by as many threads, results thrown away. The loader does the same and delivers batches, seeded
draws and checks. Both run interleaved on the same files, once for each kind of decoding; printed are medians, and the
ratio loader / bare (1 is as fast as can be).

    python benchmarks/loading.py --images 512 --rounds 5
    python benchmarks/loading.py --root some/folder/of/jpegs
"""

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from equimetric.data import FileStore, ImageFiles, Loader, transform

PROTOCOL = "unbiased"  # 256×256, random crop of 224, mirrored half of the time
BATCH = 32


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def write_photos(folder: Path, images: int, size: tuple[int, int]) -> list[Path]:
    """JPEGs with as much detail as photographs: smooth shapes with some noise, about 100 KB at 500×375."""
    generator = np.random.default_rng(0)
    files = []
    for i in range(images):
        coarse = generator.integers(256, size=(12, 16, 3), dtype=np.uint8)
        smooth = np.asarray(Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC), dtype=np.int16)
        noisy = smooth + generator.integers(-12, 13, size=smooth.shape, dtype=np.int16)
        files.append(folder / f"{i:05d}.jpg")
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(files[-1], quality=90)
    return files


def decode_bare(file: Path, decoding: str) -> None:
    with Image.open(file) as image:
        if decoding == "fast":
            image.draft(None, (256, 256))
        resized = image.convert("RGB").resize((256, 256), Image.Resampling.BILINEAR)
    left, top = random.randrange(33), random.randrange(33)
    crop = resized.crop((left, top, left + 224, top + 224))
    if random.random() < 0.5:
        crop = crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    np.asarray(crop)


def decode_all_bare(files: list[Path], workers: int, decoding: str) -> None:
    with ThreadPoolExecutor(workers) as pool:
        for _ in pool.map(lambda file: decode_bare(file, decoding), files):
            pass


def load_all(images: ImageFiles, workers: int) -> None:
    batches = torch.split(torch.arange(len(images)), BATCH)
    for _ in Loader(images, batches, view=transform(PROTOCOL).train, workers=workers):
        pass


def measure(files: list[Path], workers: int, rounds: int, title: str, decoding: str) -> None:
    stores = {cache: FileStore(files, cache=cache, decoding=decoding) for cache in ("none", "memory", "disk")}
    images = {cache: ImageFiles.all_of(store, transform(PROTOCOL).test) for cache, store in stores.items()}
    for cache in ("memory", "disk"):
        load_all(images[cache], workers)  # fill
    times: dict[str, list[float]] = {"bare": []} | {cache: [] for cache in images}
    for _ in range(rounds):
        times["bare"].append(seconds(lambda: decode_all_bare(files, workers, decoding)))
        for cache, cached_images in images.items():
            times[cache].append(seconds(lambda cached_images=cached_images: load_all(cached_images, workers)))
    rates = {name: len(files) / statistics.median(round_times) for name, round_times in times.items()}
    ratio = statistics.median(b / n for b, n in zip(times["bare"], times["none"], strict=True))
    print(
        f"{title:<12}{decoding:<8}{workers:>8}{rates['bare']:>12.0f}{rates['none']:>10.0f}{ratio:>8.2f}"
        f"{rates['memory']:>14.0f}{rates['disk']:>12.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--root", type=Path, help="a folder with JPEGs, instead of made ones")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as cache:
        os.environ["EQUIMETRIC_CACHE"] = cache
        print("images/s, median of", args.rounds, "rounds")
        print(
            f"{'files':<12}{'decoding':<8}{'workers':>8}{'bare':>12}{'loader':>10}{'ratio':>8}"
            f"{'memory cache':>14}{'disk cache':>12}"
        )
        if args.root:
            sets = {args.root.name[:11]: sorted(args.root.rglob("*.jpg"))[: args.images]}
        else:
            sets = {}
            for size in ((500, 375), (1600, 1200)):
                folder = Path(name) / f"{size[0]}×{size[1]}"
                folder.mkdir()
                sets[folder.name] = write_photos(folder, args.images // (size[0] // 500), size)
        for title, files in sets.items():
            for decoding in ("exact", "fast"):
                for workers in args.workers:
                    measure(files, workers, args.rounds, title, decoding)


if __name__ == "__main__":
    main()
