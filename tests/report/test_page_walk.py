"""Every kind of page worked through in a browser: nothing wrong is shown, and nothing contradicts itself."""

import re
from pathlib import Path

import numpy as np
import pytest
from browser_window import NEEDS_CHROMIUM
from page_walk import contradictions, work_controls
from photos import write_photos

import equimetric as em
from equimetric.report import write_report
from equimetric.report.section import sections_for
from equimetric.studies.report_records import load_record

pytestmark = NEEDS_CHROMIUM

COMMITTED = sorted((Path(__file__).parents[2] / "results").rglob("*.html"))

STUDY = {
    "name": "tiny",
    "title": "A tiny study",
    "seeds": [0, 1, 2],
    "workers": 1,
    "model": {"backbone": "small_cnn", "dim": 8},
    "batch": {"classes": 4, "samples": 4},
    "training": {"steps": 10, "validate_every": 5, "log_every": 5},
    "evaluation": {"metrics": ["map@r", "recall@1", "opis"]},
    "search": {"trials": 2},
    "sweeps": {"dim": {"key": "model.dim", "values": [4, 8]}},
    "sweep": ["dim"],
    "methods": {
        "Contrastive": {"method": "contrastive", "search": {"neg_margin": {"uniform": [0.2, 0.8]}}},
        "Contrastive+TCM": {"method": "contrastive+tcm", "search": {"tcm.m_pos": {"uniform": [0.7, 1.0]}}},
        "Triplet semi-hard": {"method": "triplet_semihard", "search": {"margin": {"uniform": [0.0, 0.5]}}},
    },
}
"""As the demo, but small, and with all that a page can show: a search, a sweep, an addition, thresholds."""


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A finished study of photographs, worked out as users do it."""
    folder = tmp_path_factory.mktemp("study")
    data = {"name": "folder", "options": {"root": str(write_photos(folder / "photos", 24, 8)), "size": 20}}
    return em.compare({**STUDY, "data": data}, output=folder / "runs", engine="serial").folder


@pytest.fixture(scope="module")
def page_of_study(study, tmp_path_factory):
    return write_report(load_record(study), tmp_path_factory.mktemp("page"), study=study)


@pytest.fixture(scope="module")
def page_of_run(study, tmp_path_factory):
    # The first final run of a row has a profile; those of sweeps have none.
    (profile,) = study.glob("Contrastive/0-*/profile.npz")
    return write_report(load_record(profile.parent), tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def page_of_embeddings(tmp_path_factory):
    folder, draw = tmp_path_factory.mktemp("space"), np.random.default_rng(0)
    labels = np.repeat([f"class {number}" for number in range(16)], 6)
    vectors = np.repeat(draw.normal(size=(16, 4)), 6, axis=0) + 0.8 * draw.normal(size=(96, 4))
    np.savez(folder / "space.npz", embeddings=vectors.astype(np.float32), labels=labels)
    return write_report(load_record(folder / "space.npz"), folder / "page")


@pytest.fixture
def walk(browser):
    """Open a page, work its controls, and collect its faults; how many controls were worked, by kind."""
    opened = []

    def through(file):
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        opened.append(page)
        complaints = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(file.as_uri())
        found = work_controls(page)
        faults = [*complaints, *found["faults"], *contradictions(page)]
        return faults, found["worked"]

    yield through
    for page in opened:
        page.close()


def test_nothing_wrong_is_shown_in_a_study(walk, page_of_study, study):
    faults, worked = walk(page_of_study)
    assert "\n".join(faults) == ""
    assert {"button", "select", "radio", "checkbox", "range", "search", "summary", "application", "tooltip"} <= set(
        worked
    )
    text = page_of_study.read_text()
    missing = [one.name for one in sections_for(load_record(study)) if f'<section id="{one.name}"' not in text]
    assert missing == []


def test_nothing_wrong_is_shown_in_a_run_or_in_embeddings(walk, page_of_run, page_of_embeddings):
    for page in (page_of_run, page_of_embeddings):
        faults, worked = walk(page)
        assert "\n".join(faults) == ""
        assert {"button", "range"} <= set(worked)


@pytest.mark.parametrize(
    ("shown", "instead", "fault"),
    [
        ("${equimetric.verdictWords(verdict)}", "${verdict.text}", "undefined"),
        ("`${inPercent(share)} %`", "`${100 * share / 0} %`", "Infinity"),
        ("const shown = (value) => number(", "const shown = (value) => number(0 / 0 * ", "NaN"),
        ('getElementById("theme")', 'getElementById("no such")', "Cannot set properties of null"),
    ],
)
@pytest.mark.slow
def test_what_a_script_does_wrong_is_found(walk, page_of_study, tmp_path, shown, instead, fault):
    text = page_of_study.read_text()
    assert shown in text
    broken = tmp_path / "broken.html"
    # Its policy would refuse changed scripts.
    broken.write_text(text.replace(shown, instead).replace("Content-Security-Policy", "no-policy"))
    faults, _ = walk(broken)
    assert any(fault in one for one in faults)


@pytest.mark.parametrize(
    ("shown", "instead", "fault"),
    [
        (r'(<p class="answer">)(.+?)( leads)', r"\1untrained\3", "the answer begins with 'untrained'"),
        (r"(leads with a map@r of )\d", r"\g<1>1000", "the answer says 'leads with a map@r of 1000"),
        (r"(pairs of methods, )none can", r"\g<1>2 can", "pairs of methods, 2 can be told apart'"),
        (r'("shown": ?")\d', r"\g<1>1000", "the figure of intervals gives"),
        (r'("opis": ?)(0\.\d)', r"\g<1>1\2", "the explorer gives"),
        (r'("steps": ?)10000', r"\g<1>20000", "the classes of"),
        (r"\.textContent = judged \? equimetric", ".textContent = judged ? judged.brief : equimetric", "compare says"),
        (r'(<tr data-row="[^"]*") data-tied>', r"\1>", "the filter of ties leaves out"),
        (r"(?s)(<tr data-row=.*?)</tr>", r"\1<td></td></tr>", "cells below"),
    ],
)
@pytest.mark.slow
def test_contradictions_are_found(browser, page_of_study, tmp_path, shown, instead, fault):
    text, times = re.subn(shown, instead, page_of_study.read_text())
    assert times > 0
    changed = tmp_path / "changed.html"
    changed.write_text(text.replace("Content-Security-Policy", "no-policy"))
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(changed.as_uri())
    assert fault in "\n".join(contradictions(page))
    page.close()


@pytest.mark.slow
@pytest.mark.parametrize("file", COMMITTED, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_nothing_wrong_is_shown_in_the_pages_of_the_repository(walk, file):
    faults, worked = walk(file)
    assert "\n".join(faults) == ""
    assert {"button", "select", "radio", "range", "tooltip"} <= set(worked)


def test_pages_of_the_repository_are_found():
    assert len(COMMITTED) >= 6
