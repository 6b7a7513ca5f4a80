"""iNaturalist-2018 (Van Horn et al., 2018) with the split for metric learning of Smooth-AP (Brown et al., 2020)."""

from pathlib import Path, PurePosixPath

from equimetric.data.archive import Archive, read_text
from equimetric.data.file_list import FileList
from equimetric.data.registry import dataset
from equimetric.errors import EquimetricError

__all__ = ["load_inaturalist"]

IMAGES = "train_val2018"
LISTS = {
    "train": "Inat_dataset_splits/Inaturalist_train_set1.txt",
    "test": "Inat_dataset_splits/Inaturalist_test_set1.txt",
}

INATURALIST = Archive(
    title="iNaturalist-2018",
    folder="Inaturalist",
    tree="""
train_val2018/<supercategory>/<class number>/<hash>.jpg …
Inat_dataset_splits/Inaturalist_train_set1.txt    one path per line
Inat_dataset_splits/Inaturalist_test_set1.txt
""",
    published=(
        "https://github.com/visipedia/inat_comp/tree/master/2018 (images) and "
        "https://www.robots.ox.ac.uk/~vgg/research/smooth-ap/ (the lists)"
    ),
    counts={"train": (5_690, 325_846), "test": (2_452, 136_093)},
)


@dataset("inaturalist")
@INATURALIST.loader
def load_inaturalist(root: Path) -> FileList:
    """iNaturalist-2018, 8,142 species, with the class-disjoint lists used in metric learning.

    Per class: `supercategory`, such as 'Aves'.
    """
    root = INATURALIST.locate(root, IMAGES, *LISTS.values())
    paths = [(part, _image_path(root / file, line)) for part, file in LISTS.items() for line in _lines(root / file)]
    species = [f"{path.parts[1]}/{path.parts[2]}" for _, path in paths]
    return FileList(
        name="inaturalist",
        root=root,
        files=[root / path for _, path in paths],
        classes=species,
        class_order=sorted(set(species)),
        parts=[part for part, _ in paths],
        class_attributes={"supercategory": {name: name.partition("/")[0] for name in species}},
    )


def _lines(file: Path) -> list[str]:
    return [line.strip() for line in read_text(file).splitlines() if line.strip()]


def _image_path(file: Path, line: str) -> PurePosixPath:
    """train_val2018/<supercategory>/<class>/<image>, without the folders that a list puts in front of it."""
    parts = PurePosixPath(line).parts
    start = parts.index(IMAGES) if IMAGES in parts else -1
    if start < 0 or len(parts) - start != 4:
        raise EquimetricError(
            f"{str(file)!r} has the line {line!r}; lines should read {IMAGES}/<supercategory>/<class>/<image>"
        )
    return PurePosixPath(*parts[start:])
