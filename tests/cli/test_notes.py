"""What runs notice reaches the terminal, and `train --final` makes a final model of a run."""

import json
import warnings

import pytest

CONFIG = """
method = "contrastive"
data.name = "digits"
model.dim = 8
batch = { classes = 3, samples = 4 }
optimizer = { lr = 1000.0, schedule = "constant", name = "sgd" }
training = { steps = 8, validate_every = 4, log_every = 4 }
"""
STUDY = CONFIG.replace(
    'method = "contrastive"', 'name = "wrecked"\nseeds = [0]\nbaselines = []\nmethods.contrastive = {}'
)


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(CONFIG)
    return file


def test_train_says_that_training_did_not_help(equimetric, config, tmp_path):
    code, out, _ = equimetric("train", config, "--folder", tmp_path / "run")
    assert code == 0
    assert "Training did not help: map@r on the validation classes was" in " ".join(out.split())
    assert "optimizer.lr = 100 (now 1000)" in " ".join(out.split())
    code, _, err = equimetric("train", tmp_path / "run", "--final", "all")
    assert code == 2
    assert "was best before its first step" in err


def test_compare_and_report_say_so_too(equimetric, tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    code, out, err = equimetric("compare", tmp_path / "study.toml", "--output", tmp_path)
    assert code == 0, err
    assert "contrastive, seed 0: Training did not help" in " ".join(out.split())
    assert "Training did not help" in (tmp_path / "wrecked" / "report" / "index.html").read_text()
    code, out, _ = equimetric("report", tmp_path / "wrecked")
    assert "contrastive, seed 0: Training did not help" in " ".join(out.split())


def test_a_run_keeps_what_its_evaluation_says(equimetric, config, tmp_path, monkeypatch):
    monkeypatch.setattr("equimetric.evaluation.metrics.noise_note.FEW_IMAGES", 10_000)
    asked = ("--evaluation.metrics", '["map@r", "opis", "opis_far", "opis_noise"]')
    code, out, err = equimetric("train", config, "--folder", tmp_path / "run", *asked)
    assert code == 0, err
    assert "Threshold consistency mostly measures sampling noise here" in " ".join(out.split())
    notes = json.loads((tmp_path / "run" / "result.json").read_text(encoding="utf-8"))["notes"]
    assert "the median class has" in notes[-1]


def test_a_warning_is_one_line(capsys):
    from equimetric.escaping import show_plain_warnings

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        show_plain_warnings()
        warnings.warn("all images\nlook \x1balike", stacklevel=1)
    assert capsys.readouterr().err == "equimetric: warning: all images look �alike\n"


def test_final_models(equimetric, config, tmp_path, is_one_sentence):
    given = ("--optimizer.lr", "0.01", "--optimizer.name", "adamw", "--method", "multi_similarity")
    given += ("--model.dim", "16", "--batch.samples", "8", "--training.steps", "16")
    code, _, err = equimetric("train", config, "--folder", tmp_path / "run", *given)
    assert code == 0, err
    code, out, err = equimetric("train", tmp_path / "run", "--final", "training", "--folder", tmp_path / "more")
    assert code == 0, err
    best = json.loads((tmp_path / "run" / "result.json").read_text())["best_step"]
    assert f"Test classes, none of them used in training (weights of step {best}):" in out
    assert "A final model: run " in out
    code, out, err = equimetric("evaluate", tmp_path / "more", "--json")
    assert json.loads(out)["map@r"] == json.loads((tmp_path / "more" / "result.json").read_text())["metrics"]["map@r"]
    code, out, err = equimetric("train", tmp_path / "run", "--final", "all", "--folder", tmp_path / "all")
    assert code == 0, err
    assert "Test classes" not in out
    assert "No class is left to test it" in " ".join(out.split())
    for command in ("evaluate", "calibrate"):
        code, _, err = equimetric(command, tmp_path / "all")
        assert code == 2
        assert is_one_sentence(err)
        assert "trained on its test classes, so they cannot measure it" in err
    code, _, err = equimetric("train", tmp_path / "run", "--final", "al")
    assert code == 2
    assert "unknown classes of a final model 'al'; did you mean 'all'?" in err
    code, _, err = equimetric("train", tmp_path / "run", "--final", "all", "--seed", "3")
    assert code == 2
    assert "a final model repeats the configuration of its run; leave out --seed" in err
