"""Images of a run are stored as large as its backbone expects, or a warning says that they are not."""

import warnings

import numpy as np
import pytest
import torch
from PIL import Image
from run_cases import configuration
from study_plans import plan_of

from equimetric.backbones import BACKBONES, BackboneRecord, SmallCNN, find_input_size
from equimetric.configuration import load_config
from equimetric.data import ImageFiles, transform
from equimetric.errors import EquimetricWarning
from equimetric.runs.configuration import RunConfig
from equimetric.runs.data import load_run_data
from equimetric.runs.evaluation import embed_run
from equimetric.runs.image_size import fit_images, keep_in_files
from equimetric.runs.key import RunKey
from equimetric.studies.configuration import StudyConfig
from equimetric.training import loop, train

WIDE = 80


@pytest.fixture
def wide(monkeypatch):
    """A small network that is made for images of 80 pixels."""
    record = BackboneRecord("wide", 1792, WIDE, "", SmallCNN)
    monkeypatch.setattr(BACKBONES, "_records", {**{name: BACKBONES[name] for name in BACKBONES}, "wide": record})


@pytest.fixture
def photos(tmp_path):
    """Eight classes of three pictures of 120×90 pixels."""
    for label in range(8):
        (tmp_path / "photos" / f"class{label}").mkdir(parents=True)
        for number in range(3):
            coarse = np.random.default_rng((label, number)).integers(256, size=(6, 6, 3), dtype=np.uint8)
            picture = Image.fromarray(coarse).resize((120, 90), Image.Resampling.BICUBIC)
            picture.save(tmp_path / "photos" / f"class{label}" / f"{number}.png")
    return tmp_path / "photos"


def configured(photos, backbone="wide", transform="none", pretrained=None, **options):
    data = {"name": "folder", "transform": transform, "options": {"root": str(photos), **options}}
    values = configuration(data, model={"backbone": backbone, "pretrained": pretrained, "dim": 4})
    values["batch"] = {"classes": 2, "samples": 2}
    return load_config(values, RunConfig)


def test_the_size_comes_from_the_backbone(photos, wide):
    fitted = fit_images(configured(photos))
    assert fitted.data.options == {"root": str(photos), "size": WIDE, "in_memory": False}
    data = load_run_data(fitted.data)
    assert data.dataset.size == WIDE
    assert isinstance(data.dataset.images, ImageFiles)
    assert fit_images(fitted) is fitted
    assert fit_images(configured(photos, in_memory=True)).data.options["in_memory"] is True
    assert fit_images(configured(photos, in_memory=True)).data.options["size"] == WIDE


@pytest.mark.parametrize(
    ("backbone", "data"),
    [
        ("small_cnn", {"name": "folder", "options": {"root": "x"}}),
        ("wide", {"name": "folder", "options": {"root": "x", "size": 16}}),
        ("efficientnet_lite0", {"name": "manifest", "options": {"file": "x.csv"}}),
        ("efficientnet_lite0", {"name": "cub", "options": {"root": "x"}, "transform": "imagenet"}),
        ("efficientnet_lite2", {"name": "cub", "options": {"root": "x"}, "transform": "imagenet"}),
        ("efficientnet_lite0", {"name": "omniglot", "options": {"root": "x"}}),
        ("efficientnet_lite0", {"name": "digits"}),
        ("efficientnet_lite0", {"name": "features", "options": {"file": "x.npz"}}),
    ],
)
def test_configurations_that_need_no_other_size_keep_their_key(wide, backbone, data):
    config = load_config({"data": data, "model": {"backbone": backbone}}, RunConfig)
    assert fit_images(config) is config


def test_archives_and_lists_are_fitted_too(wide):
    for name in ("manifest", "cub", "inaturalist"):
        data = {"name": name, "options": {"file" if name == "manifest" else "root": "x"}}
        config = load_config({"data": data, "model": {"backbone": "efficientnet_lite2"}}, RunConfig)
        assert fit_images(config).data.options["size"] == 260


def test_views_of_a_transform_see_the_files_themselves(photos, zoom):
    fitted = fit_images(configured(photos, "small_cnn", zoom))
    assert fitted.data.options == {"root": str(photos), "in_memory": False}
    assert fit_images(fitted) is fitted
    in_memory = configured(photos, "small_cnn", "reality_check", in_memory=True)
    assert fit_images(in_memory).data.options["size"] == 256
    chosen = configured(photos, "small_cnn", zoom, size=40)
    assert fit_images(chosen) is chosen
    assert keep_in_files(chosen.data) is chosen.data


def test_the_key_is_that_of_the_same_sizes_written_out(photos, wide):
    written = configured(photos, size=WIDE, in_memory=False)
    keys = {RunKey.from_config(config, "data").content for config in (fit_images(configured(photos)), written)}
    assert len(keys) == 1
    assert RunKey.from_config(configured(photos), "data").content not in keys


def test_a_fitted_run_is_trained_resumed_and_evaluated(photos, wide, tmp_path):
    config = configured(photos)
    trained = train(config, folder=tmp_path / "run")
    assert trained.config.data.options["size"] == WIDE
    assert train(config, folder=tmp_path / "run").metrics == trained.metrics
    stored, found = embed_run(tmp_path / "run")
    assert stored.data == trained.config.data
    data = load_run_data(stored.data)
    assert torch.equal(trained.embed(data.images("test")), found.embeddings)


def test_runs_from_before_keep_their_size(photos, wide, tmp_path, monkeypatch):
    with monkeypatch.context() as before:
        before.setattr(loop, "fit_images", lambda config: config)
        train(configured(photos), folder=tmp_path / "run")
    config, found = embed_run(tmp_path / "run")
    assert "size" not in config.data.options
    assert len(found.embeddings) == 12


def test_all_runs_of_a_study_have_the_size(photos, wide, tmp_path):
    run = configured(photos)
    study = load_config(
        {"name": "s", "methods": {"contrastive": {}}, "data": run.data.model_dump(), "model": run.model.model_dump()},
        StudyConfig,
    )
    jobs = list(plan_of(fit_images(study), tmp_path).known_jobs())
    assert {job.config.data.options["size"] for job in jobs} == {WIDE}
    assert all(fit_images(job.config) is job.config for job in jobs)


def warnings_of(config):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        load_run_data(config.data, model=config.model)
    assert all(warning.category is EquimetricWarning for warning in said)
    return [str(warning.message) for warning in said]


def test_copies_smaller_than_pretrained_weights_expect_are_said_once(photos, wide):
    small = {"pretrained": "weights.safetensors", "size": 20}
    expected = (
        f"the images of 'photos' are stored with 20 pixels on each side and the weights of wide expect {WIDE}; "
        f"set data.options.size = {WIDE}, or leave it out"
    )
    assert warnings_of(configured(photos, **small)) == [expected]
    assert warnings_of(configured(photos, in_memory=False, **small)) == [expected]
    assert warnings_of(configured(photos, size=20)) == []  # without weights any size will do
    assert warnings_of(configured(photos, pretrained="weights.safetensors", size=60)) == []
    assert warnings_of(fit_images(configured(photos, pretrained="weights.safetensors"))) == []


def test_copies_that_a_transform_enlarges_are_said(photos, arrays):
    (said,) = warnings_of(configured(photos, "small_cnn", "imagenet", size=64))
    assert said == (
        "the images of 'photos' are stored with 64 pixels on each side and the transform 'imagenet' enlarges them to "
        "256; set data.options.size = 256, or leave it out"
    )
    assert warnings_of(fit_images(configured(photos, "small_cnn", "imagenet"))) == []
    stored = configuration({"name": "arrays", "transform": "imagenet", "options": {"file": str(arrays)}})
    (said,) = warnings_of(load_config(stored, RunConfig))
    assert "enlarges them to 256; store larger images, or choose a backbone and a transform for small ones" in said


def test_files_that_are_small_themselves_are_said(photos):
    weights = {"pretrained": "package", "backbone": "efficientnet_lite0"}
    (said,) = warnings_of(fit_images(configured(photos, **weights)))
    assert said == (
        "the image files of 'photos' have about 90 pixels on their shorter side and are enlarged to 224; "
        "give larger originals where there are any"
    )
    (said,) = warnings_of(fit_images(configured(photos, transform="imagenet", **weights)))
    assert "about 90 pixels on their shorter side and are enlarged to 256" in said


def test_the_input_size_of_a_backbone():
    assert find_input_size("efficientnet_lite1") == 240
    assert all(find_input_size(name) == record.size for name, record in BACKBONES.items())


def test_the_input_size_of_a_library_model(monkeypatch):
    from equimetric.backbones import build

    state = torch.random.get_rng_state()
    network = SmallCNN(3)
    torch.random.set_rng_state(state)
    monkeypatch.setitem(build.LIBRARIES, "timm", lambda name, pretrained, load=True: SmallCNN(3))
    assert find_input_size("timm:some_model") == network.convention.size
    assert torch.equal(torch.random.get_rng_state(), state)


def test_small_images_in_memory_are_named_and_can_be_enlarged():
    def digits(**keys):
        data = {"name": "digits", **keys}
        return load_config(
            {"data": data, "model": {"backbone": "efficientnet_lite0", "pretrained": "package"}}, RunConfig
        )

    (said,) = warnings_of(digits())
    assert said == (
        "the images of 'digits' are stored with 8 pixels on each side and the weights of efficientnet_lite0 expect "
        '224; set data.transform = "enlarge"'
    )
    assert not warnings_of(digits(transform="enlarge"))
    enlarged = transform("enlarge").test
    assert enlarged.finish(enlarged.resize(Image.fromarray(np.eye(8, dtype=np.uint8))), None).shape[:2] == (128, 128)


def test_small_images_suit_weights_for_small_images():
    model = {"backbone": "small_cnn", "pretrained": "weights.safetensors"}
    assert not warnings_of(load_config({"data": {"name": "digits"}, "model": model}, RunConfig))
