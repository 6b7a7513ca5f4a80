"""Every public archive as a miniature tree in its own layout."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat

from equimetric.data import ImageFiles, load_dataset, split_dataset
from equimetric.data import cub as module
from equimetric.errors import EquimetricError, EquimetricWarning


def write(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


def load(name, root, **options):
    return load_dataset(name, root=root, **({"size": 8, "accept_counts": True} | options))


def parts_by_class(dataset):
    found = {}
    for label, part in zip(dataset.labels.tolist(), dataset.sample_attributes["part"], strict=True):
        found.setdefault(dataset.class_names[label], set()).add(part)
    return found


@pytest.fixture
def cub(tmp_path, picture):
    """Classes 1, 2, 100, 101 and 200 of CUB, two images each."""
    root = tmp_path / "CUB_200_2011"
    classes = {
        1: "001.Black_footed_Albatross",
        2: "002.Laysan",
        100: "100.Pelican",
        101: "101.White",
        200: "200.Yellow",
    }
    images, labels = [], []
    for number, name in classes.items():
        for copy in range(2):
            picture(root / "images" / name / f"{name}_{copy}.jpg", seed=len(images))
            images.append(f"{len(images) + 1} {name}/{name}_{copy}.jpg")
            labels.append(f"{len(labels) + 1} {number}")
    write(root / "images.txt", *images)
    write(root / "image_class_labels.txt", *labels)
    write(root / "classes.txt", *(f"{number} {name}" for number, name in classes.items()))
    write(root / "train_test_split.txt", *(f"{number} {number % 2}" for number in range(1, 11)))
    (root / "images" / "002.Laysan" / "._hidden.jpg").write_text("resource fork")
    return root


def test_cub(cub):
    for root in (cub, cub.parent):
        birds = load("cub", root)
        assert isinstance(birds.images, ImageFiles)
        assert birds.images.shape == (10, 3, 8, 8)
        assert parts_by_class(birds) == {
            "001.Black_footed_Albatross": {"train"},
            "002.Laysan": {"train"},
            "100.Pelican": {"train"},
            "101.White": {"test"},
            "200.Yellow": {"test"},
        }
        assert birds.sample_attributes["file"][2] == "images/002.Laysan/002.Laysan_0.jpg"


def mean_colour(dataset, index):
    return dataset.images[index].float().mean(dim=(1, 2)).round().tolist()


def two_colours(path, size, inside, box):
    """A white picture with a box of another colour."""
    image = Image.new("RGB", size, "white")
    image.paste(inside, box)
    image.save(path, quality=95)


def test_cub_cropped_to_its_bounding_boxes(cub):
    birds = [line.split()[1] for line in (cub / "images.txt").read_text().splitlines()]
    for path in birds:
        two_colours(cub / "images" / path, (60, 40), (20, 120, 60), (20, 10, 44, 34))
    whole = load("cub", cub)
    with pytest.raises(EquimetricError, match=r"has no 'bounding_boxes.txt'"):
        load("cub", cub, crop_to_box=True)
    write(cub / "bounding_boxes.txt", *(f"{number} 20.0 10.0 24.0 24.0" for number in range(10, 0, -1)))
    cropped = load("cub", cub, crop_to_box=True)
    assert mean_colour(cropped, 3) == pytest.approx([20, 120, 60], abs=6)
    assert min(mean_colour(whole, 3)) > 100
    assert load("cub", cub).fingerprint == whole.fingerprint != cropped.fingerprint
    write(cub / "bounding_boxes.txt", "1 20.0 10.0 24.0 wide")
    with pytest.raises(EquimetricError, match=r"has the box '20.0 10.0 24.0 wide'; it should be four numbers"):
        load("cub", cub, crop_to_box=True)
    write(cub / "bounding_boxes.txt", "1 20.0 10.0 24.0 24.0")
    with pytest.raises(EquimetricError, match=r"bounding_boxes.txt' has no box of image 2; unpack"):
        load("cub", cub, crop_to_box=True)


def test_wrong_counts_are_stated(cub):
    with pytest.raises(EquimetricError) as caught:
        load("cub", cub, accept_counts=False)
    message = str(caught.value)
    assert "train: 3 classes and 6 images instead of 100 and 5,864" in message
    assert "test: 2 classes and 4 images instead of 100 and 5,924" in message
    assert "accept_counts=True" in message


def test_right_counts_pass(cub, monkeypatch):
    miniature = replace(module.CUB, counts={"train": (3, 6), "test": (2, 4)})
    monkeypatch.setattr(module.load_cub, "archive", miniature)
    assert len(load("cub", cub, accept_counts=False)) == 10


@pytest.mark.parametrize(
    ("name", "tree", "published"),
    [
        ("cub", "images/001.Black_footed_Albatross/*.jpg", "vision.caltech.edu"),
        ("cars", "car_ims/000001.jpg", "ai.stanford.edu"),
        ("online_products", "Ebay_train.txt", "cvgl.stanford.edu"),
        ("in_shop", "Eval/list_eval_partition.txt", "mmlab.ie.cuhk.edu.hk"),
        ("inaturalist", "Inat_dataset_splits/Inaturalist_train_set1.txt", "visipedia/inat_comp"),
        ("omniglot", "images_background/", "brendenlake/omniglot"),
    ],
)
def test_a_missing_archive_shows_the_tree_and_where_it_is_published(tmp_path, name, tree, published):
    for root, problem in ((tmp_path, "has no '"), (tmp_path / "nowhere", "there is no folder")):
        with pytest.raises(EquimetricError) as caught:
            load(name, root)
        assert problem in str(caught.value)
        assert tree in str(caught.value)
        assert published in str(caught.value)


def test_a_list_with_a_broken_line(cub):
    write(cub / "classes.txt", "1 001.Black_footed_Albatross", "2")
    with pytest.raises(EquimetricError, match=r"line 2 of .*classes.txt' should have 2 fields: '2'"):
        load("cub", cub)


def test_a_missing_file_does_not_block_an_archive(cub, cut):
    (cub / "images" / "002.Laysan" / "002.Laysan_1.jpg").unlink()
    cut(cub / "images" / "101.White" / "101.White_0.jpg")
    with pytest.warns(
        UserWarning, match=r"2 image file\(s\) cannot be read and are left out: .*_1.jpg \(it is not there"
    ):
        birds = load("cub", cub, damaged="skip")
    assert len(birds) == 8
    assert len(birds.unreadable) == 2
    assert birds.images[torch.arange(8)].shape == (8, 3, 8, 8)
    with pytest.warns(EquimetricWarning) as said:
        birds = load("cub", cub, damaged="skip", min_images=2)
    assert str(said[1].message).endswith("left out: 002.Laysan (1), 101.White (1)")
    assert birds.class_names == ("001.Black_footed_Albatross", "100.Pelican", "200.Yellow")


def test_missing_folders_of_omniglot_do_not_block_it(tmp_path, picture):
    for character in ("images_background/Greek/character01", "images_evaluation/Elvish/character01"):
        for copy in range(2):
            picture(tmp_path / character / f"0_{copy}.png")
    picture(tmp_path / "images_background/Greek/character02/0_0.png")
    (tmp_path / "images_background/Greek/character02/0_1.png").write_bytes(b"")
    (tmp_path / "images_background/Greek/character02/0_2.heic").write_bytes(b"\0\0\0\x18ftypheic")
    with pytest.warns(EquimetricWarning) as said:
        characters = load("omniglot", tmp_path, damaged="skip", min_images=2)
    assert len(said) == 3
    assert characters.class_names == ("Greek/character01", "Elvish/character01")
    assert (len(characters.unreadable), len(characters.skipped)) == (1, 1)
    assert characters.small_classes == {"Greek/character02": 1}


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("classes.txt", "1 001.Black_footed_Albatross\n", r"'classes.txt' in .* has no class 2; unpack"),
        ("classes.txt", f"{'1' * 5000} bird\n", r"in place of a whole number; unpack"),
        ("classes.txt", b"1 caf\xe9\n", r"classes.txt' cannot be read as text .*; unpack"),
        ("image_class_labels.txt", "1 1\n", r"'image_class_labels.txt' in .* has no class of image '2'; unpack"),
        ("image_class_labels.txt", "1 one\n", r"has no class of image '2'"),
        ("images.txt", "1\n", r"line 1 of .*images.txt' should have 2 fields"),
        ("images.txt", "1 ../../secret.jpg\n", r"CUB-200-2011 lists a file outside of its folder: .*secret.jpg"),
        ("images.txt", "1 /etc/secret.jpg\n", r"CUB-200-2011 lists a file outside of its folder: '/etc/secret.jpg'"),
    ],
)
def test_damaged_and_hostile_lists_of_an_archive(cub, file, content, message):
    (cub / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(EquimetricError, match=message) as caught:
        load("cub", cub)
    assert "\n" not in str(caught.value)


def test_annotations_of_another_shape(tmp_path):
    savemat(tmp_path / "cars_annos.mat", {"something": np.zeros(3)})
    with pytest.raises(EquimetricError, match=r"annotations of the cars in .* are not as published \(KeyError"):
        load("cars", tmp_path)


def test_an_image_of_the_list_that_is_not_there(cub):
    (cub / "images" / "002.Laysan" / "002.Laysan_1.jpg").unlink()
    with pytest.raises(
        EquimetricError, match=r"002.Laysan_1.jpg' \(number 4 of 10\) is not there; check that the archive"
    ):
        load("cub", cub)


def test_damaged_images_of_an_archive(cub, cut):
    damaged = cub / "images" / "002.Laysan" / "002.Laysan_0.jpg"
    cut(damaged)
    with pytest.raises(
        EquimetricError, match=r"1 image file\(s\) cannot be read; .*damaged='skip': .*002.Laysan_0.jpg"
    ):
        load("cub", cub)
    with pytest.warns(UserWarning, match=r"1 image file\(s\) cannot be read and are left out: .*002.Laysan_0.jpg"):
        rest = load("cub", cub, damaged="skip")
    assert len(rest) == 9
    assert [reason.partition(" (")[0] for reason in rest.unreadable] == [str(damaged)]
    assert rest.sample_attributes["part"] == ("train",) * 5 + ("test",) * 4
    with pytest.warns(UserWarning, match="1 image"):
        cached = load("cub", cub, damaged="skip", cache="disk")
    assert torch.equal(cached.images[torch.arange(9)], rest.images[torch.arange(9)])
    cut(cub / "images" / "002.Laysan" / "002.Laysan_1.jpg")
    with pytest.warns(UserWarning, match="2 image"):
        assert "002.Laysan" not in load("cub", cub, damaged="skip").class_names
    with pytest.raises(EquimetricError, match="damaged must be 'refuse' or 'skip', not 'ignore'"):
        load("cub", cub, damaged="ignore")


CARS = {"000001.jpg": 99, "000002.jpg": 1, "000003.jpg": 98, "000004.jpg": 196, "000005.jpg": 1}
MODELS = np.array([f"Model {number}" for number in range(1, 197)], dtype=object)


def annotations(name_field, names, classes, **others):
    """A struct array as MATLAB stores it."""
    kinds = [(name_field, object), ("class", object), *((key, object) for key in others)]
    array = np.zeros((1, len(names)), dtype=kinds)
    for place, (name, number) in enumerate(zip(names, classes, strict=True)):
        array[0, place] = (name, np.uint8(number), *others.values())
    return array


@pytest.fixture
def cars_in_one_folder(tmp_path, picture):
    for number, name in enumerate(CARS):
        picture(tmp_path / "car_ims" / name, seed=number)
    paths = [f"car_ims/{name}" for name in CARS]
    struct = annotations("relative_im_path", paths, CARS.values(), bbox_x1=np.uint8(3), test=np.uint8(1))
    savemat(tmp_path / "cars_annos.mat", {"annotations": struct, "class_names": MODELS})
    return tmp_path


@pytest.fixture
def cars_in_two_folders(tmp_path, picture):
    """The same pictures in the other layout; both folders count from one."""
    root = tmp_path / "stanford_cars"
    (root / "devkit").mkdir(parents=True)
    for folder, chosen, file in (
        ("cars_train", list(CARS)[:3], root / "devkit" / "cars_train_annos.mat"),
        ("cars_test", list(CARS)[3:], root / "cars_test_annos_withlabels.mat"),
    ):
        names = [f"{number:05d}.jpg" for number in range(1, len(chosen) + 1)]
        for name, source in zip(names, chosen, strict=True):
            picture(root / folder / name, seed=list(CARS).index(source))
        savemat(file, {"annotations": annotations("fname", names, [CARS[source] for source in chosen])})
    savemat(root / "devkit" / "cars_meta.mat", {"class_names": MODELS})
    return root


CORNERS = {"bbox_x1": 21, "bbox_y1": 11, "bbox_x2": 44, "bbox_y2": 34}  # of the pixels 20 to 43 and 10 to 33


@pytest.mark.parametrize("layout", ["one folder", "two folders"])
def test_cars_cropped_to_their_bounding_boxes(tmp_path, layout):
    names = list(CARS)
    for folder in ("car_ims", "cars_train", "cars_test", "devkit"):
        (tmp_path / folder).mkdir()
        for name in names:
            two_colours(tmp_path / folder / name, (60, 40), (20, 120, 60), (20, 10, 44, 34))
    corners = {key: np.uint16(value) for key, value in CORNERS.items()}
    if layout == "one folder":
        paths = [f"car_ims/{name}" for name in names]
        struct = annotations("relative_im_path", paths, CARS.values(), **corners)
        savemat(tmp_path / "cars_annos.mat", {"annotations": struct, "class_names": MODELS})
    else:
        savemat(tmp_path / "devkit" / "cars_meta.mat", {"class_names": MODELS})
        for file in ("cars_train_annos.mat", "cars_test_annos_withlabels.mat"):
            struct = annotations("fname", names, CARS.values(), **corners)
            savemat(tmp_path / "devkit" / file, {"annotations": struct})
    cropped = load("cars", tmp_path, crop_to_box=True)
    assert cropped.images.store.box(0) == (20, 10, 24, 24)
    assert mean_colour(cropped, 0) == pytest.approx([20, 120, 60], abs=6)
    assert min(mean_colour(load("cars", tmp_path), 0)) > 100


def test_cars_without_boxes_cannot_be_cropped_to_them(cars_in_two_folders):
    with pytest.raises(EquimetricError, match=r"the annotation of 'cars_test/00002.jpg' has no bounding box"):
        load("cars", cars_in_two_folders, crop_to_box=True)


def check_cars(cars):
    assert parts_by_class(cars) == {
        "001 Model 1": {"train"},
        "098 Model 98": {"train"},
        "099 Model 99": {"test"},
        "196 Model 196": {"test"},
    }
    assert cars.labels.tolist() == [0, 0, 1, 2, 3]


def test_cars_in_one_folder(cars_in_one_folder):
    cars = load("cars", cars_in_one_folder)
    check_cars(cars)
    assert cars.sample_attributes["file"][2] == "car_ims/000003.jpg"


def test_cars_in_two_folders(cars_in_two_folders):
    for root in (cars_in_two_folders, cars_in_two_folders.parent):
        cars = load("cars", root)
        check_cars(cars)
        assert cars.sample_attributes["file"][:2] == ("cars_test/00002.jpg", "cars_train/00002.jpg")


def test_cars_whose_test_labels_are_missing_or_damaged(cars_in_two_folders):
    labels = cars_in_two_folders / "cars_test_annos_withlabels.mat"
    labels.rename(cars_in_two_folders / "devkit" / labels.name)
    check_cars(load("cars", cars_in_two_folders))
    (cars_in_two_folders / "devkit" / labels.name).write_bytes(b"broken")
    with pytest.raises(EquimetricError, match=r"withlabels.mat' cannot be read"):
        load("cars", cars_in_two_folders)
    (cars_in_two_folders / "devkit" / labels.name).unlink()
    with pytest.raises(EquimetricError, match=r"has no 'devkit/cars_test_annos_withlabels.mat'"):
        load("cars", cars_in_two_folders)


def test_online_products(tmp_path, picture):
    root = tmp_path / "Stanford_Online_Products"
    header = "image_id class_id super_class_id path"
    for path in ("bicycle_final/a_0.JPG", "bicycle_final/a_1.JPG", "chair_final/b_0.JPG", "chair_final/c_0.JPG"):
        picture(root / path, seed=hash(path) % 100, format="JPEG")
    write(root / "Ebay_train.txt", header, "1 2 1 bicycle_final/a_0.JPG", "2 2 1 bicycle_final/a_1.JPG")
    write(root / "Ebay_test.txt", header, "3 11319 2 chair_final/b_0.JPG", "4 11320 2 chair_final/c_0.JPG")
    products = load("online_products", tmp_path)
    assert products.class_names == ("2", "11319", "11320")
    assert products.class_attributes["group"] == ("bicycle", "chair", "chair")
    assert products.sample_attributes["part"] == ("train", "train", "test", "test")
    assert products.images[3].shape == (3, 8, 8)


@pytest.fixture
def in_shop(tmp_path, picture):
    rows = []
    for item, statuses in {1: ["train"] * 2, 2: ["train"], 3: ["train"], 4: ["train"], 7: ["query", "gallery"]}.items():
        for copy, status in enumerate(statuses):
            name = f"img/WOMEN/Dresses/id_{item:08d}/0{copy}_1_front.jpg"
            picture(tmp_path / "Img" / name, seed=item + 10 * copy)
            rows.append(f"{name}   id_{item:08d}  {status}")
    write(tmp_path / "Eval" / "list_eval_partition.txt", len(rows), "image_name item_id evaluation_status", *rows)
    return tmp_path


def test_in_shop_has_queries_and_a_gallery(in_shop):
    clothes = load("in_shop", in_shop)
    assert clothes.class_names[-1] == "id_00000007"
    assert clothes.sample_attributes["file"][0] == "Img/img/WOMEN/Dresses/id_00000001/00_1_front.jpg"
    split = split_dataset(clothes)
    assert split.test.tolist() == [5, 6]
    assert (split.query.tolist(), split.gallery.tolist()) == ([5], [6])
    assert sorted(split.train.tolist() + split.validation.tolist()) == [0, 1, 2, 3, 4]


def test_in_shop_with_the_list_beside_the_images(in_shop):
    partition = in_shop / "Eval" / "list_eval_partition.txt"
    partition.rename(in_shop / partition.name)
    (in_shop / "Img" / "img").rename(in_shop / "img")
    assert len(load("in_shop", in_shop)) == 7
    write(in_shop / partition.name, 1, "header", "img/a.jpg id_1 training")
    with pytest.raises(EquimetricError, match=r"says 'training' of 'img/a.jpg'; it should be train, query or gallery"):
        load("in_shop", in_shop)


def test_inaturalist(tmp_path, picture):
    paths = {"train": ["Aves/10/a.jpg", "Aves/10/b.jpg", "Plantae/2/c.jpg"], "test": ["Aves/11/d.jpg"]}
    lists = tmp_path / "Inat_dataset_splits"
    for part, names in paths.items():
        for name in names:
            picture(tmp_path / "train_val2018" / name, seed=len(name))
        prefix = "Inaturalist/" if part == "test" else ""
        write(lists / f"Inaturalist_{part}_set1.txt", *(f"{prefix}train_val2018/{name}" for name in names))
    nature = load("inaturalist", tmp_path)
    assert nature.class_names == ("Aves/10", "Aves/11", "Plantae/2")
    assert nature.class_attributes["supercategory"] == ("Aves", "Aves", "Plantae")
    assert nature.labels.tolist() == [0, 0, 2, 1]
    assert nature.sample_attributes["part"] == ("train", "train", "train", "test")
    write(lists / "Inaturalist_test_set1.txt", "val/Aves/11/d.jpg")
    with pytest.raises(EquimetricError, match=r"lines should read train_val2018/<supercategory>/<class>/<image>"):
        load("inaturalist", tmp_path)


def test_omniglot_folders(tmp_path):
    ink = Image.new("1", (105, 105), 1)
    ink.paste(0, (0, 0, 50, 105))  # black on white, at the left
    for character in (
        "images_background/Greek/character01",
        "images_background/Greek/character02",
        "images_evaluation/Elvish/character01",
    ):
        for copy in range(2):
            (tmp_path / character).mkdir(parents=True, exist_ok=True)
            ink.save(tmp_path / character / f"0_{copy}.png")
    characters = load("omniglot", tmp_path)
    assert characters.class_names == ("Greek/character01", "Greek/character02", "Elvish/character01")
    assert characters.class_attributes["alphabet"] == ("Greek", "Greek", "Elvish")
    assert characters.sample_attributes["part"] == ("train",) * 4 + ("test",) * 2
    assert characters.images.shape == (6, 1, 8, 8)
    assert characters.images[0, 0, 0, 0] == 255
    assert characters.images[0, 0, 0, 7] == 0
    with pytest.raises(EquimetricError, match=r"2 classes and 4 images instead of 964 and 19,280"):
        load("omniglot", tmp_path, accept_counts=False)


def test_omniglot_arrays(tmp_path):
    file = tmp_path / "small.npz"
    images = np.arange(4 * 25, dtype=np.uint8).reshape(4, 5, 5)
    arrays = {
        "images": images,
        "labels": np.array([3, 3, 9, 9]),
        "alphabet": np.array(["Greek", "Greek", "Elvish", "Elvish"]),
    }
    np.savez(file, split=np.array(["train", "train", "test", "test"]), **arrays)
    characters = load("omniglot", file)
    assert torch.equal(characters.images, torch.from_numpy(images)[:, None])
    assert characters.class_attributes["alphabet"] == ("Greek", "Elvish")
    assert characters.sample_attributes == {"part": ("train", "train", "test", "test")}
    with pytest.raises(EquimetricError, match="test: 1 classes and 2 images instead of 659 and 13,180"):
        load("omniglot", file, accept_counts=False)
    np.savez(file, **arrays)
    with pytest.raises(EquimetricError, match=r"has no array 'split'"):
        load("omniglot", file)
