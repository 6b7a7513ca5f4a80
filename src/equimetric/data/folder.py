"""The user's own images: one folder per class."""

import os
from pathlib import Path

from equimetric.data.dataset import Dataset
from equimetric.data.decoding import Decoding
from equimetric.data.exclusions import Damaged
from equimetric.data.file_list import FileList, require_count
from equimetric.data.file_store import CacheKind
from equimetric.data.image_formats import SUFFIXES, list_folder
from equimetric.data.registry import InputSize, dataset
from equimetric.data.splits import require_pairs, require_two_images
from equimetric.errors import EquimetricError, quote
from equimetric.escaping import is_unicode
from equimetric.files import IS_FOLDER, NOT_THERE, unreadable_reason

__all__ = ["load_folder"]

REMEDY = "or leave small classes out with min_images = 2"


@dataset("folder")
def load_folder(
    *,
    root: str | Path,
    size: InputSize = 64,
    channels: int = 3,
    damaged: Damaged = "refuse",
    min_images: int = 1,
    in_memory: bool = True,
    cache: CacheKind = "none",
    decoding: Decoding = "exact",
) -> Dataset:
    """Your own images: root/<class>/<image>, one folder per class with at least two images in each.

    Classes are the folders in sorted order, images the files in sorted order; hidden entries are skipped, other files
    are named in a warning. Each image is rotated by its EXIF tag, put over white where it is transparent, resized so
    that its shorter side has `size` pixels, and cropped at the centre. `channels` is 3 for colour, 1 for grey. Classes
    with fewer than `min_images` images are left out. With `in_memory=False` the images stay in their files until they
    are needed; `cache` ('none', 'memory', 'disk') then keeps decoded images. `decoding` is 'exact', or 'fast' for
    large JPEGs.
    """
    root = Path(root).expanduser()
    require_count("min_images", min_images)
    files_of_class, skipped = _files_by_class(root)
    if min_images < 2:
        require_two_images({name: len(files) for name, files in files_of_class.items()}, REMEDY)
    file_list = FileList(
        name=root.resolve().name,
        root=root,
        files=[file for files in files_of_class.values() for file in files],
        classes=[name for name, files in files_of_class.items() for _ in files],
        class_order=tuple(files_of_class),
        skipped=skipped,
    )
    loaded = file_list.dataset(
        size=size,
        channels=channels,
        damaged=damaged,
        min_images=min_images,
        cache=cache,
        decoding=decoding,
        in_memory=in_memory,
    )
    require_pairs(loaded, REMEDY)  # once more: damaged files may have been left out
    return loaded


def _files_by_class(root: Path) -> tuple[dict[str, list[Path]], list[str]]:
    """The image files of each class, and all other files as 'path (reason)'."""
    _require_folder(root)
    try:
        visible = sorted(entry for entry in root.iterdir() if not entry.name.startswith("."))
        if not visible:
            raise EquimetricError(f"the folder {quote(str(root))} is empty; put one folder per class into it")
        by_class = {folder.name: list_folder(folder) for folder in visible if folder.is_dir()}
    except OSError as error:
        raise EquimetricError(
            f"the folder {quote(str(error.filename))} cannot be read ({error.strerror}); check its permissions"
        ) from None
    if not by_class:
        raise EquimetricError(
            f"the folder {quote(str(root))} has no class folders; arrange the images as {root.name}/<class>/<image>"
        )
    for name in by_class:
        # Class names are written to results, which are text.
        if not is_unicode(name):
            raise EquimetricError(
                f"the folder {os.fsencode(name)!r} in {quote(str(root))} has a name that is not UTF-8; rename it"
            )
    skipped = [
        f"{entry} (in no class folder)"
        for entry in visible
        if entry.suffix.lower() in SUFFIXES and entry.name not in by_class
    ]
    skipped += [reason for _, skipped_files in by_class.values() for reason in skipped_files]
    return {name: images for name, (images, _) in by_class.items()}, skipped


def _require_folder(root: Path) -> None:
    expected = "give the folder that holds one folder per class"
    reason = unreadable_reason(root)
    if reason == NOT_THERE:
        raise EquimetricError(f"there is no folder {quote(str(root))}; {expected}")
    if reason != IS_FOLDER:
        raise EquimetricError(f"{quote(str(root))} {reason or 'is a file'}; {expected}")
