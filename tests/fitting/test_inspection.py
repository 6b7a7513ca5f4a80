import shutil

import pytest
from photos import write_photos

from equimetric.errors import EquimetricError
from equimetric.fitting.inspection import inspect_data, read_source
from equimetric.fitting.plan import make_plan
from equimetric.runs.configuration import DataConfig, ModelConfig


def inspect(root):
    return inspect_data(DataConfig.model_validate(read_source(root)), ModelConfig())


def test_what_is_found_in_a_folder(tmp_path):
    root = write_photos(tmp_path / "photos", classes=12)
    (root / "class-03" / "2.png").write_bytes(b"no picture")
    shutil.copy(root / "class-05" / "0.png", root / "class-05" / "copy.png")
    shutil.copy(root / "class-06" / "0.png", root / "class-07" / "copy.png")
    lonely = root / "lonely"
    lonely.mkdir()
    shutil.copy(root / "class-00" / "0.png", lonely / "only.png")
    (root / "class-00" / "notes.heic").write_text("x")

    found = inspect(root)
    assert found.images["class-03"] == 5
    assert sum(found.images.values()) == len(found.dataset) == 12 * 6 - 1 + 2
    assert [pair.parts for pair in found.across] == [("class-06", "class-07")]
    assert ["class-06", "class-07"] in found.classes_together()
    assert len(found.classes_together()) == 11
    text = "\n".join(found.describe())
    assert "73 images of 12 classes; 5 to 7 in a class, median 6" in text
    assert "damaged files, left out: 1, class-03/2.png (" in text
    assert "classes of one image or none, left out: 1, lonely" in text
    assert "files that are not read, left out: 1, class-00/notes.heic (" in text
    assert "pairs of nearly equal images: 2, 2 of them equal; 1 inside a class, 1 in two classes" in text
    assert (
        "classes that share images stay in one part, so that nothing leaks: class-06/0.png ~ class-07/copy.png" in text
    )


def test_classes_that_share_images_through_others_are_one_group(tmp_path):
    root = write_photos(tmp_path / "photos", classes=4)
    shutil.copy(root / "class-00" / "0.png", root / "class-01" / "copy.png")
    shutil.copy(root / "class-01" / "1.png", root / "class-03" / "copy.png")
    assert inspect(root).classes_together() == [["class-00", "class-01", "class-03"], ["class-02"]]


def test_a_clean_folder_says_so(tmp_path):
    assert "no image occurs twice" in list(inspect(write_photos(tmp_path / "photos", classes=4)).describe())


def test_a_list_of_images_is_found_by_its_usual_columns(tmp_path):
    root = write_photos(tmp_path / "photos", classes=3, images=2)
    table = tmp_path / "images.csv"
    files = sorted(root.rglob("*.png"))
    table.write_text(
        "file,class_name,x\n" + "".join(f"photos/{f.parent.name}/{f.name},{f.parent.name},\n" for f in files)
    )
    options = read_source(table)["options"]
    assert (options["path"], options["label"]) == ("file", "class_name")
    assert read_source(table, label="x")["options"]["label"] == "x"


@pytest.mark.parametrize(
    ("name", "message"),
    [("photos.txt", "is no folder with one folder per class"), ("no.csv", "there is no folder and no list of images")],
)
def test_what_is_neither_a_folder_nor_a_list_is_one_sentence(tmp_path, name, message):
    if name.endswith("txt"):
        (tmp_path / name).write_text("x")
    with pytest.raises(EquimetricError, match=message):
        make_plan(tmp_path / name, backbone="small_cnn")


def test_what_cannot_be_read_is_one_sentence(tmp_path):
    with pytest.raises(EquimetricError, match=r"there is no folder and no list of images .*photos.; check the path"):
        read_source(tmp_path / "photos")
    listed = tmp_path / "list.csv"
    listed.write_text("picture,product\na.png,a\n")
    with pytest.raises(EquimetricError, match=r"no column path, file or image; .* by --path: picture, product"):
        read_source(listed)
    with pytest.raises(EquimetricError, match=r"no column label, class or class_name; .* by --label: picture, product"):
        read_source(listed, path="picture")
    assert read_source(listed, path="picture", label="product")["options"]["label"] == "product"
