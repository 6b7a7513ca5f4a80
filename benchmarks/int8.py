"""How many decisions int8 changes: a run exported in float32 and in int8, each with a threshold of its own.

    python benchmarks/int8.py RUN --far 1e-2

Both models embed the images of the run's test classes, on which both are calibrated. Counted are the pairs that one
accepts and the other does not; then the rates of both, and the time of an image in ONNX Runtime with one thread.
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

import equimetric as em
from equimetric.deployment.certification import ThresholdTarget
from equimetric.deployment.export import run_in_blocks
from equimetric.runs.evaluation import open_run

torch.set_num_threads(1)
NAMES = ("float32", "int8")
TIMED = 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--far", type=float, default=1e-2)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    run = open_run(args.run)
    images, labels = run.data.images("test"), run.data.dataset.labels[run.data.rows("test")].numpy()
    upper = np.triu_indices(len(labels), 1)
    same_class = labels[upper[0]] == labels[upper[1]]
    models, accepted, seconds = {}, {}, {name: [] for name in NAMES}
    with tempfile.TemporaryDirectory() as folder:
        for name in NAMES:
            model_folder = Path(folder) / name
            em.export_run(args.run, model_folder, threshold=ThresholdTarget(far=args.far), int8=name == "int8")
            models[name] = em.load(model_folder, runtime="onnx")
            embeddings = run_in_blocks(models[name].runtime, images).double()
            squared = (2 - 2 * (embeddings @ embeddings.T)).clamp(min=0).numpy()[upper]
            accepted[name] = squared < models[name].certificate.threshold ** 2
        timed_images = np.ascontiguousarray(images[:TIMED].numpy())
        for _ in range(args.rounds):
            for name in NAMES:
                start = time.perf_counter()
                models[name].runtime.run(timed_images)
                seconds[name].append((time.perf_counter() - start) / len(timed_images))
    print(
        f"{len(labels)} images of {len(set(labels.tolist()))} test classes, {len(same_class):,} pairs, FAR {args.far:g}"
    )
    for name in NAMES:
        far, tar = accepted[name][~same_class].mean(), accepted[name][same_class].mean()
        print(f"{name:>8}: FAR {far:.4f}, TAR {tar:.4f}, {1000 * statistics.median(seconds[name]):.2f} ms an image")
    changed = accepted["float32"] != accepted["int8"]
    either = accepted["float32"] | accepted["int8"]
    print(
        f"changed decisions: {changed.mean():.3%} of all pairs, {changed[either].mean():.2%} of those either accepts,"
    )
    print(
        f"  {changed[same_class].mean():.2%} of pairs of one class, "
        f"{changed[~same_class].mean():.3%} of pairs of two classes"
    )


if __name__ == "__main__":
    main()
