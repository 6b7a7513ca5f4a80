"""A run evaluated again gives the figures of its own result, whatever its data and transform."""

import json

import numpy as np
import pytest
import torch
from run_cases import configuration

import equimetric as em
from equimetric.configuration import load_config
from equimetric.runs.configuration import RunConfig
from equimetric.runs.data import load_run_data
from equimetric.runs.embedding import embed_images
from equimetric.runs.evaluation import (
    LabelledEmbeddings,
    embed_part,
    embed_run,
    evaluate_part,
    evaluation_data,
    per_query_arrays,
    within_parents,
)
from equimetric.runs.features import cached_features
from equimetric.runs.folder import RunFolder
from equimetric.runs.model import load_weights
from equimetric.training import train


def test_evaluating_a_run_gives_exactly_its_result(config, tmp_path):
    trained = train(config, folder=tmp_path / "run")
    run_config, found = embed_run(tmp_path / "run")
    scores = evaluate_part(found, run_config.evaluation)
    assert dict(scores) == dict(trained.metrics)
    assert set(run_config.evaluation.names()) == set(trained.metrics)


def test_a_loaded_model_embeds_test_images_as_the_run_did(config, tmp_path):
    trained = train(config, folder=tmp_path / "run")
    model = em.load(tmp_path / "run")
    data = load_run_data(model.config.data)
    expected = embed_run(tmp_path / "run")[1].embeddings
    test = data.dataset.subset(data.split.test).images
    for embedded in (model.embed(test), trained.embed(test)):
        torch.testing.assert_close(embedded, expected, rtol=1e-4, atol=1e-5)


def test_the_test_view_decides_what_is_embedded(sources, tmp_path):
    train(sources["queries and gallery"], folder=tmp_path / "run")
    model = em.load(tmp_path / "run")
    data = load_run_data(model.config.data)
    stored = data.dataset.images[data.split.test]
    expected = embed_run(tmp_path / "run")[1].embeddings
    assert torch.equal(model.embed(stored), expected)
    assert not torch.allclose(embed_images(model.learner, stored), expected, atol=1e-2), "other pixels without the view"


def test_queries_are_searched_for_in_the_gallery(sources, tmp_path):
    train(sources["queries and gallery"], folder=tmp_path / "run")
    arrays = embed_run(tmp_path / "run")[1].arrays()
    assert len(arrays["embeddings"]) == 16
    assert len(arrays["gallery_embeddings"]) == 32


def test_cached_features_are_used(sources, tmp_path, monkeypatch):
    train(sources["files, frozen"], folder=tmp_path / "run")
    from equimetric.runs import features

    def compute_again(*given):
        raise AssertionError("the features are there already")

    monkeypatch.setattr(features, "write_features", compute_again)
    embed_run(tmp_path / "run")


def test_validation_and_training_classes_can_be_evaluated_too(sources, tmp_path):
    train(sources["features"], folder=tmp_path / "run")
    config, validation = embed_run(tmp_path / "run", "validation")
    best = json.loads((tmp_path / "run" / "result.json").read_text())["validation"]
    assert dict(evaluate_part(validation, config.evaluation)) == best
    with pytest.raises(em.EquimetricError, match="unknown part of the split 'tset'; did you mean 'test'"):
        embed_run(tmp_path / "run", "tset")


def test_a_frozen_model_embeds_images_and_features_alike(sources, tmp_path):
    trained = train(sources["files, frozen"], folder=tmp_path / "run")
    data = load_run_data(trained.config.data)
    with_features = evaluation_data(trained.config, trained.learner, data)
    by_features = embed_part(trained.learner, with_features, "test").embeddings
    by_images = embed_part(trained.learner, data, "test").embeddings
    torch.testing.assert_close(by_features, by_images, rtol=1e-4, atol=1e-5)
    backbone = trained.learner.network.backbone
    assert cached_features(backbone, data.eval_data).shape == (len(data.dataset), backbone.num_features)


def test_checkpoints_leave_a_frozen_backbone_out_and_the_model_holds_it(sources, tmp_path):
    names = []

    def note(step, figures):
        (file,) = (tmp_path / "run").glob("checkpoint-*.safetensors")
        names.append(set(load_weights(file)))

    train(
        sources["files, frozen"],
        folder=tmp_path / "run",
        progress=note,
        overrides={"training.checkpoint_seconds": 0},
    )
    assert names
    assert not any("backbone" in name for kept in names for name in kept)
    assert not any("backbone" in name for name in load_weights(tmp_path / "run" / "model.safetensors"))
    assert all("backbone" in name for name in load_weights(tmp_path / "run" / "backbone.safetensors"))


def test_changed_data_are_noticed(sources, tmp_path, features):
    train(sources["features"], folder=tmp_path / "run")
    with np.load(features) as stored:
        arrays = dict(stored)
    arrays["features"] += 1
    np.savez(features, **arrays)
    with pytest.raises(em.EquimetricError, match="have changed since it was trained"):
        embed_run(tmp_path / "run")


@pytest.mark.parametrize("training", [{"precision": "float64"}, {"channels_last": True}, {"precision": "bfloat16"}])
def test_precision_and_memory_format_are_those_of_the_run(training, sources, tmp_path):
    config = sources["files through a view"]
    trained = train({**config, "training": {**config["training"], **training}}, folder=tmp_path / "run")
    run_config, found = embed_run(tmp_path / "run")
    assert dict(evaluate_part(found, run_config.evaluation)) == dict(trained.metrics)


def test_arrays_of_other_libraries_are_one_sentence(sources, tmp_path):
    trained = train(sources["features"], folder=tmp_path / "run")
    with pytest.raises(
        em.EquimetricError, match=r"images must be a tensor, got ndarray; convert with torch\.as_tensor"
    ):
        trained.embed(np.zeros((2, 20), dtype=np.float32))


def test_parents_of_a_run_are_compared_in_validation_and_test(sources, tmp_path):
    trained = train(sources["within parents"], folder=tmp_path / "run")
    names = trained.config.evaluation.names()
    for part, figures in (("validation", trained.result.validation), ("test", trained.metrics)):
        config, found = embed_run(tmp_path / "run", part)
        parents = found.labels // 2 % 2
        expected = em.evaluate(found.embeddings, found.labels, parents=parents, metrics=names)
        assert dict(figures) == dict(expected) == dict(evaluate_part(found, config.evaluation))
        assert len(found.parents.unique()) == (2 if part == "test" else 1)
    assert dict(trained.metrics) != dict(em.evaluate(found.embeddings, found.labels, metrics=names))
    stored = RunFolder(tmp_path / "run").per_query()
    labels = load_run_data(trained.config.data).dataset.labels.numpy()
    neighbours = stored["neighbours"]
    assert (labels[neighbours] // 2 % 2 == stored["labels"][:, None] // 2 % 2)[neighbours >= 0].all()


def test_missing_neighbours_are_no_rows(sources):
    data = load_run_data(load_config(sources["within parents"], RunConfig).data)
    rows = data.split.test[(data.dataset.labels[data.split.test] - 8).abs() <= 1]
    found = LabelledEmbeddings(
        torch.randn(len(rows), 4), data.dataset.labels[rows], rows, None, None, data.dataset.class_names
    )
    found = within_parents(found, data, "superclass")
    scores = em.evaluate(**found.arrays(), metrics="map", neighbours=15)
    stored = per_query_arrays(scores, found)["neighbours"]
    counts = (stored >= 0).sum(axis=1)
    assert counts.tolist() == [9] * 10 + [15] * 20
    assert (stored[:10, 9:] == -1).all()


@pytest.mark.parametrize(
    ("evaluation", "message"),
    [
        (
            {"parents": "superclas"},
            "evaluation.parents = 'superclas' names no attribute of the data; did you mean",
        ),
        ({"parents": "colour"}, "evaluation.parents = 'colour' has several values in class '0'; every class has one"),
    ],
)
def test_parents_that_the_data_do_not_have_are_named_before_training(evaluation, message, tmp_path, features):
    stored = dict(np.load(features))
    colour = np.where(np.arange(120) % 3 == 0, "red", "blue")
    np.savez(tmp_path / "coloured.npz", **stored, colour=colour)
    data = {"name": "features", "options": {"file": str(tmp_path / "coloured.npz")}}
    with pytest.raises(em.EquimetricError, match=message):
        train(configuration(data, evaluation=evaluation), folder=tmp_path / "run")


@pytest.mark.parametrize(
    ("evaluation", "message"),
    [
        ({"geometry": "cosin"}, "unknown geometry 'cosin'"),
        ({"geometry": "snr"}, "unknown geometry of an evaluation 'snr'"),
        ({"parents": "superclass", "metrics": ["nmi"]}, "'nmi' describes the whole space"),
        ({"metrics": ["macro:nmi"]}, "'nmi' is no mean over queries"),
    ],
)
def test_impossible_evaluations_are_found_in_the_configuration(evaluation, message):
    with pytest.raises(em.EquimetricError, match=message):
        load_config({"data": {"name": "digits"}, "method": "contrastive", "evaluation": evaluation}, RunConfig)


@pytest.mark.parametrize(
    ("geometry", "unit"),
    [
        ("cosine", True),
        ("l1", True),
        ("linf", True),
        ("euclidean", False),
        ("dot", False),
        ("hyperbolic", False),
    ],
)
def test_the_geometry_decides_whether_embeddings_have_unit_length(geometry, unit, sources, tmp_path):
    trained = train({**sources["features"], "evaluation": {"geometry": geometry}}, folder=tmp_path / "run")
    lengths = embed_run(tmp_path / "run")[1].embeddings.norm(dim=1)
    assert torch.allclose(lengths, torch.ones_like(lengths), atol=1e-5) is unit
    assert trained.config.evaluation.unit_length() is unit
