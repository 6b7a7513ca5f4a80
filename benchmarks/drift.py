"""How often `check` raises an alarm where nothing changed, and after shifts, for other numbers of images per class.

A threshold is calibrated on some classes, and other classes of the same collection are checked: some 150 images, of as
many classes as a row says, without labels, with the number of classes, and with labels. Every draw calibrates anew.
Columns are shares of alarms in percent. In a made space classes are Gaussian clouds of unequal width around random
centres; 'crowded' adds a direction that all share. With `--features`, an .npz of embeddings and labels takes its place:
classes are divided at random. The files of `--other` hold embeddings of images that were changed.

    python benchmarks/drift.py --draws 200
    python benchmarks/drift.py --features plain.npz --other blurred.npz noisy.npz --calibrated 20 --draws 200
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from equimetric.calibration import drift
from equimetric.evaluation.engine.inputs import prepare_sets
from equimetric.evaluation.engine.pair_distances import pair_distances

STRUCTURES = [(150, 1), (75, 2), (50, 3), (30, 5), (15, 10), (8, 19), (4, 38), (2, 75), (1, 150)]
"""Numbers of classes and of images of each."""
MADE = [(20, 10), (40, 8), (100, 5)]
"""Calibrated classes and images of each, in made spaces."""
DIMENSION, WIDTH, UNEVEN = 16, 0.5, 0.4
Sample = tuple[Any, Any]
Draw = Callable[[int, int], Sample]


def made_spaces(calibrated: tuple[int, int], seed: int) -> tuple[Sample, dict[str, Draw]]:
    """Calibration data, and what draws new ones: as before, and crowded."""
    generator = np.random.default_rng([seed, calibrated[0]])

    def draw(classes: int, images: int, common: float = 0.0) -> Sample:
        labels = np.repeat(np.arange(classes), images)
        centres = generator.normal(size=(classes, DIMENSION))
        centres[:, 0] += common
        widths = WIDTH * np.exp(UNEVEN * generator.normal(size=classes))
        noise = generator.normal(size=(len(labels), DIMENSION))
        return (centres[labels] + widths[labels, None] * noise).astype(np.float32), labels

    return draw(*calibrated), {"as before": draw, "crowded": lambda classes, images: draw(classes, images, 2.0)}


def divided_classes(files: list[Path], calibrated: int, seed: int) -> tuple[Sample, dict[str, Draw]]:
    """Some classes of the first file, and what draws from the other classes of every file."""
    generator = np.random.default_rng([seed, calibrated])
    data = {file.stem: (stored["embeddings"], stored["labels"]) for file in files if (stored := np.load(file))}
    vectors, labels = data[files[0].stem]
    own = generator.permutation(np.unique(labels))[:calibrated]

    def drawer(vectors: Any, labels: Any) -> Draw:
        others = np.setdiff1d(np.unique(labels), own)

        def draw(classes: int, images: int) -> Sample:
            chosen = generator.permutation(others)[:classes]
            rows = [generator.permutation(np.flatnonzero(labels == label))[:images] for label in chosen]
            return vectors[np.concatenate(rows)], labels[np.concatenate(rows)]

        return draw

    inside = np.isin(labels, own)
    return (vectors[inside], labels[inside]), {name: drawer(*arrays) for name, arrays in data.items()}


def alarms(reference: drift.DriftReference, options: dict[str, Any], vectors: Any, labels: Any) -> list[bool]:
    """Without labels, with the number of classes, with labels."""
    known: Iterator[dict[str, Any]] = iter(({}, {"classes": len(np.unique(labels))}, {"labels": labels}))
    return [drift.check_drift(reference, vectors, **options, **extra).shifted for extra in known]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--features", type=Path, help="an .npz of embeddings and labels")
    parser.add_argument("--other", type=Path, nargs="*", default=[], help="more of them, in which something changed")
    parser.add_argument("--calibrated", type=int, default=20, help="calibrated classes of the file")
    args = parser.parse_args()
    # The smallest visible shift of every check would take most of the time.
    drift._visible = lambda *_: (None, None)
    files = [] if args.features is None else [args.features, *args.other]
    for calibrated in [(args.calibrated, 0)] if files else MADE:
        shares: dict[tuple[str, int, int], list[list[bool]]] = {}
        for seed in range(args.draws):
            data, draws = divided_classes(files, calibrated[0], seed) if files else made_spaces(calibrated, seed)
            sets = prepare_sets(*data)
            distances = pair_distances(sets)
            reference = drift.drift_reference(sets, distances, seed)
            threshold = float(distances.negative_distance(distances.negatives // 100))
            options = {"geometry": "cosine", "threshold": threshold, "certified_far": 0.01, "seed": seed}
            for name, draw in draws.items():
                for classes, images in STRUCTURES:
                    vectors, labels = draw(classes, images)
                    if len(np.unique(labels)) == classes:
                        found = alarms(reference, options, vectors, labels)
                        shares.setdefault((name, classes, images), []).append(found)
        print(f"{calibrated[0]} calibrated classes, {args.draws} draws: alarms in %")
        print(f"{'data':<14}{'classes':>8}{'images':>8}{'no labels':>11}{'classes known':>15}{'labels':>9}")
        for (name, classes, images), found in shares.items():
            percent = 100 * np.mean(found, axis=0)
            print(f"{name:<14}{classes:>8}{images:>8}{percent[0]:>11.1f}{percent[1]:>15.1f}{percent[2]:>9.1f}")


if __name__ == "__main__":
    main()
