"""`equimetric identify`, and trial lists in `equimetric evaluate`."""

import csv
import json

import numpy as np
import pytest

from equimetric.calibration import Certificate, IdentificationCertificate, calibrate_identification
from equimetric.evaluation import Cohort, evaluate_identification, evaluate_trials, gallery_size_curve


@pytest.fixture(scope="module")
def arrays():
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(30), 8)
    embeddings = generator.normal(size=(30, 10))[labels] + 0.6 * generator.normal(size=(240, 10))
    return {"embeddings": embeddings, "labels": labels}


@pytest.fixture
def space(arrays, tmp_path):
    ids = [f"[red]{row}" for row in range(240)]
    np.savez(tmp_path / "space.npz", **arrays, ids=ids)
    with (tmp_path / "list.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["id_a", "id_b", "same"])
        labels = arrays["labels"]
        for first in range(0, 236, 3):
            for second in (first + 1, (first + 100) % 240):
                writer.writerow([ids[first], ids[second], int(labels[first] == labels[second])])
    return tmp_path / "space.npz"


def test_identify_prints_rates_and_gallery_sizes(equimetric, space, arrays, tmp_path):
    code, out, _ = equimetric(
        "identify", space, "--fpir", "0.05,0.2", "--plots", tmp_path / "figures", "--extrapolate", "100"
    )
    assert code == 0
    found = evaluate_identification(**arrays, fpir=[0.05, 0.2])
    assert repr(found) in out
    curve = gallery_size_curve(**arrays, threshold=found.points[1].threshold, extrapolate=[100])
    assert repr(curve) in out
    assert {file.name for file in (tmp_path / "figures").iterdir()} == {"identification.png", "gallery_sizes.png"}


def test_identify_calibrates_and_prints_json(equimetric, space, tmp_path):
    options = ["--fpir", "0.05", "--by", "mean", "--enrolled", "3", "--sizes", "1,5"]
    code, out, _ = equimetric("identify", space, *options, "--out", tmp_path / "identify.json", "--json")
    assert code == 0
    printed = json.loads(out)
    loaded = IdentificationCertificate.load(tmp_path / "identify.json")
    assert printed["certificate"]["threshold"] == loaded.threshold == printed["rates"][0]["threshold"]
    assert printed["protocol"]["enrolled"] == 3
    assert [size["identities"] for size in printed["gallery_sizes"]["sizes"]] == [1, 5]
    code, out, _ = equimetric("identify", space, *options, "--out", tmp_path / "identify.json")
    assert str(IdentificationCertificate.load(tmp_path / "identify.json")) in out
    assert "certificate: " in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--fpir", "low"], "--fpir takes numbers separated by commas, not 'low'"),
        (["--fpir", "2"], "is not between 0 and 1"),
        (["--by", "vote"], "unknown rule of identification 'vote'"),
        (["--sizes", "99"], "measure galleries of 1 to 15 identities"),
        (["--fpir", "0.1,0.2", "--out", "x.json"], "a certificate is for one rate"),
        (["--enrolled", "0"], "enrolled is 0"),
    ],
)
def test_identify_says_what_to_do(equimetric, is_one_sentence, space, options, message):
    code, _, err = equimetric("identify", space, *options)
    assert code == 2
    assert is_one_sentence(err)
    assert message in err


def test_a_file_with_a_gallery_has_its_own_strangers(equimetric, arrays, tmp_path):
    known = (arrays["labels"] < 20) & (np.arange(240) % 2 == 0)
    given = {
        **{name: array[~known] for name, array in arrays.items()},
        **{f"gallery_{name}": array[known] for name, array in arrays.items()},
    }
    np.savez(tmp_path / "space.npz", **given)
    code, out, _ = equimetric("identify", tmp_path / "space.npz", "--fpir", "0.1", "--json")
    assert code == 0
    printed = json.loads(out)
    assert (printed["galleries"], printed["identities"], printed["stranger_searches"]) == (1, 20, 80)
    code, _, err = equimetric("identify", tmp_path / "space.npz", "--fpir", "0.1", "--out", tmp_path / "x.json")
    assert code == 2
    assert "has a separate gallery" in err


def test_trial_lists_are_evaluated_by_ids(equimetric, space, arrays, tmp_path):
    code, out, _ = equimetric("evaluate", space, "--trials", tmp_path / "list.csv", "--plots", tmp_path / "figures")
    assert code == 0
    ids = [f"[red]{row}" for row in range(240)]
    expected = evaluate_trials(arrays["embeddings"], ids, tmp_path / "list.csv", labels=arrays["labels"])
    assert repr(expected) in out
    assert (tmp_path / "figures" / "trials.png").exists()
    code, out, _ = equimetric("evaluate", space, "--trials", tmp_path / "list.csv", "-m", "eer,tar@far=0.1", "--json")
    assert json.loads(out)["metrics"].keys() == {"auc", "eer", "tar@far=0.1"}
    # The ids of a file are used by trial lists alone.
    code, out, _ = equimetric("evaluate", space, "-m", "recall@1", "--json")
    assert code == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-m", "map@r"], "'map@r' cannot be computed from a trial list"),
        (["--compare", "other.npz"], "leave --compare and --parents out"),
        (["--geometry", "l1"], "unknown geometry of a trial list 'l1'"),
    ],
)
def test_trial_lists_say_what_to_do(equimetric, is_one_sentence, space, tmp_path, options, message):
    code, _, err = equimetric("evaluate", space, "--trials", tmp_path / "list.csv", *options)
    assert code == 2
    assert is_one_sentence(err)
    assert message in err


def test_thresholds_are_calibrated_on_trial_lists(equimetric, is_one_sentence, space, arrays, tmp_path):
    ids = [f"[red]{row}" for row in range(240)]
    listed = evaluate_trials(arrays["embeddings"], ids, tmp_path / "list.csv", labels=arrays["labels"], far=0.2)
    point = listed.calibrate(0.2)
    given = ("calibrate", space, "--trials", tmp_path / "list.csv")
    code, out, err = equimetric(*given, "--far", "0.2", "--json")
    assert code == 0, err
    printed = json.loads(out)
    assert (printed["threshold"], printed["far"], printed["frr"]) == (point.threshold, point.far, point.frr)
    assert (printed["far_interval"], printed["accepts"]) == (list(point.far_interval), "distance < threshold")
    _, out, _ = equimetric(*given, "--far", "0.2")
    assert f"accept distances below {point.threshold:.6g}" in out
    for options, left_out in ((["--frr", "0.1"], "--frr"), (["--task", "identification"], "--task")):
        code, _, err = equimetric(*given, *options)
        assert code == 2
        assert is_one_sentence(err)
        assert f"leave {left_out} out" in err


def test_an_id_that_nobody_has_is_shown_literally(equimetric, is_one_sentence, space, tmp_path):
    (tmp_path / "bad.csv").write_text("id_a,id_b,same\n\x1b[31mx,[red]1,1\n")
    code, _, err = equimetric("evaluate", space, "--trials", tmp_path / "bad.csv")
    assert code == 2
    assert is_one_sentence(err)
    assert "\x1b" not in err


def test_ids_of_tables(equimetric, arrays, tmp_path):
    pandas = pytest.importorskip("pandas")
    names = [f"image {row}" for row in range(240)]
    pandas.DataFrame({"embedding": list(arrays["embeddings"]), "label": arrays["labels"], "id": names}).to_parquet(
        tmp_path / "table.parquet"
    )
    np.save(tmp_path / "array.npy", arrays["embeddings"])
    pandas.DataFrame({"label": arrays["labels"], "id": names}).to_csv(tmp_path / "array.csv", index=False)
    (tmp_path / "list.csv").write_text("id_a,id_b,same\nimage 0,image 1,true\nimage 0,image 100,false\n")
    shown = [
        equimetric("evaluate", tmp_path / file, "--trials", tmp_path / "list.csv", "--json")
        for file in ("table.parquet", "array.npy")
    ]
    assert [code for code, _, _ in shown] == [0, 0]
    assert json.loads(shown[0][1]) == json.loads(shown[1][1])


@pytest.fixture
def normalised(arrays, tmp_path):
    """Embeddings with a cohort beside them, and the cohort."""
    others = np.random.default_rng(1).normal(size=(60, 10))
    ids = [f"image {row}" for row in range(240)]
    np.savez(tmp_path / "both.npz", **arrays, ids=ids, cohort_embeddings=others)
    np.savez(tmp_path / "plain.npz", **arrays, ids=ids)
    np.savez(tmp_path / "cohort.npz", embeddings=others, labels=100 + np.arange(60))
    lines = [f"image {row},image {other},{int(row // 8 == other // 8)}" for row in range(232) for other in (row + 8,)]
    lines += [f"image {row},image {row + 1},1" for row in range(0, 240, 8)]
    (tmp_path / "list.csv").write_text("\n".join(["id_a,id_b,same", *lines]))
    return others


def test_identify_normalises_by_a_cohort(equimetric, arrays, normalised, tmp_path):
    options = ["--fpir", "0.1", "--by", "mean", "--json"]
    beside = Cohort(normalised)
    given = Cohort(normalised, 100 + np.arange(60), strength=1.0, form="full")
    for file, cohort, more in [
        ("both.npz", beside, []),
        ("plain.npz", given, ["--cohort", tmp_path / "cohort.npz", "--cohort-strength", "1", "--cohort-form", "full"]),
        ("both.npz", None, ["--cohort", "none"]),
    ]:
        code, out, _ = equimetric("identify", tmp_path / file, *options, *more, "--out", tmp_path / "identify.json")
        assert code == 0
        printed = json.loads(out)
        expected = evaluate_identification(**arrays, fpir=0.1, by="mean", cohort=cohort)
        certificate = calibrate_identification(**arrays, fpir=0.1, by="mean", cohort=cohort)
        assert printed["geometry"] == expected.geometry == ("cosine" if cohort is None else cohort.title)
        assert printed["rates"][0]["threshold"] == expected.points[0].threshold
        assert printed["gallery_sizes"]["threshold"] == expected.points[0].threshold
        assert printed["certificate"]["threshold"] == certificate.threshold
        assert IdentificationCertificate.load(tmp_path / "identify.json").cohort == certificate.cohort


def test_trial_lists_normalise_by_a_cohort(equimetric, arrays, normalised, tmp_path):
    for more, cohort in ([], Cohort(normalised)), (["--cohort", "none"], None):
        code, out, _ = equimetric("evaluate", tmp_path / "both.npz", "--trials", tmp_path / "list.csv", *more)
        assert code == 0
        ids = [f"image {row}" for row in range(240)]
        named = {"labels": arrays["labels"], "cohort": cohort}
        assert repr(evaluate_trials(arrays["embeddings"], ids, tmp_path / "list.csv", **named)) in out


def test_calibrate_for_identification(equimetric, arrays, normalised, tmp_path):
    command = ["calibrate", tmp_path / "both.npz", "--task", "identification", "--fpir", "0.1"]
    code, out, _ = equimetric(*command, "--out", tmp_path / "identify.json")
    assert code == 0
    loaded = IdentificationCertificate.load(tmp_path / "identify.json")
    assert str(loaded) in out
    expected = calibrate_identification(**arrays, fpir=0.1, cohort=Cohort(normalised))
    assert (loaded.threshold, loaded.fold_thresholds) == (expected.threshold, expected.fold_thresholds)
    code, out, _ = equimetric(*command, "--cohort", "none", "--folds", "5", "--json")
    assert json.loads(out)["accepts"] == "distance < threshold"
    assert len(json.loads(out)["fold_thresholds"]) == 5
    code, out, _ = equimetric("calibrate", tmp_path / "plain.npz", "--far", "0.05", "--out", tmp_path / "far.json")
    assert code == 0
    assert len(Certificate.load(tmp_path / "far.json").fold_thresholds) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--task", "recognition"], "unknown task 'recognition'"),
        (["--fpir", "0.1"], "--fpir is a rate of identification; give --task identification"),
        (["--task", "identification", "--far", "0.1"], "--far is for verification; identification has --fpir"),
        (["--task", "identification", "--plots", "figures"], "--plots is for verification"),
        (["--task", "identification", "--prior", "0.1"], "--prior is for verification"),
        (["--task", "identification", "--fpir", "2"], "is not between 0 and 1"),
        (["--task", "identification"], "an FPIR of 0.01 needs at least 1000 strangers"),
        (["--task", "identification", "--geometry", "euclidean", "--fpir", "0.1"], "a cohort normalises cosines"),
    ],
)
def test_calibrate_for_identification_says_what_to_do(
    equimetric, is_one_sentence, normalised, tmp_path, options, message
):
    code, _, err = equimetric("calibrate", tmp_path / "both.npz", *options)
    assert code == 2
    assert is_one_sentence(err)
    assert message in err


@pytest.mark.parametrize("command", [["identify"], ["calibrate", "--task", "identification"]])
def test_several_labels_per_image_are_refused(equimetric, is_one_sentence, arrays, tmp_path, command):
    labels = np.zeros((240, 4), int)
    labels[np.arange(240), np.arange(240) % 4] = 1
    labels[::5, 0] = 1
    np.savez(tmp_path / "several.npz", embeddings=arrays["embeddings"], labels=labels)
    code, _, err = equimetric(command[0], tmp_path / "several.npz", *command[1:])
    assert code == 2
    assert is_one_sentence(err)
    assert "identification needs one class for every sample" in err
