"""The int8 model: another network with a certificate of its own."""

import numpy as np
import pytest
import torch
from exported import train_small

import equimetric
from equimetric.data import load_digits
from equimetric.deployment.certification import ThresholdTarget
from equimetric.deployment.export import export_run
from equimetric.deployment.load import load_exported
from equimetric.deployment.verify import verify_model
from equimetric.errors import EquimetricError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A run with a cohort, exported in float32 and in int8."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    folder = tmp_path_factory.mktemp("int8")
    train_small(folder / "run", evaluation={"cohort": {"part": "train"}})
    for name in ("float32", "int8"):
        export_run(folder / "run", folder / name, threshold=ThresholdTarget(far=0.05), int8=name == "int8")
    return folder


def test_onnxruntime_equals_torch(models):
    images = load_digits().images[:300]
    by_torch = equimetric.load(models / "float32", runtime="torch").outputs(images)
    by_onnx = equimetric.load(models / "float32", runtime="onnx").outputs(images)
    assert list(by_torch) == ["embedding", "query", "gallery"]
    for name, rows in by_torch.items():
        torch.testing.assert_close(by_onnx[name], rows, rtol=0, atol=1e-5)
    assert verify_model(models / "float32", program=True).holds


def test_int8_has_a_certificate_of_its_own(models):
    whole, small = equimetric.load(models / "float32"), equimetric.load(models / "int8")
    assert small.certificate.runtime == "int8"
    assert small.certificate.model == small.model != whole.model
    assert small.certificate.threshold != whole.certificate.threshold
    assert small.certificate.data.sha256 != whole.certificate.data.sha256
    assert small.certificate.cohort.sha256 != whole.certificate.cohort.sha256
    images = load_digits().images[:50]
    one, other = whole.embed(images), small.embed(images)
    assert 1e-4 < float((one - other).abs().max()) < 0.2
    outputs = small.outputs(images)
    query, gallery = small.cohort.extend(outputs["embedding"])
    torch.testing.assert_close(outputs["query"], query, rtol=0, atol=1e-5)
    torch.testing.assert_close(outputs["gallery"], gallery, rtol=0, atol=1e-5)
    assert verify_model(models / "int8").holds


def test_neither_runs_with_the_certificate_of_the_other(models, tmp_path):
    import shutil

    shutil.copytree(models / "int8", tmp_path / "mixed")
    shutil.copy(models / "float32" / "certificate.json", tmp_path / "mixed" / "certificate.json")
    with pytest.raises(EquimetricError, match="is for the model"):
        load_exported(tmp_path / "mixed")
    with pytest.raises(EquimetricError, match="int8 model runs in ONNX Runtime alone"):
        load_exported(models / "int8", runtime="torch")
    with pytest.raises(EquimetricError, match="needs a threshold of its own"):
        export_run(models / "run", tmp_path / "no", int8=True, certificate=models / "float32" / "certificate.json")


def test_a_model_without_layers_to_quantise_is_one_sentence(tmp_path):
    pytest.importorskip("onnxscript")
    train_small(tmp_path / "run", learner={"name": "raw_pixels"})
    with pytest.raises(EquimetricError, match="to quantise"):
        export_run(tmp_path / "run", tmp_path / "model", threshold=ThresholdTarget(far=0.05), int8=True)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["run"]
    model = export_run(tmp_path / "run", tmp_path / "model", threshold=ThresholdTarget(far=0.05), onnx=False)
    pixels = np.arange(64, dtype=np.uint8).reshape(8, 8)
    expected = torch.from_numpy(pixels.astype(np.float32)).flatten() / 255
    torch.testing.assert_close(model.embed(pixels)[0], expected / expected.norm())
