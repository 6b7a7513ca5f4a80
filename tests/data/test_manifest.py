import sys

import pytest
import torch
from PIL import Image

from equimetric.data import load_dataset, split_dataset
from equimetric.errors import EquimetricError, EquimetricWarning


@pytest.fixture
def images(tmp_path, picture):
    for number in range(4):
        picture(tmp_path / "images" / f"{number}.png", seed=number, size=(40, 30))
    return tmp_path


def manifest(folder, text, **options):
    file = folder / "list.csv"
    file.write_text(text, encoding="utf-8")
    return load_dataset("manifest", file=file, **({"size": 8} | options))


ROWS = [("images/0.png", 10), ("images/1.png", 10), ("images/2.png", 9), ("images/3.png", 9)]
PLAIN = "path,label\n" + "".join(f"{path},{label}\n" for path, label in ROWS)


def test_paths_and_labels(images):
    listed = manifest(images, PLAIN)
    assert listed.name == "list"
    assert listed.class_names == ("9", "10")  # whole numbers by value
    assert listed.labels.tolist() == [1, 1, 0, 0]
    assert listed.sample_attributes == {"file": tuple(path for path, _ in ROWS)}
    assert listed.images[torch.arange(4)].shape == (4, 3, 8, 8)


def test_images_in_memory_are_those_in_the_files(images):
    listed, held = manifest(images, PLAIN), manifest(images, PLAIN, in_memory=True)
    assert isinstance(held.images, torch.Tensor)
    assert torch.equal(held.images, listed.images[torch.arange(4)])
    assert held.labels.tolist() == listed.labels.tolist()


def test_other_columns_and_another_root(images):
    text = "\ufefffile;\n".replace(";", ",kind,fold") + "0.png,b,train\n1.png,a,val\n2.png,c,TEST\n"
    listed = manifest(images, text, root=images / "images", path="file", label="kind", split="fold")
    assert listed.class_names == ("a", "b", "c")
    assert listed.sample_attributes["part"] == ("train", "validation", "test")
    split = split_dataset(listed)
    assert [part.tolist() for part in (split.train, split.validation, split.test)] == [[0], [1], [2]]


def test_a_column_of_superclasses_is_a_class_attribute(images):
    text = "path,label,genus\nimages/0.png,b,corvus\nimages/1.png,a,pica\nimages/2.png,b,corvus\n"
    assert manifest(images, text).class_attributes == {}
    assert manifest(images, text, superclass="genus").class_attributes == {"genus": ("pica", "corvus")}
    with pytest.raises(EquimetricError, match=r"row 3 .* puts the label 'b' into 'pica', another row into 'corvus'"):
        manifest(images, text.replace("2.png,b,corvus", "2.png,b,pica"), superclass="genus")
    with pytest.raises(EquimetricError, match="has no column 'family'"):
        manifest(images, text, superclass="family")


def test_query_and_gallery_marks(images):
    rows = ["path,label,split,set", "images/0.png,a,train,", "images/1.png,b,validation,"]
    rows += ["images/2.png,c,test,query", "images/3.png,c,test,Gallery"]
    assert manifest(images, "\n".join(rows)).sample_attributes["part"] == ("train", "validation", "query", "gallery")
    unsplit = "path,label,set\nimages/0.png,a,\nimages/2.png,c,query\nimages/3.png,c,gallery\n"
    assert manifest(images, unsplit).sample_attributes["part"] == ("train", "query", "gallery")


def test_bounding_boxes(images):
    halves = Image.new("RGB", (40, 20), "red")
    halves.paste("blue", (20, 0, 40, 20))
    halves.save(images / "halves.png")
    listed = manifest(images, "path,label,x,y,w,h\nhalves.png,a,0,0,20,20\nhalves.png,a,20,0,20,20\nhalves.png,a,,,,\n")
    left, right, whole = listed.images[torch.arange(3)]
    assert left[:, 4, 4].tolist() == [255, 0, 0]
    assert right[:, 4, 4].tolist() == [0, 0, 255]
    assert whole[0].float().mean().item() == pytest.approx(127, abs=20)
    other = manifest(
        images, "path,label,x,y,w,h\nhalves.png,a,0,0,20,20\nhalves.png,a,20,0,20,20\nhalves.png,a,0,0,9,9\n"
    )
    assert other.fingerprint != listed.fingerprint


def test_a_box_outside_its_image_counts_as_damaged(images):
    with pytest.raises(EquimetricError, match=r"0.png \(the bounding box .* lies outside the image\)"):
        manifest(images, "path,label,x,y,w,h\nimages/0.png,a,500,0,20,20\nimages/1.png,a,0,0,20,20\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no column 'path'; there are none"),
        ("path,label\n", "has no rows"),
        ("path,lable\nimages/0.png,a\n", "has no column 'label'; did you mean 'lable'?"),
        ("path,label\nimages/0.png\n", "line 2 of"),
        ("path,label\nimages/0.png,\n", "row 1 of"),
        ("path,label,split\nimages/0.png,a,trian\n", "'trian'; did you mean 'train'?"),
        ("path,label,split\nimages/0.png,a,\n", "has a row without a part"),
        ("path,label,split,set\nimages/0.png,a,train,query\n", "only test images can be"),
        ("path,label,set\nimages/0.png,a,probe\n", "unknown mark"),
        ("path,label,split,set\nimages/0.png,a,test,query\nimages/1.png,a,test,\n", "mark all of them or none"),
        ("path,label,x,y\nimages/0.png,a,1,2\n", "has the columns x, y; a bounding box needs x, y, w and h"),
        ("path,label,x,y,w,h\nimages/0.png,a,1,2,b,4\n", "give four numbers"),
        ("path,label,x,y,w,h\nimages/0.png,a,1,2,0,4\n", "bounding box of 0×4 pixels"),
        ("path,label\nimages/9.png,a\n", "9.png' (number 1 of 1) is not there"),
    ],
)
def test_mistakes_are_explained(images, text, message):
    with pytest.raises(EquimetricError) as caught:
        manifest(images, text)
    assert message in str(caught.value)


@pytest.mark.parametrize("way", ["../secret.png", "{parent}/secret.png", "images/../../secret.png"])
def test_a_list_may_leave_its_root_only_if_told(images, picture, way):
    lists = images / "lists"
    lists.mkdir()
    picture(images / "secret.png")
    picture(lists / "images" / "0.png")
    text = f"path,label\nimages/0.png,a\n{way.format(parent=images)},a\n"
    with pytest.raises(EquimetricError, match=r"row 2 of .*list.csv' leads out of '.*lists': .*outside_root = true"):
        manifest(lists, text)
    assert len(manifest(lists, text, outside_root=True)) == 2
    with pytest.raises(EquimetricError, match="option 'outside_root' of data set 'manifest' is true or false, not 1"):
        manifest(lists, text, outside_root=1)


def test_absolute_paths_and_links_inside_the_root_are_fine(images, picture, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    picture(elsewhere / "a.png")
    (images / "linked").symlink_to(elsewhere)
    text = f"path,label\n{images}/images/0.png,a\nimages/../images/1.png,a\nlinked/a.png,a\n"
    assert len(manifest(images, text)) == 3


def test_missing_files_and_small_classes_are_left_out(images):
    text = PLAIN + "images/9.png,9\nimages/3.png,8\n"
    with pytest.raises(EquimetricError, match=r"9.png' \(number 5 of 6\) is not there; .*damaged='skip'"):
        manifest(images, text)
    with pytest.warns(EquimetricWarning) as said:
        listed = manifest(images, text, damaged="skip", min_images=2)
    assert [str(warning.message).split(";")[0] for warning in said] == [
        f"1 image file(s) cannot be read and are left out: {images / 'images' / '9.png'} (it is not there)",
        "1 class(es) with fewer than min_images = 2 images are left out: 8 (1)",
    ]
    assert listed.class_names == ("9", "10")
    assert len(listed) == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"path,label\nimages/0.png,{'7' * 5000}\nimages/1.png,{'8' * 5000}\n", None),
        (f"path,label,x,y,w,h\nimages/0.png,a,{'7' * 5000},2,3,4\n", "has the bounding box .* give four numbers"),
        ("path,label,x,y,w,h\nimages/0.png,a,nan,2,3,4\n", "give four numbers"),
        ("path,label,x,y,w,h\nimages/0.png,a,1,2,inf,4\n", "give four numbers"),
        (f"path,label\n{'a' * 5000}.png,a\n", r"cannot be read; .* \(it cannot be read \(File name too long\)\)"),
        ("path,label\nima\0ges/0.png,a\n", r"\(it has a name that no file can have\)"),
        ("path,label\n,a\n", "row 1 of .* has no path; name an image in every row"),
        (f"path,label\nimages/0.png,{'a' * 200_000}\n", r"not a .csv file in UTF-8 \(field larger than field limit"),
    ],
)
def test_hostile_lists(images, text, message):
    if message is None:
        assert manifest(images, text).classes == 2
        return
    with pytest.raises(EquimetricError, match=message) as caught:
        manifest(images, text)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_tables(images):
    with pytest.raises(EquimetricError, match="there is no file"):
        load_dataset("manifest", file=images / "nothing.csv")
    with pytest.raises(EquimetricError, match=r"neither a .csv nor a .parquet file"):
        load_dataset("manifest", file=images / "images" / "0.png")
    (images / "latin.csv").write_bytes("path,label\nä,b\n".encode("latin-1"))
    with pytest.raises(EquimetricError, match=r"not a .csv file in UTF-8"):
        load_dataset("manifest", file=images / "latin.csv")


def test_parquet_without_pyarrow(images, monkeypatch):
    (images / "list.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(EquimetricError, match="needs pyarrow; install it with: pip install pyarrow"):
        load_dataset("manifest", file=images / "list.parquet")


def test_parquet(images):
    import pyarrow
    from pyarrow import parquet

    columns = {"path": [path for path, _ in ROWS], "label": [10, 10, 9, 9], "split": ["train"] * 2 + ["test"] * 2}
    columns |= {"x": [1.0, None, 0.0, 0.0], "y": [1, None, 0, 0], "w": [9.0, None, 5.0, 5.0], "h": [9, None, 5, 5]}
    parquet.write_table(pyarrow.table(columns), images / "list.parquet")
    listed = load_dataset("manifest", file=images / "list.parquet", size=8)
    assert listed.class_names == ("9", "10")
    assert listed.images.store.boxes[:2] == ((1.0, 1.0, 9.0, 9.0), None)
    assert listed.sample_attributes["part"] == ("train", "train", "test", "test")
    (images / "list.parquet").write_bytes(b"none")
    with pytest.raises(EquimetricError, match=r"is not a .parquet file \("):
        load_dataset("manifest", file=images / "list.parquet")
