"""A run is identified by content: whatever determines its result changes its key, and nothing else does."""

import copy
import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from run_cases import configuration
from safetensors.torch import save_file

from equimetric.backbones import build_backbone
from equimetric.configuration import load_config
from equimetric.errors import EquimetricError
from equimetric.runs.configuration import RunConfig
from equimetric.runs.data import load_run_data
from equimetric.runs.key import RunKey
from equimetric.runs.regimes import fit_to_data
from equimetric.runs.result import DataShape
from equimetric.training import train


def key_of(values, **options):
    config = load_config(values, RunConfig)
    return RunKey.from_config(config, load_run_data(config.data).fingerprint, **options).content


OTHER_VALUES = {
    "method": "triplet",
    "options": {"neg_margin": 0.3},
    "seed": 5,
    "learner.name": "untrained",
    "learner.options": {"a": 1},
    "data.fold": 1,
    "data.folds": 3,
    "data.split_seed": 9,
    "data.transform": "none",
    "model.backbone": "bn_inception",
    "model.pooling": "max",
    "model.frozen_batch_norm": True,
    "model.freeze": {"backbone": 5.0},
    "model.frozen": True,
    "model.dim": 9,
    "model.head": "layer_norm",
    "model.head_init": "pca",
    "model.dropout": 0.5,
    "batch.kind": "exhaustive",
    "batch.classes": 3,
    "batch.samples": 3,
    "batch.options": {"replacement": True},
    "batch.per_step": 2,
    "batch.at_once": 2,
    "optimizer.name": "sgd",
    "optimizer.lr": 0.5,
    "optimizer.weight_decay": 0.5,
    "optimizer.head_lr": 0.5,
    "optimizer.head_weight_decay": 0.5,
    "optimizer.objective_lr": 0.5,
    "optimizer.objective_weight_decay": 0.5,
    "optimizer.objective_name": "sgd",
    "optimizer.groups": {"adversary": {"lr": 0.1}},
    "optimizer.eps": 1e-5,
    "optimizer.objective_eps": 1e-5,
    "optimizer.warmup_steps": 2,
    "optimizer.schedule": "linear",
    "optimizer.decay": 0.5,
    "optimizer.clip_norm": 1.0,
    "optimizer.clip_value": 1.0,
    "training.steps": 5,
    "training.validate_every": 3,
    "training.patience": 100,
    "training.ema": 0.9,
    "training.log_every": 9,
    "training.threads": 2,
    "training.precision": "float64",
    "training.channels_last": True,
    "training.compile": True,
    "evaluation.metrics": ["map@r"],
    "evaluation.ks": [7],
    "evaluation.selected_by": "recall@1",
    "evaluation.geometry": "euclidean",
    "evaluation.binarise": True,
    "evaluation.cohort": {"strength": 0.25},
    "evaluation.parents": "superclass",
    "evaluation.across": "item",
    "refit": {"classes": "all", "steps": 5, "source": "0123"},
}
TOGETHER = {
    "optimizer.momentum": {"optimizer.name": "sgd", "optimizer.momentum": 0.5},
    "optimizer.objective_momentum": {"optimizer.objective_name": "sgd", "optimizer.objective_momentum": 0.5},
    "optimizer.milestones": {"optimizer.schedule": "step", "optimizer.milestones": [2]},
    "optimizer.plateau_steps": {"optimizer.schedule": "plateau", "optimizer.plateau_steps": 2},
}
BY_DATA = {"data.held_out", "data.parts", "data.rounds"}
"""Keys that need more than the digits have."""
BY_CONTENT = {
    "data.name",
    "data.options",
    "data.split",
    "data.weights",
    "model.pretrained",
    "model.start",
    "training.device",
    "plugins",
}
WITHOUT_INFLUENCE = {
    "logging.tensorboard": True,
    "logging.mlflow": "a",
    "data.workers": 2,
    "training.checkpoint_seconds": 3.0,
}


def leaves(model, prefix=""):
    for name, field in model.model_fields.items():
        annotation = field.annotation
        if hasattr(annotation, "model_fields"):
            yield from leaves(annotation, f"{prefix}{name}.")
        else:
            yield prefix + name


def with_values(values, changes):
    values = copy.deepcopy(values)
    for key, value in changes.items():
        *tables, last = key.split(".")
        inner = values
        for table in tables:
            inner = inner.setdefault(table, {})
        inner[last] = value
    return values


BASE = {"data": {"name": "digits"}, "method": "contrastive"}


def test_every_key_of_the_configuration_is_covered_here():
    assert set(leaves(RunConfig)) == {*OTHER_VALUES, *TOGETHER, *WITHOUT_INFLUENCE, *BY_CONTENT, *BY_DATA}


@pytest.mark.parametrize("name", [*OTHER_VALUES, *TOGETHER])
def test_every_condition_changes_the_key(name):
    changes = TOGETHER.get(name, {name: OTHER_VALUES.get(name)})
    rule = {key: value for key, value in changes.items() if key != name}
    assert key_of(with_values(BASE, changes)) != key_of(BASE)
    if name in ("optimizer.momentum", "optimizer.objective_momentum"):
        assert key_of(with_values(BASE, changes)) != key_of(with_values(BASE, rule))


@pytest.mark.parametrize("name", WITHOUT_INFLUENCE)
def test_what_cannot_change_a_result_does_not_change_the_key(name):
    assert key_of(with_values(BASE, {name: WITHOUT_INFLUENCE[name]})) == key_of(BASE)


def test_the_kind_of_device_is_part_of_the_key(monkeypatch):
    on_cpu = with_values(BASE, {"training.device": "cpu"})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert key_of(BASE) == key_of(on_cpu)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert key_of(BASE) != key_of(on_cpu)


def test_the_number_of_processes_is_part_of_the_key():
    assert key_of(BASE) != key_of(BASE, processes=2)


def test_role_and_trial_are_part_of_the_key():
    assert len({key_of(BASE), key_of(BASE, role="trial", trial=0), key_of(BASE, role="trial", trial=1)}) == 3


def test_existing_configurations_keep_their_keys():
    """Keys of runs that are on disk already: a new option must not change them where it is not used."""
    shape = DataShape(channels=1, vectors=False, classes=100, images=1000)
    old = {"training": {"device": "cpu"}, "optimizer": {"warmup_steps": 0}}
    plain = fit_to_data(load_config({"method": "contrastive", **old}, RunConfig), shape)
    assert RunKey.from_config(plain, "data").content == "85235f297f94"
    values = {"method": "arcface", "seed": 3, "data": {"name": "digits"}, **old}
    trial = fit_to_data(load_config({**values, "evaluation": {"cohort": {"strength": 0.5}}}, RunConfig), shape)
    assert RunKey.from_config(trial, "data", role="trial", trial=1).content == "484d4ebf4e9f"


def test_a_final_model_is_identified_by_its_source_wherever_that_is():
    table = {"classes": "all", "steps": 5, "source": "0123"}
    keys = {
        key_of({**BASE, "refit": {**table, **change}})
        for change in ({}, {"folder": "elsewhere"}, {"source": "4567"}, {"classes": "training"}, {"steps": 4})
    }
    assert len(keys) == 4
    assert key_of({**BASE, "refit": table}) == key_of({**BASE, "refit": {**table, "folder": "elsewhere"}})


def weight_file(path, seed):
    torch.manual_seed(seed)
    state = build_backbone("small_cnn", channels=1).state_dict()
    save_file({name: tensor.contiguous() for name, tensor in state.items()}, path)


def test_weights_are_identified_by_content(tmp_path):
    first, second = tmp_path / "one.safetensors", tmp_path / "two.safetensors"
    weight_file(first, 0)
    shutil.copy(first, second)
    config = with_values(BASE, {"model.pretrained": str(first)})
    before = key_of(config)
    assert key_of(with_values(BASE, {"model.pretrained": str(second)})) == before
    weight_file(first, 1)
    assert key_of(config) != before


def test_weights_in_the_home_folder_are_identified_by_content_too(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    config = with_values(BASE, {"model.pretrained": "~/weights.safetensors"})
    weight_file(tmp_path / "weights.safetensors", 0)
    before = key_of(config)
    weight_file(tmp_path / "weights.safetensors", 1)
    assert key_of(config) != before


def test_replaced_weights_do_not_return_the_old_result(tmp_path):
    file = tmp_path / "weights.safetensors"
    weight_file(file, 0)
    config = configuration({"name": "digits"}, model={"pretrained": str(file), "frozen": True})
    old = train(config, folder=tmp_path / "old")
    weight_file(file, 1)
    with pytest.raises(EquimetricError, match="other initial weights; choose another folder or remove it"):
        train(config, folder=tmp_path / "old")
    new = train(config, folder=tmp_path / "new")
    one, other = (run.learner.network.backbone.state_dict() for run in (old, new))
    assert not all(torch.equal(one[name], other[name]) for name in one)


def rewrite(file, change):
    with np.load(file) as stored:
        arrays = dict(stored)
    change(arrays)
    np.savez(file, **arrays)


def swap_parts(arrays):
    arrays["split"] = np.where(arrays["split"] == "train", "test", "train")


def change_pixel(arrays):
    arrays["images"][3, 0, 0, 0] ^= 1


def change_label(arrays):
    arrays["labels"][0] = 1


def rename_class(arrays):
    arrays["labels"] = np.array([f"class {label}" for label in arrays["labels"]])


@pytest.mark.parametrize("change", [swap_parts, change_pixel, change_label, rename_class])
def test_arrays_are_identified_by_content_and_parts(arrays, change):
    config = configuration({"name": "arrays", "options": {"file": str(arrays)}})
    before = key_of(config)
    moved = shutil.copy(arrays, arrays.with_name("elsewhere.npz"))
    assert key_of(configuration({"name": "arrays", "options": {"file": str(moved)}})) == before
    rewrite(arrays, change)
    assert key_of(config) != before


def test_swapped_parts_do_not_return_the_old_result(features, tmp_path):
    def divide(arrays):
        arrays["split"] = np.where(arrays["labels"] < 6, "train", "test")

    rewrite(features, divide)
    config = configuration({"name": "features", "options": {"file": str(features)}})
    old = train(config, folder=tmp_path / "old")
    rewrite(features, swap_parts)
    with pytest.raises(EquimetricError, match="holds a run with other data"):
        train(config, folder=tmp_path / "old")
    assert train(config, folder=tmp_path / "new").metrics != old.metrics


def test_images_of_equal_size_in_their_place_change_the_key(image_folder):
    config = configuration({"name": "folder", "options": {"root": str(image_folder), "in_memory": False}})
    before = key_of(config)
    file = image_folder / "class3" / "2.png"
    size = file.stat().st_size
    image = np.asarray(Image.open(file)).copy()
    image[0, 0, 0] ^= 1
    Image.fromarray(image).save(file)
    content = file.read_bytes()
    # PNG sizes vary with content; padding after the end makes them equal.
    file.write_bytes(content + b"\0" * max(0, size - len(content)))
    assert key_of(config) != before


def test_lists_of_classes_are_part_of_the_key(features):
    data = {"name": "features", "options": {"file": str(features)}}
    lists = {"train": ["0", "1", "2"], "validation": ["3", "4"], "test": ["5", "6"]}
    listed = [
        configuration({**data, "parts": {**lists, **more}}) for more in ({}, {"cohort": ["7"]}, {"test": ["5", "7"]})
    ]
    assert len({key_of(one) for one in [configuration(data), *listed]}) == 4


def test_held_out_superclasses_are_part_of_the_key(features):
    data = {"name": "features", "options": {"file": str(features)}}
    rewrite(features, lambda arrays: arrays.update(kind=np.array([f"kind {label // 3}" for label in arrays["labels"]])))
    plain = configuration(data)
    held_out = configuration({**data, "held_out": "kind"})
    assert len({key_of(plain), key_of(held_out), key_of(configuration({**data, "held_out": "kind", "fold": 1}))}) == 3


def test_rounds_are_part_of_the_key(features):
    data = {"name": "features", "options": {"file": str(features)}}
    rounds = {"of": 2, "number": 1, "keep": "all", "test_share": 0.25}
    tables = [None, rounds] + [{**rounds, key: value} for key, value in (("number", 2), ("keep", "latest"))]
    tables.append({**rounds, "test_share": 0.5})
    assert len({key_of(configuration({**data, "rounds": table})) for table in tables}) == 5


def test_the_network_that_a_run_starts_with_is_identified_by_content(features, tmp_path):
    data = {"name": "features", "options": {"file": str(features)}}
    for name, seed in (("one", 0), ("two", 1)):
        train({**configuration(data, model={"head_init": "random"}), "seed": seed}, folder=tmp_path / name)
    shutil.copytree(tmp_path / "one", tmp_path / "moved")
    keys = [key_of(configuration(data, model={"start": str(tmp_path / name)})) for name in ("one", "moved", "two")]
    assert keys[0] == keys[1] != keys[2]
    assert key_of(configuration(data)) not in keys


def test_class_lists_are_identified_by_content(tmp_path):
    from equimetric.data import load_dataset
    from equimetric.data.shifted_splits import ShiftedSplit, write_shifted_splits

    names = load_dataset("digits").class_names

    def write(path, test):
        split = ShiftedSplit(tuple(name for name in names if name not in test), tuple(test), 1.0, 0, 0)
        write_shifted_splits(path, [split], load_dataset("digits"))

    write(tmp_path / "one.json", names[7:])
    write(tmp_path / "two.json", names[:3])
    configs = [
        with_values(BASE, {"data.split": {"file": str(tmp_path / name), "number": 0}})
        for name in ("one.json", "two.json")
    ]
    assert key_of(configs[0]) != key_of(configs[1])
    shutil.copy(tmp_path / "one.json", tmp_path / "two.json")
    assert key_of(configs[0]) == key_of(configs[1])
