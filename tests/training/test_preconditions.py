"""Mistakes are found before features are computed and before anything trains."""

import numpy as np
import pytest

import equimetric as em
from equimetric.errors import EquimetricError, EquimetricWarning, StorageError
from equimetric.learners import LEARNERS, SingleObjectiveLearner
from equimetric.runs import features
from equimetric.runs.access import require_writable
from equimetric.training import train
from equimetric.training.preconditions import take_classes, warn_if_not_augmented

CONFIG = {
    "method": "contrastive",
    "data": {"name": "digits"},
    "model": {"dim": 8, "frozen": True},
    "batch": {"classes": 3, "samples": 4},
    "training": {"steps": 4, "validate_every": 2},
}
PARTS = r"train: 3 classes, 537 images; validation: 2 classes, 364 images; test: 5 classes, 896 images"


@pytest.fixture(autouse=True)
def nothing_is_computed(monkeypatch):
    def compute(*given, **options):
        raise AssertionError("features are computed")

    monkeypatch.setattr(features, "cached_features", compute)
    monkeypatch.setattr("equimetric.training.session.cached_features", compute)
    monkeypatch.setattr("equimetric.runs.run_cache.cached_features", compute)
    monkeypatch.setattr("equimetric.studies.extraction.cached_features", compute)


@pytest.fixture
def optional(monkeypatch):
    """A learner with an option."""

    class Optional(SingleObjectiveLearner):
        @classmethod
        def build(cls, factory, *, weight: float = 1.0):  # noqa: ARG003
            return cls(factory.network(), factory.objective())

    LEARNERS.discover()
    monkeypatch.setitem(LEARNERS._records, "optional", Optional)


MISTAKES = {
    "classes": ({"batch": {"classes": 32}}, rf"32 classes cannot be drawn from 3.*\(batch.classes = 3; {PARTS}\)"),
    "samples": (
        {"batch": {"classes": 3, "samples": 500}},
        rf"500 samples of a class.*no training class has more than \d+ images; set batch.samples = \d+ .*\({PARTS}\)",
    ),
    "sampler": ({"batch": {"classes": 3, "kind": "n_pairs"}}, rf"2 samples, got 4.*\({PARTS}\)"),
    "principal components": (
        {"model": {"dim": 1000, "head_init": "pca", "frozen": True}},
        rf"at most 536 principal directions.*\(model.dim = 536, or model.head_init = 'random'; {PARTS}\)",
    ),
    "spectrum": (
        {"model": {"dim": 500, "frozen": True}, "evaluation": {"metrics": ["spectral_decay"]}},
        r"spectral_decay, map@r cannot be computed for the validation classes: .* there are 364; "
        rf".*\(or leave it out .*; {PARTS}\)",
    ),
    "signs": (
        {"model": {"dim": 2, "frozen": True}, "evaluation": {"metrics": ["opis"], "binarise": True}},
        r"metrics = opis, map@r cannot be computed for the validation classes: the calibration range",
    ),
    "batch statistics": (
        {"model": {"dim": 8}, "batch": {"classes": 3, "at_once": 4}},
        "batch.at_once splits the batch",
    ),
    "learner's option": (
        {"learner": {"name": "optional", "options": {"weight": "heavy"}}},
        r"learner 'optional': weight must be a number, got 'heavy'",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_train_raises_before_anything_is_computed(mistake, tmp_path, optional):
    change, message = MISTAKES[mistake]
    with pytest.raises(EquimetricError, match=message):
        train({**CONFIG, **change}, folder=tmp_path / "run")
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_compare_raises_before_anything_is_computed(mistake, tmp_path, optional):
    change, message = MISTAKES[mistake]
    study = {key: value for key, value in {**CONFIG, **change}.items() if key not in ("method", "learner")}
    method = {"learner": change["learner"]} if "learner" in change else {}
    with pytest.raises(EquimetricError, match=message):
        em.compare({**study, "name": "study", "methods": {"contrastive": method}}, output=tmp_path)
    assert not list(tmp_path.rglob("*.json"))


def write_features(file, parts):
    """Features of classes by part: {"train": [images of each class]}."""
    labels, split = [], []
    for part, sizes in parts.items():
        for number, size in enumerate(sizes):
            labels += [f"{part}{number}"] * size
            split += [part] * size
    vectors = np.random.default_rng(0).normal(size=(len(labels), 12)).astype(np.float32)
    np.savez(file, features=vectors, labels=np.array(labels), split=np.array(split))
    return {**CONFIG, "data": {"name": "features", "options": {"file": str(file)}}, "model": {"dim": 4}}


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            {"train": [5, 5, 5], "validation": [4, 4], "test": [6]},
            r"the test part needs at least two classes: .* \(train: 3 classes, 15 images; validation: 2 classes, "
            r"8 images; test: 1 classes, 6 images\)",
        ),
        ({"train": [5, 5, 5], "validation": [4], "test": [6, 6]}, "the validation part needs at least two classes"),
        ({"train": [1, 1, 1], "validation": [4, 4], "test": [6, 6]}, "the train part has one image per class"),
        ({"train": [5, 5, 5], "test": [6, 6]}, "of 3 classes that are not for the test 2 would be for validation"),
        ({"train": [5] * 5, "test": [6, 6]}, None),
    ],
)
def test_too_few_classes_or_images(tmp_path, parts, message):
    config = write_features(tmp_path / "features.npz", parts)
    if message is None:
        assert train(config, folder=tmp_path / "run").metrics
        return
    with pytest.raises(EquimetricError, match=message):
        train(config, folder=tmp_path / "run")


def test_more_folds_than_classes(tmp_path):
    with pytest.raises(
        EquimetricError, match=r"9 folds of 5 classes .* would repeat each other; set folds to 5 or fewer"
    ):
        train({**CONFIG, "data": {"name": "digits", "folds": 9}}, folder=tmp_path / "run")


def test_folders_that_cannot_be_written(tmp_path):
    require_writable(tmp_path / "new" / "folder", "run folder")
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file' is not a folder; choose another folder"):
        require_writable(tmp_path / "file" / "run", "run folder")
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "contrastive").write_text("")
    study = {key: value for key, value in CONFIG.items() if key != "method"}
    with pytest.raises(StorageError, match="contrastive' is not a folder"):
        em.compare({**study, "name": "study", "methods": {"contrastive": {}}}, output=tmp_path)


def test_an_augmentation_without_effect_is_told():
    from equimetric.configuration import load_config
    from equimetric.runs.configuration import RunConfig

    def check(**data):
        warn_if_not_augmented(load_config({**CONFIG, "data": {"name": "digits", **data}}, RunConfig))

    with pytest.warns(EquimetricWarning, match="data.transform = 'affine' changes nothing: with model.frozen = true"):
        check(transform="affine")


@pytest.mark.filterwarnings("error")
def test_the_usual_transforms_need_no_warning():
    from equimetric.configuration import load_config
    from equimetric.runs.configuration import RunConfig

    for data, model in (
        ({}, {"frozen": True}),
        ({"transform": "imagenet"}, {"frozen": True}),
        ({"transform": "affine"}, {}),
    ):
        warn_if_not_augmented(load_config({"data": data, "model": model}, RunConfig))


def test_metrics_are_tried_with_whole_classes():
    import torch

    labels = torch.arange(50).repeat_interleave(7)
    taken = take_classes(labels, 20)
    assert torch.equal(taken, labels[:21])
    assert torch.equal(take_classes(labels, 10_000), labels)
    huge = torch.tensor([0] * 900 + [1] * 5 + [2] * 5)
    assert take_classes(huge, 20).tolist() == [0] * 10 + [1] * 5 + [2] * 5
