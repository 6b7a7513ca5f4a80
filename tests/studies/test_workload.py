"""What a study says before it begins: runs, steps and images that are left, and the time that they may take."""

import re

import pytest
import torch
from safetensors.torch import load_file

import equimetric as em
from equimetric.progress import format_seconds
from equimetric.studies import timing
from equimetric.studies.comparison import prepare_plan
from equimetric.studies.timing import estimate_time, is_worth_an_estimate
from equimetric.studies.workload import count_work

STUDY = {
    "name": "small",
    "seeds": [0, 1],
    "baselines": ["untrained"],
    "data": {"name": "digits", "folds": 2},
    "model": {"dim": 4},
    "batch": {"classes": 2, "samples": 4},
    "training": {"steps": 6, "validate_every": 3, "log_every": 3},
    "evaluation": {"metrics": ["map@r"]},
    "methods": {"contrastive": {}, "npairs": {}},
}

TUNED = {
    **STUDY,
    "cross_validation": True,
    "search": {"kind": "grid", "trials": 2, "points": 2},
    "methods": {"contrastive": {"search": {"neg_margin": {"choice": [0.3, 0.5]}}}, "npairs": {"search": {}}},
    "varies": ["tuning"],
}

SWEPT = {
    **STUDY,
    "sweeps": {
        "batch": {
            "points": {"8": {"batch.samples": 4}, "32": {"batch.samples": 16}},
            "kinds": {"ranking": {"8": {}, "16": {"batch.samples": 8}, "32": {"batch.samples": 16}}},
        }
    },
    "sweep": ["batch"],
}


def work_of(study, output, **overrides):
    return count_work(prepare_plan({**study, **overrides}, output=output)[0])


def test_the_work_is_runs_times_steps_times_images(tmp_path):
    work = work_of(STUDY, tmp_path)
    assert (work.runs, work.ended, work.steps, work.images) == (2 + 4, 0, 4 * 6, 4 * 6 * 8)
    assert work.sentence == "6 runs: 24 steps with 192 images in their batches"
    per_step = work_of(STUDY, tmp_path, batch={"classes": 2, "samples": 4, "per_step": 3})
    assert per_step.images == 3 * work.images
    early = work_of(STUDY, tmp_path, training={**STUDY["training"], "patience": 3})
    assert early.sentence.startswith("6 runs: at most 24 steps")


def test_trials_folds_and_points_are_counted(tmp_path):
    tuned = work_of(TUNED, tmp_path)
    trials, final, joined, untrained = 2 * 2, 2 * 2 * 2, 2 * 2, 2
    assert tuned.runs == trials + final + joined + untrained
    assert tuned.steps == (trials + final) * 6
    swept = work_of(SWEPT, tmp_path)
    assert swept.runs == 2 * 3 + 2 * 2 * 4
    assert swept.images == 6 * 2 * 2 * (8 + 8 + 16 + 32)


@pytest.mark.usefixtures("without_profiles")
def test_what_has_ended_is_not_counted_again(tmp_path):
    em.compare(TUNED, output=tmp_path, engine="serial")
    done = work_of(TUNED, tmp_path)
    assert (done.runs - done.ended, done.steps, done.parts) == (0, 0, [])
    more = work_of(TUNED, tmp_path, seeds=[0, 1, 2])
    assert more.runs - more.ended == 2 * 2 + 2 + 1
    assert more.steps == 2 * 2 * 6
    assert re.match(r"7 of \d+ runs are left: 24 steps with 192 images", more.sentence)
    another = work_of(TUNED, tmp_path, search={**TUNED["search"], "seed": 5})
    assert another.steps == (4 + 8) * 6 - 4 * 6  # the untuned method keeps its runs


def weights(folder):
    return {file.parent.name: load_file(file) for file in folder.rglob("model.safetensors")}


@pytest.mark.usefixtures("without_profiles")
def test_measuring_changes_no_bit_of_the_runs(tmp_path):
    def measure(plan):
        before = torch.get_rng_state()
        text = estimate_time(count_work(plan), jobs=2)
        assert re.fullmatch(r"about \d+ s with [12] runs? at a time on this machine, at .* m?s a step", text)
        assert torch.equal(torch.get_rng_state(), before)
        assert not list(plan.folder.glob("*/*"))

    study = {**STUDY, "seeds": [0], "methods": {"proxy_anchor": {}, "magnet": {}}}
    em.compare(study, output=tmp_path / "measured", engine="serial", begin=measure)
    em.compare(study, output=tmp_path / "plain", engine="serial")
    first, second = weights(tmp_path / "measured"), weights(tmp_path / "plain")
    assert first.keys() == second.keys()
    assert len(first) >= 3
    for name, tensors in first.items():
        assert all(torch.equal(tensor, second[name][key]) for key, tensor in tensors.items())


def test_time_is_proportional_to_what_is_left_and_shared_by_jobs(tmp_path, monkeypatch):
    monkeypatch.setattr(timing, "measure_speed", lambda part: timing.Speed(2.0, 3.0, 5.0, 7.0))
    monkeypatch.setattr(timing, "available_cores", lambda: 2)
    work = work_of(STUDY, tmp_path)
    # Of six steps: three validations, two epochs, a test.
    trained, untrained = 6 * 2 + 3 * 3 + 2 * 7 + 5, 3 + 5
    assert estimate_time(work, jobs=1).startswith(f"about {format_seconds(4 * trained + 2 * untrained)} with 1 run at")
    halved = format_seconds((4 * trained + 2 * untrained) / 2)
    assert estimate_time(work, jobs=8) == f"about {halved} with 2 runs at a time on this machine, at 2 s a step"


def test_only_a_study_that_takes_long_is_measured_before_it_starts(tmp_path):
    assert not is_worth_an_estimate(work_of(STUDY, tmp_path))
    assert is_worth_an_estimate(work_of(STUDY, tmp_path, training={"steps": 600}))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(45, "45 s"), (700, "12 min"), (11_100, "3 h 05 min"), (9 * 86_400, "9 days"), (217 * 86_400, "31 weeks")],
)
def test_long_times_are_days_and_weeks(seconds, text):
    assert format_seconds(seconds) == text


FILE = """
name = "small"
seeds = [0, 1]
baselines = []
data = { name = "digits" }
model = { dim = 4 }
batch = { classes = 2, samples = 4 }
training = { steps = 6, validate_every = 3, log_every = 3 }
evaluation.metrics = ["map@r"]
methods.contrastive = {}
"""


@pytest.mark.usefixtures("without_profiles")
def test_a_dry_run_says_what_would_be_done_and_writes_nothing(equimetric, in_process, tmp_path):
    file, out = tmp_path / "study.toml", tmp_path / "runs"
    file.write_text(FILE)
    code, printed, _ = equimetric("compare", file, "--out", out, "--dry-run", "--jobs", 1)
    assert code == 0
    assert not out.exists()
    assert re.search(r"contrastive\s*│\s*│ 2\s*│ 6\s*│ 8", printed)
    assert "small: 2 runs: 12 steps with 96 images in their batches" in printed
    assert "this may take about" in " ".join(printed.split())
    code, _, error = equimetric("compare", file, "--out", out)
    assert code == 0
    assert error.splitlines()[0] == "small: 2 runs: 12 steps with 96 images in their batches"
    code, printed, _ = equimetric("compare", file, "--out", out, "--dry-run")
    assert "small: all 2 runs are done" in printed


def test_a_dry_run_finds_the_mistakes_that_a_start_would_find(equimetric, is_one_sentence, tmp_path):
    file = tmp_path / "study.toml"
    file.write_text(FILE.replace("classes = 2", "classes = 200"))
    code, _, error = equimetric("compare", file, "--out", tmp_path / "runs", "--dry-run")
    assert code == 2
    assert is_one_sentence(error)
