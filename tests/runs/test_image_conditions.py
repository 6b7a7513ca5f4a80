"""Runs on test images under conditions."""

import json
import math

import pytest
import torch

import equimetric as em
from equimetric.data import parse_condition
from equimetric.runs import features as feature_room
from equimetric.runs.access_log import read_test_accesses
from equimetric.runs.evaluation import embed_run, evaluate_part, open_run
from equimetric.runs.image_conditions import ConditionTable, evaluate_conditions
from equimetric.training import train


@pytest.mark.parametrize(
    "kind", ["files through a view", "files, frozen", "queries and gallery", "queries, gallery and cohort"]
)
def test_the_images_of_one_part_are_changed_after_the_view(kind, sources, tmp_path):
    model = train(sources[kind], folder=tmp_path / "run")
    run = open_run(tmp_path / "run")
    clean, blurred = run.embed(), run.embed(condition="blur:3")
    images = run.data.eval_data.images[run.data.rows("test")]
    changed = run.data.eval_data.subset(run.data.rows("test")).with_condition(parse_condition("blur:3")).images
    changed = changed[torch.arange(len(changed))]
    assert not torch.equal(images, changed)
    with torch.inference_mode():
        expected = model.learner.embed(model.learner.prepare(changed))
    torch.testing.assert_close(blurred.embeddings, expected, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(blurred.embeddings, clean.embeddings, atol=1e-3)
    assert torch.equal(blurred.rows, clean.rows)
    if clean.cohort is not None:
        assert torch.equal(clean.cohort.embeddings, blurred.cohort.embeddings), "other classes stay as they are"
    validation = run.embed("validation", condition="blur:3")
    assert not torch.allclose(validation.embeddings, run.embed("validation").embeddings, atol=1e-3)


def test_features_under_a_condition_have_a_file_of_their_own(sources, tmp_path, monkeypatch):
    train(sources["files, frozen"], folder=tmp_path / "run")
    cache = tmp_path / "cache" / "features"
    before = set(cache.iterdir())
    first = embed_run(tmp_path / "run", condition="noise:2")[1].embeddings
    assert len(set(cache.iterdir()) - before) == 1
    monkeypatch.setattr(feature_room, "write_features", lambda *given, **options: pytest.fail("they are there already"))
    assert torch.equal(embed_run(tmp_path / "run", condition="noise:2")[1].embeddings, first)
    with pytest.raises(pytest.fail.Exception):
        embed_run(tmp_path / "run", condition="noise:3")


def test_a_table_of_conditions(sources, tmp_path):
    model = train(sources["files through a view"], folder=tmp_path / "run")
    names = []
    table = evaluate_conditions(tmp_path / "run", ["blur:1", "noise:3", "crop:2"], progress=names.append)
    assert names == ["clean", "blur:1", "noise:3", "crop:2"]
    assert dict(table.clean) == dict(model.metrics)
    config, found = embed_run(tmp_path / "run", condition="noise:3")
    assert table.under["noise:3"] == dict(evaluate_part(found, config.evaluation))
    assert "mean drop, corruptions" in str(table)
    assert "mean drop, crops and viewpoints" in str(table)
    named = evaluate_conditions(tmp_path / "run", ["crop:2"], metrics=["eer", "recall@1"])
    assert list(named.clean) == ["eer", "recall@1"]
    assert "corruptions" not in str(named)


def test_drops_are_relative_and_worse_is_positive():
    table = ConditionTable(
        {"map@r": 0.8, "eer": 0.1, "nmi": 0.0},
        {
            "blur:1": {"map@r": 0.6, "eer": 0.15, "nmi": 0.2},
            "noise:1": {"map@r": 0.4, "eer": 0.1, "nmi": 0.2},
            "crop:1": {"map@r": 0.88, "eer": 0.05, "nmi": 0.2},
        },
    )
    assert table.drop("blur:1", "map@r") == pytest.approx(0.25)
    assert table.drop("blur:1", "eer") == pytest.approx(0.5)
    assert table.mean_drop("map@r", "corruption") == pytest.approx((0.25 + 0.5) / 2)
    assert table.mean_drop("map@r", "viewpoint") == pytest.approx(-0.1)
    assert math.isnan(table.drop("blur:1", "nmi"))
    means = table.to_dict()["mean_relative_drop"]["viewpoint"]
    assert means == {"map@r": pytest.approx(-0.1), "eer": -0.5, "nmi": None}


def test_the_command_evaluates_one_condition_or_all(sources, tmp_path, equimetric):
    train(sources["files through a view"], folder=tmp_path / "run")
    code, out, err = equimetric("evaluate", tmp_path / "run", "--condition", "blur:2", "--json")
    assert code == 0, err
    config, found = embed_run(tmp_path / "run", condition="blur:2")
    expected = dict(evaluate_part(found, config.evaluation))
    printed = json.loads(out)
    assert {name: printed[name] for name in expected} == expected
    code, out, err = equimetric("evaluate", tmp_path / "run", "--condition", "all", "-m", "map@r", "--json")
    assert code == 0, err
    table = json.loads(out)
    assert len(table["under"]) == 24
    assert table["under"]["blur:2"] == {"map@r": expected["map@r"]}
    assert set(table["mean_relative_drop"]) == {"corruption", "viewpoint"}
    assert [access.command for access in read_test_accesses(tmp_path / "run")] == ["train", "evaluate", "evaluate"]
    code, _, err = equimetric("evaluate", tmp_path / "run", "--condition", "all", "--intervals")
    assert code == 2
    assert "--condition all prints one table" in err


def test_conditions_need_images_of_a_run(sources, tmp_path, equimetric):
    train(sources["features"], folder=tmp_path / "run")
    with pytest.raises(em.EquimetricError, match="blur:1 changes images, and these data are feature vectors"):
        embed_run(tmp_path / "run", condition="blur:1")
    for condition in ("blur:1", "all"):
        code, _, err = equimetric("evaluate", tmp_path / "features.npz", "--condition", condition)
        assert code == 2
        assert "--condition changes the images of a run" in err
