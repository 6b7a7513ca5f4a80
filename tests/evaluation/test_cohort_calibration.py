"""Thresholds of scores that a cohort normalises, against single pairs."""

import json

import numpy as np
import pytest

import equimetric as em
from equimetric.calibration import Certificate
from equimetric.calibration.calibrate import assign_folds
from equimetric.evaluation import Cohort
from equimetric.evaluation.engine.inputs import prepare_sets

FAR = 0.05


@pytest.fixture(scope="module")
def space():
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(16), 8)
    centres = generator.normal(size=(16, 8)) + 2 * generator.normal(size=8) * (np.arange(16) % 2)[:, None]
    embeddings = centres[labels] + 0.8 * generator.normal(size=(128, 8))
    return embeddings, labels, generator.normal(size=(60, 8))


def by_formula(first, second, cohort, form, strength, nearest):
    """s' of all pairs."""

    def unit(vectors):
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def crowd(vectors):
        largest = np.sort(unit(vectors) @ unit(cohort).T, axis=1)[:, -nearest:]
        return largest.mean(axis=1), np.maximum(largest.std(axis=1), 1e-3)

    s, (m_x, s_x), (m_y, s_y) = unit(first) @ unit(second).T, crowd(first), crowd(second)
    if form == "mean":
        return s - strength * (m_x[:, None] + m_y) / 2
    return ((s - m_x[:, None]) / s_x[:, None] + (s - m_y) / s_y) / 2


def pairs(score, labels):
    first, second = np.triu_indices(len(labels), 1)
    same, values = labels[first] == labels[second], score[first, second]
    return values[same], np.sort(values[~same])[::-1]


def threshold_of(score, labels, far):
    _, negative = pairs(score, labels)
    return negative[int(far * len(negative) + 1e-9)]


@pytest.mark.parametrize(("form", "strength"), [("mean", 0.5), ("mean", 0.0), ("full", 1.0)])
def test_the_threshold_is_of_the_score(space, form, strength):
    embeddings, labels, cohort = space
    score = by_formula(embeddings, embeddings, cohort, form, strength, 9)
    found = em.calibrate(
        embeddings, labels, far=FAR, cohort=Cohort(cohort, strength=strength, nearest=9, form=form), resamples=50
    )
    assert found.threshold == pytest.approx(threshold_of(score, labels, FAR), rel=1e-9)
    assert found.interval[0] < found.interval[1]
    assert found.interval[0] <= found.threshold <= found.interval[1]
    positive, negative = pairs(score, labels)
    assert found.fitted.far == pytest.approx((negative > found.threshold + 1e-9).mean())
    assert found.fitted.frr == pytest.approx((positive <= found.threshold + 1e-9).mean())

    folds = assign_folds(prepare_sets(embeddings, labels), 2, 0)[labels]
    accepted = wrong = 0
    for fold in (0, 1):
        fitting, held_out = folds != fold, folds == fold
        threshold = threshold_of(score[fitting][:, fitting], labels[fitting], FAR)
        assert found.fold_thresholds[fold] == pytest.approx(threshold, rel=1e-9)
        _, negative = pairs(score[held_out][:, held_out], labels[held_out])
        accepted, wrong = accepted + (negative > threshold + 1e-9).sum(), wrong + len(negative)
    assert found.held_out.far == pytest.approx(accepted / wrong)
    edges, counted = found.histogram.edges, found.histogram.positive
    assert np.all(np.diff(edges) > 0)
    assert counted.sum() == len(positive)
    middle = len(edges) // 2
    assert counted[middle:].sum() == pytest.approx((positive > edges[middle]).sum(), abs=1)


@pytest.mark.parametrize("form", ["mean", "full"])
def test_the_certificate_names_its_cohort_and_decides_by_it(space, form, tmp_path):
    embeddings, labels, other = space
    cohort = Cohort(other, nearest=9, form=form)
    found = em.calibrate(embeddings, labels, far=FAR, cohort=cohort, resamples=50)
    found.save(tmp_path / "threshold.json")
    document = json.loads((tmp_path / "threshold.json").read_text())
    assert document["accepts"] == "score > threshold"
    assert document["equivalent_cosine"] is None
    assert document["cohort"] == {
        "form": form,
        "strength": 0.5,
        "nearest": 9,
        "sha256": cohort.fingerprint,
        "samples": 60,
        "classes": None,
    }
    assert document["data"]["dimension"] == 8
    certificate = Certificate.load(tmp_path / "threshold.json")
    assert certificate == Certificate.from_calibration(found)
    assert certificate.accepts(certificate.threshold + 1e-6)
    assert not certificate.accepts(certificate.threshold)
    score = np.diag(by_formula(embeddings[:50], embeddings[50:100], other, form, 0.5, 9))
    np.testing.assert_allclose(certificate.scores(embeddings[:50], embeddings[50:100], cohort), score, atol=1e-12)
    decided = certificate.decide(embeddings[:50], embeddings[50:100], cohort=cohort)
    assert decided.tolist() == (score > certificate.threshold).tolist()
    assert certificate.decide(embeddings[:1], embeddings[50:60], cohort=cohort).shape == (10,)
    assert "accept scores above" in str(certificate)
    assert "distance" not in str(certificate)
    assert f"{form} form" in str(certificate)
    assert certificate.check(embeddings, labels, cohort=cohort).answer == "as certified"
    assert found.plot_distances().axes[0].get_xlabel() == "score of a pair"


def test_another_cohort_is_one_sentence(space):
    embeddings, labels, other = space
    certificate = Certificate.from_calibration(
        em.calibrate(embeddings, labels, far=FAR, cohort=Cohort(other), resamples=50)
    )
    for cohort, message in (
        (None, "of scores that a cohort normalises; give the same cohort"),
        (Cohort(other, strength=1.0), "a cohort with strength 0.5, not 1.0"),
        (Cohort(other[1:]), "a cohort with sha256"),
    ):
        with pytest.raises(em.EquimetricError, match=message):
            certificate.decide(embeddings[:5], embeddings[5:10], cohort=cohort)
        with pytest.raises(em.EquimetricError, match=message):
            certificate.check(embeddings, cohort=cohort)
    with pytest.raises(em.EquimetricError, match="of scores, not of distances"):
        certificate.distances(embeddings[:5], embeddings[5:10])
    plain = Certificate.from_calibration(em.calibrate(embeddings, labels, far=FAR, resamples=50))
    with pytest.raises(em.EquimetricError, match="of distances, not of scores"):
        plain.decide(embeddings[:5], embeddings[5:10], cohort=Cohort(other))


def test_classes_that_are_calibrated_on_are_no_cohort(space):
    embeddings, labels, other = space
    classes = np.arange(60) % 30 + 15
    with pytest.raises(em.EquimetricError, match="1 of the cohort's classes are among those that are calibrated on"):
        em.calibrate(embeddings, labels, far=FAR, cohort=Cohort(other, classes), resamples=50)
    found = em.calibrate(embeddings, labels, far=FAR, cohort=Cohort(other, classes + 100), resamples=50)
    assert found.cohort.classes == 30
    assert "60 samples of 30 classes" in repr(found)
    with pytest.raises(em.EquimetricError, match="a cohort normalises cosines"):
        em.calibrate(embeddings, labels, far=FAR, cohort=Cohort(other), geometry="euclidean")


def test_data_sets_are_measured_by_the_same_scores(space):
    embeddings, labels, other = space
    members = np.where(labels % 4 < 2, "a", "b")
    found = em.calibrate(embeddings, labels, far=FAR, cohort=Cohort(other, nearest=9), members=members, resamples=50)
    score = by_formula(embeddings, embeddings, other, "mean", 0.5, 9)
    folds = assign_folds(prepare_sets(embeddings, labels), 2, 0)[labels]
    for name, rates in found.data_sets.items():
        accepted = total = 0
        for fold in (0, 1):
            inside = (members == name) & (folds == fold)
            _, negative = pairs(score[inside][:, inside], labels[inside])
            threshold = found.fold_thresholds[fold] + 1e-9
            accepted, total = accepted + (negative > threshold).sum(), total + len(negative)
        assert rates.far == pytest.approx(accepted / total)


def test_the_command_line_calibrates_and_checks_with_a_cohort(space, tmp_path, equimetric):
    embeddings, labels, other = space
    np.savez(tmp_path / "space.npz", embeddings=embeddings, labels=labels)
    np.savez(tmp_path / "cohort.npz", embeddings=other)
    np.savez(tmp_path / "both.npz", embeddings=embeddings, labels=labels, cohort_embeddings=other)
    options = ["--far", "0.05", "--json"]
    _, out, _ = equimetric("calibrate", tmp_path / "space.npz", *options, "--cohort", tmp_path / "cohort.npz")
    expected = em.calibrate(embeddings, labels, far=FAR, cohort=Cohort(other))
    assert json.loads(out)["threshold"] == expected.threshold
    _, out, _ = equimetric("calibrate", tmp_path / "both.npz", *options, "--out", tmp_path / "threshold.json")
    assert json.loads(out)["cohort"] == expected.cohort.to_dict()
    _, out, _ = equimetric("calibrate", tmp_path / "both.npz", *options, "--cohort", "none")
    assert json.loads(out)["threshold"] == em.calibrate(embeddings, labels, far=FAR).threshold

    check = "check", tmp_path / "threshold.json", tmp_path / "space.npz"
    code, out, _ = equimetric(*check, "--cohort", tmp_path / "cohort.npz")
    assert code == 0
    assert out.startswith("as certified")
    code, _, error = equimetric(*check)
    assert code == 2
    assert "give the same cohort" in error
