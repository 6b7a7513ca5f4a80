"""A certificate is saved and loaded, decides, and refuses what it is not for; damaged files raise one sentence."""

import json
import math
from datetime import UTC, datetime

import numpy as np
import pytest
import torch

from equimetric.calibration import Certificate, calibrate
from equimetric.errors import EquimetricError


def named_space():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(40).repeat_interleave(8)
    embeddings = torch.randn(40, 8, generator=generator)[labels] + 0.4 * torch.randn(320, 8, generator=generator)
    return embeddings, [f"class {label}" for label in labels.tolist()]


@pytest.fixture(scope="module")
def calibration():
    return calibrate(*named_space(), 1e-2, members=["a", "b"] * 160, resamples=20)


@pytest.fixture
def file(calibration, tmp_path):
    calibration.save(tmp_path / "certificate.json")
    return tmp_path / "certificate.json"


def test_it_says_what_the_calibration_said(calibration, file):
    loaded = Certificate.load(file)
    assert loaded == Certificate.from_calibration(calibration)
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
        ({"schema": "equimetric.calibration/4"}, "has schema 4, this version reads 3; upgrade equimetric"),
        ({"schema": "equimetric.study/1"}, "is not a certificate"),
        ({"schema": None}, "is not a certificate"),
        ({"threshold": None}, "is damaged: its threshold is None; calibrate again"),
        ({"threshold": "0.5"}, "is damaged: its threshold is '0.5'"),
        ({"target_far": True}, "is damaged: its target_far is True"),
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


def test_it_says_what_the_score_means_and_what_it_is_for(calibration, file):
    document = json.loads(file.read_text(encoding="utf-8"))
    assert document["task"] == "verification"
    assert document["score"] == "Euclidean distance between unit vectors"
    assert document["accepts"] == "distance < threshold"
    assert document["equivalent_cosine"] == pytest.approx(1 - document["threshold"] ** 2 / 2)
    assert document["target"] == {"far": 1e-2}
    assert document["date"] == datetime.now(UTC).date().isoformat()
    assert document["model"] is None
    text = repr(calibration)
    assert f"cosine above {document['equivalent_cosine']:.6g}" in text
    assert "a pair at the threshold itself is rejected" in text
    assert "dimension 8" in text
    assert str(Certificate.load(file)) == text


@pytest.mark.parametrize("geometry", ["cosine", "euclidean"])
def test_it_decides_on_pairs_of_embeddings(geometry, tmp_path):
    embeddings, labels = named_space()
    calibrate(embeddings, labels, 1e-2, geometry=geometry, resamples=5).save(tmp_path / "certificate.json")
    certificate = Certificate.load(tmp_path / "certificate.json")
    first, second = embeddings[:100], embeddings[3:103].numpy()
    compared = torch.nn.functional.normalize(embeddings.double()) if geometry == "cosine" else embeddings.double()
    distance = (compared[:100] - compared[3:103]).norm(dim=1)
    assert certificate.distances(first, second).tolist() == pytest.approx(distance.tolist())
    decided = certificate.decide(first, second)
    assert decided.tolist() == (distance < certificate.threshold).tolist()
    assert 0 < decided.sum() < 100
    one_to_many = certificate.decide(first[:1], second)
    assert one_to_many.tolist() == ((compared[0] - compared[3:103]).norm(dim=1) < certificate.threshold).tolist()
    assert (certificate.equivalent_cosine is None) == (geometry == "euclidean")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"embeddings_a": torch.ones(2, 5)}, "for the dimension 8, not 5"),
        ({"embeddings_a": torch.full((2, 8), math.inf)}, "NaN or infinite"),
        ({"embeddings_a": torch.zeros(2, 8)}, "length zero"),
        ({"embeddings_a": torch.ones(3, 8)}, "3 rows and embeddings_b 2"),
        ({"model": "other"}, "for the model 'hash', not 'other'; calibrate"),
        ({"preprocessing": "crop"}, "for the preprocessing 'resize', not 'crop'"),
    ],
)
def test_it_refuses_what_it_is_not_for(change, message):
    certificate = Certificate.from_calibration(
        calibrate(*named_space(), 1e-2, resamples=5, model="hash", preprocessing="resize")
    )
    given = {"embeddings_a": torch.ones(2, 8), "embeddings_b": torch.ones(2, 8), "model": "hash"}
    assert certificate.decide(**given).tolist() == [True, True]
    with pytest.raises(EquimetricError, match=message) as error:
        certificate.decide(**(given | change))
    assert "\n" not in str(error.value)


def test_it_refuses_another_geometry_and_distances_that_are_none(file):
    certificate = Certificate.load(file)
    with pytest.raises(EquimetricError, match="for the geometry 'cosine', not 'euclidean'"):
        certificate.check_compatible(geometry="euclidean")
    for distance in (math.nan, np.array([0.1, np.inf]), torch.tensor([math.nan])):
        with pytest.raises(EquimetricError, match="NaN or infinite"):
            certificate.accepts(distance)


def test_certificates_of_the_second_schema_load(file):
    document = json.loads(file.read_text(encoding="utf-8")) | {"schema": "equimetric.calibration/2"}
    for name in ("far", "frr"):
        document[f"wanted_{name}"] = document.pop(f"target_{name}")
    certificate = Certificate.load(file)
    file.write_text(json.dumps(document))
    assert Certificate.load(file) == certificate


def test_certificates_of_the_first_schema_load(calibration, file):
    document = json.loads(file.read_text(encoding="utf-8"))
    added = ("task", "date", "model", "preprocessing", "target", "target_frr", "score", "equivalent_cosine")
    for name in (*added, "new_classes", "reference"):
        del document[name]
    for entry in (document["held_out"], document["fitted"], *document["worst_classes"]):
        del entry["frr_bound"]
    file.write_text(
        json.dumps(document | {"schema": "equimetric.calibration/1", "wanted_far": document.pop("target_far")})
    )
    loaded = Certificate.load(file)
    assert (loaded.threshold, loaded.target_far, loaded.task) == (calibration.threshold, 1e-2, "verification")
    assert loaded.new_classes is loaded.model is loaded.preprocessing is loaded.reference is loaded.date is None
    assert loaded.equivalent_cosine == pytest.approx(1 - loaded.threshold**2 / 2)
    assert "accept distances below" in str(loaded)
    with pytest.raises(EquimetricError, match="calibrate again"):
        loaded.check(torch.ones(40, 8))
    loaded.save(file)
    again = Certificate.load(file)
    assert again.to_dict() == loaded.to_dict()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": {"speed": 1}}, "its target is"),
        ({"target": {"far": 2.0}}, "is damaged: far is 2.0"),
        ({"target_far": None}, "its target_far is None and its target_frr None"),
        ({"new_classes": {"far": "x"}}, "is damaged"),
        ({"reference": {"far": []}}, "is damaged: 'class_spread' is missing"),
        ({"model": 3}, "its model is 3"),
        ({"task": "identification"}, "is a certificate of identification, not of verification"),
    ],
)
def test_what_is_damaged_is_named(file, change, message):
    document = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps(document | change))
    with pytest.raises(EquimetricError, match=message) as error:
        Certificate.load(file)
    assert "\n" not in str(error.value)


def test_other_targets_survive(tmp_path):
    for options in ({"frr": 0.1}, {"cost": (10, 1, 0.1)}):
        calibration = calibrate(*named_space(), resamples=5, **options)
        calibration.save(tmp_path / "certificate.json")
        assert Certificate.load(tmp_path / "certificate.json") == Certificate.from_calibration(calibration)


def test_numbers_get_the_names_of_their_classes():
    embeddings, names = named_space()
    numbers = [int(name.removeprefix("class ")) for name in names]
    same = {"class_names": [f"class {number}" for number in range(40)]}
    named = calibrate(embeddings, numbers, 1e-2, resamples=5, **same)
    assert set(named.classes) == set(names)
    assert all(isinstance(entry["name"], str) for entry in named.certificate()["worst_classes"])
    twice = calibrate(embeddings, numbers, 1e-2, resamples=5, class_names=dict.fromkeys(range(40), "thing"))
    assert set(twice.classes) == {f"thing ({number})" for number in range(40)}
    with pytest.raises(EquimetricError, match="there are 3 class_names"):
        calibrate(embeddings, numbers, 1e-2, class_names=["a", "b", "c"])
