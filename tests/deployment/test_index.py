"""Images in a gallery: indexed once, resumed, replaced, named; and the model that made it."""

import csv
import json
import shutil

import numpy as np
import pytest
from exported import change_config, copy_model, rewrite, train_small
from gallery_cases import identification
from PIL import Image

import equimetric as em
from equimetric.deployment import indexing
from equimetric.deployment.certification import ThresholdTarget, bind_certificate
from equimetric.deployment.export import export_run
from equimetric.deployment.gallery_models import load_gallery_model
from equimetric.deployment.indexing import index_source
from equimetric.errors import EquimetricError
from equimetric.gallery.file_gallery import FileGallery
from equimetric.gallery.model_record import ModelRecord


@pytest.fixture
def gallery(model_folder, photos, tmp_path):
    return index_source(model_folder, photos, tmp_path / "shop.gallery").gallery


def state(gallery):
    table = gallery.items().to_pydict()
    return sorted(zip(table["id"], table["label"], table["content"], strict=True)), len(gallery)


def test_a_folder_becomes_a_gallery(model_folder, photos, tmp_path, equimetric):
    code, out, error = equimetric("index", model_folder, photos, "--out", tmp_path / "shop.gallery")
    assert code == 0, error
    assert "7 added; the gallery has 7 images" in out
    gallery = em.Gallery.open(tmp_path / "shop.gallery")
    model = em.load(model_folder)
    assert gallery.certificates == (model.certificate,)
    files = sorted(photos.rglob("*.png"))
    names = [file.relative_to(photos).as_posix() for file in files]
    np.testing.assert_allclose(gallery.vectors(names), model.embed(files).numpy(), atol=1e-6)
    assert gallery.names(names) == [name.partition("/")[0] for name in names]
    assert gallery.items()["file"].to_pylist() == [str(file) for file in files]
    assert ModelRecord.read(gallery.folder).model == model.model
    assert not (gallery.folder / "left-out.csv").exists()


def test_the_same_command_adds_what_is_new(model_folder, photos, gallery, tmp_path, equimetric):
    Image.fromarray(np.full((9, 9), 7, np.uint8)).save(photos / "class1" / "new.png")
    code, out, _ = equimetric("index", model_folder, photos, "--out", gallery.folder)
    assert code == 0
    assert "1 added, 7 there already; the gallery has 8 images" in out


def test_a_killed_run_resumes(model_folder, photos, gallery, tmp_path, monkeypatch):
    monkeypatch.setattr(indexing, "ROWS_PER_COMMIT", 2)
    added = []

    def kill_after_two(self, *arguments, add=FileGallery.add):
        if len(added) == 2:
            raise KeyboardInterrupt
        added.append(arguments)
        add(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(FileGallery, "add", kill_after_two)
        with pytest.raises(KeyboardInterrupt):
            index_source(model_folder, photos, tmp_path / "killed.gallery")
    assert len(em.Gallery.open(tmp_path / "killed.gallery")) == 4
    found = index_source(model_folder, photos, tmp_path / "killed.gallery")
    assert (found.added, found.unchanged) == (3, 4)
    assert state(found.gallery) == state(gallery)


def test_a_changed_image_is_replaced_only_on_request(model_folder, photos, gallery, equimetric, is_one_sentence):
    changed = photos / "class0" / "0.png"
    Image.fromarray(np.full((9, 9), 7, np.uint8)).save(changed)
    code, _, error = equimetric("index", model_folder, photos, "--out", gallery.folder)
    assert code == 2
    assert "'class0/0.png' is in the gallery with another content; give --replace" in error
    assert is_one_sentence(error)
    code, out, _ = equimetric("index", model_folder, photos, "--out", gallery.folder, "--replace")
    assert code == 0
    assert "0 added, 1 replaced, 6 there already; the gallery has 7 images" in out
    gallery.refresh()
    np.testing.assert_allclose(
        gallery.vectors(["class0/0.png"]), em.load(model_folder).embed(changed).numpy(), atol=1e-6
    )


def test_damaged_images_are_left_out_and_listed(model_folder, photos, tmp_path, equimetric):
    for number in range(7, 14):
        (photos / "class0" / f"{number}.png").write_bytes(b"no image")
    out_folder = tmp_path / "g"
    code, out, error = equimetric("index", model_folder, photos, "--out", out_folder)
    assert code == 0
    assert "7 added; the gallery has 7 images" in out
    assert "left out: class0/10.png" in error
    assert "left out: 2 more, all in" in error
    with (out_folder / "left-out.csv").open(newline="") as file:
        listed = list(csv.DictReader(file))
    assert len(listed) == 7
    for number in range(7, 14):
        (photos / "class0" / f"{number}.png").unlink()
    index_source(model_folder, photos, out_folder)
    assert not (out_folder / "left-out.csv").exists()


def test_nothing_but_damaged_images(model_folder, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").write_bytes(b"no image")
    with pytest.raises(EquimetricError, match=r"none of the 1 images can be read, such as 'a.png'"):
        index_source(model_folder, tmp_path / "photos", tmp_path / "g")


def test_embeddings_of_the_same_model_are_indexed_without_it(model_folder, photos, gallery, tmp_path, equimetric):
    equimetric("embed", model_folder, photos, "--out", tmp_path / "all.parquet")
    found = index_source(model_folder, tmp_path / "all.parquet", tmp_path / "other.gallery")
    assert found.added == 7
    names = gallery.items()["id"].to_pylist()
    assert found.gallery.names(names) == gallery.names(names)
    np.testing.assert_array_equal(found.gallery.vectors(names), gallery.vectors(names))
    again = index_source(model_folder, tmp_path / "all.parquet", tmp_path / "other.gallery")
    assert (again.added, again.unchanged) == (0, 7)
    # The content of an image and of a vector cannot be compared: the name decides.
    assert index_source(model_folder, photos, tmp_path / "other.gallery").unchanged == 7


def test_embeddings_of_another_model_are_refused(model_folder, photos, tmp_path, equimetric):
    other = tmp_path / "run"
    train_small(other, seed=1)
    export_run(other, tmp_path / "model", threshold=ThresholdTarget(far=0.05), onnx=False)
    equimetric("embed", tmp_path / "model", photos, "--out", tmp_path / "all.parquet")
    with pytest.raises(EquimetricError, match=r"are of the model .*; embed the images again with this model"):
        index_source(model_folder, tmp_path / "all.parquet", tmp_path / "g")
    # Nor does the other model add to a gallery of the first.
    index_source(model_folder, photos, tmp_path / "h")
    with pytest.raises(EquimetricError, match="the model is not the one that the gallery"):
        index_source(tmp_path / "model", photos, tmp_path / "h")
    with pytest.raises(EquimetricError, match=r"the model in .* is not the one that the gallery"):
        load_gallery_model(em.Gallery.open(tmp_path / "h"), tmp_path / "model")


def test_labels_prefixes_and_flat_folders(model_folder, photos, gallery, tmp_path, equimetric, is_one_sentence):
    flat = photos / "class1"
    code, _, error = equimetric("index", model_folder, flat, "--out", gallery.folder)
    assert code == 2
    assert "these images have no labels; put each class into a folder of its own, or give --label" in error
    assert is_one_sentence(error)
    code, out, _ = equimetric(
        "index", model_folder, flat, "--label", "tea", "--prefix", "tea/", "--out", gallery.folder
    )
    assert "3 added" in out
    gallery.refresh()
    assert gallery.names(["tea/1.png", "class1/1.png"]) == ["tea", "class1"]
    unnamed = index_source(model_folder, flat, tmp_path / "flat.gallery").gallery
    assert unnamed.names(["1.png"]) == ["1.png"]
    with pytest.raises(EquimetricError, match="was made from images without labels, and these have some"):
        index_source(model_folder, photos, tmp_path / "flat.gallery")


def test_lists_and_galleries_that_cannot_be_indexed(run_folder, model_folder, photos, tmp_path):
    (tmp_path / "list.csv").write_text("path\nphotos/class0/0.png\nphotos/class0/0.png\n")
    with pytest.raises(EquimetricError, match="is listed more than once"):
        index_source(model_folder, tmp_path / "list.csv", tmp_path / "g")
    own = em.Gallery.create(tmp_path / "own", em.load(model_folder).certificate)
    own.add(np.eye(8, dtype="f4")[:2], ["a", "b"])
    with pytest.raises(EquimetricError, match="was not made by `equimetric index`"):
        index_source(model_folder, photos, tmp_path / "own")
    export_run(run_folder, tmp_path / "bare", certified=False, onnx=False)
    with pytest.raises(EquimetricError, match="this model has no certificate"):
        index_source(tmp_path / "bare", photos, tmp_path / "g2")


def test_the_model_is_found_where_both_were_moved(model_folder, photos, tmp_path):
    (tmp_path / "a").mkdir()
    copy_model(model_folder, tmp_path / "a" / "model")
    index_source(tmp_path / "a" / "model", photos, tmp_path / "a" / "shop.gallery")
    shutil.move(tmp_path / "a", tmp_path / "b")
    gallery = em.Gallery.open(tmp_path / "b" / "shop.gallery")
    assert load_gallery_model(gallery).model == em.load(model_folder).model
    saved = gallery.save(tmp_path / "copy" / "deeper" / "copy.gallery")
    assert load_gallery_model(saved).model == em.load(model_folder).model


def test_a_missing_or_changed_model_is_one_sentence(model_folder, photos, tmp_path, equimetric, is_one_sentence):
    model = copy_model(model_folder, tmp_path / "model")
    index_source(model, photos, tmp_path / "g")
    query = photos / "class0" / "0.png"
    model.rename(tmp_path / "elsewhere")
    code, _, error = equimetric("search", tmp_path / "g", query)
    assert code == 2
    assert "is no longer in" in error
    assert is_one_sentence(error)
    assert equimetric("search", tmp_path / "g", query, "--model", tmp_path / "elsewhere")[0] == 0
    (tmp_path / "elsewhere").rename(model)
    weights = (model / "model.safetensors").read_bytes()
    (model / "model.safetensors").write_bytes(weights[:-1] + b"x")
    code, _, error = equimetric("search", tmp_path / "g", query)
    assert code == 2
    assert "is not the file that was exported" in error
    assert is_one_sentence(error)
    (model / "model.safetensors").write_bytes(weights)
    (tmp_path / "g" / "model.json").unlink()
    code, _, error = equimetric("search", tmp_path / "g", query)
    assert "does not say where its model is; give the model's folder with --model" in error


def test_a_model_that_computes_something_else_here_is_refused(model_folder, photos, tmp_path, equimetric, monkeypatch):
    from equimetric.deployment.runtimes import TorchRuntime

    index_source(model_folder, photos, tmp_path / "g")
    run = TorchRuntime.run
    monkeypatch.setattr(
        TorchRuntime, "run", lambda self, images: {name: rows + 0.01 for name, rows in run(self, images).items()}
    )
    code, _, error = equimetric("search", tmp_path / "g", photos / "class0" / "0.png")
    assert code == 2
    assert "The certificate does not hold here" in error


def test_search_names_what_the_certificate_accepts(gallery, photos, model_folder, tmp_path, equimetric):
    query, stranger = photos / "class1" / "3.png", tmp_path / "white.png"
    Image.fromarray(np.full((9, 12), 255, np.uint8)).save(stranger)
    code, out, error = equimetric("search", gallery.folder, query, stranger, "--json", "--k", "3")
    assert code == 0, error
    told = json.loads(out)
    assert told["threshold"] == gallery.certificate.threshold
    found = gallery.search(em.load(model_folder).embed([query, stranger]), 3)
    for answer, matches in zip(told["queries"], found, strict=True):
        assert [(one["id"], one["score"], one["accepted"]) for one in answer["matches"]] == [tuple(m) for m in matches]
        assert [one["name"] for one in answer["matches"]] == gallery.names([match.id for match in matches])
        assert answer["name"] == (gallery.names([matches[0].id])[0] if matches[0].accepted else None)
    assert told["queries"][0]["name"] == "class1"
    assert told["queries"][0]["matches"][0]["id"] == "class1/3.png"


def test_search_in_words(gallery, photos, equimetric):
    code, out, _ = equimetric("search", gallery.folder, photos / "class1" / "3.png", "--k", "2")
    assert code == 0
    first, second, *_ = out.splitlines()
    assert first.endswith("3.png: class1")
    assert second.split() == ["0.0000", "class1", "class1/3.png"]
    assert "the rate is that of one pair. Among 7 images a stranger finds one more often" in out


def test_search_within_the_threshold_and_a_folder_of_queries(gallery, photos, model_folder, equimetric):
    (photos / "class0" / "damaged.png").write_bytes(b"no image")
    code, out, _ = equimetric("search", gallery.folder, photos, "--within", "--json")
    assert code == 1
    answers = {one["image"]: one for one in json.loads(out)["queries"]}
    assert answers[str(photos / "class0" / "damaged.png")]["problem"]
    files = sorted(file for file in photos.rglob("*.png") if file.name != "damaged.png")
    for file, matches in zip(files, gallery.within(em.load(model_folder).embed(files)), strict=True):
        assert [one["id"] for one in answers[str(file)]["matches"]] == [match.id for match in matches]
    _, out, _ = equimetric("search", gallery.folder, photos / "class0" / "damaged.png")
    assert "damaged.png: cannot be read" in out


def test_what_search_refuses(gallery, tmp_path, equimetric, is_one_sentence):
    for arguments, message in (
        ((gallery.folder, tmp_path / "none.png"), "there is no file"),
        ((tmp_path / "none", gallery.folder / "model.json"), "there is no gallery in"),
        ((gallery.folder, gallery.folder / "model.json", "--k", "0"), "--k is 0"),
    ):
        code, _, error = equimetric("search", *arguments)
        assert code == 2
        assert message in error
        assert is_one_sentence(error)


def test_a_certificate_of_identification_names_by_its_rule(model_folder, photos, tmp_path, equimetric):
    model = copy_model(model_folder, tmp_path / "model")
    known = em.load(model_folder)
    certificate = bind_certificate(
        identification(8), model=known.model, preprocessing=known.preprocessing, arithmetic="float32"
    )
    certificate.save(tmp_path / "c.json")
    change_config(model, lambda config: config.update(task="identification"))
    rewrite(model, "certificate.json", (tmp_path / "c.json").read_bytes())
    gallery = index_source(model, photos, tmp_path / "g").gallery
    code, out, error = equimetric("search", gallery.folder, photos, "--json")
    assert code == 0, error
    files = sorted(photos.rglob("*.png"))
    told = {one["image"]: one["name"] for one in json.loads(out)["queries"]}
    named = gallery.identify(known.embed(files))
    assert [told[str(file)] for file in files] == [one.name for one in named]
    assert set(told.values()) & {"class0", "class1"}
    _, out, _ = equimetric("search", gallery.folder, files[0])
    assert out.strip().endswith("certified for identification.")


def test_a_damaged_record_of_the_model(gallery):
    (gallery.folder / "model.json").write_text("{}")
    with pytest.raises(EquimetricError, match=r"model.json is damaged .*; remove it, and give the model's folder"):
        load_gallery_model(gallery)


def test_images_are_removed_by_name_pattern_and_label(gallery, equimetric, is_one_sentence):
    for arguments, message in (
        ((), "nothing is named"),
        (("class0/9.png",), "no image of the gallery is called 'class0/9.png'; nothing was removed"),
        (("--label", "clas1"), "no image of the gallery has this label; did you mean 'class1'?"),
    ):
        code, _, error = equimetric("remove", gallery.folder, *arguments)
        assert code == 2
        assert message in error
        assert is_one_sentence(error)
    code, out, _ = equimetric("remove", gallery.folder, "class0/0.png", "*/[24].png")
    assert code == 0
    assert "3 removed; the gallery has 4 images" in out
    code, out, _ = equimetric("remove", gallery.folder, "--label", "class1")
    assert "3 removed; the gallery has 1 images" in out
    gallery.refresh()
    assert gallery.items()["id"].to_pylist() == ["class0/6.png"]


def test_verify_says_whether_a_gallery_is_what_was_written(gallery, equimetric):
    code, out, _ = equimetric("verify", gallery.folder)
    assert code == 0
    assert "The gallery of 7 images is what was written" in out
    file = gallery.folder / "vectors.f32"
    content = bytearray(file.read_bytes())
    content[9] ^= 4
    file.write_bytes(content)
    code, out, _ = equimetric("verify", gallery.folder, "--json")
    assert code == 1
    assert json.loads(out)["problems"] == ["rows 0 to 6 of vectors.f32 are not what was written"]
    code, out, _ = equimetric("verify", gallery.folder)
    assert code == 1
    assert "is damaged; restore it from a copy" in out


def test_a_gallery_in_lancedb_is_indexed_and_searched_alike(model_folder, photos, gallery, tmp_path, equimetric):
    out_folder = tmp_path / "lance.gallery"
    code, _, error = equimetric("index", model_folder, photos, "--out", out_folder, "--store", "lancedb")
    assert code == 0, error
    answers = []
    for folder in (gallery.folder, out_folder):
        code, out, error = equimetric("search", folder, photos, "--json")
        assert code == 0, error
        answers.append(json.loads(out)["queries"])
    assert answers[0] == answers[1]
    code, out, _ = equimetric("index", model_folder, photos, "--out", out_folder)
    assert "0 added, 7 there already" in out
    code, _, error = equimetric("index", model_folder, photos, "--out", out_folder, "--store", "embedded")
    assert code == 2
    assert "has the store 'lancedb'; leave --store out" in error
    code, _, error = equimetric("verify", out_folder)
    assert code == 2
    assert "kept by a database" in error
