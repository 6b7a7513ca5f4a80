"""Images to learn from: data sets, splits that share no class, and transforms.

Knows nothing of models, losses or training. Everything here is deterministic and works without a network.
"""

from equimetric.data.dataset import (
    Dataset,
    DatasetDescription,
    builtin_dataset,
    cache_directory,
    content_fingerprint,
    dataset_descriptions,
    load_dataset,
)
from equimetric.data.digits import load_digits
from equimetric.data.folder import load_folder
from equimetric.data.glyphs import load_glyphs
from equimetric.data.splits import Split, class_disjoint_split, require_pairs
from equimetric.data.transforms import Augmentation, RandomAffine, augmentation, prepare

__all__ = [
    "Augmentation",
    "Dataset",
    "DatasetDescription",
    "RandomAffine",
    "Split",
    "augmentation",
    "builtin_dataset",
    "cache_directory",
    "class_disjoint_split",
    "content_fingerprint",
    "dataset_descriptions",
    "load_dataset",
    "load_digits",
    "load_folder",
    "load_glyphs",
    "prepare",
    "require_pairs",
]
