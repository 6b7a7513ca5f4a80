"""Embeddings of many files: complete, resumable, and tolerant of damage."""

import numpy as np
import pyarrow.parquet as parquet
import pytest

import equimetric as em
from equimetric.deployment import bulk
from equimetric.deployment.bulk import embed_files, list_image_files
from equimetric.errors import EquimetricError
from equimetric.evaluation.files import read_embeddings


def test_a_folder_becomes_a_table(model_folder, photos, tmp_path, equimetric):
    code, out, error = equimetric("embed", model_folder, photos, "--out", tmp_path / "all.parquet")
    assert code == 0, error
    assert "7 of 7 images embedded" in out
    arrays = read_embeddings(tmp_path / "all.parquet")
    assert sorted(set(arrays["labels"])) == ["class0", "class1"]
    table = parquet.read_table(tmp_path / "all.parquet")
    files = [photos / name for name in table["path"].to_pylist()]
    assert files == sorted(photos.rglob("*.png"))
    model = em.load(model_folder)
    assert np.array_equal(arrays["embeddings"], model.embed(files).numpy())
    assert model.model.encode() in table.schema.metadata[b"equimetric"]
    assert {file.name for file in tmp_path.iterdir()} == {"photos", "all.parquet"}
    code, _, error = equimetric("embed", model_folder, photos, "--out", tmp_path / "all.parquet")
    assert code == 2
    assert "is there already" in error


def test_a_killed_run_resumes(model_folder, photos, tmp_path, monkeypatch):
    model, listed, out = em.load(model_folder), list_image_files(photos), tmp_path / "all.parquet"
    embed_files(model, listed, tmp_path / "whole.parquet", rows_per_part=2)
    written = []

    def kill_after_two(table, file, write=bulk.write_table):
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(file)
        write(table, file)

    with monkeypatch.context() as patch:
        patch.setattr(bulk, "write_table", kill_after_two)
        with pytest.raises(KeyboardInterrupt):
            embed_files(model, listed, out, rows_per_part=2)
    assert not out.exists()
    found = embed_files(model, listed, out, rows_per_part=2)
    assert found.resumed == 4
    assert parquet.read_table(out).equals(parquet.read_table(tmp_path / "whole.parquet"))


def test_parts_of_other_images_are_refused(model_folder, photos, tmp_path, monkeypatch):
    model, listed = em.load(model_folder), list_image_files(photos)

    def kill(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(bulk, "write_table", kill)
        with pytest.raises(KeyboardInterrupt):
            embed_files(model, listed, tmp_path / "all.parquet")
    with pytest.raises(EquimetricError, match="of another model or of other images"):
        embed_files(model, listed.rows(0, 3), tmp_path / "all.parquet")


def test_damaged_images_are_left_out_and_named(model_folder, photos, tmp_path, equimetric):
    (photos / "class0" / "0.png").write_bytes(b"no image")
    code, out, error = equimetric("embed", model_folder, photos, "--out", tmp_path / "all.parquet")
    assert code == 0
    assert "6 of 7 images embedded" in out
    assert "left out: class0/0.png" in error
    assert parquet.read_table(tmp_path / "all.parquet").num_rows == 6


def test_tables_of_paths(model_folder, photos, tmp_path):
    files = sorted(photos.rglob("*.png"))
    rows = "".join(f"{file.relative_to(tmp_path)},c\n" for file in files)
    (tmp_path / "list.csv").write_text(f"file,label\n{rows}")
    listed = list_image_files(tmp_path / "list.csv", "file")
    assert [file.resolve() for file in listed.files] == [file.resolve() for file in files]
    assert listed.labels == ("c",) * 7
    table = parquet.read_table
    embed_files(em.load(model_folder), listed, tmp_path / "out.parquet")
    again = list_image_files(tmp_path / "out.parquet")
    assert again.files == listed.files
    assert table(tmp_path / "out.parquet")["label"].to_pylist() == ["c"] * 7
    with pytest.raises(EquimetricError, match="has no column 'path'"):
        list_image_files(tmp_path / "list.csv")


@pytest.mark.parametrize("name", ["nothing", "a.txt", "none.csv"])
def test_what_lists_no_images_is_one_sentence(tmp_path, name):
    (tmp_path / "nothing").mkdir()
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(EquimetricError):
        list_image_files(tmp_path / name)


def test_the_result_is_parquet(model_folder, photos, tmp_path):
    with pytest.raises(EquimetricError, match="written as Parquet"):
        embed_files(em.load(model_folder), list_image_files(photos), tmp_path / "all.npz")
