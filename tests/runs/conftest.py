"""Small image folders and arrays to run on."""

import numpy as np
import pytest
from PIL import Image
from run_cases import configuration, draw_image

from equimetric.data import CenterCrop, RandomCrop, Resize, Transform, View, transforms


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("EQUIMETRIC_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def zoom(monkeypatch):
    """A transform whose test view differs from the stored image."""
    views = {"train": View(Resize(24, "square"), RandomCrop(16)), "test": View(Resize(24, "square"), CenterCrop(16))}
    monkeypatch.setitem(transforms.TRANSFORMS._records, "zoom", Transform("zoom", "", **views))
    return "zoom"


@pytest.fixture
def image_folder(tmp_path):
    """Sixteen classes of four images."""
    for label in range(16):
        folder = tmp_path / "images" / f"class{label}"
        folder.mkdir(parents=True)
        for number in range(4):
            Image.fromarray(draw_image(label, number)).save(folder / f"{number}.png")
    return tmp_path / "images"


@pytest.fixture
def arrays(tmp_path):
    """Sixteen classes of six small images: eight for training, eight for the test, queries and gallery."""
    labels = np.repeat(np.arange(16), 6)
    images = np.stack([draw_image(label, number)[3:27] for number, label in enumerate(labels)])
    split = np.where(labels < 8, "train", np.where(np.arange(len(labels)) % 3 == 0, "query", "gallery"))
    np.savez(tmp_path / "arrays.npz", images=images, labels=labels, split=split)
    return tmp_path / "arrays.npz"


@pytest.fixture
def features(tmp_path):
    """Twelve classes of ten feature vectors."""
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(12), 10)
    centres = generator.normal(size=(12, 20))
    vectors = (centres[labels] + 0.8 * generator.normal(size=(120, 20))).astype(np.float32)
    superclass = np.where(labels // 2 % 2 == 0, "even", "odd")
    np.savez(tmp_path / "features.npz", features=vectors, labels=labels, superclass=superclass)
    return tmp_path / "features.npz"


@pytest.fixture
def sources(image_folder, arrays, features, zoom):
    """Configurations of every kind of data: files with a view, frozen, query and gallery, features."""
    files = {"name": "folder", "transform": zoom, "options": {"root": str(image_folder), "in_memory": False}}
    gallery = {"name": "arrays", "transform": zoom, "options": {"file": str(arrays)}}
    vectors = {"name": "features", "options": {"file": str(features)}}
    frozen = {"frozen": True, "head_init": "pca"}
    return {
        "files through a view": configuration(files),
        "files, frozen": configuration(files, model=frozen),
        "queries and gallery": configuration(gallery),
        "queries and gallery, frozen": configuration(gallery, model=frozen),
        "features": configuration(vectors),
        "features, principal components": configuration(vectors, model={"head_init": "pca"}),
        "metrics of one's own": configuration(
            vectors, evaluation={"metrics": ["recall@1", "eer", "opis", "tar@far=1e-1"], "selected_by": "map@r"}
        ),
        "distances of raw embeddings": configuration(vectors, evaluation={"geometry": "euclidean"}),
        "cohort": configuration(
            vectors, evaluation={"metrics": ["recall@1", "map@r", "tar@far=1e-1", "opis"], "cohort": {"strength": 0.5}}
        ),
        "queries, gallery and cohort": configuration(gallery, evaluation={"cohort": {"part": "validation"}}),
        "Lp distances": configuration(vectors, evaluation={"geometry": "l3", "metrics": ["recall@1", "eer"]}),
        "within parents": configuration(
            vectors, evaluation={"parents": "superclass", "metrics": ["recall@1", "macro:recall@1", "tar@far=1e-1"]}
        ),
        "cohort, chosen": configuration(
            vectors,
            evaluation={"cohort": {"strength": "auto", "form": "auto", "nearest": 5, "far": 0.1}},
        ),
        "signs": configuration(vectors, evaluation={"binarise": True, "ks": [1, 3]}),
    }


KINDS = (
    "files through a view",
    "files, frozen",
    "queries and gallery",
    "queries and gallery, frozen",
    "features",
    "features, principal components",
    "metrics of one's own",
    "distances of raw embeddings",
    "cohort",
    "queries, gallery and cohort",
    "Lp distances",
    "within parents",
    "cohort, chosen",
    "signs",
)


@pytest.fixture(params=KINDS)
def config(request, sources):
    return sources[request.param]
