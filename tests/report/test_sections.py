"""Adding a section is adding one file; every section escapes its data."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from equimetric.report.section import SECTIONS, render_section, render_template
from equimetric.studies.records import StudyRecord

SPEED = '''
from equimetric.report.section import section


TEMPLATE = "<p>{{ fastest }}: {{ study.name }}</p>"


@section("speed", title="Speed", link="Speed ({{ fastest }})", order=35, template=TEMPLATE)
def speed_section(study):
    """The fastest method; nothing where a run failed."""
    return None if study.failed else {"fastest": min(study.runs, key=lambda run: run.seconds).method}
'''

PAGE = """
import sys
import equimetric.report.sections as sections
sections.__path__.append(sys.argv[1])
from equimetric.report import RunRecord, StudyRecord, render_html
status = sys.argv[2]
run = RunRecord("<b>", "trained", 0, status, None, {"map@r": 0.5}, (), 1.0, 1)
print(render_html(StudyRecord("tiny", "Tiny", (), {}, (run,))))
"""


def test_a_section_is_one_file(tmp_path):
    (tmp_path / "speed.py").write_text(SPEED)

    def page(status):
        command = [sys.executable, "-c", PAGE, str(tmp_path), status]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    text = page("done")
    assert '<a href="#speed">Speed (&lt;b&gt;)</a>' in text
    assert "<p>&lt;b&gt;: tiny</p>" in text
    assert (
        text.index('<section id="leaderboard"')
        < text.index('<section id="speed"')
        < text.index('<section id="training"')
    )
    assert "speed" not in page("failed")


@pytest.mark.parametrize("name", SECTIONS)
def test_every_section_renders_and_escapes(name, judged_study, embeddings, closer):
    section, recipes = SECTIONS[name], {**closer["recipes"], **judged_study.recipes}
    runs = tuple(replace(run, metrics={"recall@1": 0.5, **run.metrics}) for run in judged_study.runs)
    known = {"contrastive": closer["profiles"]["contrastive"]}
    profiles = {**known, **dict.fromkeys(judged_study.methods, known["contrastive"])}
    record = replace(judged_study, **{**closer, "recipes": recipes, "runs": runs, "profiles": profiles})
    closely = closer["profiles"]["contrastive"]
    space = replace(
        embeddings,
        embeddings=np.zeros((192, 4), dtype=np.float32),
        labels=closer["images"].labels,
        class_names=dict(enumerate(closer["images"].class_names)),
        profile=closely.run,
        per_query=closely.per_query,
        commands=("equimetric report '<script>alert(1)</script>.npz'",),
    )
    rendered = render_section(section, record if isinstance(record, section.record_types) else space)
    assert rendered.name == name
    assert rendered.title
    assert rendered.body
    assert "<script>alert" not in rendered.body
    assert "safe" not in section.template


def test_notes_of_runs_stand_below_the_curves_and_the_statement_counts_them(run, study_of):
    study = study_of(run("triplet_hard", 0, 0.4), run("triplet_hard", 1, 0.5, notes=("It <collapsed>.",)))
    curves = render_section(SECTIONS["training"], study).body
    assert "triplet_<wbr>hard, seed 1</span>: It &lt;collapsed&gt;." in curves
    assert '1 of 2 runs have <a href="#training">notes</a>' in render_section(SECTIONS["answer"], study).body
    without = study_of(run("triplet_hard", 0, 0.4))
    assert "seed" not in render_section(SECTIONS["training"], without).body
    assert "have <a" not in render_section(SECTIONS["answer"], without).body


def test_each_section_is_one_file():
    files = (Path(__file__).parents[2] / "src/equimetric/report/sections").glob("[!_]*.py")
    assert sorted(file.stem for file in files) == sorted(SECTIONS)


def test_the_ledger_of_a_study_is_a_section_of_its_report(study, run, study_of):
    section = SECTIONS["fairness"]
    body = render_section(section, study).body
    assert '<p class="warning">Not fair: 1 of 6 causes of unfair comparison (embedding dimension); waived: ' in body
    assert "model.dim is 4 for a, 8 for b → give every method the same embedding dimension, or as many bits" in body
    assert "→ accepted: as &lt;published&gt;" in body
    assert "Test classes were opened once." in body
    assert "Not fair" not in render_section(section, study_of(run("triplet", 0, 0.4))).body


def test_the_documentation_names_every_section_of_a_study():
    page = (Path(__file__).parents[2] / "docs" / "report.md").read_text().lower()
    for section in SECTIONS.values():
        names = [render_template(text, single=False, failed=()).lower() for text in (section.title, section.link)]
        assert StudyRecord not in section.record_types or any(name in page for name in names if name), section.name
