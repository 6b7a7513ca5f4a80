"""A training set of unequal classes, and batches of every kind from it."""

import torch

from equimetric.batches import BATCHES, MinedBatches

SIZES = {7: 9, -1: 4, 2**40: 5, 3: 4, 12: 6, 5: 4}
"""Samples of each class: unequal, unsorted ids that are far apart."""
ORDER = torch.randperm(sum(SIZES.values()), generator=torch.Generator().manual_seed(3))
LABELS = torch.cat([torch.full((size,), label) for label, size in SIZES.items()])[ORDER]
EMBEDDINGS = torch.randn(len(LABELS), 4, generator=torch.Generator().manual_seed(5))
OPTIONS = {
    "class_balanced": {"classes_per_batch": 4, "samples_per_class": 3},
    "exhaustive": {"classes_per_batch": 4, "samples_per_class": 2},
    "n_pairs": {"classes_per_batch": 4},
    "episodes": {"nc": 2, "ns": 1, "nq": 2, "episodes": 2, "batches": 30},
    "fixed_triplets": {"triples": 4, "set_size": 200},
    "hard_classes": {"classes_per_batch": 4, "candidates": 5},
    "neighbour_classes": {"classes_per_batch": 4, "samples_per_class": 3},
    "hierarchy": {"anchor_classes": 2, "neighbourhood": 2, "samples_per_class": 3},
    "smart_mining": {"triples": 4, "neighbours": 10},
    "superclasses": {
        "superclasses_per_batch": 2,
        "classes_per_superclass": 2,
        "samples_per_class": 3,
        "superclass": ["low" if label < 6 else "high" for label in LABELS.tolist()],
    },
    "clusters": {"clusters_per_batch": 4, "samples_per_cluster": 2, "clusters_per_class": 2},
}
MINED = [name for name, kind in BATCHES.items() if issubclass(kind, MinedBatches)]


def make(name, labels=LABELS, refresh=True, **options):
    batches = BATCHES[name](labels, **{"seed": 4, **OPTIONS[name], **options})
    if refresh and isinstance(batches, MinedBatches):
        batches.refresh(EMBEDDINGS, labels)
    return batches


def epochs(batches, number):
    return [list(batches) for _ in range(number)]
