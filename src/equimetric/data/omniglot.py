"""Omniglot: handwritten characters of fifty alphabets (Lake, Salakhutdinov, Tenenbaum, 2015)."""

from dataclasses import replace
from pathlib import Path

import torch

from equimetric.data.archive import Archive
from equimetric.data.arrays import load_arrays
from equimetric.data.dataset import Dataset, builtin_dataset, content_fingerprint
from equimetric.data.file_list import Damaged, FileList, image_files_in
from equimetric.errors import EquimetricError

__all__ = ["load_omniglot"]

FOLDERS = {"train": "images_background", "test": "images_evaluation"}

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


@builtin_dataset("omniglot")
def load_omniglot(
    *, root: str | Path, size: int = 28, damaged: Damaged = "refuse", accept_counts: bool = False
) -> Dataset:
    """Omniglot, 1,623 handwritten characters by 20 people: background alphabets for training, evaluation ones for test.

    Grey, light ink on black, in memory. `root` holds the two folders of the archive, or is an .npz file with `images`,
    `labels`, `split` ('train' or 'test') and perhaps `alphabet`, whose images are taken at the size they have.
    Per class: `alphabet`.
    """
    root = Path(root).expanduser()
    if root.suffix == ".npz":
        return _from_arrays(root, accept_counts)
    root = OMNIGLOT.locate(root, *FOLDERS.values())
    listed = _list_files(root)
    OMNIGLOT.check(listed, accept=accept_counts)
    dataset = listed.dataset(size=size, channels=1, damaged=damaged, in_memory=True)
    assert isinstance(dataset.images, torch.Tensor)
    light_ink = 255 - dataset.images
    return replace(dataset, images=light_ink, fingerprint=content_fingerprint(light_ink, dataset.labels))


def _list_files(root: Path) -> FileList:
    files, classes, parts = [], [], []
    for part, folder in FOLDERS.items():
        for character in sorted((root / folder).glob("*/*")):
            if not character.is_dir() or character.name.startswith("."):
                continue
            found = image_files_in(character)
            files += found
            classes += [f"{character.parent.name}/{character.name}"] * len(found)
            parts += [part] * len(found)
    if not files:
        raise OMNIGLOT.missing(root, f"{FOLDERS['train']}/<alphabet>/<character>/<image>")
    order = tuple(dict.fromkeys(classes))
    return FileList(
        name="omniglot",
        root=root,
        files=files,
        classes=classes,
        class_order=order,
        parts=parts,
        class_attributes={"alphabet": {name: name.partition("/")[0] for name in order}},
    )


def _from_arrays(file: Path, accept_counts: bool) -> Dataset:
    dataset = load_arrays(file=file)
    parts = dataset.sample_attributes.get("part")
    if parts is None:
        raise EquimetricError(f"{str(file)!r} has no array 'split' that says train or test for every image")
    names = [dataset.class_names[label] for label in dataset.labels.tolist()]
    listed = FileList("omniglot", file, [file] * len(names), names, dataset.class_names, parts)
    OMNIGLOT.check(listed, accept=accept_counts)
    others = dict(dataset.sample_attributes)
    alphabet_of = dict(zip(names, others.pop("alphabet", ()), strict=False))
    return replace(
        dataset,
        name="omniglot",
        sample_attributes=others,
        class_attributes={"alphabet": tuple(alphabet_of[name] for name in dataset.class_names)} if alphabet_of else {},
    )
