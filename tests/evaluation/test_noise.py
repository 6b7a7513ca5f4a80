"""What sampling alone contributes to OPIS: against brute force, and for classes that do and do not differ."""

from itertools import combinations, permutations, product

import numpy as np
import pytest
import torch

from equimetric.errors import EquimetricError
from equimetric.evaluation import Cohort, Consistency, evaluate, threshold_consistency
from equimetric.evaluation.engine import images as images_module
from equimetric.evaluation.engine import pair_distances as distances_module

SCORES = ["opis", "opis_far", "opis_frr"]
NOISES = [f"{name}_noise" for name in SCORES]


def unequal_space(seed=0):
    """Classes of 6, 5, 4, 3, 2 and 1 images that overlap."""
    generator = np.random.default_rng(seed)
    labels = np.repeat(np.arange(6), [6, 5, 4, 3, 2, 1])
    centres = generator.normal(size=(6, 4))
    return centres[labels] + 0.8 * generator.normal(size=(len(labels), 4)), labels


def distances_by_loops(embeddings):
    unit = [row / np.sqrt(sum(value * value for value in row)) for row in embeddings]
    return {(i, j): float(np.sqrt(((unit[i] - unit[j]) ** 2).sum())) for i, j in permutations(range(len(unit)), 2)}


def utility_of(label, rows, labels, distance, threshold, rate):
    own, others = [i for i in rows if labels[i] == label], [i for i in rows if labels[i] != label]
    positive = [distance[pair] <= threshold for pair in combinations(own, 2)]
    negative = [distance[pair] <= threshold for pair in product(own, others)]
    tpr, tnr = sum(positive) / len(positive), 1 - sum(negative) / len(negative)
    return {"far": tnr, "frr": tpr, "both": 2 * tpr * tnr / (tpr + tnr) if tpr + tnr else 0.0}[rate], tpr, tnr


def slopes(tpr, tnr, rate):
    if rate == "both":
        return (2 * tnr**2 / (tpr + tnr) ** 2, 2 * tpr**2 / (tpr + tnr) ** 2) if tpr + tnr else (0.0, 0.0)
    return float(rate == "frr"), float(rate == "far")


def noise_by_definition(distance, labels, thresholds, rate):
    """(classes, thresholds): really leave out every image; expectations over all tuples of different images."""
    rows = range(len(labels))
    members = {label: [i for i in rows if labels[i] == label] for label in sorted(set(labels.tolist()))}
    found = []
    for threshold in thresholds:

        def accepts(i, j, threshold=threshold):
            return float(distance[i, j] <= threshold)

        by_others = []
        for i, own in members.items():
            if len(own) < 2:
                continue
            negatives, total = len(own) * (len(labels) - len(own)), 0.0
            for c, images in members.items():
                if c == i or len(images) < 2:
                    continue
                shared = np.mean([accepts(j, k) * accepts(j, m) for j in images for k, m in permutations(own, 2)])
                apart = np.mean(
                    [accepts(j, k) * accepts(o, m) for j, o in permutations(images, 2) for k, m in permutations(own, 2)]
                )
                total += len(images) * (shared - apart) * len(own) ** 2 / negatives**2
            by_others.append(total)
        column = []
        for label, own in members.items():
            n = len(own)
            if n < 3:
                continue
            without = [
                utility_of(label, [i for i in rows if i != k], labels, distance, threshold, rate)[0] for k in own
            ]
            variance = (n - 1) / n * sum((u - sum(without) / n) ** 2 for u in without)
            _, tpr, tnr = utility_of(label, rows, labels, distance, threshold, rate)
            by_tpr, by_tnr = slopes(tpr, tnr, rate)
            twice = 0.0
            if n > 3:
                one = np.mean([accepts(a, b) for a, b in permutations(own, 2)])
                sharing = np.mean([accepts(a, b) * accepts(a, c) for a, b, c in permutations(own, 3)])
                disjoint = np.mean([accepts(a, b) * accepts(c, d) for a, b, c, d in permutations(own, 4)])
                twice = 2 * (one - 2 * sharing + disjoint) / ((n - 1) * (n - 2))
            column.append(variance - by_tpr**2 * twice + by_tnr**2 * np.mean(by_others))
        found.append(column)
    return np.array(found).T


@pytest.mark.parametrize("rate", ["both", "far", "frr"])
def test_equal_to_leaving_out_every_image(rate):
    embeddings, labels = unequal_space()
    options = {"calibration_range": (0.3, 1.2), "calibration_points": 5}
    noise = threshold_consistency(embeddings, labels, rate=rate, **options).noise
    expected = noise_by_definition(distances_by_loops(embeddings), labels, noise.thresholds, rate)
    np.testing.assert_array_equal(noise.numbers, [0, 1, 2, 3])
    np.testing.assert_allclose(noise.thresholds, np.linspace(0.3, 1.2, 5))
    weights = np.array([1, 2, 2, 2, 1]) / 8
    np.testing.assert_allclose(noise.by_member, expected @ weights, atol=1e-9)
    np.testing.assert_allclose(noise.by_threshold, expected.mean(axis=0), atol=1e-9)
    name = {"both": "opis_noise", "far": "opis_far_noise", "frr": "opis_frr_noise"}[rate]
    result = evaluate(embeddings, labels, metrics=name, **options)
    assert result[name] == pytest.approx((expected @ weights).mean(), abs=1e-9)
    assert result.per_class[2][name] == pytest.approx(expected[2] @ weights, abs=1e-9)
    assert np.isnan(result.per_class[4][name])


@pytest.mark.parametrize("rate", ["both", "far"])
def test_negated_scores_of_a_cohort_stand_for_distances(rate):
    embeddings, labels = unequal_space()
    cohort = np.random.default_rng(1).normal(size=(20, 4))
    unit, others = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (embeddings, cohort))
    crowd = np.sort(unit @ others.T, axis=1)[:, -3:].mean(axis=1)
    score = {(i, j): float(unit[i] @ unit[j]) - 0.4 * (crowd[i] + crowd[j]) / 2 for i, j in permutations(range(21), 2)}
    options = {"calibration_range": (-0.5, 0.2), "calibration_points": 3}
    normaliser = Cohort(cohort, strength=0.4, nearest=3)
    noise = threshold_consistency(embeddings, labels, rate=rate, cohort=normaliser, **options).noise
    expected = noise_by_definition({pair: -s for pair, s in score.items()}, labels, (-0.5, -0.15, 0.2), rate)
    np.testing.assert_allclose(noise.by_threshold, expected.mean(axis=0), atol=1e-9)


def test_data_sets_leave_out_whole_classes():
    generator = np.random.default_rng(3)
    labels = np.arange(90) % 9
    embeddings = generator.normal(size=(9, 4))[labels] + 0.7 * generator.normal(size=(90, 4))
    members = np.array(["birds", "cars"])[(labels >= 4).astype(int)]
    options = {"calibration_range": (0.4, 1.2), "calibration_points": 3}
    noise = threshold_consistency(embeddings, labels, members=members, **options).noise
    distance = distances_by_loops(embeddings)
    for name, found in zip(("birds", "cars"), noise.by_member, strict=True):
        rows = np.flatnonzero(members == name).tolist()
        variances = []
        for threshold in (0.4, 0.8, 1.2):
            without = []
            for left_out in sorted(set(labels[rows].tolist())):
                pairs = list(combinations([row for row in rows if labels[row] != left_out], 2))
                same = [labels[i] == labels[j] for i, j in pairs]
                accepted = [distance[pair] <= threshold for pair in pairs]
                tpr = sum(a and s for a, s in zip(accepted, same, strict=True)) / sum(same)
                far = sum(a and not s for a, s in zip(accepted, same, strict=True)) / (len(same) - sum(same))
                without.append(2 * tpr * (1 - far) / (tpr + 1 - far))
            n = len(without)
            variances.append((n - 1) / n * sum((u - sum(without) / n) ** 2 for u in without))
        assert found == pytest.approx((variances[0] + 2 * variances[1] + variances[2]) / 4, abs=1e-9)
    result = evaluate(embeddings, labels, metrics=["opis", "opis_noise"], members=members, **options)
    assert result["opis_noise"] == pytest.approx(noise.by_member.mean(), abs=1e-12)
    assert result.interval("opis_noise").classes == 2


def test_a_set_that_is_its_own_gallery_by_ids_has_the_same_noise():
    embeddings, labels = unequal_space(1)
    options = {"calibration_range": (0.3, 1.2), "calibration_points": 7, "metrics": [*SCORES, *NOISES]}
    ids = np.arange(len(labels))
    alone = evaluate(embeddings, labels, **options)
    both = evaluate(embeddings, labels, embeddings, labels, query_ids=ids, gallery_ids=ids, **options)
    assert dict(both) == pytest.approx(dict(alone), rel=1e-9)


def test_rows_of_one_image_are_left_out_together():
    """Taken as different images, twice the rows would halve the noise; the corrections alone do take them so."""
    embeddings, labels = identical_space(12, 0, classes=10)
    ids = np.repeat(np.arange(len(labels)), 2)
    rows = np.repeat(embeddings, 2, axis=0), np.repeat(labels, 2)
    once, twice = evaluate(embeddings, labels, metrics=NOISES), evaluate(*rows, query_ids=ids, metrics=NOISES)
    for name in NOISES:
        assert 0.9 < twice[name] / once[name] < 1.5


def identical_space(images, seed, classes=30, dimension=48, spread=0.2):
    """Classes of one shape around centres at equal distances."""
    generator = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), images)
    return np.eye(classes, dimension)[labels] + spread * generator.normal(size=(len(labels), dimension)), labels


@pytest.mark.parametrize("binned", [False, True])
@pytest.mark.parametrize("images", [10, 20])
@pytest.mark.parametrize("spread", [0.13, 0.22])
def test_identical_classes_are_all_noise(images, spread, binned, monkeypatch):
    if binned:
        monkeypatch.setattr(distances_module, "MAX_KEPT_PAIRS", 0)
    results = [evaluate(*identical_space(images, seed, spread=spread), metrics=[*SCORES, *NOISES]) for seed in range(6)]
    for score, noise in zip(SCORES, NOISES, strict=True):
        ratio = np.mean([result[noise] for result in results]) / np.mean([result[score] for result in results])
        assert 0.8 < ratio < 1.6, (score, ratio)
    assert all("opis" in note and "sampling noise" in note for result in results for note in result.notes)
    assert all(len(result.notes) == 1 for result in results)


def different_space(images, seed=0, classes=30, dimension=48):
    """Every class has its own spread, and a third of the classes form a crowd."""
    generator = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), images)
    spread = np.linspace(0.1, 0.3, classes)[labels, None]
    centres = np.eye(classes, dimension)
    centres[::3] += 0.1
    return centres[labels] + spread * generator.normal(size=(len(labels), dimension)), labels


def test_classes_that_differ_stand_out_from_the_noise():
    result = evaluate(*different_space(20), metrics=[*SCORES, *NOISES])
    for score, noise in zip(SCORES, NOISES, strict=True):
        assert result[score] > 4 * result[noise]
    assert result.notes == []
    assert result.to_dict()["notes"] == []


def test_the_sentence(tmp_path):
    few = evaluate(*different_space(5), metrics=["opis", "opis_far"])
    (note,) = few.notes
    assert "the median class has 5 images" in note
    assert few.to_dict()["notes"] == [note]
    assert repr(few).endswith(note)
    few.to_json(tmp_path / "result.json")
    assert note in (tmp_path / "result.json").read_text(encoding="utf-8")
    # Where all pairs are kept, the noise is known without being asked for.
    (note,) = evaluate(*identical_space(12, 0), metrics=["opis"]).notes
    assert note.startswith("opis mostly measures sampling noise")
    assert note in repr(threshold_consistency(*identical_space(12, 0)))
    assert evaluate(*identical_space(12, 0), metrics=["recall@1"]).notes == []


@pytest.mark.parametrize("seed", [0, 1])
def test_bins_agree_with_every_pair(seed, monkeypatch):
    embeddings, labels = different_space(24, seed)
    exact = evaluate(embeddings, labels, metrics=[*SCORES, *NOISES])
    monkeypatch.setattr(distances_module, "MAX_KEPT_PAIRS", 0)
    for block_rows in (None, 37):
        binned = evaluate(embeddings, labels, metrics=[*SCORES, *NOISES], block_rows=block_rows)
        for name in SCORES:
            assert binned[name] == pytest.approx(exact[name], rel=1e-2)
        for name in NOISES:
            assert binned[name] == pytest.approx(exact[name], rel=0.05)


def test_bins_equal_every_pair_at_the_same_thresholds(monkeypatch):
    embeddings, labels = different_space(12)
    ids = np.arange(len(labels))
    cases = [
        {},
        {"geometry": "euclidean"},
        {"gallery_embeddings": embeddings, "gallery_labels": labels, "query_ids": ids, "gallery_ids": ids},
        {"parents": labels % 3},
        {"cohort": Cohort(np.random.default_rng(5).normal(size=(90, embeddings.shape[1])))},
        {"gallery_embeddings": embeddings[::-1] + 0.01, "gallery_labels": labels[::-1]},
    ]
    for case in cases:
        monkeypatch.setattr(distances_module, "MAX_KEPT_PAIRS", 0)
        binned = evaluate(embeddings, labels, metrics=NOISES, **case)
        monkeypatch.undo()
        at = binned.detail(Consistency, "opis_noise").noise.thresholds
        # The edges are evenly spaced in similarity: compare at single ones.
        exact = evaluate(
            embeddings, labels, metrics=NOISES, calibration_range=(at[0], at[5]), calibration_points=2, **case
        )
        for name in NOISES:
            here, there = (result.detail(Consistency, name).noise.by_threshold for result in (binned, exact))
            assert here[[0, 5]] == pytest.approx(there, rel=1e-4)


def test_tiles_and_threads_change_nothing_in_bins(monkeypatch, threads):
    embeddings, labels = different_space(15)
    monkeypatch.setattr(distances_module, "MAX_KEPT_PAIRS", 0)
    names = [*SCORES, *NOISES, "opis_far@10%", "threshold_gap@far=0.05", "threshold_gap@frr=0.1"]
    whole = evaluate(embeddings, labels, metrics=names)
    threads(2)
    for block_rows in (11, 64, 450):
        assert dict(evaluate(embeddings, labels, metrics=names, block_rows=block_rows)) == pytest.approx(
            dict(whole), rel=1e-6
        )


@pytest.mark.parametrize("binned", [False, True])
def test_lone_images_of_other_classes(binned, monkeypatch):
    """Most classes are single images: their variance is not known, and nothing else fails."""
    embeddings, labels = different_space(12, classes=4)
    generator = np.random.default_rng(0)
    embeddings = np.concatenate([embeddings, 0.3 * generator.normal(size=(300, 48))])
    labels = np.concatenate([labels, np.arange(100, 400)])
    monkeypatch.setattr(images_module, "DRAWN_IMAGES", (2, 2))
    if binned:
        monkeypatch.setattr(distances_module, "MAX_KEPT_PAIRS", 0)
    result = evaluate(embeddings, labels, metrics=NOISES)
    assert all(0 < value < 1 for value in result.values())


def test_other_images_may_be_drawn(monkeypatch):
    embeddings, labels = different_space(20)
    complete = evaluate(embeddings, labels, metrics=["opis_far_noise"])["opis_far_noise"]
    monkeypatch.setattr(images_module, "DRAWN_IMAGES", (200, 200))
    drawn = evaluate(embeddings, labels, metrics=["opis_far_noise"])["opis_far_noise"]
    assert drawn != complete
    assert drawn == pytest.approx(complete, rel=0.3)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 0, 0, 0, 1, 1, 2, 2], "two classes of at least 3 images.*there is 1"),
        ([0, 0, 1, 1, 2, 2, 3, 3], "two classes of at least 3 images.*there are 0"),
    ],
)
def test_too_few_classes_raise(labels, message):
    embeddings = torch.randn(8, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with pytest.raises(EquimetricError, match=message):
        evaluate(embeddings, labels, metrics="opis_noise")
    assert evaluate(embeddings, labels, metrics="opis", calibration_far=(0.05, 0.9))["opis"] > 0


@pytest.mark.parametrize("name", ["opis", "opis@10%", "opis_far", "opis_noise"])
def test_one_class_is_an_error(name):
    embeddings = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with pytest.raises(EquimetricError, match="only class 0 has a positive and a negative pair"):
        evaluate(embeddings, [0, 0, 0, 0, 1, 2], metrics=name)


@pytest.mark.slow
@pytest.mark.parametrize("images", [10, 20])
@pytest.mark.parametrize("spread", [0.1, 0.13, 0.16, 0.19, 0.22, 0.25])
def test_identical_classes_of_any_spread(images, spread):
    results = [
        evaluate(*identical_space(images, seed, spread=spread, classes=40), metrics=["opis", "opis_noise"])
        for seed in range(20)
    ]
    ratio = np.mean([result["opis_noise"] for result in results]) / np.mean([result["opis"] for result in results])
    assert 0.8 < ratio < 1.4
