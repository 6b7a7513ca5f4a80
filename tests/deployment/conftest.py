import numpy as np
import pytest
from exported import train_small
from PIL import Image

from equimetric.deployment.export import export_run


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    train_small(folder)
    return folder


@pytest.fixture(scope="session")
def model_folder(run_folder, tmp_path_factory):
    """A model with a certificate of verification, without ONNX."""
    from equimetric.deployment.certification import ThresholdTarget

    folder = tmp_path_factory.mktemp("models") / "model"
    export_run(run_folder, folder, threshold=ThresholdTarget(far=0.05), onnx=False)
    return folder


@pytest.fixture
def photos(tmp_path):
    """Seven images of two classes."""
    folder = tmp_path / "photos"
    random = np.random.default_rng(0)
    for number in range(7):
        file = folder / f"class{number % 2}" / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (9, 12), dtype=np.uint8)).save(file)
    return folder
