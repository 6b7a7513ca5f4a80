"""Keys that a configuration leaves out follow its regime and its data."""

from pathlib import Path

import pytest

from equimetric.configuration import load_config
from equimetric.errors import EquimetricError
from equimetric.runs.configuration import ModelConfig, RunConfig
from equimetric.runs.regimes import DEFAULTS, find_regime, fit_to_data
from equimetric.runs.result import DataShape
from equimetric.studies.configuration import StudyConfig

REGIMES = {
    "frozen features": {"model": {"backbone": "efficientnet_lite0", "pretrained": "package", "frozen": True}},
    "fine-tuning": {"model": {"backbone": "efficientnet_lite0", "pretrained": "package"}},
    "from scratch": {"model": {"backbone": "small_cnn"}},
}


def shape(images=5000, classes=100, *, features=None):
    return DataShape(channels=features or 3, vectors=features is not None, classes=classes, images=images)


@pytest.mark.parametrize("regime", DEFAULTS)
def test_keys_that_are_left_out_follow_the_regime(regime):
    config = load_config(REGIMES[regime], RunConfig).model_dump()
    assert find_regime(REGIMES[regime]) == regime
    for table, defaults in DEFAULTS[regime].items():
        assert {key: config[table][key] for key in defaults} == defaults


def test_features_as_data_are_frozen_features():
    assert find_regime({"data": {"name": "features"}}) == "frozen features"
    assert load_config({"data": {"name": "features"}}, RunConfig).model.head_init == "pca"


@pytest.mark.parametrize("regime", DEFAULTS)
def test_what_is_given_stays(regime):
    given = {"optimizer": {"lr": 0.5}, "training": {"steps": 7}, "batch": {"classes": 3}}
    given["model"] = {**REGIMES[regime]["model"], "dim": 9, "head_init": "random", "frozen_batch_norm": False}
    config = fit_to_data(load_config(given, RunConfig), shape())
    assert (config.optimizer.lr, config.training.steps, config.batch.classes) == (0.5, 7, 3)
    assert (config.model.dim, config.model.head_init, config.model.frozen_batch_norm) == (9, "random", False)


def test_studies_and_tables_as_objects_have_the_same_defaults():
    model = REGIMES["frozen features"]["model"]
    run = load_config({"model": model}, RunConfig)
    study = load_config({"name": "a", "model": model, "methods": {"triplet": {}}}, StudyConfig)
    assert study.conditions() == run.model_dump(include=set(study.conditions()))
    assert RunConfig(model=ModelConfig(**model)) == run


@pytest.mark.parametrize("regime", DEFAULTS)
def test_a_complete_configuration_is_not_changed(regime):
    config = fit_to_data(load_config(REGIMES[regime], RunConfig), shape())
    assert load_config(config.model_dump(), RunConfig) == config
    assert fit_to_data(config, shape(images=5, classes=2)) is config


@pytest.mark.parametrize(
    ("regime", "data", "dim"),
    [
        ("from scratch", shape(images=40), 64),
        ("frozen features", shape(), 512),
        ("fine-tuning", shape(), 256),
        ("frozen features", shape(images=200), 199),
        ("frozen features", shape(features=32), 32),
        ("fine-tuning", shape(images=2), 1),
    ],
)
def test_the_dimension_is_at_most_that_of_the_principal_components(regime, data, dim):
    assert fit_to_data(load_config(REGIMES[regime], RunConfig), data).model.dim == dim


@pytest.mark.parametrize(("classes", "drawn"), [(100, 32), (32, 32), (31, 31), (1, 1)])
def test_a_batch_has_at_most_the_training_classes(classes, drawn):
    assert fit_to_data(load_config({}, RunConfig), shape(classes=classes)).batch.classes == drawn


def test_a_value_in_place_of_a_table_is_an_error():
    with pytest.raises(EquimetricError, match="model"):
        load_config({"model": 3}, RunConfig)


def test_the_page_of_studies_lists_the_defaults():
    page = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `")]
    listed = {cells[0]: cells[1:] for cells in rows}
    for number, regime in enumerate(("frozen features", "fine-tuning", "from scratch")):
        config = load_config(REGIMES[regime], RunConfig)
        assert float(listed["`optimizer.lr`"][number]) == config.optimizer.lr
        assert listed["`model.head_init`"][number] == f'`"{config.model.head_init}"`'
        assert listed["`model.frozen_batch_norm`"][number] == f"`{str(config.model.frozen_batch_norm).lower()}`"
        steps = f"{config.training.steps}, {config.training.validate_every}"
        assert listed["`training.steps`, `validate_every`"][number] == steps


def test_learning_rates_rise_over_a_sixth_of_the_steps_from_scratch():
    def warmup(**given):
        return load_config(given, RunConfig).optimizer.warmup_steps

    assert (warmup(), warmup(training={"steps": 60}), warmup(training={"steps": 5})) == (100, 10, 0)
    assert warmup(training={"steps": 60}, optimizer={"warmup_steps": 3}) == 3
    assert warmup(**REGIMES["frozen features"]) == warmup(**REGIMES["fine-tuning"]) == 0
    with pytest.raises(EquimetricError, match=r"training\.steps"):
        warmup(training={"steps": -600})
