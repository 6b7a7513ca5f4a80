"""Cars-196: cars by make, model and year (Krause, Stark, Deng, Fei-Fei, 2013)."""

from pathlib import Path
from typing import Any, NamedTuple

from equimetric.data.archive import Archive
from equimetric.data.decoding import Box
from equimetric.data.file_list import FileList
from equimetric.data.registry import dataset
from equimetric.errors import EquimetricError

__all__ = ["load_cars"]

TRAINING_CLASSES = 98

CARS = Archive(
    title="Cars-196",
    folder="stanford_cars",
    tree="""
either                                     or
  cars_annos.mat                             devkit/cars_meta.mat
  car_ims/000001.jpg … 016185.jpg            devkit/cars_train_annos.mat
                                             cars_test_annos_withlabels.mat (here or in devkit/)
                                             cars_train/00001.jpg … 08144.jpg
                                             cars_test/00001.jpg … 08041.jpg
""",
    published="https://ai.stanford.edu/~jkrause/cars/car_dataset.html",
    counts={"train": (98, 8_054), "test": (98, 8_131)},
)


@dataset("cars")
@CARS.loader
def load_cars(root: Path, *, crop_to_box: bool = False) -> FileList:
    """Cars-196, 196 models of cars: the first 98 classes for training, the others for the test.

    Both archives in circulation are read: all images in car_ims, or in cars_train and cars_test, which are pooled
    because that division has the same classes in both parts. Images are in the order of their classes. `crop_to_box`
    crops every image to the archive's bounding box: a deviation from the zero-shot protocol, with results that are not
    comparable to those on whole images.
    """
    root = _locate(root)
    try:
        class_names, images = _one_folder(root) if (root / "cars_annos.mat").exists() else _two_folders(root)
    except EquimetricError:
        raise
    except Exception as error:  # records of another shape raise errors of many kinds
        raise EquimetricError(
            f"the annotations of the cars in {str(root)!r} are not as published ({error!r}); unpack the archive again"
        ) from None
    images.sort(key=lambda image: (image.class_number, image.path))
    names = {class_number: f"{class_number:03d} {name}" for class_number, name in enumerate(class_names, start=1)}
    return FileList(
        name="cars",
        root=root,
        files=[root / image.path for image in images],
        classes=[names[image.class_number] for image in images],
        class_order=tuple(names.values()),
        parts=["train" if image.class_number <= TRAINING_CLASSES else "test" for image in images],
        boxes=[_box(image) for image in images] if crop_to_box else None,
    )


def _locate(root: Path) -> Path:
    for candidate in (root, root / CARS.folder):
        if (candidate / "cars_annos.mat").exists() or (candidate / "devkit").is_dir():
            return candidate
    raise CARS.missing_error(root, "cars_annos.mat or devkit")


class _Annotation(NamedTuple):
    """An image of the archive: its path, the number of its class, and the rest of its MATLAB record."""

    path: str
    class_number: int
    record: Any


def _one_folder(root: Path) -> tuple[list[str], list[_Annotation]]:
    """Class names, and the annotation of every image."""
    content = _read_matlab(root / "cars_annos.mat")
    return _class_names(content), [
        _Annotation(str(record["relative_im_path"].item()), int(record["class"].item()), record)
        for record in content["annotations"].ravel()
    ]


def _two_folders(root: Path) -> tuple[list[str], list[_Annotation]]:
    """The same from the archive with separate folders of 8,144 and 8,041 images."""
    labelled = "cars_test_annos_withlabels.mat"
    annotations = {
        "cars_train": root / "devkit" / "cars_train_annos.mat",
        "cars_test": root / labelled if (root / labelled).exists() else root / "devkit" / labelled,
    }
    for file in (root / "devkit" / "cars_meta.mat", *annotations.values()):
        if not file.exists():
            raise CARS.missing_error(root, file.relative_to(root).as_posix())
    images = [
        _Annotation(f"{folder}/{record['fname'].item()}", int(record["class"].item()), record)
        for folder, file in annotations.items()
        for record in _read_matlab(file)["annotations"].ravel()
    ]
    return _class_names(_read_matlab(root / "devkit" / "cars_meta.mat")), images


def _box(image: _Annotation) -> Box:
    """x, y, width, height from the corners, which count from one; both corners belong to the box."""
    try:
        left, top, right, bottom = (float(image.record[f"bbox_{corner}"].item()) for corner in ("x1", "y1", "x2", "y2"))
    except (ValueError, TypeError):
        raise EquimetricError(
            f"the annotation of {image.path!r} has no bounding box; unpack the archive again, or set crop_to_box=False"
        ) from None
    return left - 1, top - 1, right - left + 1, bottom - top + 1


def _class_names(content: dict[str, Any]) -> list[str]:
    return [str(name.item()) for name in content["class_names"].ravel()]


def _read_matlab(file: Path) -> dict[str, Any]:
    from scipy.io import loadmat

    try:
        content: dict[str, Any] = loadmat(file)
    except Exception as error:  # a damaged file can raise almost anything from inside the reader
        raise EquimetricError(f"{str(file)!r} cannot be read ({error}); unpack the archive again") from None
    return content
