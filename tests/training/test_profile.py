"""A run with a profile: its folder holds it, its log has pair weights, and its figures are the same."""

from equimetric.runs.folder import RunFolder
from equimetric.runs.profile import RunProfile
from equimetric.training.batch_weights import WEIGHT_EDGES
from equimetric.training.loop import train

CONFIG = {
    "method": "multi_similarity_miner",
    "data": {"name": "digits", "transform": "affine"},
    "model": {"dim": 8},
    "batch": {"classes": 2, "samples": 8},
    "training": {"steps": 4, "validate_every": 2, "checkpoint_seconds": 0},
}


def test_a_profile_changes_no_figure_of_a_run(tmp_path):
    plain = train(CONFIG, folder=tmp_path / "plain")
    profiled = train(CONFIG, folder=tmp_path / "profiled", profile=True)
    assert dict(profiled.metrics) == dict(plain.metrics)
    assert RunFolder(tmp_path / "plain").profile() is None
    run = RunFolder(tmp_path / "profiled")
    assert not RunProfile.from_arrays(run.profile()).is_empty
    lines = {line["step"]: line for line in run.history() if line["kind"] == "pair_weights"}
    assert list(lines) == [line["step"] for line in run.history() if line["kind"] == "validation"]
    assert len(lines[0]["negative"]["pairs"]) == len(WEIGHT_EDGES) - 1
    assert sum(lines[0]["positive"]["pairs"]) > 0
