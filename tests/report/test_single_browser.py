"""The page of one run in a browser: it has less to choose, and its scripts know that."""

import pytest
from browser_window import NEEDS_CHROMIUM, Window

from equimetric.report import write_report

pytestmark = NEEDS_CHROMIUM


@pytest.fixture
def window(browser, run, study_of, closer, class_list, tmp_path):
    history = tuple({"kind": "validation", "step": 100 * k, "map@r": 0.2 + k / 10} for k in range(3))
    runs = [run("contrastive", 0, 0.7, classes=class_list, history=history, folder="contrastive/0")]
    profiles = {"contrastive": closer["profiles"]["contrastive"]}
    record = study_of(*runs, images=closer["images"], profiles=profiles)
    opened = Window(browser, write_report(record, tmp_path), viewport={"width": 1280, "height": 900})
    yield opened
    opened.page.close()


def test_the_page_of_a_run_is_silent(window):
    assert window.complaints == []
    assert window.page.locator("#leaderboard-table th button").count() > 0


def test_landmarks_have_names_of_their_own(window):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    faults = {fault["id"] for fault in axe.run(window.page).response["violations"]}
    assert "landmark-unique" not in faults
