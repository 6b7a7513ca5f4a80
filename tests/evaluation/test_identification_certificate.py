"""A threshold calibrated for identification: what it promises for new strangers, and its certificate."""

import json

import numpy as np
import pytest

from equimetric.calibration import Certificate, IdentificationCertificate, calibrate, calibrate_identification
from equimetric.calibration.calibrate import assign_folds
from equimetric.errors import EquimetricError
from equimetric.evaluation import evaluate_identification
from equimetric.evaluation.engine.inputs import prepare_sets
from equimetric.evaluation.identification.draws import draw_galleries


def make_space(generator, classes=60, images=8, spread=0.7):
    """Classes of different spread around random centres."""
    labels = np.repeat(np.arange(classes), images)
    width = spread * np.exp(0.3 * generator.normal(size=(classes, 1)))
    centres = generator.normal(size=(classes, 12))
    return centres[labels] + width[labels] * generator.normal(size=(len(labels), 12)), labels


@pytest.fixture(scope="module")
def certificate():
    return calibrate_identification(*make_space(np.random.default_rng(0)), 0.05)


@pytest.fixture
def file(certificate, tmp_path):
    certificate.save(tmp_path / "certificate.json")
    return tmp_path / "certificate.json"


@pytest.mark.parametrize("options", [{}, {"by": "mean", "enrolled": 3}, {"by": "nearest", "k": 3, "strangers": 0.4}])
def test_it_is_the_threshold_of_the_evaluation(options):
    space = make_space(np.random.default_rng(1))
    found = calibrate_identification(*space, 0.05, seed=3, **options)
    evaluation = evaluate_identification(*space, fpir=0.05, seed=3, **({"strangers": 0.5} | options))
    point = evaluation.points[0]
    assert (found.threshold, found.fpir, found.fnir) == (point.threshold, point.fpir, point.fnir)
    assert (found.identities, found.items) == (evaluation.identities, evaluation.items)
    assert found.protocol == evaluation.protocol
    assert found.fpir <= 0.05 < found.fpir_bound
    assert found.fnir < found.fnir_bound
    assert found.threshold_interval[0] < found.threshold < found.threshold_interval[1]
    assert len(found.fold_thresholds) == 4


def test_held_out_strangers_have_no_part_in_their_threshold():
    embeddings, labels = make_space(np.random.default_rng(2), classes=24)
    found = calibrate_identification(embeddings, labels, 0.1, repeats=3)
    sets = prepare_sets(embeddings, labels)
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    distance = np.sqrt(np.maximum(0, 2 - 2 * unit @ unit.T))
    fold_of_class = assign_folds(sets, 4, 0)
    accepted, strangers, thresholds = 0, 0, []
    for fold in range(4):
        held_out = np.flatnonzero(fold_of_class == fold)
        fitted, new = [], []
        for draw in draw_galleries(sets, found.protocol, held_out=held_out):
            items, rows = draw.items.numpy(), np.flatnonzero(draw.stranger.numpy())
            assert draw.identities == found.identities == 12
            assert set(held_out) <= set(labels[rows])
            assert not set(labels[rows]) & set(labels[items])
            nearest = distance[rows][:, items].min(1)
            inside = np.isin(labels[rows], held_out)
            fitted.append(nearest[~inside])
            new.append(nearest[inside])
        ascending = np.sort(np.concatenate(fitted))
        thresholds.append(ascending[int(0.1 * len(ascending))])
        accepted += (np.concatenate(new) < thresholds[-1]).sum()
        strangers += sum(map(len, new))
    assert found.fold_thresholds == pytest.approx(thresholds, abs=1e-9)
    assert found.held_out_fpir == pytest.approx(accepted / strangers, abs=1e-12)


def simulate(calibrations, seed, fpir=0.05):
    """(certificates, FPIR of each threshold for very many new strangers in new galleries of the same size)."""
    generator = np.random.default_rng(seed)
    found = [calibrate_identification(*make_space(generator, 40), fpir, repeats=5) for _ in range(calibrations)]
    new = [
        evaluate_identification(*make_space(generator, 40), repeats=1, seed=number, fpir=fpir) for number in range(200)
    ]
    nearest = np.sort(np.concatenate([one.scores.distance[one.scores.stranger, 0] for one in new]))
    return found, np.searchsorted(nearest, [one.threshold for one in found]) / len(nearest)


def check_promise(found, rates, fpir=0.05):
    error = rates.std(ddof=1) / np.sqrt(len(rates))
    assert abs(rates.mean() - fpir) < 3 * error + 0.1 * fpir
    # Held-out thresholds are fitted to fewer strangers, vary more, and so accept a little more on average.
    held_out = np.mean([one.held_out_fpir for one in found])
    assert rates.mean() - 3 * error < held_out < rates.mean() + 3 * error + 0.2 * fpir
    return np.mean([rate <= one.fpir_bound for rate, one in zip(rates, found, strict=True)])


def test_new_strangers_find_somebody_as_often_as_promised():
    assert check_promise(*simulate(15, seed=0)) >= 0.8


@pytest.mark.slow
def test_bounds_hold_for_nearly_all_calibrations():
    assert check_promise(*simulate(150, seed=1)) > 0.92


def test_it_is_saved_and_loaded(certificate, file):
    loaded = IdentificationCertificate.load(file)
    assert loaded == certificate
    document = json.loads(file.read_text(encoding="utf-8"))
    assert document["task"] == loaded.task == "identification"
    assert "grows with the gallery" in document["statement"]
    assert document["protocol"]["strangers"] == 0.5
    assert "30 identities" in str(loaded)
    assert loaded.accepts(np.array([0.0, loaded.threshold, 2.0])).tolist() == [True, False, False]
    loaded.save(file.with_name("again.json"))
    assert file.with_name("again.json").read_bytes() == file.read_bytes()


def test_certificates_of_the_second_schema_load(certificate, file):
    document = json.loads(file.read_text(encoding="utf-8")) | {"schema": "equimetric.calibration/2"}
    document["wanted_fpir"] = document.pop("target_fpir")
    file.write_text(json.dumps(document))
    assert IdentificationCertificate.load(file) == certificate


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "equimetric.calibration/4"}, "has schema 4, this version reads 3; upgrade equimetric"),
        ({"schema": "equimetric.study/1"}, "is not a certificate"),
        ({"task": "verification"}, "is a certificate of verification, not of identification"),
        ({"threshold": None}, "is damaged: its threshold is None; calibrate again"),
        ({"fpir_bound": "low"}, "its fpir_bound is 'low'"),
        ({"threshold_interval": [1]}, "is damaged"),
        ({"data": {"sha": 1}}, "is damaged"),
        ({"geometry": "dot"}, "is damaged: its geometry is 'dot'"),
        ({"protocol": {"by": "vote"}}, "is damaged: unknown rule of identification 'vote'"),
        ({"fold_thresholds": [None]}, "its fold_thresholds is None"),
    ],
)
def test_damaged_files_and_other_tasks_are_refused(file, change, message):
    document = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps(document | change))
    with pytest.raises(EquimetricError, match=message) as error:
        IdentificationCertificate.load(file)
    assert "\n" not in str(error.value)
    assert "certificate.json" in str(error.value)


def test_a_certificate_of_verification_is_not_one_of_identification(file, tmp_path):
    calibrate(*make_space(np.random.default_rng(0)), 0.01).save(tmp_path / "verification.json")
    with pytest.raises(EquimetricError, match="is a certificate of verification, not of identification"):
        IdentificationCertificate.load(tmp_path / "verification.json")
    with pytest.raises(EquimetricError):
        Certificate.load(file)


@pytest.mark.parametrize("content", [b"", b"[1, 2]", b"{", b"\xff\xfe", b'{"schema": "equimetric.calibration/2"}'])
def test_files_that_are_no_certificates(file, content):
    file.write_bytes(content)
    with pytest.raises(EquimetricError, match=r"calibrate again|is not a certificate|not of identification"):
        IdentificationCertificate.load(file)
    file.unlink()
    with pytest.raises(EquimetricError, match="there is no certificate"):
        IdentificationCertificate.load(file)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fpir": 1e-3}, "an FPIR of 0.001 needs at least 10000 strangers"),
        ({"fpir": 2.0}, "is not between 0 and 1"),
        ({"geometry": "dot"}, "unknown geometry 'dot'"),
        ({"folds": 1}, "folds is 1; held-out strangers need at least 2"),
        ({"folds": 2}, "leaves none to fit a threshold to; give more folds, or a larger share of strangers"),
        ({"folds": 31}, "60 classes cannot be split into 31 folds"),
        ({"strangers": 0.0}, "there is no stranger"),
    ],
)
def test_wrong_options_say_what_to_do(options, message):
    with pytest.raises(EquimetricError, match=message) as error:
        calibrate_identification(*make_space(np.random.default_rng(0)), **({"fpir": 0.05} | options))
    assert "\n" not in str(error.value)
