"""In-Shop Clothes Retrieval of DeepFashion (Liu, Luo, Qiu, Wang, Tang, 2016)."""

from pathlib import Path

from equimetric.data.archive import Archive, read_lines
from equimetric.data.file_list import FileList
from equimetric.data.registry import dataset
from equimetric.errors import EquimetricError

__all__ = ["load_in_shop"]

HEADER_LINES = 2  # the number of images, and the names of the columns
PARTITION = "list_eval_partition.txt"

IN_SHOP = Archive(
    title="In-Shop Clothes Retrieval",
    folder="In-shop Clothes Retrieval Benchmark",
    tree="""
Eval/list_eval_partition.txt    "img/WOMEN/Dresses/id_00000002/02_1_front.jpg id_00000002 train"
Img/img/WOMEN/Dresses/id_00000002/02_1_front.jpg …
""",
    published="https://mmlab.ie.cuhk.edu.hk/projects/DeepFashion/InShopRetrieval.html",
    counts={"train": (3_997, 25_882), "query": (3_985, 14_218), "gallery": (3_985, 12_612)},
)


@dataset("in_shop")
@IN_SHOP.loader
def load_in_shop(root: Path) -> FileList:
    """In-Shop Clothes Retrieval, 7,982 pieces of clothing: queries are searched for in a gallery of other images."""
    roots = [candidate for candidate in (root, root / IN_SHOP.folder) if candidate.is_dir()]
    partition = next((file for r in roots for file in (r / "Eval" / PARTITION, r / PARTITION) if file.exists()), None)
    if partition is None:
        raise IN_SHOP.missing_error(root, f"Eval/{PARTITION}")
    base = partition.parent.parent if partition.parent.name == "Eval" else partition.parent
    images = next((folder for folder in (base / "Img", base) if (folder / "img").is_dir()), None)
    if images is None:
        raise IN_SHOP.missing_error(base, "Img/img")
    rows = read_lines(partition, 3, skip=HEADER_LINES)
    for path, _, status in rows:
        if status not in IN_SHOP.counts:
            raise EquimetricError(
                f"{str(partition)!r} says {status!r} of {path!r}; it should be train, query or gallery"
            )
    return FileList(
        name="in_shop",
        root=base,
        files=[images / path for path, _, _ in rows],
        classes=[item for _, item, _ in rows],
        class_order=sorted({item for _, item, _ in rows}),
        parts=[status for _, _, status in rows],
    )
