import pytest
from exported import train_small

from equimetric.deployment.export import export_run


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    train_small(folder)
    return folder


@pytest.fixture(scope="session")
def model_folder(run_folder, tmp_path_factory):
    """A model with a certificate of verification, without ONNX."""
    from equimetric.deployment.certification import Threshold

    folder = tmp_path_factory.mktemp("models") / "model"
    export_run(run_folder, folder, threshold=Threshold(far=0.05), onnx=False)
    return folder
