"""The user's own images: one folder per class."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from equimetric.data.dataset import Dataset, builtin_dataset, content_fingerprint
from equimetric.data.progress import track
from equimetric.data.splits import require_two_images
from equimetric.errors import EquimetricError

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

__all__ = ["load_folder"]

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff"})
FILES_SHOWN = 5
WHITE_OF_16_BITS = 65535


@builtin_dataset("folder")
def load_folder(*, root: str | Path, size: int = 64, channels: int = 3) -> Dataset:
    """Your own images: root/<class>/<image>, one folder per class with at least two images in each.

    Classes are the folders in sorted order, images the files in sorted order; hidden entries are skipped. Each image is
    turned as its EXIF tag says, laid over white where it is transparent, resized so that its shorter side has `size`
    pixels, and cropped at the centre. `channels` is 3 for colour, 1 for grey.
    """
    if not isinstance(size, int) or size < 1:
        raise EquimetricError(f"size must be a whole number of pixels, at least 1, not {size!r}")
    if channels not in (1, 3):
        raise EquimetricError(f"channels must be 3 (colour) or 1 (grey), not {channels!r}")
    root = Path(root).expanduser()
    files_of_class = _files_by_class(root)
    require_two_images({name: len(files) for name, files in files_of_class.items()})
    files = [file for class_files in files_of_class.values() for file in class_files]
    images = torch.from_numpy(_decode_all(files, size, channels))
    labels = torch.repeat_interleave(torch.tensor([len(class_files) for class_files in files_of_class.values()]))
    return Dataset(
        name=root.resolve().name,
        images=images,
        labels=labels,
        class_names=tuple(files_of_class),
        class_attributes={},
        sample_attributes={"file": tuple(file.relative_to(root).as_posix() for file in files)},
        fingerprint=content_fingerprint(images, labels),
    )


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
    return {folder.name: _images_in(folder) for folder in folders}


def _images_in(folder: Path) -> list[Path]:
    return sorted(
        entry
        for entry in folder.iterdir()
        if entry.suffix.lower() in SUFFIXES and not entry.name.startswith(".") and entry.is_file()
    )


def _decode_all(files: Sequence[Path], size: int, channels: int) -> NDArray[np.uint8]:
    """All images, (N, channels, size, size); one error for all files that cannot be read."""

    def attempt(file: Path) -> NDArray[np.uint8] | str:
        try:
            return _decode(file, size, channels)
        except Exception as error:  # a damaged file can raise almost anything from inside a decoder
            reason = str(error).replace(str(file), file.name) or type(error).__name__
            return f"{file} ({reason})"

    images = np.empty((len(files), channels, size, size), dtype=np.uint8)
    failures: list[str] = []
    with ThreadPoolExecutor() as pool:
        decoded = track(pool.map(attempt, files), "Reading images", total=len(files))
        for position, outcome in enumerate(decoded):
            if isinstance(outcome, str):
                failures.append(outcome)
            else:
                images[position] = outcome
    if failures:
        more = f" and {len(failures) - FILES_SHOWN} more" if len(failures) > FILES_SHOWN else ""
        raise EquimetricError(
            f"{len(failures)} image file(s) cannot be read, remove or replace them: "
            + ", ".join(failures[:FILES_SHOWN])
            + more
        )
    return images


def _decode(file: Path, size: int, channels: int) -> NDArray[np.uint8]:
    """One image file as (channels, size, size)."""
    from PIL import Image, ImageOps

    with Image.open(file) as opened:
        image = ImageOps.exif_transpose(opened)
        image = _without_alpha(_eight_bits(image)).convert("RGB" if channels == 3 else "L")
    fitted = ImageOps.fit(image, (size, size), method=Image.Resampling.BICUBIC)
    return np.asarray(fitted, dtype=np.uint8).reshape(size, size, channels).transpose(2, 0, 1)


def _eight_bits(image: "PillowImage") -> "PillowImage":
    """Grey images of 16 bits or of floating point brought to 0..255; others as they are.

    White is 65535 in an integer image; in a floating-point one it is 1, or 255 where a value exceeds 1.
    """
    from PIL import Image

    if not image.mode.startswith(("I", "F")):
        return image
    values: NDArray[Any] = np.asarray(image, dtype=np.float64)
    white = WHITE_OF_16_BITS if image.mode.startswith("I") else (255 if values.max() > 1 else 1)
    return Image.fromarray(np.rint(np.clip(values / white, 0, 1) * 255).astype(np.uint8))


def _without_alpha(image: "PillowImage") -> "PillowImage":
    """A transparent image laid over white."""
    from PIL import Image

    if not image.has_transparency_data:
        return image
    coloured = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", coloured.size, "white"), coloured)
