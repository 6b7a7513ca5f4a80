"""A certificate is saved and loaded; damaged files and those of newer versions raise one sentence."""

import json
import math

import numpy as np
import pytest
import torch

from equimetric.calibration import Certificate, calibrate
from equimetric.errors import EquimetricError


@pytest.fixture(scope="module")
def calibration():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(40).repeat_interleave(8)
    embeddings = torch.randn(40, 8, generator=generator)[labels] + 0.4 * torch.randn(320, 8, generator=generator)
    names = [f"class {label}" for label in labels.tolist()]
    return calibrate(embeddings, names, 1e-2, members=["a", "b"] * 160, resamples=20)


@pytest.fixture
def file(calibration, tmp_path):
    calibration.save(tmp_path / "certificate.json")
    return tmp_path / "certificate.json"


def test_it_says_what_the_calibration_said(calibration, file):
    loaded = Certificate.load(file)
    assert loaded == Certificate.of(calibration)
    assert loaded.to_dict() == calibration.certificate()
    assert (loaded.threshold, loaded.geometry) == (calibration.threshold, "cosine")
    assert loaded.threshold_interval == calibration.interval
    assert loaded.held_out == calibration.held_out
    assert loaded.violations == calibration.violations
    assert loaded.data_sets == dict(calibration.data_sets)
    assert loaded.data.sha256 == calibration.fingerprint
    loaded.save(file.with_name("again.json"))
    assert file.with_name("again.json").read_bytes() == file.read_bytes()


def test_it_accepts_distances_below_the_threshold(file):
    certificate = Certificate.load(file)
    threshold = certificate.threshold
    assert certificate.accepts(np.nextafter(threshold, 0))
    assert not certificate.accepts(threshold)
    assert certificate.accepts(np.array([0, threshold, 2])).tolist() == [True, False, False]
    assert certificate.accepts(torch.tensor([0, 2.0])).tolist() == [True, False]


def test_classes_numbered_and_without_pairs_survive(file):
    document = json.loads(file.read_text(encoding="utf-8"))
    entry = {**document["worst_classes"][0], "name": 7, "far": None, "far_bound": None, "negatives": 0}
    file.write_text(json.dumps({**document, "worst_classes": [entry]}))
    (name, rates), *others = Certificate.load(file).worst_classes.items()
    assert (name, others, rates.negatives) == (7, [], 0)
    assert math.isnan(rates.far)
    assert not rates.violates


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "equimetric.calibration/3"}, "has schema 3, this version reads 2; upgrade equimetric"),
        ({"schema": "equimetric.study/1"}, "is not a certificate"),
        ({"schema": None}, "is not a certificate"),
        ({"threshold": None}, "is damaged: its threshold is None; calibrate again"),
        ({"threshold": "0.5"}, "is damaged: its threshold is '0.5'"),
        ({"wanted_far": True}, "is damaged: its wanted_far is True"),
        ({"threshold_interval": [1]}, "is damaged"),
        ({"held_out": {}}, "is damaged: 'far' is missing"),
        ({"violations": [3]}, "is damaged"),
        ({"violations": None}, "is damaged"),
        ({"data": {"sha": 1}}, "is damaged"),
        ({"data": {"sha256": "a", "samples": "many", "dimension": 8, "classes": 40}}, "its samples is 'many'"),
        ({"fold_thresholds": [1, None]}, "its fold_thresholds is None"),
        ({"options": {"geometry": "dot"}}, "is damaged: its geometry is 'dot'"),
    ],
)
def test_damaged_and_newer_files_are_refused(file, change, message):
    document = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps(document | change))
    with pytest.raises(EquimetricError, match=message) as error:
        Certificate.load(file)
    assert "\n" not in str(error.value)
    assert "certificate.json" in str(error.value)


@pytest.mark.parametrize("content", [b"", b"[1, 2]", b"{", b"\xff\xfe", b'{"schema": "equimetric.calibration/1"}'])
def test_files_that_are_no_certificates(file, content):
    file.write_bytes(content)
    with pytest.raises(EquimetricError, match=r"calibrate again|is not a certificate"):
        Certificate.load(file)


def test_a_missing_file(tmp_path):
    with pytest.raises(EquimetricError, match="there is no certificate"):
        Certificate.load(tmp_path / "none.json")
