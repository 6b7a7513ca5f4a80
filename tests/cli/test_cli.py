import json
from importlib.metadata import version

import numpy as np
import pytest
from PIL import Image

import equimetric as em

RUN = """
method = "contrastive"
[data]
name = "digits"
[model]
dim = 8
[batch]
classes = 2
samples = 8
[training]
steps = 4
validate_every = 2
"""

STUDY = 'name = "tiny"\nseeds = [0, 1]\nmethods.contrastive = {}\n' + RUN.replace('method = "contrastive"', "")


@pytest.fixture
def run_file(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(RUN)
    return file


@pytest.fixture
def study_file(tmp_path):
    file = tmp_path / "study.toml"
    file.write_text(STUDY)
    return file


def test_version(equimetric):
    code, out, _ = equimetric("--version")
    assert code == 0
    assert out == f"equimetric {version('equimetric')}\n"


@pytest.mark.parametrize(
    "command",
    [
        *("demo", "methods", "backbones", "datasets", "datasets check", "datasets shift"),
        *("train", "compare", "evaluate", "calibrate", "check", "explain", "report"),
    ],
)
def test_every_command_has_help(equimetric, command):
    code, out, _ = equimetric(*command.split(), "--help")
    assert code == 0
    assert "Usage: equimetric" in out


def test_methods_are_listed_with_family_paper_and_options(equimetric):
    code, out, _ = equimetric("methods")
    assert code == 0
    for expected in (
        "Ranking",
        "multi_similarity_miner",
        "epsilon=0.1",
        "Hadsell, Chopra, LeCun",
        "Regulariser",
        "tcm",
    ):
        assert expected in out


def test_one_method_is_explained(equimetric):
    code, out, _ = equimetric("methods", "margin_class")
    assert code == 0
    assert "[α + Y_ij (d_ij − β_i)]₊" in out
    assert "selection distance_weighted" in out


def test_datasets_are_listed(equimetric):
    code, out, _ = equimetric("datasets")
    assert code == 0
    assert "glyphs" in out
    assert "root=…" in out


def test_backbones_are_listed_with_size_features_and_weights(equimetric):
    code, out, _ = equimetric("backbones")
    assert code == 0
    for expected in ("small_cnn", "260×260", "1280", "equimetric[pretrained]", "timm:<model>", "equimetric[vision]"):
        assert expected in out
    code, out, _ = equimetric("backbones", "bn_inception")
    assert code == 0
    for expected in ("10,270,240", "104 117 128", "bgr", "bn_inception-52deb4733.pth"):
        assert expected in out


def test_train_and_evaluate_a_run(equimetric, run_file, tmp_path):
    code, out, _ = equimetric("train", run_file, "--folder", tmp_path / "run", "--seed", "3", "--training.steps=6")
    assert code == 0
    assert "map@r" in out
    assert "seed = 3" in (tmp_path / "run" / "config.toml").read_text()
    code, out, _ = equimetric("evaluate", tmp_path / "run", "--json")
    assert code == 0
    stored = json.loads((tmp_path / "run" / "result.json").read_text())["metrics"]
    assert {name: json.loads(out)[name] for name in stored} == pytest.approx(stored)


def test_compare_and_report(equimetric, study_file, tmp_path):
    code, out, err = equimetric("compare", study_file, "--output", tmp_path / "runs")
    assert code == 0
    assert "±" in out
    assert "finished contrastive, seed 1" in err
    page = tmp_path / "runs" / "tiny" / "report" / "index.html"
    first = page.read_bytes()
    page.unlink()
    code, out, _ = equimetric("report", tmp_path / "runs" / "tiny")
    assert code == 0
    assert page.read_bytes() == first


def test_evaluate_embeddings_from_elsewhere(equimetric, tmp_path):
    file = tmp_path / "embeddings.npz"
    np.savez(file, embeddings=np.eye(4)[[0, 0, 1, 1]], labels=np.array(["a", "a", "b", "b"]))
    code, out, _ = equimetric("evaluate", file, "--ks", "1,2")
    assert code == 0
    assert "recall@2" in out
    assert "100.00%" in out


@pytest.fixture
def spaces(tmp_path):
    """Two spaces of the same queries, the second with more noise."""
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(30), 8)
    centres = generator.normal(size=(30, 12))
    files = {}
    for name, noise in (("good", 0.3), ("noisy", 0.9)):
        files[name] = tmp_path / f"{name}.npz"
        vectors = centres[labels] + noise * generator.normal(size=(len(labels), 12))
        np.savez(files[name], embeddings=vectors.astype(np.float32), labels=labels)
    return files


def test_evaluate_named_metrics_with_intervals_comparison_and_plots(equimetric, spaces, tmp_path):
    asked = "recall@1,map@r,nmi,eer,tar@far=1e-2,opis,opis@10%"
    arguments = ("-m", asked, "--intervals", "--compare", spaces["noisy"], "--plots", tmp_path / "figures", "--json")
    code, out, _ = equimetric("evaluate", spaces["good"], *arguments)
    assert code == 0
    found = json.loads(out)
    assert list(found)[:7] == asked.split(",")
    assert found["queries"] == 240
    assert found["intervals"]["map@r"][0] <= found["map@r"] <= found["intervals"]["map@r"][1]
    assert found["comparison"]["metrics"]["map@r"]["p_value"] < 0.01
    for name in ("utility", "utility_far", "utility_frr", "roc", "distances"):
        assert (tmp_path / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    code, out, _ = equimetric("evaluate", spaces["good"], "-m", asked, "--compare", spaces["noisy"])
    assert code == 0
    assert "opis@10%" in out
    assert "Compared with" in out


def test_evaluate_multi_hot_labels_and_macro_averages(equimetric, is_one_sentence, tmp_path):
    generator = np.random.default_rng(0)
    labels = generator.random((60, 5)) < 0.3
    vectors = labels @ generator.normal(size=(5, 8)) + generator.normal(size=(60, 8))
    np.savez(tmp_path / "tags.npz", embeddings=vectors, labels=labels)
    np.savez(tmp_path / "other.npz", embeddings=vectors + 0.5, labels=labels)
    names = "recall@1,macro:map@r,ndcg@5,macro:tar@far=1e-1,opis"
    arguments = ("-m", names, "--intervals", "--compare", tmp_path / "other.npz", "--plots", tmp_path / "figures")
    code, out, _ = equimetric("evaluate", tmp_path / "tags.npz", *arguments, "--json")
    assert code == 0
    found = json.loads(out)
    expected = em.evaluate(vectors, labels, metrics=names.split(","))
    assert {name: found[name] for name in expected} == dict(expected)
    assert found["classes"] == 5
    assert {"recall@1", "macro:map@r", "macro:tar@far=1e-1"} <= set(found["comparison"]["metrics"])
    code, out, _ = equimetric("evaluate", tmp_path / "tags.npz", "-m", "ndcg@5", "--overlap", "jaccard", "--json")
    assert json.loads(out)["ndcg@5"] == em.evaluate(vectors, labels, metrics="ndcg@5", overlap="jaccard")["ndcg@5"]
    for wrong in (("-m", "nmi"), ("-m", "macro:auc"), ("-m", "ndcg@5", "--overlap", "dice")):
        code, _, err = equimetric("evaluate", tmp_path / "tags.npz", *wrong)
        assert code == 2
        assert is_one_sentence(err)


def test_evaluate_consistency_with_noise_and_class_thresholds(equimetric, spaces):
    asked = "opis,opis_far,opis_frr@10%,opis_noise"
    code, out, _ = equimetric("evaluate", spaces["noisy"], "-m", asked, "--class-thresholds", "1e-2")
    assert code == 0
    # Lines of the terminal may break anywhere.
    shown = " ".join(out.split())
    assert "mostly measures sampling noise here: the median class has 8 images" in shown
    assert "Thresholds for FAR 0.01" in shown
    code, out, _ = equimetric("evaluate", spaces["noisy"], "-m", asked, "--class-thresholds", "frr=0.1", "--json")
    found = json.loads(out)
    assert list(found)[:4] == asked.split(",")
    assert len(found["notes"]) == 1
    rows = found["class_thresholds"]["classes"]
    assert len(rows) == 30
    assert rows[0]["threshold"] == max(row["threshold"] for row in rows)
    code, _, err = equimetric("evaluate", spaces["noisy"], "--class-thresholds", "often")
    assert code == 2
    assert "--class-thresholds takes a rate" in err


def test_calibrate_writes_a_certificate(equimetric, is_one_sentence, spaces, tmp_path):
    code, out, _ = equimetric("calibrate", spaces["noisy"], "--far", "0.01", "--out", tmp_path / "threshold.json")
    assert code == 0
    assert "accept distances below" in out
    certificate = json.loads((tmp_path / "threshold.json").read_text())
    assert certificate["target_far"] == 0.01
    code, out, _ = equimetric("calibrate", spaces["noisy"], "--far", "0.01", "--json")
    assert json.loads(out) == certificate
    code, _, err = equimetric("calibrate", spaces["noisy"], "--far", "1e-7")
    assert code == 2
    assert is_one_sentence(err)


def test_calibrate_has_other_targets_and_figures(equimetric, is_one_sentence, spaces, tmp_path):
    code, out, _ = equimetric("calibrate", spaces["noisy"], "--frr", "0.2", "--json")
    assert code == 0
    assert json.loads(out)["target"] == {"frr": 0.2}
    costs = ("--cost-accept", "10", "--cost-reject", "1")
    code, out, _ = equimetric("calibrate", spaces["noisy"], *costs, "--prior", "0.3", "--plots", tmp_path / "figures")
    assert code == 0
    assert "the least cost (false accept 10, false reject 1, prior 0.3)" in out
    for name in ("classes", "distances"):
        assert (tmp_path / "figures" / f"calibration_{name}.png").read_bytes().startswith(b"\x89PNG")
    for arguments, expected in (
        (("--far", "0.1", "--frr", "0.1"), "one of far, frr and cost"),
        (costs, "needs all three of --cost-accept, --cost-reject and --prior"),
        (("--prior", "0.5"), "needs all three"),
    ):
        code, _, err = equimetric("calibrate", spaces["noisy"], *arguments)
        assert code == 2
        assert expected in err
        assert is_one_sentence(err)


def test_check_compares_new_embeddings_with_a_certificate(equimetric, is_one_sentence, tmp_path):
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(60), 8)
    space = np.repeat(generator.normal(size=(60, 8)), 8, axis=0) + 0.4 * generator.normal(size=(480, 8))
    np.savez(tmp_path / "space.npz", embeddings=space, labels=labels)
    new = np.repeat(generator.normal(size=(60, 8)), 8, axis=0) + 0.4 * generator.normal(size=(480, 8))
    np.savez(tmp_path / "new.npz", embeddings=new)
    np.save(tmp_path / "crowded.npy", new + 3)
    np.savez(tmp_path / "labelled.npz", embeddings=new, labels=labels)
    np.save(tmp_path / "few.npy", new[:5])
    np.save(tmp_path / "wide.npy", np.ones((40, 9)))
    certificate = tmp_path / "threshold.json"
    assert equimetric("calibrate", tmp_path / "space.npz", "--far", "0.01", "--out", certificate)[0] == 0
    code, out, _ = equimetric("check", certificate, tmp_path / "new.npz")
    assert code == 0
    assert "the least number of classes, make smaller shifts visible" in out
    code, out, _ = equimetric("check", certificate, tmp_path / "new.npz", "--classes", "50")
    assert code == 0
    assert out.startswith("as certified")
    assert "in four of five such checks" in out
    assert "480 samples without labels" in out
    assert "480 samples of 60 classes" in equimetric("check", certificate, tmp_path / "labelled.npz")[1]
    code, out, _ = equimetric("check", certificate, tmp_path / "crowded.npy", "--classes", "60", "--json")
    assert code == 1
    answer = json.loads(out)
    assert answer["answer"] == "shifted: recalibrate"
    assert answer["expected_far"] > answer["certified_far"]
    code, out, _ = equimetric("check", certificate, tmp_path / "few.npy")
    assert code == 0
    assert "too few to say" in out
    for file, expected in (
        ("wide.npy", "for the dimension 8, not 9"),
        ("none.npz", "there is no file"),
        ("threshold.json", "not one of the file types"),
    ):
        code, _, err = equimetric("check", certificate, tmp_path / file)
        assert code == 2
        assert expected in err
        assert is_one_sentence(err)


def test_explain_draws_catalogue_methods_and_user_losses(equimetric, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("def my_loss(pairs):\n    return -pairs.similarity[pairs.positive].sum()\n")
    code, out, _ = equimetric("explain", "triplet", "arcface", "smooth_ap+tcm", "mine:my_loss", "--out", "weights.png")
    assert code == 0
    assert "weights.png" in out
    assert (tmp_path / "weights.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), ["contrastive, λ = 0.5", "triplet, margin 0.1", "lifted structure", "binomial deviance", "RAW, γ = 0.5"]),
        (
            ("triplet", "margin=0.2"),
            ["contrastive, λ = 0.5", "triplet, margin = 0.2", "lifted structure", "binomial deviance"],
        ),
        (
            ("triplet", "arcface", "triplet", "margin=0.3"),
            [
                *("contrastive, λ = 0.5", "triplet, margin 0.1", "lifted structure", "binomial deviance"),
                *("arcface", "triplet, margin = 0.3"),
            ],
        ),
        (("triplet", "margin=0.2", "arcface", "--only"), ["triplet margin=0.2", "arcface"]),
    ],
)
def test_explain_draws_figure_one_and_what_is_named(equimetric, tmp_path, monkeypatch, words, expected):
    drawn = []
    monkeypatch.setattr("equimetric.explain.draw_weights", lambda curves, out: drawn.extend(curves) or out)
    code, _, err = equimetric("explain", *words, "--output", tmp_path / "weights.png")
    assert code == 0, err
    assert [curves.name for curves in drawn] == expected


def test_options_of_a_panel_change_its_curves():
    from equimetric.explain.unified_view import FIGURE_PANELS, unified_view_curves

    own = unified_view_curves(FIGURE_PANELS)
    changed = unified_view_curves(FIGURE_PANELS, {"triplet": {"margin": 0.2}})
    assert [bool((one.negative == other.negative).all()) for one, other in zip(own, changed, strict=True)] == [
        True, False, True, True,
    ]  # fmt: skip


def write_images(root, counts):
    for number, count in enumerate(counts):
        folder = root / f"class{number}"
        folder.mkdir(parents=True)
        for image in range(count):
            Image.new("RGB", (8, 8), (30 * number, 40 * image, 9)).save(folder / f"{image}.png")


def test_mistakes_are_one_sentence_and_exit_code_2(
    equimetric, is_one_sentence, run_file, study_file, tmp_path, monkeypatch
):
    # A failed start leaves its folder below the working one.
    monkeypatch.chdir(tmp_path)
    wrong_key = tmp_path / "wrong.toml"
    wrong_key.write_text("[optimizer]\nlearning_rate = 1.0\n")
    lengths = tmp_path / "lengths.npz"
    np.savez(lengths, embeddings=np.eye(3), labels=np.array([0, 1]))
    no_labels = tmp_path / "no_labels.npz"
    np.savez(no_labels, embeddings=np.eye(3))
    text = tmp_path / "text.npz"
    text.write_text("not an archive")
    folder = tmp_path / "images"
    write_images(folder, [2] * 8)
    (folder / "class3" / "0.png").write_bytes(b"no image")
    lonely = tmp_path / "lonely"
    write_images(lonely, [2] * 7 + [1])
    for arguments, expected in (
        (["train", wrong_key], "unknown key 'optimizer.learning_rate'"),
        (["train", run_file, "--optimizer.lrr", "1"], "did you mean 'lr'"),
        (["train", run_file, "--method", "contrasive"], "did you mean 'contrastive'"),
        (["train", run_file, "--options.margin", "1.0"], "no option 'margin'"),
        (["train", run_file, "--batch.classes", "99"], "a batch of 99 classes cannot be drawn from 3"),
        (["train", run_file, "seed", "3"], "overrides look like"),
        (["train", tmp_path / "missing.toml"], "there is no configuration file"),
        (["train", run_file, "--data.name", "folder", "--data.options.root", folder], "0.png"),
        (["train", run_file, "--data.name", "folder", "--data.options.root", lonely], "class 'class7' has one image"),
        (["train", run_file, "--data.name", "folder", "--data.options.root", tmp_path / "none"], "none"),
        (["compare", run_file], "unknown key 'method'; did you mean 'methods'"),
        (["compare", study_file, "--methods.contrastive.training.steps", "9"], "unfair"),
        (["report", tmp_path], "is a study that has not run yet"),
        (["evaluate", lengths], "labels"),
        (["evaluate", no_labels], "has no array 'labels'"),
        (["evaluate", text], "is not an .npz file"),
        (["evaluate", tmp_path / "missing.npz"], "there is no file"),
        (["evaluate", tmp_path], "holds no finished training run"),
        (["evaluate", lengths, "--ks", "one"], "whole numbers separated by commas"),
        (["evaluate", lengths, "--metrics", "recal@1"], "did you mean 'recall@1'"),
        (["evaluate", lengths, "--metrics", ","], "--metrics is empty"),
        (["calibrate", no_labels], "has no array 'labels'"),
        (["explain", "--only"], "name one"),
        (["explain", "tripplet"], "did you mean 'triplet'"),
        (["explain", "npairs"], "no curve of one moving pair"),
        (["explain", "hdc"], "reads the embeddings themselves"),
        (["explain", "no.such.module:loss"], "cannot find 'no.such.module:loss'"),
        (["explain", ":loss"], "cannot find ':loss'"),
        (["explain", "math:pi"], "is float, not a loss"),
        (["explain", "fractions:Fraction.x"], "cannot find"),
        (["explain", "torch.nn:Linear"], "cannot be made without options"),
        (["explain", "triplet", "--out", tmp_path / "weights.xyz"], "written as .png or .svg or .pdf, not as '.xyz'"),
        (["explain", "triplet", "--companions", "a"], "numbers separated by commas"),
        (["explain", "triplet", "--companions", "2"], "cosines lie between -1 and 1"),
        (["backbones", "bn_inceptoin"], "did you mean 'bn_inception'"),
        (["datasets", "check", "digts"], "did you mean 'digits'"),
        (["datasets", "check", "folder"], "needs the option 'root'"),
        (["datasets", "check", tmp_path / "missing.toml"], "there is no configuration file"),
        (["datasets", "check", "digits", "--most-bits", "65"], "most_bits must be from 0 to 64"),
        (["datasets", "shift", "digits", "--out", tmp_path / "s.json", "--backbone", "no"], "unknown backbone 'no'"),
        (["train", run_file, "--data.split.file", tmp_path / "none.json"], "there is no file"),
        (["methods", "tripplet"], "did you mean 'triplet'"),
        (["methods", "--family", "rankin"], "did you mean 'ranking'"),
    ):
        code, _, err = equimetric(*arguments)
        assert code == 2, arguments
        assert expected in err, (arguments, err)
        assert is_one_sentence(err), (arguments, err)
