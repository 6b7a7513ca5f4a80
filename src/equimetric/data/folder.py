"""The user's own images: one folder per class."""

from pathlib import Path

from equimetric.data.dataset import Dataset
from equimetric.data.decoding import Decoding
from equimetric.data.file_list import Damaged, FileList, image_files_in
from equimetric.data.file_store import CacheKind
from equimetric.data.registry import dataset
from equimetric.data.splits import require_pairs, require_two_images
from equimetric.errors import EquimetricError

__all__ = ["load_folder"]


@dataset("folder")
def load_folder(
    *,
    root: str | Path,
    size: int = 64,
    channels: int = 3,
    damaged: Damaged = "refuse",
    in_memory: bool = True,
    cache: CacheKind = "none",
    decoding: Decoding = "exact",
) -> Dataset:
    """Your own images: root/<class>/<image>, one folder per class with at least two images in each.

    Classes are the folders in sorted order, images the files in sorted order; hidden entries are skipped. Each image is
    rotated by its EXIF tag, put over white where it is transparent, resized so that its shorter side has `size`
    pixels, and cropped at the centre. `channels` is 3 for colour, 1 for grey. With `in_memory=False` the images stay in
    their files until they are needed; `cache` ('none', 'memory', 'disk') then keeps decoded images.
    `decoding` is 'exact', or 'fast' for large JPEGs.
    """
    root = Path(root).expanduser()
    files_of_class = _files_by_class(root)
    require_two_images({name: len(files) for name, files in files_of_class.items()})
    listed = FileList(
        name=root.resolve().name,
        root=root,
        files=[file for files in files_of_class.values() for file in files],
        classes=[name for name, files in files_of_class.items() for _ in files],
        class_order=tuple(files_of_class),
    )
    loaded = listed.dataset(
        size=size, channels=channels, damaged=damaged, cache=cache, decoding=decoding, in_memory=in_memory
    )
    require_pairs(loaded)  # once more: damaged files may have been left out
    return loaded


def _files_by_class(root: Path) -> dict[str, list[Path]]:
    if not root.exists():
        raise EquimetricError(f"there is no folder {str(root)!r}; give the folder that holds one folder per class")
    if not root.is_dir():
        raise EquimetricError(f"{str(root)!r} is a file; give the folder that holds one folder per class")
    visible = sorted(entry for entry in root.iterdir() if not entry.name.startswith("."))
    if not visible:
        raise EquimetricError(f"the folder {str(root)!r} is empty; put one folder per class into it")
    folders = [entry for entry in visible if entry.is_dir()]
    if not folders:
        raise EquimetricError(
            f"the folder {str(root)!r} has no class folders; arrange the images as {root.name}/<class>/<image>"
        )
    return {folder.name: image_files_in(folder) for folder in folders}
