"""Whether this machine computes what was certified."""

import json

import numpy as np
import pytest
from exported import change_config, copy_model, rewrite
from safetensors.numpy import load_file, save

from equimetric.deployment.canaries import largest_difference
from equimetric.deployment.verify import verify_model
from equimetric.errors import EquimetricError


def test_the_certificate_holds_where_it_was_written(model_folder, equimetric):
    code, out, error = equimetric("verify", model_folder, "--program", "--task", "verification")
    assert code == 0, error
    assert "The certificate holds: verification, accept distances below" in out
    assert "torch.export program" in out
    assert "onnxruntime: not tried, the model has no ONNX graph" in out


def test_other_canaries_fail(model_folder, tmp_path, equimetric):
    folder = copy_model(model_folder, tmp_path / "model")
    stored = load_file(folder / "canaries.safetensors")
    stored["embedding"] = stored["embedding"] + np.float32(1e-3)
    rewrite(folder, "canaries.safetensors", save(stored))
    code, out, _ = equimetric("verify", folder, "--json")
    answer = json.loads(out)
    assert code == 1
    assert not answer["holds"]
    assert "does not hold here" in answer["verdict"]
    with pytest.raises(EquimetricError, match="does not compute what was exported"):
        verify_model(folder).require()


def test_other_pixels_fail(model_folder, tmp_path):
    folder = copy_model(model_folder, tmp_path / "model")
    stored = load_file(folder / "canaries.safetensors")
    stored["image0"] = 255 - stored["image0"]
    rewrite(folder, "canaries.safetensors", save(stored))
    found = verify_model(folder)
    assert found.pixels > 2
    assert not found.holds
    assert "the preprocessing does not compute" in found.verdict


def test_a_model_that_nothing_computes_is_one_sentence(model_folder, tmp_path):
    folder = copy_model(model_folder, tmp_path / "model")
    change_config(folder, lambda config: config["files"].pop("model.safetensors"))
    with pytest.raises(EquimetricError, match="cannot be computed here"):
        verify_model(folder)


def test_differences_are_relative_to_large_values():
    one = {"query": np.array([[200.0, 0.0]])}
    assert largest_difference(one, {"query": np.array([[200.002, 0.0]])}) == pytest.approx(1e-5)
    assert largest_difference(one, {"gallery": one["query"]}) == float("inf")


def test_the_wrong_task_is_refused(model_folder, equimetric):
    code, _, error = equimetric("verify", model_folder, "--task", "identification")
    assert code == 2
    assert "is for verification, not for identification" in error
