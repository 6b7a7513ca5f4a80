"""A run repeated from what is stored of it gives the same, or says what has changed."""

import json
import shutil

import pytest

import equimetric as em
from equimetric.checksums import json_document, read_json
from equimetric.errors import EquimetricError
from equimetric.studies.reproduction import find_runs, reproduce_run

STUDY = {
    "name": "small",
    "seeds": [0],
    "data": {"name": "digits"},
    "model": {"dim": 4},
    "batch": {"classes": 2, "samples": 4},
    "training": {"steps": 4, "validate_every": 2, "log_every": 2},
    "methods": {"contrastive": {}},
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return em.compare(STUDY, output=tmp_path_factory.mktemp("runs"), engine="serial")


def run_of(folder, row):
    return next(path for path in find_runs(folder) if path.parent.name == row)


def test_every_run_of_a_study_comes_out_the_same(finished, equimetric):
    code, out, _ = equimetric("reproduce", finished.folder)
    assert code == 0
    assert out.count("identical") == 3
    assert "equal to the last bit" in out


def test_a_score_that_differs_is_named_with_what_has_changed(finished, tmp_path, equimetric):
    folder = tmp_path / "run"
    shutil.copytree(run_of(finished.folder, "contrastive"), folder)
    result, environment = read_json(folder / "result.json", dict, ""), read_json(folder / "environment.json", dict, "")
    result["metrics"]["map@r"] += 0.01
    (folder / "result.json").write_text(json_document(result))
    (folder / "environment.json").write_text(json_document({**environment, "torch": "1.0", "code": "other"}))
    found = reproduce_run(folder)
    assert found.differences == {"map@r": pytest.approx(-0.01)}
    assert found.environment["torch"][0] == "1.0"
    code, _, err = equimetric("reproduce", folder)
    assert code == 1
    assert "map@r most, by -0.01" in err
    assert "torch 1.0 →" in err
    assert json.loads((folder / "result.json").read_text())["metrics"] == result["metrics"]


def test_what_cannot_be_reproduced_says_why(finished, tmp_path, equimetric):
    with pytest.raises(EquimetricError, match="has not ended; train it first"):
        reproduce_run(tmp_path)
    code, _, err = equimetric("reproduce", tmp_path / "nowhere")
    assert code == 2
    assert "there is no folder" in err
