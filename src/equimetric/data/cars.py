"""Cars-196: cars by make, model and year (Krause, Stark, Deng, Fei-Fei, 2013)."""

from pathlib import Path
from typing import Any

from equimetric.data.archive import Archive
from equimetric.data.dataset import Dataset, builtin_dataset
from equimetric.data.file_list import Damaged, FileList
from equimetric.data.image_files import CacheKind
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


@builtin_dataset("cars")
def load_cars(
    *,
    root: str | Path,
    size: int = 224,
    channels: int = 3,
    damaged: Damaged = "refuse",
    cache: CacheKind = "none",
    accept_counts: bool = False,
) -> Dataset:
    """Cars-196, 196 models of cars: the first 98 classes for training, the others for the test.

    Both archives in circulation are read: all images in car_ims, or in cars_train and cars_test, which are pooled
    because that division has the same classes in both parts. Images are in the order of their classes.
    """
    root = _locate(Path(root).expanduser())
    class_names, images = _one_folder(root) if (root / "cars_annos.mat").exists() else _two_folders(root)
    images.sort(key=lambda image: (image[1], image[0]))
    names = {number: f"{number:03d} {name}" for number, name in enumerate(class_names, start=1)}
    listed = FileList(
        name="cars",
        root=root,
        files=[root / path for path, _ in images],
        classes=[names[number] for _, number in images],
        class_order=tuple(names.values()),
        parts=["train" if number <= TRAINING_CLASSES else "test" for _, number in images],
    )
    CARS.check(listed, accept=accept_counts)
    return listed.dataset(size=size, channels=channels, damaged=damaged, cache=cache)


def _locate(root: Path) -> Path:
    for candidate in (root, root / CARS.folder):
        if (candidate / "cars_annos.mat").exists() or (candidate / "devkit").is_dir():
            return candidate
    raise CARS.missing(root, "cars_annos.mat or devkit")


def _one_folder(root: Path) -> tuple[list[str], list[tuple[str, int]]]:
    """Class names, and path and class number of every image."""
    content = _read_matlab(root / "cars_annos.mat")
    return _class_names(content), [
        (str(annotation["relative_im_path"].item()), int(annotation["class"].item()))
        for annotation in content["annotations"].ravel()
    ]


def _two_folders(root: Path) -> tuple[list[str], list[tuple[str, int]]]:
    """The same from the archive that keeps 8,144 and 8,041 images apart."""
    labelled = "cars_test_annos_withlabels.mat"
    annotations = {
        "cars_train": root / "devkit" / "cars_train_annos.mat",
        "cars_test": root / labelled if (root / labelled).exists() else root / "devkit" / labelled,
    }
    for file in (root / "devkit" / "cars_meta.mat", *annotations.values()):
        if not file.exists():
            raise CARS.missing(root, file.relative_to(root).as_posix())
    images = [
        (f"{folder}/{annotation['fname'].item()}", int(annotation["class"].item()))
        for folder, file in annotations.items()
        for annotation in _read_matlab(file)["annotations"].ravel()
    ]
    return _class_names(_read_matlab(root / "devkit" / "cars_meta.mat")), images


def _class_names(content: dict[str, Any]) -> list[str]:
    return [str(name.item()) for name in content["class_names"].ravel()]


def _read_matlab(file: Path) -> dict[str, Any]:
    from scipy.io import loadmat

    try:
        content: dict[str, Any] = loadmat(file)
    except Exception as error:  # a damaged file can raise almost anything from inside the reader
        raise EquimetricError(f"{str(file)!r} cannot be read ({error}); unpack the archive again") from None
    return content
