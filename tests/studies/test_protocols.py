"""Protocols: every file says what it claims, a study takes its values, and departures are named."""

import tomllib
from importlib.resources import files

import pytest

from equimetric.configuration import to_toml
from equimetric.data import DATASETS
from equimetric.dotted import flatten
from equimetric.errors import EquimetricError
from equimetric.objectives import Context, build_objective
from equimetric.protocols import find_protocol, list_protocols
from equimetric.studies.rows import find_points, list_rows, run_config
from equimetric.studies.study_file import load_study_config

NAMES = (
    "frozen-out-of-distribution",
    "frozen-reality-check",
    "frozen-threshold-consistent",
    "out-of-distribution",
    "quick",
    "reality-check",
    "threshold-consistent",
    "unbiased",
    "unified-view",
)

REALITY_CHECK_METHODS = 14


NEEDS_WEIGHTS = ("reality-check", "unbiased", "unified-view")


def study_of(protocol, **changes):
    own = {"methods": {"contrastive": {}}} if protocol == "quick" else {}
    if protocol in NEEDS_WEIGHTS:
        own["model"] = {"pretrained": "bn_inception.pth"}
    return load_study_config({"name": "s", "protocol": protocol, **own, **changes})


def test_nine_protocols_are_there():
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
        name: study_of("reality-check", data={"name": name}).training.patience
        for name in ("cub", "cars", "online_products")
    }
    assert patience == {"cub": 900, "cars": 1400, "online_products": 3900}


def own_blocks():
    """(protocol, data set) → what the protocol's own file says of it."""
    tables = {name: tomllib.loads(files("equimetric.protocols").joinpath(f"{name}.toml").read_text()) for name in NAMES}
    return {(name, data): block for name, table in tables.items() for data, block in table.get("datasets", {}).items()}


@pytest.mark.parametrize(("name", "data"), own_blocks())
def test_a_study_on_a_data_set_has_every_value_of_its_block(name, data):
    assert data in DATASETS
    study = study_of(name, data={"name": data}).model_dump()
    for key, value in flatten(own_blocks()[name, data]):
        found = study
        while isinstance(found, dict) and key not in found:
            table = next(part for part in found if key.startswith(f"{part}."))
            key, found = key.removeprefix(f"{table}."), found[table]
        assert found[key] == value, (key, found)


@pytest.mark.parametrize("name", NAMES)
def test_every_data_set_of_a_protocol_is_registered(name):
    protocol = find_protocol(name)
    assert set(protocol.datasets) | set(protocol.left_out) <= set(DATASETS)


def test_on_every_data_set_a_study_has_what_the_protocol_says_of_it_alone():
    for data in DATASETS:
        shape = (study_of("unified-view", data={"name": data}).batch.classes, study_of("unbiased", data={"name": data}))
        small = data in ("online_products", "in_shop")
        assert shape[0] == (20 if small else 16)
        assert ("Triplet semi-hard" in shape[1].methods) == (data != "online_products")


def test_a_block_of_an_unknown_data_set_is_an_error(tmp_path):
    file = tmp_path / "mine.toml"
    for table in ("[datasets.sop.training]\nsteps = 5", "[left_out]\nsop = ['Triplet']"):
        file.write_text(MINE.partition("[study")[0] + table)
        with pytest.raises(
            EquimetricError, match=r"mine\.toml: \[(datasets|left_out)\] unknown data set 'sop'; did you"
        ):
            find_protocol(file)


def test_a_block_of_the_default_data_set_applies_where_a_study_names_none(tmp_path):
    (tmp_path / "mine.toml").write_text(
        MINE.replace("reality-check", "quick") + "[datasets.glyphs.training]\nsteps = 7\n"
    )
    (tmp_path / "study.toml").write_text('name = "s"\nprotocol = "mine.toml"\n[methods.contrastive]\n')
    assert load_study_config(tmp_path / "study.toml").training.steps == 7


@pytest.mark.parametrize("name", NEEDS_WEIGHTS)
def test_a_protocol_with_pretrained_networks_does_not_start_without_weights(name, tmp_path):
    with pytest.raises(
        EquimetricError, match=f"{name}' needs model.pretrained: set it to .*bn_inception-52deb4733.pth"
    ):
        load_study_config({"name": "s", "protocol": name})
    study = load_study_config({"name": "s", "protocol": name, "model": {"pretrained": "none"}})
    assert study.model.pretrained is None
    assert study.departures == {"model.pretrained": "required → none"}
    # A stored study has no key that is None, and is the same study when it is read again.
    assert load_study_config(tomllib.loads(to_toml(study))) == study


def test_a_study_may_leave_out_what_its_protocol_gives():
    study = study_of("threshold-consistent", model={"backbone": "small_cnn", "pretrained": "none", "pooling": "none"})
    assert (study.model.pretrained, study.model.pooling) == (None, None)
    assert study.departures == {
        "model.backbone": "timm:resnet50.tv_in1k → small_cnn",
        "model.pretrained": "timm → none",
        "model.pooling": "gem → none",
    }
    assert load_study_config(tomllib.loads(to_toml(study))) == study


def test_networks_and_batches_of_the_protocols_for_consistency_and_shifts_are_those_of_the_papers():
    batches = {}
    for data in ("cub", "cars", "online_products", "inaturalist"):
        study = study_of("threshold-consistent", data={"name": data}, sweep=["backbone"])
        rows = {name: config_of(study, row) for name, row in list_rows(study).items()}
        batches[data] = tuple(run.batch.classes * run.batch.samples for run in rows.values())
        assert {run.model.dim for run in rows.values()} == {512}
        for row in list_rows(study).values():
            vit = run_config(study, row, seed=0, fold=0, point=study.sweeps["backbone"].points["ViT-B/16"])
            assert (vit.model.backbone, vit.model.pooling) == ("timm:vit_base_patch16_224.augreg_in21k", None)
    smooth_ap = 384
    assert batches == {
        data: (smooth_ap, recall_at_k, smooth_ap, recall_at_k)
        for data, recall_at_k in {"cub": 384, "cars": 392, "online_products": 4000, "inaturalist": 4000}.items()
    }
    shifted = study_of("out-of-distribution")
    assert (shifted.model.backbone, shifted.model.dim) == ("timm:resnet50.tv_in1k", 512)
    assert shifted.batch.classes * shifted.batch.samples == 112
    for name in ("frozen-threshold-consistent", "frozen-out-of-distribution"):
        light = study_of(name)
        assert (light.model.backbone, light.model.pretrained, light.model.frozen) == (
            "efficientnet_lite0",
            "package",
            True,
        )
        assert "for CPUs" in find_protocol(name).text


def test_the_unbiased_evaluation_is_that_of_the_paper():
    study = study_of("unbiased")
    assert len(study.methods) == 12
    rows = list_rows(study)
    raw = {"Triplet semi-hard", "Lifted structure", "N-Pairs", "Angular", "Prototypical"}
    for name, row in rows.items():
        config = config_of(study, row)
        objective = build_objective(config.method, config.options, Context(classes=8, dim=12, images=64))
        assert config.evaluation.geometry == ("euclidean" if name in raw else "cosine"), name
        if name in raw:
            assert not objective.normalize, name
    dreml = config_of(study, rows["DREML"])
    assert (dreml.learner.name, dreml.model.dim, dreml.options["members"], dreml.options["proxies"]) == (
        "dreml", 144, 12, "learned",
    )  # fmt: skip
    clustering = config_of(study, rows["Structured clustering"])
    loss = build_objective(clustering.method, clustering.options, Context(classes=8, dim=12, images=64)).loss
    gammas = []
    for step in (0, 199, 200, 400):
        loss.set_step(step)
        gammas.append(loss.gamma / loss.start)
    assert gammas == pytest.approx([1, 1, 0.94, 0.94**2])
    text = find_protocol("unbiased").text
    departures = text[text.index("Departures from the paper") :]
    assert all(words in " ".join(departures.split()) for words in ("SGD at 0.1", "head of ranked list", "eps = 0.01"))


def test_batches_of_the_sweep_of_figure_2_have_their_size_and_the_shape_of_their_kind():
    study = study_of("unbiased", sweep=["batch-size"])
    assert list(find_points(study)) == ["", "batch 2", "batch 8", "batch 32", "batch 64", "batch 128"]
    for row in list_rows(study).values():
        for label, conditions in find_points(study, row).items():
            batch = run_config(study, row, seed=0, fold=0, point=conditions).batch
            expected = 120 if not label else int(label.removeprefix("batch "))
            assert batch.classes * batch.samples == expected, (row.name, label)
            assert batch.classes >= 2
            assert batch.kind != "n_pairs" or batch.samples == 2
    proxies = {row.name for row in list_rows(study).values() if "batch 2" in find_points(study, row)}
    assert proxies == {"Proxy-NCA", "Proxy-Triplet", "Proxy-Softmax", "DREML"}


def test_in_shop_has_all_recalls_of_the_paper():
    metrics = study_of("unified-view", data={"name": "in_shop"}).evaluation.metrics
    assert [name for name in metrics if "recall" in name] == [f"recall@{k}" for k in (1, 10, 20, 30, 40, 50)]


def test_the_reality_check_names_its_crop_as_a_departure_from_the_slides():
    text = " ".join(find_protocol("reality-check").text.split())
    assert "Departure from the authors' slides" in text
    assert 'data.transform = "reality_check_slides"' in text
    assert study_of("reality-check", data={"transform": "reality_check_slides"}).departures == {
        "data.transform": "reality_check → reality_check_slides"
    }


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
    model = {"dim": 64, "pretrained": "bn_inception.pth"}
    study = study_of("reality-check", training={"steps": 50, "validate_every": 200}, model=model, seeds=[0, 1])
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
    (tmp_path / "study.toml").write_text('name = "s"\nprotocol = "mine.toml"\nmodel.pretrained = "none"\n')
    study = load_study_config(tmp_path / "study.toml")
    assert (study.protocol, study.protocol_version, study.training.steps) == ("mine", 3, 60)
    assert study.training.patience == 900
    assert study.departures == {"model.pretrained": "required → none"}


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
        (
            {"sweeps": {"d": {"points": {"a": {}}, "kinds": {"n_pair": {}}}}},
            "'n_pair' is neither a family of methods nor",
        ),
        (
            {"sweeps": {"d": {"points": {"a": {}}, "kinds": {"proxy": {"a": {"data.fold": 1}}}}}},
            "kinds.proxy changes the data",
        ),
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
    text = " ".join(out.split())
    assert "Needs model.pretrained: the path of the weights of BN-Inception" in text
    assert "batch-size (n_pairs)" in text
    assert "On online_products without Triplet semi-hard, Lifted structure" in text
    code, out, _ = equimetric("protocols", "unified-view", "--toml")
    assert code == 0
    assert 'protocol = "unified-view"' in out
