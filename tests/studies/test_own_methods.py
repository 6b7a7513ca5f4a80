"""A method of one's own in a study: from a file, a script or a notebook, in workers, with the reason where it fails."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tomli_w
from own_components import GAP, STUDY, forgotten_plugins, write_plugin

import equimetric as em
from equimetric.report import write_report
from equimetric.studies.index import StudyIndex

LOSS = '''
import torch
import equimetric as em

scale = 2.0


def soften(x):
    return (scale * x).relu()


@em.loss("script_gap", title="Gap", family="ranking", paper="Doe: Gaps (2026)")
def script_gap(pairs: em.Pairs, *, margin: float = 0.2) -> torch.Tensor:
    """The mean negative must be less similar than the mean positive, by a margin."""
    return soften(pairs.similarity[pairs.negative].mean() - pairs.similarity[pairs.positive].mean() + margin)


@em.loss("script_boundary", title="Boundary", family="ranking", paper="Doe: Gaps (2026)")
class Boundary(torch.nn.Module):
    """A boundary that is learned."""

    def __init__(self, *, start: float = 0.5) -> None:
        super().__init__()
        self.boundary = torch.nn.Parameter(torch.tensor(start))

    def forward(self, pairs):
        """Positives above, negatives below."""
        pull = (self.boundary - pairs.similarity[pairs.positive]).relu().mean()
        return pull + soften(pairs.similarity[pairs.negative] - self.boundary).mean()
'''
COMPARE = f"""
study = {STUDY!r}
study["methods"] = {{"script_gap": {{}}, "script_boundary": {{}}}}
print(em.compare(study, output="runs", jobs=JOBS, engine="ENGINE"))
"""


def run_python(arguments, folder, **options):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        **options,
    )


def outcomes_of(folder):
    """Row → the contents of its runs that ended well."""
    found = {}
    for outcome in StudyIndex(folder).outcomes.values():
        assert outcome.status == "done", outcome.error
        found.setdefault(outcome.key.method, set()).add(outcome.key.content)
    return found


def script(jobs=2, engine="local", loss=LOSS):
    return loss + COMPARE.replace("JOBS", str(jobs)).replace("ENGINE", engine)


def run_script(text, folder):
    (folder / "mine.py").write_text(text)
    shown = run_python(["mine.py"], folder)
    assert shown.returncode == 0, shown.stderr
    assert "script_gap" in shown.stdout
    assert "failed" not in shown.stdout
    return outcomes_of(folder / "runs" / "own")


def test_what_a_script_defines_trains_in_a_worker(tmp_path):
    """No guard is needed: workers get the definitions, and do not import the script."""
    assert set(run_script(script(jobs=1), tmp_path)) == {"raw_pixels", "script_gap", "script_boundary"}


@pytest.mark.slow
def test_the_edit_of_a_script_is_another_run(tmp_path):
    run_script(script(), tmp_path)
    runs = run_script(script(loss=LOSS.replace("scale = 2.0", "scale = 3.0")), tmp_path)
    assert {row: len(contents) for row, contents in runs.items()} == {
        "raw_pixels": 1,
        "script_gap": 2,
        "script_boundary": 2,
    }


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("way", ["script", "-c", "stdin", "cells"])
def test_every_way_to_run_python_gives_the_same_keys(tmp_path, way, jobs):
    """Cells are executed one after the other in one namespace, as a notebook does."""
    text, folder = script(jobs), tmp_path / "runs" / "own"
    if way == "script":
        (tmp_path / "mine.py").write_text(text)
    arguments = {"script": ["mine.py"], "-c": ["-c", text], "stdin": ["-"], "cells": ["-i", "-q"]}[way]
    cells = "".join(f"exec({cell!r})\n" for cell in (LOSS, text.removeprefix(LOSS)))
    shown = run_python(arguments, tmp_path, input={"stdin": text, "cells": cells}.get(way, ""))
    assert shown.returncode == 0, shown.stderr
    first = outcomes_of(folder)
    assert set(first) == {"raw_pixels", "script_gap", "script_boundary"}, shown.stderr
    (tmp_path / "again.py").write_text("# moved by a line\n" + text)
    shown = run_python(["again.py"], tmp_path)
    assert outcomes_of(folder) == first, "finished runs are kept"


@pytest.mark.slow
def test_what_a_script_defines_trains_on_ray(tmp_path):
    pytest.importorskip("ray")
    (tmp_path / "mine.py").write_text(script(engine="ray"))
    shown = run_python(["mine.py"], tmp_path)
    assert shown.returncode == 0, shown.stderr
    ray = outcomes_of(tmp_path / "runs" / "own")
    assert set(ray) == {"raw_pixels", "script_gap", "script_boundary"}
    (tmp_path / "mine.py").write_text(script())
    run_python(["mine.py"], tmp_path)
    assert outcomes_of(tmp_path / "runs" / "own") == ray


STUDY_FILE = """
name = "own"
seeds = [0]
plugins = ["../my_losses.py"]
baselines = ["raw_pixels"]
data.name = "digits"
batch.classes = 3
model.dim = 8
training = { steps = 2, validate_every = 1 }
methods.gap = {}
methods.contrastive = {}
methods.learned = { method = "my_losses:Boundary", options = { start = 0.4 } }
"""


def equimetric(arguments, folder):
    return run_python(["-m", "equimetric", *arguments], folder)


@pytest.mark.slow
def test_a_study_file_names_a_plug_in_and_its_edit_repeats_what_names_it(tmp_path):
    plugin = write_plugin(tmp_path)
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "study.toml").write_text(STUDY_FILE)
    command = ["compare", "studies/study.toml"]
    shown = equimetric(command, tmp_path)
    assert shown.returncode == 0, shown.stderr
    first = outcomes_of(tmp_path / "runs" / "own")
    assert set(first) == {"raw_pixels", "gap", "contrastive", "learned"}
    plugin.write_text(GAP.replace("+ margin)", "+ 2 * margin)"))
    assert equimetric(command, tmp_path).returncode == 0
    second = outcomes_of(tmp_path / "runs" / "own")
    assert {row: len(contents) for row, contents in second.items()} == {
        "raw_pixels": 1,
        "contrastive": 1,
        "gap": 2,
        "learned": 2,
    }
    plugin.unlink()
    (report,) = [equimetric(["report", "runs/own", "--format", "md"], tmp_path)]
    assert report.returncode == 0, report.stderr
    assert "learned" in report.stdout


ALL_KINDS = '''
import torch

import equimetric as em
from equimetric.batches.base import draw_samples
from equimetric.batches.class_balanced import ClassBalancedBatches
from equimetric.batches.registry import batches
from equimetric.components import selection
from equimetric.data.dataset import Dataset
from equimetric.data.registry import dataset
from equimetric.evaluation.evidence import Evidence, Score
from equimetric.evaluation.families import Metric, metric
from equimetric.geometry import Geometry, add_geometry
from equimetric.learners.learner import learner
from equimetric.learners.single import SingleObjectiveLearner

add_geometry(Geometry("my_city", lambda q, r: -torch.cdist(q, r, p=1), to_distance=torch.neg))


@dataset("my_stripes")
def load_stripes(*, classes: int = 16) -> Dataset:
    """Squares with stripes of a width that tells the class."""
    width = torch.arange(1, classes + 1).repeat_interleave(6)
    column = torch.arange(16)[None, :] + torch.arange(6).repeat(classes)[:, None]
    noise = torch.randint(0, 120, column.shape + (16,), generator=torch.Generator().manual_seed(0))
    rows = column // width[:, None] % 2 * 120
    images = (rows[:, None, :, None] + noise[:, None]).to(torch.uint8)
    return Dataset("my_stripes", images, width - 1, tuple(f"width {one}" for one in range(1, classes + 1)), {}, {})


@metric("my_class_count", examples=("my_class_count",), percent=False)
def class_count(metric: Metric, evidence: Evidence) -> Score:
    """Number of classes among the queries."""
    return Score(float(len(evidence.sets.query_classes.unique())))


@selection("my_negatives", paper="Doe: Close negatives (2026)")
def close_negatives(pairs: em.Pairs, *, least: float = 0.0) -> em.Pairs:
    """Keep all positives, and negatives with a similarity of `least` or more."""
    return pairs.keep(positive=pairs.positive, negative=pairs.similarity >= least)


@batches("my_batches")
class MyBatches(ClassBalancedBatches):
    """Balanced batches under another name."""


@learner("my_learner", paper="Doe: Learners (2026)")
class MyLearner(SingleObjectiveLearner):
    """The usual learner under another name."""
'''


@pytest.mark.slow
def test_every_kind_of_component_of_a_plug_in_reaches_the_workers(tmp_path):
    plugin = write_plugin(tmp_path, "my_kinds", ALL_KINDS)
    rows = {
        "selected": {"method": "contrastive", "options": {"selection": "my_negatives"}},
        "city": {"method": "contrastive", "options": {"geometry": "my_city"}},
        "learned": {"method": "contrastive", "learner": {"name": "my_learner"}},
    }
    study = {
        **STUDY,
        "plugins": [str(plugin)],
        "data": {"name": "my_stripes"},
        "batch": {"kind": "my_batches", "classes": 4},
        "evaluation": {"metrics": ["map@r", "my_class_count"]},
        "methods": rows,
    }
    with forgotten_plugins():
        result = em.compare(study, output=tmp_path / "runs", jobs=1)
        assert not result.record.failed, str(result)
        assert {run.metrics["my_class_count"] for run in result.record.runs} == {8.0}


# What fails says why.

WORKERS_ONLY = """
import os

import equimetric as em

PARENT = os.getpid()


@em.loss("script_gap", title="Gap", family="ranking", paper="Doe: Gaps (2026)")
class Gap(em.Objective.__mro__[2]):
    \"\"\"A loss that only the process of the script can build.\"\"\"

    def __init__(self) -> None:
        super().__init__()
        if os.getpid() != PARENT:
            raise RuntimeError("no licence in this process")


study = STUDY
study["methods"] = {"contrastive": {}, "mine": {"method": "script_gap"}}
try:
    em.compare(study, output="runs", jobs=1)
except em.EquimetricError as error:
    print(error)
"""


def test_a_method_that_workers_cannot_build_is_one_sentence_before_anything_trains(tmp_path):
    (tmp_path / "mine.py").write_text(WORKERS_ONLY.replace("STUDY", repr(STUDY)))
    shown = run_python(["mine.py"], tmp_path)
    assert shown.stdout == (
        "method 'mine' cannot be built in a worker process: RuntimeError: no licence in this process\n"
    ), shown.stderr
    assert not list(Path(tmp_path, "runs", "own").glob("*/*/result.json"))


@pytest.mark.slow
def test_what_cannot_be_sent_to_workers_is_one_sentence(tmp_path):
    text = script(loss=LOSS.replace("scale = 2.0", "import threading\nscale = threading.Lock()"))
    (tmp_path / "mine.py").write_text(text)
    shown = run_python(["mine.py"], tmp_path)
    assert "what this script or notebook defines cannot be sent to other processes" in shown.stderr.splitlines()[-1]
    assert not list(Path(tmp_path, "runs", "own").glob("*/*/result.json"))


FAILING = (
    GAP
    + """

def failing(pairs):
    \"\"\"Fails at its first step.\"\"\"
    raise ValueError("the moon is full")
"""
)


@pytest.fixture(scope="module")
def failed(tmp_path_factory):
    """A study of which one method fails in every run, and another does not learn."""
    folder = tmp_path_factory.mktemp("failed")
    methods = {"failing": {"method": "my_losses:failing"}, "contrastive": {}}
    plugins = [write_plugin(folder, text=FAILING).name]
    study = {**STUDY, "seeds": [0, 1], "plugins": plugins, "methods": methods, "optimizer": {"lr": 0.3}}
    (folder / "study.toml").write_text(tomli_w.dumps(study))
    with forgotten_plugins():
        yield em.compare(folder / "study.toml", output=folder, engine="serial")


REASON = "ValueError: the moon is full"


def test_a_printed_comparison_says_why_runs_failed_and_repeats_notes(failed):
    text = str(failed)
    assert f"failing, 2 of 2 runs, such as seed 0 failed: {REASON}" in text
    assert re.search("^contrastive, .*: Training did not help", text, re.MULTILINE)


def test_the_footnote_and_the_page_say_why_runs_failed(failed, tmp_path):
    assert any(REASON in note for note in failed.table.footnotes)
    page = write_report(failed.record, tmp_path / "report").read_text()
    answer = page.partition('id="answer"')[2].partition("</section>")[0]
    assert REASON in answer
    assert "the moon is full" in page.partition('id="failures"')[2]


def test_the_line_of_a_run_that_fails_says_why(failed):
    from equimetric.cli.study_progress import describe_end
    from equimetric.studies.comparison import open_plan

    plan = open_plan(failed.folder / "study.toml", output=failed.folder.parent)
    ends = [describe_end(plan, job) for job in plan.known_jobs()]
    assert f"failed failing, seed 0: {REASON}" in ends
