"""Pages on phones, on wide screens and on paper: tables and names fit, and sheets hold what belongs together."""

from dataclasses import replace

import pytest
from browser_window import NEEDS_CHROMIUM, Window

from equimetric.intervals import t_interval
from equimetric.report import PlainTable, TableColumn, TableRow, write_report
from equimetric.report.metric_cells import metric_cell
from equimetric.report.sections import further
from equimetric.report.table_data import text_cell
from equimetric.studies.ledger import LedgerEntry
from equimetric.studies.outcomes import ClassList

pytestmark = NEEDS_CHROMIUM

METRICS = [f"metric_number_{place}" for place in range(14)]
LONG = "X" * 120


@pytest.fixture
def wide_table(monkeypatch):
    """One further table, of more columns than a sheet has room for."""
    interval = t_interval([-0.048, 0.112])
    cells = (text_cell("method", "triplet_semihard+tcm"), *(metric_cell(name, name, interval) for name in METRICS))
    columns = (TableColumn("method", is_text=True), *(TableColumn(name) for name in METRICS))
    table = PlainTable("Wide", columns, (TableRow(cells),) * 3)
    monkeypatch.setattr(further, "study_tables", lambda study: {"wide": table})
    return table


@pytest.fixture
def open_page(browser, tmp_path):
    """Write the page of a record and open it in a window of some width."""
    opened = []

    def build(record, width, height=900):
        window = Window(browser, write_report(record, tmp_path), viewport={"width": width, "height": height})
        opened.append(window.page)
        return window.page

    yield build
    for page in opened:
        page.close()


@pytest.fixture
def closely_known(study, closer, class_list):
    return replace(study, runs=tuple(replace(run, classes=class_list) for run in study.runs), **closer)


def print_page(page):
    """What a browser does before it prints, on a sheet of 703 pixels."""
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    page.set_viewport_size({"width": 703, "height": 900})
    page.emulate_media(media="print")


def test_a_plain_table_uses_the_window(open_page, study, wide_table):
    page = open_page(study, 1920)
    region = page.locator("#further .scroll")
    assert region.bounding_box()["width"] > 1400
    assert page.evaluate("document.documentElement.scrollWidth") <= 1920


def test_a_wide_table_is_printed_in_blocks_of_columns(open_page, study, wide_table):
    page = open_page(study, 1280)
    print_page(page)
    blocks = page.locator("#further table:visible")
    assert blocks.count() > 1
    headings = []
    for block in blocks.all():
        box = block.bounding_box()
        assert box["x"] + box["width"] <= 703
        assert block.locator("tbody tr").count() == 3
        first, *others = block.locator("thead th").all_inner_texts()
        assert first == "method"
        headings += others
    assert headings == METRICS
    # A number and its half width stay on one line.
    cell = blocks.first.locator("td.number").first
    assert cell.bounding_box()["height"] < 30
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((one) => one.id)")
    assert len(ids) == len(set(ids))
    page.emulate_media(media="screen")
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.locator("#further table").count() == 1
    assert page.locator("#further table").is_visible()


@pytest.mark.slow
def test_names_of_groups_stay_folded_on_paper(open_page, closely_known):
    page = open_page(closely_known, 1280)
    page.evaluate("""() => document.querySelector(".fan-key").append(
        equimetric.element("details", {}, [equimetric.element("summary", {}, "and 3 more"), "a, b, c"]))""")
    folded = page.locator(".fan-key details").count()
    assert folded > 0
    print_page(page)
    assert page.locator(".fan-key details:not([open])").count() == folded
    assert page.locator("#weights, #understand").locator("details:not([open])").count() == 0


@pytest.mark.slow
def test_paper_keeps_colours_of_marks_and_headings_with_their_figures(open_page, judged_study):
    page = open_page(judged_study, 1280)
    print_page(page)
    style = "(one, name) => getComputedStyle(one).getPropertyValue(name)"
    mark = page.locator(".mark").first
    assert mark.evaluate(style, "print-color-adjust") == "exact"
    assert page.locator(".keys").first.evaluate(style, "break-after") == "avoid"
    assert page.locator("h4").first.evaluate(style, "break-after") == "avoid"
    assert page.locator("section > p").first.evaluate(style, "break-inside") == "avoid"
    side = page.locator(".changed .retrieval").first.evaluate(style, "--side")
    # Five neighbours beside a letter, in half of a sheet.
    assert float(side.removesuffix("px")) * 5 + 4 * 6 < 703 / 2 - 140


def test_a_phone_breaks_the_ledger_at_underscores(open_page, judged_study):
    found = "frozen_batch_norm false, selected_by map@r"
    entry = LedgerEntry(factor="batch_norm", status="equal", finding=found)
    ledger = judged_study.ledger.model_copy(update={"entries": (entry, *judged_study.ledger.entries)})
    page = open_page(replace(judged_study, ledger=ledger), 360, 740)
    table = page.locator(".ledger", has_text="frozen").first
    cell = table.locator("td", has_text="frozen")
    assert cell.locator("wbr").count() == 3
    # No part of a word is wider than the cell, so that none is broken elsewhere.
    cell.evaluate("one => { one.style.overflowWrap = 'normal'; }")
    assert table.evaluate("one => one.offsetWidth <= one.parentElement.clientWidth")
    assert cell.bounding_box()["width"] > 100


@pytest.mark.slow
def test_a_long_name_leaves_the_numbers_in_sight(open_page, study, closer, spaces):
    names = (LONG, *spaces["contrastive"].class_names[1:])
    classes = ClassList(tuple(range(24)), names, (8,) * 24)
    runs = tuple(replace(run, classes=classes) for run in study.runs)
    page = open_page(replace(study, runs=runs, **closer), 360, 740)
    page.wait_for_selector("#explorer-search-A:not([hidden])")
    page.fill("#explorer-class-A", LONG)
    region = page.locator(".threshold-panel .scroll").first
    assert region.evaluate("one => one.scrollWidth <= one.clientWidth")


def test_a_long_text_in_a_plain_table_is_broken(open_page, study, monkeypatch):
    columns = (TableColumn("class", is_text=True), TableColumn("value"))
    cells = (text_cell("class", LONG), metric_cell("a", "map@r", t_interval([0.1, 0.2])))
    table = PlainTable("Long", columns, (TableRow(cells),))
    monkeypatch.setattr(further, "study_tables", lambda study: {"long": table})
    page = open_page(study, 360, 740)
    box = page.locator("#further td.number").bounding_box()
    assert box["x"] + box["width"] <= 360


@pytest.mark.slow
def test_the_table_of_certificates_has_a_low_header_on_a_phone(open_page, closely_known):
    profiles = {
        name: replace(one, run=replace(one.run, certified=replace(one.run.certified, far_bound=0.02)))
        for name, one in closely_known.profiles.items()
    }
    page = open_page(replace(closely_known, profiles=profiles), 360, 740)
    table = page.locator("#explorer > .scroll table")
    assert "FAR bound %" in table.locator("thead").inner_text()
    assert table.locator("thead").bounding_box()["height"] < 90


@pytest.mark.slow
def test_printing_a_split_leaderboard_keeps_the_choice(open_page, judged_study):
    metrics = {f"metric_number_{place}": 0.5 for place in range(9)}
    runs = tuple(replace(run, metrics={**run.metrics, **metrics}) for run in judged_study.runs)
    page = open_page(replace(judged_study, runs=runs), 1280)
    page.click("#leaderboard-more")
    page.check('#leaderboard-table input[value="triplet"]')
    print_page(page)
    assert page.locator("#leaderboard table:visible").count() > 1
    page.emulate_media(media="screen")
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.locator("#leaderboard table").count() == 1
    assert page.is_checked('#leaderboard-table input[value="triplet"]')
