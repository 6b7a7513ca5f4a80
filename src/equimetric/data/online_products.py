"""Stanford Online Products (Song, Xiang, Jegelka, Savarese, 2016)."""

from pathlib import Path

from equimetric.data.archive import Archive, read_lines, read_number
from equimetric.data.file_list import FileList
from equimetric.data.registry import dataset

__all__ = ["load_online_products"]

LISTS = {"train": "Ebay_train.txt", "test": "Ebay_test.txt"}

ONLINE_PRODUCTS = Archive(
    title="Stanford Online Products",
    folder="Stanford_Online_Products",
    tree="""
Stanford_Online_Products/
  Ebay_train.txt     header "image_id class_id super_class_id path"
  Ebay_test.txt
  bicycle_final/111085122871_0.JPG …
""",
    published="https://cvgl.stanford.edu/projects/lifted_struct/",
    counts={"train": (11_318, 59_551), "test": (11_316, 60_502)},
)


@dataset("online_products")
@ONLINE_PRODUCTS.loader
def load_online_products(root: Path) -> FileList:
    """Stanford Online Products, 22,634 products in 12 groups, split by the archive's own lists.

    Per class: `group`, such as 'bicycle'.
    """
    root = ONLINE_PRODUCTS.locate(root, *LISTS.values())
    rows = [(part, *row[1:]) for part, file in LISTS.items() for row in read_lines(root / file, 4, skip=1)]
    products = sorted(
        {product for _, product, _, _ in rows}, key=lambda product: read_number(product, root / LISTS["train"])
    )
    return FileList(
        name="online_products",
        root=root,
        files=[root / path for _, _, _, path in rows],
        classes=[product for _, product, _, _ in rows],
        class_order=products,
        parts=[part for part, _, _, _ in rows],
        class_attributes={
            "group": {product: Path(path).parts[0].removesuffix("_final") for _, product, _, path in rows}
        },
    )
