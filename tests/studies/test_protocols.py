"""Protocols: every file says what it claims, a study takes its values, and departures are named."""

import pytest

from equimetric.errors import EquimetricError
from equimetric.protocols import find_protocol, list_protocols
from equimetric.studies.rows import list_rows, run_config
from equimetric.studies.study_file import load_study_config

NAMES = (
    "frozen-reality-check",
    "out-of-distribution",
    "quick",
    "reality-check",
    "threshold-consistent",
    "unbiased",
    "unified-view",
)

REALITY_CHECK_METHODS = 14


def study_of(protocol, **changes):
    own = {"methods": {"contrastive": {}}} if protocol == "quick" else {}
    return load_study_config({"name": "s", "protocol": protocol, **own, **changes})


def test_seven_protocols_are_there():
    assert tuple(list_protocols()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_protocol_is_a_valid_study_whose_runs_can_be_configured(name):
    study = study_of(name)
    assert study.protocol == name
    assert study.protocol_version == find_protocol(name).version
    assert study.departures == {}
    for row in list_rows(study).values():
        config = run_config(study, row, seed=0, fold=0)
        assert config.method == row.method
        for point in study.sweeps.values():
            for conditions in point.settings().values():
                if not any(key.startswith("data.") for key in conditions):
                    run_config(study, row, seed=0, fold=0, point=conditions)


def test_the_reality_check_is_that_of_the_paper():
    study = study_of("reality-check")
    assert len(study.methods) == REALITY_CHECK_METHODS
    assert (study.model.backbone, study.model.dim, study.model.frozen_batch_norm) == ("bn_inception", 128, True)
    assert (study.optimizer.name, study.optimizer.lr, study.optimizer.weight_decay) == ("rmsprop", 1e-6, 1e-4)
    assert study.folds() == [0, 1, 2, 3]
    assert len(study.seeds) == 10
    assert (study.search.trials, study.search.kind, study.search.sampler) == (50, "bayesian", "gp")
    rows = list_rows(study)
    shapes = {
        row.name: (run.batch.classes, run.batch.samples) for row in rows.values() for run in [config_of(study, row)]
    }
    assert {name for name, shape in shapes.items() if shape == (32, 1)} == {
        "ProxyNCA", "N. Softmax", "CosFace", "ArcFace", "SoftTriple",
    }  # fmt: skip
    assert set(shapes.values()) == {(32, 1), (8, 4)}
    tuned_rate = {name for name, row in rows.items() if "optimizer.objective_lr" in row.space}
    assert tuned_rate == {
        "ProxyNCA", "N. Softmax", "CosFace", "ArcFace", "SoftTriple", "Margin", "Margin per class",
    }  # fmt: skip
    assert config_of(study, rows["Margin"]).optimizer.objective_weight_decay == 0.0
    assert config_of(study, rows["ArcFace"]).optimizer.objective_weight_decay == 1e-4
    assert list(rows["Contrastive"].space) == ["pos_margin", "neg_margin"]


def config_of(study, row):
    return run_config(study, row, seed=0, fold=0)


def test_data_sets_of_a_protocol_differ_where_it_says_so():
    patience = {
        name: study_of("reality-check", data={"name": name}).training.patience for name in ("cub", "cars", "sop")
    }
    assert patience == {"cub": 900, "cars": 1400, "sop": 3900}


def test_the_frozen_reality_check_differs_only_in_what_its_text_says():
    original, frozen = study_of("reality-check").model_dump(), study_of("frozen-reality-check").model_dump()
    changed = {
        f"{table}.{key}" if isinstance(original[table], dict) else table
        for table in original
        if original[table] != frozen[table]
        for key in (original[table] if isinstance(original[table], dict) else [""])
        if not isinstance(original[table], dict) or original[table][key] != frozen[table][key]
    }
    assert changed == {
        "protocol",
        "varies",
        "data.transform",
        "model.backbone",
        "model.pretrained",
        "model.frozen",
        "model.frozen_batch_norm",
        "training.steps",
        "training.validate_every",
        "training.patience",
        "search.ranges",
    }
    assert frozen["training"]["steps"] == 1000
    assert (frozen["training"]["validate_every"], frozen["training"]["patience"]) == (100, 300)


def test_a_study_takes_the_methods_that_it_names_with_what_the_protocol_says_of_them():
    study = study_of("reality-check", methods={"Triplet": {}, "mine": {"method": "margin"}})
    assert list(study.methods) == ["Triplet", "mine"]
    assert study.methods["Triplet"].method == "triplet"
    assert list(study.methods["Triplet"].search) == ["margin"]


def test_departures_are_named():
    study = study_of("reality-check", training={"steps": 50, "validate_every": 200}, model={"dim": 64}, seeds=[0, 1])
    assert study.departures == {
        "training.steps": "100000 → 50",
        "model.dim": "128 → 64",
        "seeds": "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9] → [0, 1]",
    }


MINE = """
protocol = "mine"
version = 3
title = "Shorter"
extends = "reality-check"
[study.training]
steps = 60
"""


def test_a_protocol_of_ones_own_extends_another_and_is_found_beside_the_study(tmp_path):
    (tmp_path / "mine.toml").write_text(MINE)
    (tmp_path / "study.toml").write_text('name = "s"\nprotocol = "mine.toml"\n')
    study = load_study_config(tmp_path / "study.toml")
    assert (study.protocol, study.protocol_version, study.training.steps) == ("mine", 3, 60)
    assert study.training.patience == 900
    assert study.departures == {}


def test_another_update_rule_does_away_with_the_momentum_of_the_protocol():
    with pytest.raises(EquimetricError, match="'adamw' has no momentum to set"):
        study_of("reality-check", optimizer={"name": "adamw"})
    assert study_of("reality-check", optimizer={"name": "adamw", "momentum": 0.0}).optimizer.name == "adamw"


def test_mistakes_are_one_sentence(tmp_path):
    with pytest.raises(EquimetricError, match="unknown protocol 'realty-check'; did you mean 'reality-check'"):
        study_of("realty-check")
    (tmp_path / "mine.toml").write_text(MINE.replace("[study.training]", "[studi]"))
    with pytest.raises(EquimetricError, match=r"mine\.toml: unknown key 'studi'; did you mean 'study'"):
        find_protocol(tmp_path / "mine.toml")
    (tmp_path / "a.toml").write_text(MINE.replace("reality-check", "b.toml"))
    (tmp_path / "b.toml").write_text(MINE.replace("reality-check", "a.toml"))
    with pytest.raises(EquimetricError, match="extends itself"):
        find_protocol(tmp_path / "a.toml")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": {"a": {"method": "triplet", "conditions": {"model.dim": 4}}}}, "varies = \\['model.dim'\\]"),
        ({"methods": {"a": {"method": "triplet", "conditions": {"margin": 4}}}}, "'margin' is no condition"),
        ({"families": {"ranking": {"training.steps": 4}}}, "families.ranking changes 'training.steps'"),
        ({"search": {"ranges": {"optimizer.lr": {"log": [1e-4, 1e-2]}}}}, "search changes 'optimizer.lr'"),
        ({"sweep": ["dim"]}, "there is no sweep 'dim'"),
        ({"sweeps": {"dim": {"key": "model.dim"}}}, "give key and values, or points"),
        ({"sweeps": {"x": {"key": "margin", "values": [1]}}}, "'margin' is no condition of a study"),
        ({"arms": {"tcm": {"add": "tcm", "of": ["nothing"]}}}, "names 'nothing', which is no method"),
        ({"search": {"seed": 1, "trials": 5}}, "trials must not share seeds with the repetitions"),
        ({"methods": {"a": {"search": {"margin": {"uniform": [1, 0]}}}}}, "lower bound 1 is not below"),
        ({"methods": {"a": {"search": {"margin": {"log": [0, 1]}}}}}, "begins above 0"),
        ({"methods": {"a": {"search": {"margin": {}}}}}, "a range is"),
    ],
)
def test_unfair_or_senseless_studies_are_refused_when_they_are_read(changes, message):
    with pytest.raises(EquimetricError, match=message):
        load_study_config({"name": "s", "methods": {"contrastive": {}}, **changes})


def test_the_command_lists_and_explains_protocols(equimetric):
    code, out, _ = equimetric("protocols")
    assert code == 0
    assert all(name in out for name in NAMES)
    code, out, _ = equimetric("protocols", "reality-check")
    assert code == 0
    assert "Musgrave" in out
    assert "On cars: training.validate_every = 500, training.patience = 1400" in out
    assert "temperature 0.0001…100 log" in out
    code, out, _ = equimetric("protocols", "unbiased")
    assert code == 0
    assert "model.dim = 64, 128, 256, 512, 1024, 2048" in out
    assert "bn_inception" in out
    code, out, _ = equimetric("protocols", "unified-view", "--toml")
    assert code == 0
    assert 'protocol = "unified-view"' in out
