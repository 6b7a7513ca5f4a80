import pytest
from exported import train_small
from PIL import Image
from serving import noise, serve

from equimetric.deployment.certification import ThresholdTarget
from equimetric.deployment.export import export_run
from equimetric.deployment.indexing import index_source
from equimetric.deployment.load import load_exported


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    train_small(folder)
    return folder


@pytest.fixture(scope="session")
def model_folder(run_folder, tmp_path_factory):
    """A model with a certificate of verification."""
    folder = tmp_path_factory.mktemp("models") / "model"
    export_run(run_folder, folder, threshold=ThresholdTarget(far=0.05), onnx=False)
    return folder


@pytest.fixture(scope="session")
def model(model_folder):
    return load_exported(model_folder)


@pytest.fixture
def photos(tmp_path):
    """Seven images of two classes."""
    for number in range(7):
        file = tmp_path / "photos" / f"class{number % 2}" / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noise(number)).save(file)
    return tmp_path / "photos"


@pytest.fixture
def gallery_folder(model_folder, photos, tmp_path):
    return index_source(model_folder, photos, tmp_path / "shop.gallery").gallery.folder


@pytest.fixture
def client(gallery_folder, model):
    with serve(gallery_folder, model) as client:
        yield client
