"""Names of tables, data sets, backbones and metrics in papers, and our names for them."""

import re
from collections.abc import Collection
from functools import cache

from equimetric.errors import unknown_name
from equimetric.objectives.published import REALITY_CHECK, TCM, UNBIASED, UNIFIED_VIEW
from equimetric.other_names import KnownAs, translate_name

__all__ = ["OUR_DATASETS", "PAPERS", "find_backbone", "find_dataset", "find_metric", "find_paper", "metric_scale"]

PAPERS = {"reality-check": REALITY_CHECK, "unbiased": UNBIASED, "unified-view": UNIFIED_VIEW, "tcm": TCM}
"""Short name of a paper → its citation, the key of `equimetric.objectives.PUBLISHED`."""

OUR_DATASETS = {
    "CUB-200-2011": "cub",
    "Cars-196": "cars",
    "SOP": "online_products",
    "In-Shop": "in_shop",
    "iNaturalist-2018": "inaturalist",
}
"""Data set as the papers print it → its name here."""

NO_DATASETS = ("illustration", "all")
"""Values in place of a data set: examples that explain a metric, and a mean over data sets."""

DATASETS_KNOWN_AS = {
    "CUB-200-2011": ("cub", "CUB200", "CUB-200", "birds"),
    "Cars-196": ("cars", "Stanford Cars", "CARS"),
    "SOP": ("online_products", "Stanford Online Products", "products"),
    "In-Shop": ("in_shop", "In-Shop Clothes", "In-Shop Clothes Retrieval", "DeepFashion In-Shop"),
    "iNaturalist-2018": ("inaturalist", "iNat", "iNat2018"),
}

BACKBONES_KNOWN_AS = {
    "BN-Inception": ("Inception-BN",),
    "ResNet50": ("timm:resnet50", "torchvision:resnet50"),
    "GoogLeNet": ("Inception v1", "torchvision:googlenet"),
    "ViT-B/16": ("ViT-B", "vit_base_patch16_224", "timm:vit_base_patch16_224", "torchvision:vit_b_16"),
    "ViT-S/16": ("ViT-S", "vit_small_patch16_224", "timm:vit_small_patch16_224"),
    "DINO": (),
}

PAPERS_KNOWN_AS = {
    "reality-check": ("A metric learning reality check", "Musgrave"),
    "unbiased": ("Unbiased evaluation", "Unbiased evaluation of deep metric learning algorithms"),
    "unified-view": ("A unified view", "A unified view of deep metric learning via gradient analysis"),
    "tcm": ("threshold-consistent", "Threshold-consistent margin loss"),
}

METRICS_KNOWN_AS = {
    "r_precision": ("RP", "R-Precision"),
    "map@r": ("MAP@R",),
    "nmi": ("NMI",),
    "f1": ("F1",),
    "opis": ("OPIS (1e-3)",),
}


def find_paper(name: str) -> str:
    """The short name of a paper."""
    return _find("paper with published results", name, PAPERS, PAPERS_KNOWN_AS)


def find_dataset(name: str) -> str:
    """A data set as the papers print it: 'cub', 'CUB200' and 'CUB-200-2011' are one."""
    return _find("data set with published results", name, (*OUR_DATASETS, *NO_DATASETS), DATASETS_KNOWN_AS)


@cache
def find_backbone(name: str) -> str:
    """A backbone under one of its names: 'BN-Inception' for 'Inception-BN' and 'bn_inception'."""
    return _find("backbone with published results", name, BACKBONES_KNOWN_AS, BACKBONES_KNOWN_AS)


@cache
def find_metric(name: str) -> str | None:
    """The metric's name here: 'recall@1' for P@1, R@1 and Recall@1; None where no paper has it.

    Precision and recall are one at K = 1, where the literature calls recall whether the nearest neighbour is right.
    """
    if depth := re.fullmatch(r"(?:r|recall)@(\d+)", name, re.IGNORECASE):
        return f"recall@{depth[1]}"
    if name.lower() in ("p@1", "precision@1"):
        return "recall@1"
    if fraction := re.fullmatch(r"(\d+)%-opis(?: \(1e-3\))?|opis@(\d+)%", name, re.IGNORECASE):
        return f"opis@{fraction[1] or fraction[2]}%"
    return next(iter(translate_name(name, METRICS_KNOWN_AS, METRICS_KNOWN_AS)), None)


def metric_scale(metric: str) -> int:
    """Factor from a value of `evaluate` to the number in a paper: 1000 for OPIS, 100, percent, for others."""
    return 1000 if metric.partition("@")[0] == "opis" else 100


def _find(kind: str, name: str, valid: Collection[str], known_as: KnownAs) -> str:
    matches = translate_name(name, valid, known_as)
    if not matches:
        raise unknown_name(kind, name, valid, known_as)
    return matches[0]
