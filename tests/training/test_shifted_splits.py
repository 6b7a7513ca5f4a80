"""Runs on class lists from a file."""

import json

import pytest
import torch

from equimetric.configuration import load_config
from equimetric.data import ShiftedSplit, load_dataset, write_shifted_splits
from equimetric.errors import EquimetricError
from equimetric.runs.configuration import DataConfig
from equimetric.runs.data import load_split
from equimetric.studies.configuration import StudyConfig
from equimetric.studies.narrative import describe_study_conditions
from equimetric.training import train

DIGITS = tuple("0123456789")
EVEN = ShiftedSplit(DIGITS[::2], DIGITS[1::2], 1.0, 0, 0)
FEWER = ShiftedSplit(DIGITS[6:], DIGITS[1:4], 2.0, 0, 1)


@pytest.fixture
def lists(tmp_path):
    def write(*splits):
        write_shifted_splits(tmp_path / "shifted.json", splits, load_dataset("digits"))
        return str(tmp_path / "shifted.json")

    return write


def data(file, **others):
    return {"name": "digits", "split": {"file": file}, **others}


def classes(dataset, indices):
    return {dataset.class_names[label] for label in dataset.labels[indices].tolist()}


def test_the_lists_decide_who_is_trained_on_and_who_is_tested(lists):
    file = lists(EVEN, FEWER)
    for number, listed in ((0, EVEN), (1, FEWER), (-1, FEWER)):
        config = load_config(data(file, split={"file": file, "number": number}), DataConfig)
        dataset, split = load_split(config)
        assert classes(dataset, split.test) == set(listed.test)
        trained, validated = classes(dataset, split.train), classes(dataset, split.validation)
        assert trained | validated == set(listed.train)
        assert len(validated) == 2
    other_fold = load_split(load_config(data(file, fold=1), DataConfig))[1]
    assert not torch.equal(other_fold.validation, split.validation)
    assert torch.equal(other_fold.test, split.test)


def test_a_run_on_other_lists_under_the_same_name_is_not_taken_for_this_one(lists, tmp_path):
    config = {
        "method": "contrastive",
        "data": data(lists(EVEN)),
        "model": {"dim": 4},
        "batch": {"classes": 2, "samples": 2},
        "training": {"steps": 2, "validate_every": 1},
    }
    train(config, folder=tmp_path / "run")
    first = json.loads((tmp_path / "run" / "environment.json").read_text())["data_fingerprint"]
    assert first != load_dataset("digits").fingerprint
    finished = (tmp_path / "run" / "result.json").stat().st_mtime_ns
    train(config, folder=tmp_path / "run")
    assert (tmp_path / "run" / "result.json").stat().st_mtime_ns == finished
    lists(ShiftedSplit(EVEN.test, EVEN.train, 1.0, 0, 0))
    with pytest.raises(EquimetricError, match="holds a run with other data; choose another folder"):
        train(config, folder=tmp_path / "run")


def test_a_study_says_which_lists_it_used_and_where_it_departs_from_the_protocol(lists):
    file = lists(EVEN)
    study = {"name": "s", "methods": {"contrastive": {}}, "data": data(file)}
    shown = describe_study_conditions(load_config(study, StudyConfig), None)
    assert shown["Split"].startswith("class lists number -1 of shifted.json; validation block 1 of 4")
    assert "Departs from the literature's protocol" not in shown
    study["data"] = {"name": "cub", "options": {"root": "birds", "crop_to_box": True, "decoding": "fast"}}
    departs = describe_study_conditions(load_config(study, StudyConfig), None)["Departs from the literature's protocol"]
    assert "bounding boxes" in departs
    assert "JPEGs" in departs


@pytest.mark.parametrize(
    ("values", "described"),
    [
        (
            {},
            "the data set's own, or by class with the second half for the test if it has none; validation block 1 of 4",
        ),
        ({"split": {"file": "a/b.json", "number": 2}, "split_seed": 5}, "class lists number 2 of b.json; validation"),
        ({"held_out": "script", "fold": 1}, "whole values of 'script' for test and validation, validation block 2"),
    ],
)
def test_every_split_has_words(values, described):
    text = load_config({"name": "glyphs", **values}, DataConfig).describe_split()
    assert text.startswith(described)
    assert text.endswith("shuffled by seed 5") == ("split_seed" in values)


def test_wrong_lists_are_explained(lists, tmp_path):
    file = lists(EVEN)
    for values, message in (
        (data(file, split={"file": file, "number": 3}), "has 1 splits, numbered 0 to 0"),
        (data(str(tmp_path / "none.json")), "there is no file"),
        ({"name": "glyphs", "split": {"file": file}}, "data set 'glyphs' has no class '0'"),
    ):
        with pytest.raises(EquimetricError, match=message):
            load_split(load_config(values, DataConfig))
    with pytest.raises(EquimetricError, match=r"the key 'split\.file' is missing"):
        load_config({"name": "digits", "split": {}}, DataConfig)
    with pytest.raises(EquimetricError, match=r"unknown key 'split\.numbr'; did you mean 'number'"):
        load_config({"name": "digits", "split": {"file": "a", "numbr": 1}}, DataConfig)


def test_a_run_on_held_out_superclasses(tmp_path):
    """The column of a manifest is read without being named twice, and no superclass is in two parts."""
    import numpy as np
    from PIL import Image

    rows = ["path,label,genus,family"]
    for label in range(12):
        for number in range(2):
            pixels = np.random.default_rng(100 * label + number).integers(256, size=(16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / f"{label}-{number}.png")
            rows.append(f"{label}-{number}.png,{label},{label // 2},{label // 6}")
    (tmp_path / "list.csv").write_text("\n".join(rows))
    options = {"file": str(tmp_path / "list.csv"), "size": 16, "superclass": "family"}
    config = {
        "method": "contrastive",
        "data": {"name": "manifest", "options": options, "held_out": "genus"},
        "model": {"dim": 4},
        "batch": {"classes": 2, "samples": 2},
        "training": {"steps": 2, "validate_every": 1},
    }
    model = train(config, folder=tmp_path / "run")
    dataset, split = load_split(model.config.data)
    assert set(dataset.class_attributes) == {"family", "genus"}
    genera = [
        {dataset.class_attributes["genus"][label] for label in dataset.labels[rows].tolist()}
        for rows in split.parts().values()
    ]
    assert genera == [{"1", "2"}, {"0"}, {"3", "4", "5"}]
    lists = {"file": "shifted.json"}
    with pytest.raises(EquimetricError, match="split and held_out both say which classes are for the test"):
        load_config({"name": "digits", "held_out": "genus", "split": lists}, DataConfig)
    with pytest.raises(EquimetricError, match=r"data\.held_out = 'genus' names no attribute of the data"):
        load_split(load_config({"name": "digits", "held_out": "genus"}, DataConfig))
