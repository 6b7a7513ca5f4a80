"""`equimetric evaluate QUERIES --gallery ITEMS`: two files of embeddings."""

import json

import numpy as np
import pytest

import equimetric as em

GENERATOR = np.random.default_rng(0)
IMAGES, TEXTS = GENERATOR.standard_normal((30, 6)), GENERATOR.standard_normal((50, 6))
ITEMS = np.concatenate([np.arange(30), np.arange(20)])


@pytest.fixture
def files(tmp_path):
    np.savez(tmp_path / "images.npz", embeddings=IMAGES, labels=np.arange(30))
    np.savez(tmp_path / "texts.npz", embeddings=TEXTS, labels=ITEMS)
    return tmp_path / "images.npz", tmp_path / "texts.npz"


def test_queries_of_one_file_are_searched_for_in_another(files, equimetric):
    names = ["recall@1", "recall@10", "map@r", "median_rank"]
    images, texts = files
    code, out, _ = equimetric("evaluate", images, "--gallery", texts, "-m", ",".join(names), "--json")
    expected = em.evaluate(IMAGES, np.arange(30), TEXTS, ITEMS, metrics=names)
    printed = json.loads(out)
    assert code == 0
    assert {name: printed[name] for name in names} == dict(expected)
    assert (printed["queries"], printed["gallery"]) == (30, 50)
    _, out, _ = equimetric("evaluate", texts, "--gallery", images, "-m", "median_rank")
    assert "50 queries against 30 gallery items" in out


def test_what_does_not_go_with_a_gallery(files, tmp_path, equimetric, is_one_sentence):
    images, texts = files
    np.savez(
        tmp_path / "both.npz", embeddings=IMAGES, labels=ITEMS[:30], gallery_embeddings=TEXTS, gallery_labels=ITEMS
    )
    for arguments, message in [
        ((images, "--gallery", texts, "--compare", texts), "leave --compare and --trials out"),
        ((tmp_path / "both.npz", "--gallery", texts), "has a gallery of its own; leave --gallery out"),
        ((tmp_path, "--gallery", texts), "holds no finished training run"),
        ((images, "--gallery", tmp_path), "--gallery takes two files of embeddings"),
        ((images, "--gallery", tmp_path / "none.npz"), "there is no file"),
    ]:
        code, _, error = equimetric("evaluate", *arguments)
        assert code == 2
        assert message in error
        assert is_one_sentence(error)
