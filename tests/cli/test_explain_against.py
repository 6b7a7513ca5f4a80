"""`equimetric explain A --against B`."""

import json

import numpy as np
import pytest


def one_line(text):
    return " ".join(text.split())


def test_two_methods_with_the_same_gradients(equimetric, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = equimetric("explain", "raw", "--against", "multi_similarity")
    assert code == 0
    assert one_line(out).startswith("raw and multi_similarity are gradient equivalent on 4 batches")
    assert list(tmp_path.iterdir()) == [], "no figure is drawn"


def test_options_of_both_and_a_factor_as_json(equimetric):
    first = ("triplet", "geometry=sqeuclidean", "margin=0.4", "reduction=mean")
    second = "triplet geometry=cosine margin=0.2 reduction=mean"
    values = json.loads(equimetric("explain", *first, "--against", second, "--json")[1])
    assert values["equal"] is False
    assert values["factor"] == pytest.approx(2.0)
    assert (values["first"], values["second"]) == (" ".join(first), second)
    assert len(values["batches"]) == 4


def test_the_batch_of_a_file(equimetric, tmp_path):
    """No pair of the file lies between the margins, so both are equal there; on the random batches they are not."""
    generator = np.random.default_rng(0)
    points = np.repeat(np.eye(4), 3, 0) + 0.01 * generator.normal(size=(12, 4))
    np.savez(tmp_path / "apart.npz", embeddings=points, labels=np.repeat(["a", "b", "c", "d"], 3))
    methods = ("explain", "contrastive", "neg_margin=0.5", "--against", "contrastive neg_margin=0.9")
    on_file = equimetric(*methods, "--embeddings", tmp_path / "apart.npz")[1]
    assert "are gradient equivalent on 1 batch:" in one_line(on_file)
    assert "are not gradient equivalent" in one_line(equimetric(*methods)[1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--against", "triplet"), "compares two methods"),
        (("raw", "binomial", "--against", "triplet"), "compares two methods"),
        (("raw", "--json"), "belong to --against"),
        (("raw", "--against", "info_nce"), "it is called 'ntxent' here"),
    ],
)
def test_what_cannot_be_compared(equimetric, arguments, message):
    code, _, error = equimetric("explain", *arguments)
    assert code != 0
    assert message in one_line(error)
