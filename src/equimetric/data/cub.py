"""CUB-200-2011: birds (Wah, Branson, Welinder, Perona, Belongie, 2011)."""

from collections.abc import Sequence
from pathlib import Path

from equimetric.data.archive import Archive, read_lines, read_number
from equimetric.data.decoding import Box
from equimetric.data.file_list import FileList
from equimetric.data.registry import dataset
from equimetric.errors import EquimetricError, quote

__all__ = ["load_cub"]

TRAINING_CLASSES = 100

CUB = Archive(
    title="CUB-200-2011",
    folder="CUB_200_2011",
    tree="""
CUB_200_2011/
  images.txt              "1 001.Black_footed_Albatross/Black_Footed_Albatross_0046_18.jpg"
  image_class_labels.txt  "1 1"
  classes.txt             "1 001.Black_footed_Albatross"
  images/001.Black_footed_Albatross/*.jpg …
  bounding_boxes.txt      "1 60.0 27.0 325.0 304.0", for crop_to_box alone
""",
    published="https://www.vision.caltech.edu/datasets/cub_200_2011/ (not the smaller CUB-200 of 2010)",
    counts={"train": (100, 5_864), "test": (100, 5_924)},
)


@dataset("cub")
@CUB.loader
def load_cub(root: Path, *, crop_to_box: bool = False) -> FileList:
    """CUB-200-2011, 200 bird species: the first 100 classes for training, the others for the test.

    The archive's train_test_split.txt is for another task, with the same classes in both parts, and is not used.
    `crop_to_box` crops every image to its bounding box: a deviation from the zero-shot protocol, with results that are
    not comparable to those on whole images.
    """
    root = CUB.locate(root, "images.txt", "image_class_labels.txt", "classes.txt", "images")
    name_of_class = _read_class_names(root / "classes.txt")
    class_of = dict(read_lines(root / "image_class_labels.txt", 2))
    images = read_lines(root / "images.txt", 2)
    for image_id, _ in images:
        if image_id not in class_of:
            raise EquimetricError(
                f"'image_class_labels.txt' in {str(root)!r} has no class of image {quote(image_id)}; "
                "unpack the archive again"
            )
    class_of_image = {
        image_id: read_number(label, root / "image_class_labels.txt") for image_id, label in class_of.items()
    }
    for label in class_of_image.values():
        if label not in name_of_class:
            raise EquimetricError(f"'classes.txt' in {str(root)!r} has no class {label}; unpack the archive again")
    return FileList(
        name="cub",
        root=root,
        files=[root / "images" / path for _, path in images],
        classes=[name_of_class[class_of_image[image_id]] for image_id, _ in images],
        class_order=tuple(name_of_class[label] for label in sorted(name_of_class)),
        parts=["train" if class_of_image[image_id] <= TRAINING_CLASSES else "test" for image_id, _ in images],
        boxes=_boxes(root, [image_id for image_id, _ in images]) if crop_to_box else None,
    )


def _read_class_names(file: Path) -> dict[int, str]:
    return {read_number(class_id, file): name for class_id, name in read_lines(file, 2)}


def _boxes(root: Path, image_ids: Sequence[str]) -> list[Box]:
    """The bounding box of each image by its number: x, y, width, height."""
    file = root / "bounding_boxes.txt"
    if not file.exists():
        raise CUB.missing_error(root, file.name)
    box_of_image = {image_id: _box(file, values) for image_id, *values in read_lines(file, 5)}
    for image_id in image_ids:
        if image_id not in box_of_image:
            raise EquimetricError(f"{str(file)!r} has no box of image {image_id}; unpack the archive again")
    return [box_of_image[image_id] for image_id in image_ids]


def _box(file: Path, values: Sequence[str]) -> Box:
    try:
        x, y, width, height = map(float, values)
    except ValueError:
        raise EquimetricError(f"{str(file)!r} has the box {' '.join(values)!r}; it should be four numbers") from None
    return x, y, width, height
