"""Trial lists: rates of exactly the listed pairs, their intervals, and lists that cannot be used."""

import math

import numpy as np
import pandas
import pytest
from sklearn.metrics import roc_auc_score, roc_curve

from equimetric.errors import EquimetricError
from equimetric.evaluation import evaluate, evaluate_trials


def make_trials(classes=25, images=6, trials=600, spread=0.8, seed=0):
    """Embeddings, labels, and pairs of which about half are of one class."""
    generator = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), images)
    embeddings = generator.normal(size=(classes, 6))[labels] + spread * generator.normal(size=(len(labels), 6))
    pairs = set()
    while len(pairs) < trials:
        first, second = generator.integers(len(labels), size=2)
        if generator.random() < 0.5:
            second = labels[first] * images + generator.integers(images)
        if first != second:
            pairs.add((min(first, second), max(first, second)))
    first, second = np.array(sorted(pairs)).T
    return embeddings, labels, (first, second, labels[first] == labels[second])


@pytest.mark.parametrize("geometry", ["cosine", "euclidean", "dot", "hamming"])
def test_rates_are_those_of_scikit_learn_on_these_pairs(geometry):
    embeddings, _, trials = make_trials()
    found = evaluate_trials(embeddings, None, trials, geometry=geometry, far=[0.1, 0.01], draws=2)
    first, second, same = trials
    a, b = embeddings[first], embeddings[second]
    distance = {
        "cosine": np.linalg.norm(
            a / np.linalg.norm(a, axis=1)[:, None] - b / np.linalg.norm(b, axis=1)[:, None], axis=1
        ),
        "euclidean": np.linalg.norm(a - b, axis=1),
        "dot": -(a * b).sum(1),
        "hamming": ((a > 0) != (b > 0)).sum(1),
    }[geometry]
    assert found.distance == pytest.approx(distance, abs=1e-7)
    # Ties stay ties: rank by the distances that were found.
    assert found["auc"] == pytest.approx(roc_auc_score(same, -found.distance), abs=1e-12)
    far, tar, _ = roc_curve(same, -found.distance, drop_intermediate=False)
    for wanted in (0.1, 0.01):
        assert found[f"tar@far={wanted:g}"] == pytest.approx(tar[far <= wanted].max(), abs=1e-12)
    crossing = np.argmax(far >= 1 - tar)
    before = crossing - 1
    gaps = (1 - tar - far)[before], (far + tar - 1)[crossing]
    share = gaps[0] / sum(gaps)
    assert found["eer"] == pytest.approx(far[before] + share * (far[crossing] - far[before]), abs=1e-12)


def test_all_pairs_as_a_list_give_the_metrics_of_evaluate():
    embeddings, labels, _ = make_trials(classes=8)
    first, second = np.triu_indices(len(labels), 1)
    found = evaluate_trials(embeddings, None, (first, second, labels[first] == labels[second]), far=0.02, draws=2)
    names = ["auc", "eer", "tar@far=0.02"]
    expected = evaluate(embeddings, labels, metrics=names)
    assert dict(found) == pytest.approx({name: expected[name] for name in names}, abs=1e-9)


def test_rates_at_a_threshold_count_the_pairs_below_it():
    embeddings, labels, trials = make_trials()
    found = evaluate_trials(embeddings, None, trials, labels=labels, draws=50)
    threshold = float(np.sort(found.distance)[200])
    point = found.at_threshold(threshold)
    same = trials[2]
    assert point.far == np.mean(found.distance[~same] < threshold)
    assert point.frr == pytest.approx(np.mean(found.distance[same] >= threshold), abs=1e-12)
    assert point.far_interval[0] < point.far < point.far_interval[1]
    calibrated = found.calibrate(0.1)
    assert calibrated.far <= 0.1 < found.at_threshold(np.nextafter(calibrated.threshold, 9)).far
    with pytest.raises(EquimetricError, match="10 false accepts are expected; the list has"):
        found.calibrate(1e-4)


def test_lists_by_file_frame_and_name_are_one(tmp_path):
    embeddings, labels, (first, second, same) = make_trials()
    ids = np.array([f"image {row}" for row in range(len(labels))])
    frame = pandas.DataFrame({"id_a": ids[first], "id_b": ids[second], "same": same.astype(int), "note": "x"})
    frame.to_csv(tmp_path / "list.csv", index=False)
    frame.assign(same=same).to_parquet(tmp_path / "list.parquet")
    expected = evaluate_trials(embeddings, None, (first, second, same), draws=20)
    mapping = {"id_a": ids[first].tolist(), "id_b": ids[second].tolist(), "same": same}
    for trials in (tmp_path / "list.csv", str(tmp_path / "list.parquet"), frame, mapping):
        found = evaluate_trials(embeddings, ids, trials, draws=20)
        assert (found.scores, found.intervals) == (expected.scores, expected.intervals)
    # Ids of digits are names if the ids of the embeddings are.
    digits = [str(row) for row in range(len(labels))]
    pandas.DataFrame({"id_a": first, "id_b": second, "same": same}).to_csv(tmp_path / "rows.csv", index=False)
    assert evaluate_trials(embeddings, digits, tmp_path / "rows.csv", draws=20).scores == expected.scores
    assert evaluate_trials(embeddings, None, tmp_path / "rows.csv", draws=20).scores == expected.scores


def test_intervals_say_what_was_resampled():
    embeddings, labels, trials = make_trials()
    by_class = evaluate_trials(embeddings, None, trials, labels=labels, draws=200)
    by_sample = evaluate_trials(embeddings, None, trials, draws=200)
    assert "25 classes resampled" in repr(by_class)
    assert (by_class.resampled, by_sample.resampled) == ("classes", "samples")
    for found in (by_class, by_sample):
        for name, (low, high) in found.intervals.items():
            assert low <= found[name] <= high
    again = evaluate_trials(embeddings, None, trials, labels=labels, draws=200)
    assert again.intervals == by_class.intervals
    assert by_class.to_dict()["intervals"]["eer"] == list(by_class.intervals["eer"])
    assert "true accept" in by_class.plot().axes[0].get_ylabel()


def test_a_drawn_class_counts_with_all_its_trials():
    embeddings, labels, trials = make_trials(classes=6, trials=60)
    first, second, same = trials
    found = evaluate_trials(embeddings, None, trials, labels=labels, draws=30, seed=4)
    drawn = list(found._weights())
    for weights in drawn:
        times = np.full(6, -1.0)
        times[labels[first[same]]] = weights[same]
        assert np.array_equal(weights[same], times[labels[first[same]]])
        assert np.array_equal(weights[~same], (times[labels[first]] * times[labels[second]])[~same])
        # As many classes as there are, each with its trials as often as it was drawn.
        assert times.sum() == 6


@pytest.mark.slow
def test_intervals_over_classes_hold_the_rate_of_all_classes():
    """Of 200 lists of 40 new classes each, nearly all intervals hold the EER of very many classes."""
    generator = np.random.default_rng(0)

    def evaluate_list(seed, classes, draws):
        embeddings, labels, trials = make_trials(classes=classes, trials=20 * classes, seed=seed)
        return evaluate_trials(embeddings, None, trials, labels=labels, draws=draws)

    truth = np.mean([evaluate_list(1000 + seed, 400, 2)["eer"] for seed in range(20)])
    intervals = [evaluate_list(seed, 40, 200).intervals["eer"] for seed in generator.permutation(200).tolist()]
    assert 0.88 < np.mean([low <= truth <= high for low, high in intervals]) < 0.995


ROWS = ([0, 1, 2], [1, 2, 3], [True, False, False])


@pytest.mark.parametrize(
    ("trials", "message"),
    [
        (([0, 1], [1, 9], [1, 0]), "trial 1 names 9, which is not among the 6 rows of the embeddings"),
        (([0, -1], [1, 2], [1, 0]), "trial 1 names -1"),
        ((["a", "b"], ["b", "c"], [1, 0]), "trial 0 names 'a', which is not among"),
        (([0, 1, 1], [1, 2, 0], [1, 0, 1]), "trials 0 and 2 are the same pair"),
        (([0, 1], [1, 1], [1, 0]), "trial 1 compares a sample with itself"),
        (([0, 1], [1, 2], [1, 1]), "all 2 trials are of the same classes; rates need trials of both kinds"),
        (([0, 1], [1, 2], [False, False]), "all 2 trials are of different classes"),
        (([0, 1], [1, 2], [1, 2]), "column 'same' holds 2 in trial 1; it must be 1 or 0, true or false"),
        (([0, 1], [1, 2], ["yes", "no"]), "column 'same' holds 'yes' in trial 0"),
        (([0, 1], [1, 2], [1.0, math.nan]), "column 'same' holds nan in trial 1"),
        (([0, 1], [1], [1, 0]), "have .* rows; give one of each"),
        (([], [], []), "the trial list is empty"),
        (([0, 1], [1, 2]), "trials have 2 parts"),
        (({"id_a": [0], "id_b": [1]}), "the trial list has no column 'same' but id_a, id_b"),
        ("none.csv", "there is no file 'none.csv'"),
    ],
)
def test_lists_that_cannot_be_used(trials, message):
    embeddings = np.random.default_rng(0).normal(size=(6, 3))
    with pytest.raises(EquimetricError, match=message) as error:
        evaluate_trials(embeddings, None, trials)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b,same\n0,1,1\n", "has no column 'id_a'"),
        ("id_a,id_b,same\n0,1,\n", "trial 0 of .* has no same"),
        ("id_a,id_b,same\n0,1\n", "trial 0 of .* has no same"),
        ("", "has no column 'id_a'"),
        ("id_a,id_b,same\n\ud800,1,1\n", "is not a .csv file in UTF-8"),
    ],
)
def test_files_that_cannot_be_used(text, message, tmp_path):
    (tmp_path / "list.csv").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(EquimetricError, match=message) as error:
        evaluate_trials(np.eye(4), None, tmp_path / "list.csv")
    assert "\n" not in str(error.value)
    (tmp_path / "list.txt").write_text(text, errors="replace")
    with pytest.raises(EquimetricError, match="is not a trial list that can be read"):
        evaluate_trials(np.eye(4), None, tmp_path / "list.txt")


def test_ids_and_labels_that_do_not_fit():
    embeddings = np.random.default_rng(0).normal(size=(5, 3))
    with pytest.raises(EquimetricError, match="id 'a' names the rows 0 and 3; every row needs its own"):
        evaluate_trials(embeddings, ["a", "b", "c", "a", "d"], (["a", "b"], ["b", "c"], [1, 0]))
    with pytest.raises(EquimetricError, match="trial 1 names 'x', which is not among the 5 ids; correct the list"):
        evaluate_trials(embeddings, list("abcde"), (["a", "x"], ["b", "c"], [1, 0]))
    with pytest.raises(
        EquimetricError, match="trial 0 says that its samples are of the same classes, but their labels"
    ):
        evaluate_trials(embeddings, None, ROWS, labels=[0, 1, 1, 0, 0])
    with pytest.raises(EquimetricError, match="unknown geometry of a trial list 'l1'"):
        evaluate_trials(embeddings, None, ROWS, geometry="l1")
    with pytest.raises(EquimetricError, match=r"false accept rate 2\.0 is not between 0 and 1"):
        evaluate_trials(embeddings, None, ROWS, far=2.0)
