"""A certificate holds for one model, preprocessing, dimension, arithmetic and task; anything else is refused."""

import json
import re

import numpy as np
import pytest
import torch
from exported import change_config, change_json, copy_model, rewrite, train_small
from safetensors.torch import load_file, save

import equimetric
from equimetric.calibration import Certificate
from equimetric.deployment.certification import ThresholdTarget
from equimetric.deployment.export import export_run
from equimetric.deployment.load import load_exported
from equimetric.errors import EquimetricError


def test_the_certificate_is_bound_to_the_files(model_folder):
    model = equimetric.load(model_folder, task="verification")
    certificate = Certificate.load(model_folder / "certificate.json")
    assert certificate.model == model.model
    assert certificate.preprocessing == model.preprocessing.description
    assert certificate.data.dimension == model.dim == 8
    assert certificate.runtime == "float32"
    assert certificate.threshold == model.certificate.threshold


def test_another_model_is_refused(model_folder, tmp_path):
    folder = copy_model(model_folder, tmp_path / "model")
    weights = {name: tensor + 0.01 for name, tensor in load_file(folder / "model.safetensors").items()}
    (folder / "model.safetensors").write_bytes(save(weights))
    with pytest.raises(EquimetricError, match=r"model\.safetensors is not the file that was exported.*restore"):
        equimetric.load(folder)


def test_the_certificate_of_another_model_is_refused(model_folder, tmp_path):
    folder = copy_model(model_folder, tmp_path / "model")
    change_json(folder, "certificate.json", model="0" * 64)
    with pytest.raises(EquimetricError, match=r"is for the model '0000.*export the run again"):
        equimetric.load(folder)


def test_another_preprocessing_is_refused(model_folder, tmp_path):
    folder = copy_model(model_folder, tmp_path / "model")
    document = json.loads((folder / "preprocess.json").read_text())
    document["steps"][0]["resize"]["how"] = "square"
    (folder / "preprocess.json").write_text(json.dumps(document))
    with pytest.raises(EquimetricError, match=r"is 'upright.*resized to 8×8', and the model.*certified with"):
        equimetric.load(folder)
    change_config(folder, lambda config: config.update(preprocessing="another"))
    change_json(folder, "preprocess.json")
    with pytest.raises(EquimetricError, match="preprocessing"):
        equimetric.load(folder)


def test_another_dimension_is_refused(model_folder, tmp_path):
    folder = copy_model(model_folder, tmp_path / "model")
    data = json.loads((folder / "certificate.json").read_text())["data"]
    change_json(folder, "certificate.json", data={**data, "dimension": 9})
    with pytest.raises(EquimetricError, match="is for the dimension 9, and this model has 8"):
        equimetric.load(folder)


def test_another_arithmetic_is_refused(model_folder, tmp_path):
    folder = copy_model(model_folder, tmp_path / "model")
    change_json(folder, "certificate.json", runtime="int8")
    with pytest.raises(EquimetricError, match="is for the arithmetic 'int8', and this model has 'float32'"):
        equimetric.load(folder)


def test_another_task_is_refused(model_folder, tmp_path):
    with pytest.raises(EquimetricError, match=r"is for verification, not for identification.*--task identification"):
        equimetric.load(model_folder, task="identification")
    folder = copy_model(model_folder, tmp_path / "model")
    change_config(folder, lambda config: config.update(task="identification"))
    with pytest.raises(EquimetricError, match="is for the task 'verification'"):
        equimetric.load(folder)


def test_other_calibration_data_are_refused(model_folder, tmp_path):
    folder = copy_model(model_folder, tmp_path / "model")
    document = json.loads((folder / "certificate.json").read_text())
    document["data"]["sha256"] = "0" * 64
    (folder / "certificate.json").write_text(json.dumps(document))
    with pytest.raises(EquimetricError, match=r"certificate\.json is not the file that was exported"):
        equimetric.load(folder)


def test_another_cohort_is_refused(tmp_path):
    # In float64: the certified cohort is that of the run, to the last bit.
    train_small(tmp_path / "run", evaluation={"cohort": {"part": "train"}}, training={"precision": "float64"})
    model = export_run(tmp_path / "run", tmp_path / "model", threshold=ThresholdTarget(far=0.05), onnx=False)
    images = torch.randint(0, 256, (5, 1, 8, 8), dtype=torch.uint8)
    outputs = model.outputs(images)
    query, gallery = model.cohort.extend(outputs["embedding"])
    torch.testing.assert_close(outputs["query"], query, rtol=0, atol=1e-6)
    torch.testing.assert_close(outputs["gallery"], gallery, rtol=0, atol=1e-6)
    assert model.same(images, images).shape == (5,)
    changed = save({"embeddings": torch.as_tensor(model.cohort.embeddings).flip(0).contiguous()})
    rewrite(tmp_path / "model", "cohort.safetensors", changed)
    with pytest.raises(EquimetricError, match="for a cohort with sha256"):
        equimetric.load(tmp_path / "model")


def test_a_damaged_description_is_one_sentence(model_folder, tmp_path):
    folder = copy_model(model_folder, tmp_path / "model")
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text.replace('"dim": 8', '"dim": 9'))
    with pytest.raises(EquimetricError, match=r"config\.json is damaged"):
        equimetric.load(folder)
    with pytest.raises(EquimetricError, match="there is no exported model"):
        load_exported(tmp_path / "nothing")


def test_a_certificate_of_the_run_travels_and_another_does_not(run_folder, equimetric, tmp_path):
    code, _, error = equimetric("calibrate", run_folder, "--far", "0.05", "--out", tmp_path / "threshold.json")
    assert code == 0, error
    model = export_run(run_folder, tmp_path / "model", certificate=tmp_path / "threshold.json", onnx=False)
    given = Certificate.load(tmp_path / "threshold.json")
    assert (model.certificate.threshold, model.certificate.data) == (given.threshold, given.data)
    train_small(tmp_path / "other", seed=1)
    with pytest.raises(EquimetricError, match="this certificate is for the model"):
        export_run(tmp_path / "other", tmp_path / "no", certificate=tmp_path / "threshold.json", onnx=False)
    document = {**json.loads((tmp_path / "threshold.json").read_text()), "model": None}
    (tmp_path / "unknown.json").write_text(json.dumps(document))
    with pytest.raises(EquimetricError, match="does not say which model"):
        export_run(run_folder, tmp_path / "no", certificate=tmp_path / "unknown.json", onnx=False)
    assert not (tmp_path / "no").exists()
    assert not (tmp_path / ".no").exists()


def test_identification_travels_too(tmp_path):
    random = np.random.default_rng(0)
    patterns = random.integers(0, 256, (40, 1, 8, 8)).repeat(10, axis=1)
    images = np.clip(patterns + random.normal(0, 40, patterns.shape), 0, 255).astype(np.uint8)
    np.savez(tmp_path / "many.npz", images=images.reshape(400, 8, 8), labels=np.arange(400) // 10)
    train_small(tmp_path / "run", data={"name": "arrays", "options": {"file": str(tmp_path / "many.npz")}})
    model = export_run(
        tmp_path / "run", tmp_path / "model", threshold=ThresholdTarget("identification", fpir=0.1), onnx=False
    )
    assert equimetric.load(tmp_path / "model", task="identification").certificate == model.certificate
    with pytest.raises(EquimetricError, match="is for identification, not for verification"):
        model.same("a.png", "b.png")


def test_messages_are_one_sentence(model_folder, tmp_path):
    folder = copy_model(model_folder, tmp_path / "model")
    change_json(folder, "certificate.json", model="0" * 64)
    with pytest.raises(EquimetricError) as refused:
        equimetric.load(folder)
    assert not re.search(r"\n|\. [A-Z]", str(refused.value))
