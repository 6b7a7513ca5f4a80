"""What a cohort does to the true accept rate of test classes: chosen by rule, at half strength, of many classes or few.

The spaces are frozen features and their 256 principal components, drawn down to `--classes` classes of each part with
at most 30 images each. Printed are the ratios of TAR at FAR 1e-2 with a cohort to that without. The cohort is of
training classes: "all" of those drawn, or a "few", eight; "chosen" is what `choose_cohort` takes on validation classes.

    python benchmarks/cohort_choice.py run.toml other.toml:model.backbone=efficientnet_lite1
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import replace
from statistics import median

import numpy as np
import torch
from numpy.typing import NDArray

from choose_defaults import read_space
from equimetric.configuration import load_config
from equimetric.errors import EquimetricWarning
from equimetric.evaluation import Cohort, choose_cohort, evaluate
from equimetric.runs.building import build_learner
from equimetric.runs.configuration import RunConfig
from equimetric.runs.image_size import fit_images
from equimetric.runs.regimes import fit_to_data
from equimetric.runs.run_cache import RunCache

FAR, IMAGES, FEW, COMPONENTS = 1e-2, 30, 8, 256
Samples = tuple[NDArray[np.float32], NDArray[np.int64]]


def load_parts(space: str, classes: int) -> dict[str, Samples]:
    """Features and classes of a space, part by part."""
    config, cache = fit_images(load_config(read_space(space), RunConfig)), RunCache()
    data = cache.data(config)
    config = fit_to_data(config, data.shape)
    backbone = build_learner(config, data.shape, cache=cache).frozen_backbone()
    assert backbone is not None
    data, draw = cache.with_features(data, backbone), np.random.default_rng(0)
    parts = {}
    for part in ("train", "validation", "test"):
        labels = data.dataset.labels[data.rows(part)].numpy()
        drawn = draw.permutation(np.unique(labels))[:classes]
        rows = np.concatenate([draw.permutation(np.flatnonzero(labels == one))[:IMAGES] for one in drawn])
        parts[part] = (np.asarray(data.images(part))[rows], labels[rows])
    return parts


def project(parts: dict[str, Samples]) -> dict[str, Samples]:
    """All parts in the principal components of the training features."""
    training = parts["train"][0].astype(np.float64)
    mean = training.mean(axis=0)
    vectors = np.linalg.eigh((training - mean).T @ (training - mean))[1][:, ::-1][:, :COMPONENTS]
    return {part: (((x - mean) @ vectors).astype(np.float32), labels) for part, (x, labels) in parts.items()}


def compare(parts: dict[str, Samples]) -> dict[str, float]:
    """Ratios of TAR on the test classes with a cohort to that without."""

    def tar(cohort: Cohort | None) -> float:
        name = f"tar@far={FAR:g}"
        return evaluate(*parts["test"], metrics=[name], cohort=cohort)[name]

    training, labels = parts["train"]
    few = np.isin(labels, np.random.default_rng(1).permutation(np.unique(labels))[:FEW])
    cohorts = {"all": Cohort(training, labels), "few": Cohort(training[few], labels[few])}
    plain, ratios = tar(None), {}
    for name, cohort in cohorts.items():
        choice = choose_cohort(*parts["validation"], {name: cohort}, far=FAR)
        print(f"    {name}: {choice.best.form}, strength {choice.best.strength:g}")
        ratios[f"{name}, chosen"] = tar(replace(choice.cohort, labels=None)) / plain
        ratios[f"{name}, ½"] = tar(replace(cohort, labels=None)) / plain
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spaces", nargs="+", metavar="FILE[:KEY=VALUE,…]", help="run or study files of frozen features")
    parser.add_argument("--classes", type=int, default=80, help="of each part")
    args = parser.parse_args()
    warnings.simplefilter("ignore", EquimetricWarning)
    torch.set_num_threads(1)
    rows = []
    for space in args.spaces:
        features = load_parts(space, args.classes)
        for kind, parts in {"features": features, "principal components": project(features)}.items():
            print(f"{space}, {kind}")
            rows.append(compare(parts))
            print("    " + ", ".join(f"{name}: × {ratio:.3f}" for name, ratio in rows[-1].items()), flush=True)
    print("\n| cohort of training classes | median | worst | best |\n|---|---:|---:|---:|")
    for name in rows[0]:
        values = [row[name] for row in rows]
        print(f"| {name} | {median(values):.3f} | {min(values):.3f} | {max(values):.3f} |")


if __name__ == "__main__":
    main()
