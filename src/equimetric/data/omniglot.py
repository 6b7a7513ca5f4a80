"""Omniglot: handwritten characters of fifty alphabets (Lake, Salakhutdinov, Tenenbaum, 2015)."""

from pathlib import Path

import torch

from equimetric.data.archive import Archive, archive_root
from equimetric.data.arrays import load_arrays
from equimetric.data.dataset import Dataset
from equimetric.data.exclusions import Damaged
from equimetric.data.file_list import FileList
from equimetric.data.image_formats import list_folder
from equimetric.data.registry import dataset
from equimetric.errors import EquimetricError

__all__ = ["load_omniglot"]

FOLDERS = {"train": "images_background", "test": "images_evaluation"}

LOOKALIKE_REASON = "different characters consist of similar strokes"

OMNIGLOT = Archive(
    title="Omniglot",
    folder="omniglot",
    tree="""
images_background/Alphabet_of_the_Magi/character01/0709_01.png …
images_evaluation/Angelic/character01/0965_01.png …
""",
    published="https://github.com/brendenlake/omniglot",
    counts={"train": (964, 19_280), "test": (659, 13_180)},
)


@dataset("omniglot")
def load_omniglot(
    *,
    root: str | Path,
    size: int = 28,
    damaged: Damaged = "refuse",
    min_images: int = 1,
    accept_counts: bool = False,
) -> Dataset:
    """Omniglot, 1,623 handwritten characters by 20 people: background alphabets for training, evaluation ones for test.

    Grey, light ink on black, in memory. `root` holds the two folders of the archive, or is an .npz file with `images`,
    `labels`, `split` ('train' or 'test') and optionally `alphabet`, whose images keep their size.
    Per class: `alphabet`.
    """
    root = archive_root(root)
    if root.suffix == ".npz":
        return _from_arrays(root, accept_counts)
    root = OMNIGLOT.locate(root, *FOLDERS.values())
    file_list = _list_files(root)
    OMNIGLOT.check(file_list, accept=accept_counts)
    dark_ink = file_list.dataset(size=size, channels=1, damaged=damaged, min_images=min_images, in_memory=True)
    assert isinstance(dark_ink.images, torch.Tensor)
    return dark_ink.replace(images=255 - dark_ink.images, lookalike_reason=LOOKALIKE_REASON)


def _list_files(root: Path) -> FileList:
    files, classes, parts, skipped = [], [], [], []
    for part, folder in FOLDERS.items():
        for character in sorted((root / folder).glob("*/*")):
            if not character.is_dir() or character.name.startswith("."):
                continue
            images, skipped_files = list_folder(character)
            files += images
            skipped += skipped_files
            classes += [f"{character.parent.name}/{character.name}"] * len(images)
            parts += [part] * len(images)
    if not files:
        raise OMNIGLOT.missing_error(root, f"{FOLDERS['train']}/<alphabet>/<character>/<image>")
    order = tuple(dict.fromkeys(classes))
    return FileList(
        name="omniglot",
        root=root,
        files=files,
        classes=classes,
        class_order=order,
        parts=parts,
        class_attributes={"alphabet": {name: name.partition("/")[0] for name in order}},
        skipped=skipped,
    )


def _from_arrays(file: Path, accept_counts: bool) -> Dataset:
    loaded = load_arrays(file=file)
    parts = loaded.sample_attributes.get("part")
    if parts is None:
        raise EquimetricError(f"{str(file)!r} has no array 'split' that says train or test for every image")
    names = [loaded.class_names[label] for label in loaded.labels.tolist()]
    file_list = FileList("omniglot", file, [file] * len(names), names, loaded.class_names, parts)
    OMNIGLOT.check(file_list, accept=accept_counts)
    attributes = dict(loaded.sample_attributes)
    alphabet_of = dict(zip(names, attributes.pop("alphabet", ()), strict=False))
    return loaded.replace(
        name="omniglot",
        lookalike_reason=LOOKALIKE_REASON,
        sample_attributes=attributes,
        class_attributes={"alphabet": tuple(alphabet_of[name] for name in loaded.class_names)} if alphabet_of else {},
    )
