"""Labelled images: data sets, class-disjoint splits, views of image files, and transforms.

Every data set registers itself by `@dataset("name")` in its own file (`equimetric.data.registry`). Imports nothing of
models, losses or training; everything is deterministic and works offline.
"""

from equimetric.data.arrays import load_arrays, load_features
from equimetric.data.cars import load_cars
from equimetric.data.cub import load_cub
from equimetric.data.damaged_files import damaged_files
from equimetric.data.dataset import Dataset, Images, content_fingerprint, take_images, view_images
from equimetric.data.digits import load_digits
from equimetric.data.exclusions import list_first
from equimetric.data.file_list import FileList
from equimetric.data.file_store import FileStore
from equimetric.data.folder import load_folder
from equimetric.data.glyphs import load_glyphs
from equimetric.data.held_out import split_held_out
from equimetric.data.huggingface import from_huggingface, load_huggingface
from equimetric.data.image_conditions import IMAGE_CONDITIONS, ImageCondition, list_conditions, parse_condition
from equimetric.data.image_files import ImageFiles
from equimetric.data.in_shop import load_in_shop
from equimetric.data.inaturalist import load_inaturalist
from equimetric.data.loading import Loader
from equimetric.data.manifest import load_manifest
from equimetric.data.near_duplicates import NearDuplicate, near_duplicates
from equimetric.data.omniglot import load_omniglot
from equimetric.data.online_products import load_online_products
from equimetric.data.pairs import load_pairs
from equimetric.data.registry import DATASETS, DatasetDescription, dataset_descriptions, load_dataset
from equimetric.data.rounds import divide_rounds, train_in_round
from equimetric.data.shifted_splits import (
    ShiftedSplit,
    class_means,
    frechet_distance,
    read_shifted_splits,
    shifted_split_of,
    shifted_splits,
    write_shifted_splits,
)
from equimetric.data.splits import (
    Split,
    class_disjoint_split,
    require_pairs,
    split_by_classes,
    split_by_parts,
    split_dataset,
)
from equimetric.data.transforms import (
    TRANSFORMS,
    Augmentation,
    RandomAffine,
    Transform,
    prepare,
    transform,
)
from equimetric.data.views import CenterCrop, RandomCrop, RandomResizedCrop, Resize, View, fit_view
from equimetric.data.weights import sample_weights
from equimetric.files import cache_directory

__all__ = [
    "DATASETS",
    "IMAGE_CONDITIONS",
    "TRANSFORMS",
    "Augmentation",
    "CenterCrop",
    "Dataset",
    "DatasetDescription",
    "FileList",
    "FileStore",
    "ImageCondition",
    "ImageFiles",
    "Images",
    "Loader",
    "NearDuplicate",
    "RandomAffine",
    "RandomCrop",
    "RandomResizedCrop",
    "Resize",
    "ShiftedSplit",
    "Split",
    "Transform",
    "View",
    "cache_directory",
    "class_disjoint_split",
    "class_means",
    "content_fingerprint",
    "damaged_files",
    "dataset_descriptions",
    "divide_rounds",
    "fit_view",
    "frechet_distance",
    "from_huggingface",
    "list_conditions",
    "list_first",
    "load_arrays",
    "load_cars",
    "load_cub",
    "load_dataset",
    "load_digits",
    "load_features",
    "load_folder",
    "load_glyphs",
    "load_huggingface",
    "load_in_shop",
    "load_inaturalist",
    "load_manifest",
    "load_omniglot",
    "load_online_products",
    "load_pairs",
    "near_duplicates",
    "parse_condition",
    "prepare",
    "read_shifted_splits",
    "require_pairs",
    "sample_weights",
    "shifted_split_of",
    "shifted_splits",
    "split_by_classes",
    "split_by_parts",
    "split_dataset",
    "split_held_out",
    "take_images",
    "train_in_round",
    "transform",
    "view_images",
    "write_shifted_splits",
]
