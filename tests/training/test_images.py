"""Training from image files through random views, and judging queries in a gallery."""

import numpy as np
import pytest
import torch
from PIL import Image

from equimetric.data import CenterCrop, Dataset, RandomCrop, Resize, Split, Transform, View, transforms
from equimetric.learners.baselines import RawPixels
from equimetric.runs.configuration import EvaluationConfig
from equimetric.runs.data import RunData
from equimetric.runs.evaluation import embed_part, evaluate_part, per_query_arrays
from equimetric.training import train


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Eight classes of three small images each, and a transform with random crops for them."""
    generator = np.random.default_rng(0)
    for label in range(8):
        folder = tmp_path / "images" / f"class{label}"
        folder.mkdir(parents=True)
        for number in range(3):
            pixels = generator.integers(0, 256, (30, 24, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"{number}.png")
    square = Resize(20, "square")
    tiny = Transform("tiny", "", train=View(square, RandomCrop(16), flip=True), test=View(square, CenterCrop(16)))
    monkeypatch.setitem(transforms.TRANSFORMS._records, "tiny", tiny)
    return tmp_path / "images"


def configuration(files, **data):
    options = {"root": str(files), "in_memory": False}
    return {
        "method": "contrastive",
        "data": {"name": "folder", "transform": "tiny", "options": options, **data},
        "model": {"dim": 4},
        "batch": {"classes": 2, "samples": 2},
        "training": {"steps": 6, "validate_every": 3, "log_every": 1},
    }


class KilledError(Exception):
    pass


def kill(step, figures):
    if step == 5:
        raise KilledError


def losses(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [line.split('"seconds"')[0] for line in lines]


def test_random_views_do_not_depend_on_workers_or_on_being_killed(files, tmp_path):
    plain, killed, alone = tmp_path / "plain", tmp_path / "killed", tmp_path / "alone"
    trained = train(configuration(files), folder=plain)
    with pytest.raises(KilledError):
        train(configuration(files), folder=killed, progress=kill)
    train(configuration(files), folder=killed)
    train(configuration(files, workers=1), folder=alone)
    assert losses(plain) == losses(killed) == losses(alone)
    assert trained.embed(torch.zeros(2, 3, 16, 16, dtype=torch.uint8)).shape == (2, 4)


def test_views_are_random_in_training_and_fixed_in_the_test(files, tmp_path, monkeypatch):
    train(configuration(files), folder=tmp_path / "random")
    fixed = transforms.TRANSFORMS["tiny"].test
    monkeypatch.setitem(transforms.TRANSFORMS._records, "tiny", Transform("tiny", "", train=fixed, test=fixed))
    train(configuration(files), folder=tmp_path / "fixed")
    random, fixed = losses(tmp_path / "random"), losses(tmp_path / "fixed")
    assert random[0] == fixed[0], "the validation before the first step"
    assert random[1] != fixed[1], "the loss of the first step"


def test_queries_are_searched_for_in_the_gallery():
    labels = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])
    test = torch.tensor([2, 3, 4, 5, 6, 7])
    split = Split(
        torch.tensor([0]), torch.tensor([1]), test, query=torch.tensor([2, 4, 6]), gallery=torch.tensor([3, 5, 7])
    )
    # The queries 2 and 4 are nearest to their own class in the gallery, query 6 to image 3.
    embeddings = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0], [0.9, 0.0], [-1.0, -1.0]])
    features = torch.cat([torch.ones(2, 2), embeddings])
    dataset = Dataset("d", features, labels, tuple("abcd"), {}, {}, "f")

    def find(split):
        return embed_part(RawPixels(), RunData(dataset, split, transforms.transform("none")), "test")

    found = find(split)
    scores = evaluate_part(found, EvaluationConfig(), neighbours=3)
    per_query = per_query_arrays(scores, found)
    assert scores["recall@1"] == pytest.approx(2 / 3)
    assert per_query["index"].tolist() == [2, 4, 6]
    assert per_query["labels"].tolist() == [1, 2, 3]
    assert per_query["neighbours"][:, 0].tolist() == [3, 5, 3]
    among_all = evaluate_part(find(Split(split.train, split.validation, test)), EvaluationConfig())
    assert len(among_all.per_query["recall@1"]) == 6
