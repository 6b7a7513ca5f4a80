"""Embedding by Ray Data: the same rows as here, resumed and tolerant of damage in the same way."""

import numpy as np
import pyarrow.parquet as parquet
import pytest

import equimetric as em
from equimetric.deployment.bulk import embed_files, list_image_files, write_table
from equimetric.deployment.ray_embedding import pack_images, pack_table, tables_on_ray, unpack_images, unpack_table


def test_lists_and_tables_travel_unchanged(photos, model_folder, tmp_path):
    listed = list_image_files(photos)
    assert unpack_images(pack_images(listed)) == listed
    flat = list_image_files(photos / "class0")
    assert unpack_images(pack_images(flat)) == flat
    embed_files(em.load(model_folder), listed, tmp_path / "a.parquet")
    table = parquet.read_table(tmp_path / "a.parquet")
    assert unpack_table(pack_table(table)).equals(table, check_metadata=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_cluster_writes_what_this_process_writes(photos, model_folder, tmp_path, equimetric, monkeypatch):
    pytest.importorskip("ray.data")
    (photos / "class0" / "damaged.png").write_bytes(b"no image")
    model, listed = em.load(model_folder), list_image_files(photos)
    here = embed_files(model, listed, tmp_path / "here.parquet", rows_per_part=3)
    written = []

    def kill_after_one(table, file):
        if written:
            raise KeyboardInterrupt
        written.append(file)
        write_table(table, file)

    tables = tables_on_ray(model_folder, jobs=1)
    with monkeypatch.context() as patch:
        patch.setattr("equimetric.deployment.bulk.write_table", kill_after_one)
        with pytest.raises(KeyboardInterrupt):
            embed_files(model, listed, tmp_path / "there.parquet", rows_per_part=3, tables=tables)
    there = embed_files(model, listed, tmp_path / "there.parquet", rows_per_part=3, tables=tables)
    assert there.resumed == 3
    assert there.damaged == here.damaged
    expected, found = (parquet.read_table(tmp_path / f"{name}.parquet") for name in ("here", "there"))
    assert found.drop_columns(["embedding"]).equals(expected.drop_columns(["embedding"]))
    assert found.schema.metadata == expected.schema.metadata
    np.testing.assert_allclose(*(np.stack(one["embedding"].to_numpy()) for one in (found, expected)), atol=1e-6)
    code, out, error = equimetric(
        "embed", model_folder, photos, "--out", tmp_path / "command.parquet", "--engine", "ray"
    )
    assert code == 0, error
    assert "7 of 8 images embedded" in out


def test_an_unknown_engine_is_one_sentence(photos, model_folder, tmp_path, equimetric, is_one_sentence):
    code, _, error = equimetric("embed", model_folder, photos, "--out", tmp_path / "a.parquet", "--engine", "rey")
    assert code == 2
    assert "unknown engine 'rey'; did you mean 'ray'?" in error
    assert is_one_sentence(error)
