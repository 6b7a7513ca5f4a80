"""One folder with everything; ONNX Runtime computes what PyTorch does."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from exported import train_small
from making import IMAGES, configuration
from PIL import Image

import equimetric
from equimetric.configuration import load_config
from equimetric.deployment import graphs
from equimetric.deployment.certification import ThresholdTarget
from equimetric.deployment.export import export_run
from equimetric.deployment.graphs import export_program
from equimetric.deployment.network import DeployedNetwork, output_names
from equimetric.deployment.runtimes import OnnxRuntime
from equimetric.deployment.state import deployed_state, load_deployed_state
from equimetric.deployment.verify import verify_model
from equimetric.errors import EquimetricError
from equimetric.evaluation import Cohort
from equimetric.learners import LEARNERS
from equimetric.runs.building import build_learner
from equimetric.runs.configuration import RunConfig
from equimetric.runs.evaluation import embed_run


def test_the_folder_has_all_parts(model_folder):
    assert {file.name for file in model_folder.iterdir()} == {
        "README.md",
        "canaries.safetensors",
        "certificate.json",
        "config.json",
        "model.pt2",
        "model.safetensors",
        "preprocess.json",
    }


def test_embeddings_are_those_of_the_run(run_folder, model_folder):
    from equimetric.data import load_digits

    _, found = embed_run(run_folder)
    images = load_digits().images[found.rows]
    model = equimetric.load(model_folder)
    torch.testing.assert_close(model.embed(images, batch=100), found.embeddings, rtol=0, atol=1e-6)


def test_files_images_and_arrays_embed_alike(model_folder, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (13, 17, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    model = equimetric.load(model_folder)
    image = Image.open(tmp_path / "a.png")
    tensor = torch.from_numpy(pixels).permute(2, 0, 1)
    rows = model.embed([str(tmp_path / "a.png"), tmp_path / "a.png", image, pixels, tensor])
    assert torch.equal(rows, rows[:1].expand(5, -1))
    torch.testing.assert_close(model.embed(tmp_path / "a.png"), rows[:1])
    torch.testing.assert_close(model.embed(pixels[None].repeat(2, 0)), rows[:2])
    # A photo that was taken sideways is turned upright.
    turned = Image.fromarray(np.rot90(pixels).copy())
    exif = turned.getexif()
    exif[0x0112] = 6
    turned.save(tmp_path / "b.png", exif=exif)
    torch.testing.assert_close(model.embed([tmp_path / "b.png", Image.open(tmp_path / "b.png")]), rows[:2])


@pytest.mark.parametrize("image", [np.zeros((4, 4)), np.zeros((4, 4, 2), np.uint8), 3, torch.zeros(1, 4, 4)])
def test_other_images_are_one_sentence(model_folder, image):
    with pytest.raises(EquimetricError, match=r"channels|an image is a path"):
        equimetric.load(model_folder).embed([image])


def test_unreadable_files_are_named(model_folder, tmp_path):
    (tmp_path / "a.png").write_bytes(b"nothing")
    with pytest.raises(EquimetricError, match=r"a\.png"):
        equimetric.load(model_folder).embed([tmp_path / "a.png"])
    with pytest.raises(EquimetricError, match="no images"):
        equimetric.load(model_folder).embed([])


def test_a_run_is_loaded_as_before(run_folder):
    assert equimetric.load(run_folder).config.method == "contrastive"
    with pytest.raises(EquimetricError, match="no exported model"):
        equimetric.load(run_folder, task="verification")


def test_nothing_is_left_of_an_export_that_fails(run_folder, model_folder, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("equimetric.deployment.export.write_card", fail)
    with pytest.raises(OSError):
        export_run(run_folder, tmp_path / "model", threshold=ThresholdTarget(far=0.05), onnx=False)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(EquimetricError, match="is there already"):
        export_run(run_folder, model_folder, onnx=False)


def test_without_a_certificate_nothing_is_decided(run_folder, tmp_path):
    model = export_run(run_folder, tmp_path / "model", certified=False, onnx=False)
    assert equimetric.load(tmp_path / "model").certificate is None
    with pytest.raises(EquimetricError, match="has no certificate"):
        model.same(np.zeros((8, 8), np.uint8), np.zeros((8, 8), np.uint8))
    assert "No certificate" in (tmp_path / "model" / "README.md").read_text()


def test_the_model_card_is_filled_from_the_run(model_folder):
    text = (model_folder / "README.md").read_text()
    front, body = text.split("---\n")[1:3]
    fields = dict(line.split(": ", 1) for line in front.splitlines())
    assert json.loads(fields["license"]) == "unknown"
    assert json.loads(fields["library_name"]) == "equimetric"
    for heading in ("## Data", "## Training", "## Metrics", "## Where it fails", "## Threshold"):
        assert heading in body
    assert "| map@r |" in body
    assert "…" in body.partition("| map@r |")[2].partition("\n")[0]
    assert "FAR" in body.partition("## Threshold")[2]


def test_no_path_of_the_machine_travels(run_folder, model_folder):
    config = (model_folder / "config.json").read_text()
    assert str(run_folder.parent) not in config + (model_folder / "README.md").read_text()


def test_vectors_have_no_image_to_start_from(tmp_path):
    rows = np.random.default_rng(0).normal(size=(60, 6)).astype(np.float32)
    np.savez(tmp_path / "vectors.npz", embeddings=rows, labels=np.arange(60) // 5)
    data = {"name": "features", "options": {"file": str(tmp_path / "vectors.npz")}}
    train_small(tmp_path / "run", data=data, model={"dim": 4})
    with pytest.raises(EquimetricError, match="embeds feature vectors, not images"):
        export_run(tmp_path / "run", tmp_path / "model", onnx=False)


def test_a_missing_package_is_one_sentence(run_folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(EquimetricError, match=r"pip install 'equimetric\[onnx\]', or give --no-onnx"):
        export_run(run_folder, tmp_path / "model")


def test_what_cannot_be_traced_is_one_sentence():
    class Untraceable(torch.nn.Module):
        def forward(self, images):
            return (images.float() * float(images.float().sum()),)

    with pytest.raises(EquimetricError, match="the learner 'odd' cannot be exported, because torch"):
        export_program(Untraceable(), 1, 8, "the learner 'odd'")


@pytest.mark.parametrize("form", ["mean", "full"])
@pytest.mark.parametrize("strength", [0.0, 0.6])
def test_the_cohort_of_the_network_is_that_of_the_evaluation(form, strength):
    cohort = Cohort(torch.randn(40, 8), strength=strength, nearest=9, form=form)
    learner = small_learner("single")
    network = DeployedNetwork(learner, cohort)
    images = torch.randint(0, 256, (6, 1, 8, 8), dtype=torch.uint8)
    with torch.no_grad():
        embedding, query, gallery = network(images)
    expected = cohort.extend(embedding)
    for found, wanted in zip((query, gallery), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


def small_learner(name):
    return build_learner(load_config(configuration(name), RunConfig), IMAGES).float().eval()


@pytest.mark.parametrize("name", list(LEARNERS))
def test_every_learner_is_restored_from_what_is_deployed(name):
    learner, other = small_learner(name), small_learner(name)
    for tensor in other.state_dict().values():
        if tensor.is_floating_point():
            tensor.add_(0.1)
    images = torch.randint(0, 256, (4, 1, 8, 8), dtype=torch.uint8)
    load_deployed_state(other, deployed_state(learner))
    with torch.no_grad():
        assert torch.equal(DeployedNetwork(other)(images)[0], DeployedNetwork(learner)(images)[0])


@pytest.mark.parametrize(
    "name", [name if name == "single" else pytest.param(name, marks=pytest.mark.slow) for name in LEARNERS]
)
def test_every_learner_exports_and_onnxruntime_equals_torch(name, tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    learner = small_learner(name)
    images = torch.randint(0, 256, (7, 1, 8, 8), dtype=torch.uint8)
    with torch.no_grad():
        dim = DeployedNetwork(learner)(images)[0].shape[1]
    cohort = Cohort(torch.randn(40, dim), nearest=9)
    network = DeployedNetwork(learner, cohort)
    program = export_program(network, 1, 8, name)
    graphs.write_onnx(program, tmp_path / "model.onnx", output_names(cohort))
    graphs.write_program(program, tmp_path / "model.pt2")
    session = OnnxRuntime((tmp_path / "model.onnx").read_bytes())
    assert session.session.get_inputs()[0].shape == ["batch", 1, 8, 8]
    again = graphs.torch.export.load(tmp_path / "model.pt2").module()
    for rows in (1, 2, 7):
        with torch.no_grad():
            expected, program_rows = network(images[:rows]), again(images[:rows])
        found = session.run(images[:rows].numpy())
        for wanted, one, key in zip(expected, program_rows, output_names(cohort), strict=True):
            torch.testing.assert_close(torch.from_numpy(found[key]), wanted, rtol=0, atol=1e-5)
            torch.testing.assert_close(one, wanted, rtol=0, atol=1e-6)


def test_a_folder_of_links_loads_as_the_cache_of_the_hub_holds_it(model_folder, tmp_path):
    snapshot, blobs = tmp_path / "snapshots" / "main", tmp_path / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, file in enumerate(sorted(model_folder.iterdir())):
        (blobs / str(number)).write_bytes(file.read_bytes())
        (snapshot / file.name).symlink_to(Path("..") / ".." / "blobs" / str(number))
    (snapshot / ".gitattributes").write_text("*.safetensors filter=lfs diff=lfs merge=lfs -text\n")
    assert verify_model(snapshot).holds
    assert equimetric.load(snapshot).model == equimetric.load(model_folder).model
