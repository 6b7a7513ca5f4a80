"""Every protocol as it is started: each method at each point of each sweep takes a step, on small images."""

import numpy as np
import pytest

import equimetric as em
from equimetric.backbones import build
from equimetric.backbones.registry import BACKBONES
from equimetric.protocols import find_protocol, list_protocols
from equimetric.studies.comparison import prepare_plan

CLASSES, IMAGES = 264, 10
"""Three eighths of the classes train: as many as the largest batches and a round of four have, and episodes images."""

RUNS = [
    (name, sweep) for name, protocol in list_protocols().items() for sweep in ("", *protocol.study.get("sweeps", {}))
]
"""Every protocol without a sweep, and with each of its own."""

QUICK = [run for run in RUNS if run in (("unbiased", "batch-size"), ("out-of-distribution", "rounds"))]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Small images of many classes in a file, with class lists whose test classes move away."""
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(CLASSES), IMAGES)
    patterns = random.integers(0, 200, (CLASSES, 1, 8, 8)).repeat(IMAGES, 0)
    images = (patterns + random.integers(0, 56, patterns.shape)).astype(np.uint8)
    file = tmp_path_factory.mktemp("data") / "patterns.npz"
    np.savez(file, images=images, labels=labels)
    return file


@pytest.fixture
def small_networks(monkeypatch):
    """A small network in place of those of other packages."""

    def stand_in(name, pretrained=None, *, load=True):
        return BACKBONES["small_cnn"].build(3)

    monkeypatch.setattr(build, "LIBRARIES", {"timm": stand_in, "torchvision": stand_in})


def study_of(name, sweep, file):
    """The protocol with its methods, batches and points, and a network, a budget and metrics that take no time."""
    values = find_protocol(name).study
    data = {"name": "arrays", "options": {"file": str(file)}, "transform": "none"}
    if sweep == "shift":
        data["split"] = {"file": str(file.with_suffix(".json"))}
    model = {
        "backbone": "small_cnn",
        "pretrained": "none",
        "pooling": "none",
        "frozen": False,
        "frozen_batch_norm": True,
    }
    patience = {"patience": 1} if "patience" in values.get("training", {}) else {}
    return {
        "name": "small",
        "protocol": name,
        "seeds": [0],
        "baselines": [],
        "data": data,
        "model": model,
        "optimizer": {"schedule": "constant", "milestones": [], "warmup_steps": 0},
        "training": {"steps": 1, "validate_every": 1, "log_every": 1, **patience},
        "evaluation": {"metrics": ["recall@1"], "selected_by": "recall@1"},
        "sweep": [sweep] if sweep else [],
        **({"cross_validation": False} if "cross_validation" in values else {}),
        **({"methods": {"contrastive": {}}} if "methods" not in values else {}),
    }


def step_counts(record):
    """How many methods took a step at each point; a failed one is an error of the test."""
    runs = (*record.runs, *record.sweep_runs)
    assert [(run.method, run.point, run.error) for run in runs if run.status == "failed"] == []
    points = dict.fromkeys(run.point for run in runs)
    return {point: len({run.method for run in runs if run.point == point}) for point in points}


@pytest.mark.parametrize(
    ("name", "sweep"), [pytest.param(*run, marks=() if run in QUICK else pytest.mark.slow) for run in RUNS]
)
@pytest.mark.filterwarnings("ignore::equimetric.errors.EquimetricWarning")
@pytest.mark.usefixtures("small_networks", "without_profiles")
def test_every_method_takes_a_step_at_every_point(name, sweep, data, tmp_path, equimetric):
    if sweep == "shift":
        network = ("--backbone", "small_cnn", "--pretrained", "none", "--swaps", 4, "--step", 1)
        out = data.with_suffix(".json")
        assert equimetric("datasets", "shift", "arrays", "--file", data, "--out", out, *network)[0] == 0
    protocol = find_protocol(name)
    study = study_of(name, sweep, data)
    if "search" in protocol.study:
        study["search"] = {"kind": "random", "trials": 1}
    counts = step_counts(em.compare(study, output=tmp_path, engine="serial").record)
    rows = len(protocol.study.get("methods", {"contrastive": {}})) * (1 + len(protocol.study.get("arms", {})))
    points = protocol.study.get("sweeps", {}).get(sweep, {})
    expected = dict.fromkeys(
        ["", *points.get("points", [f"number {value}" for value in points.get("values", [])])], rows
    )
    if sweep == "embedding-size":
        expected = {"": rows, **{f"dim {dim}": rows for dim in points["values"]}}
    if sweep == "batch-size":
        expected["batch 2"] = 4  # without a positive beside a negative only proxies and classifiers learn
    assert counts == expected


@pytest.mark.parametrize("name", ["reality-check", "unbiased"])
@pytest.mark.filterwarnings("ignore::equimetric.errors.EquimetricWarning")
@pytest.mark.usefixtures("small_networks")
def test_a_protocol_with_all_its_trials_is_fair(name, data, tmp_path):
    plan, ledger = prepare_plan(study_of(name, "", data), output=tmp_path)
    assert not plan.folder.exists()
    assert ledger["tuning"].status == "declared"
