"""The page in a browser: sorting, filtering, baselines, comparisons, colours, widths, silence, accessibility."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from browser_window import NEEDS_CHROMIUM, Window

from equimetric.report import write_report

pytestmark = NEEDS_CHROMIUM


@pytest.fixture
def file(judged_study, tmp_path) -> Path:
    return write_report(judged_study, tmp_path)


@pytest.fixture
def window(browser, file) -> Window:
    opened = Window(browser, file, viewport={"width": 1280, "height": 900})
    yield opened
    opened.page.close()


def test_the_page_is_silent_and_asks_for_nothing(window, file):
    assert window.complaints == []
    assert [request for request in window.requests if not request.startswith("data:")] == [file.as_uri()]


@pytest.mark.slow
def test_a_hostile_class_name_is_text(window):
    cell = window.page.locator("#compare tbody th", has_text="<script>alert(1)</script>")
    window.page.select_option("#compare-first", "contrastive")
    window.page.select_option("#compare-second", "margin_miner")
    assert cell.count() > 0
    assert window.complaints == []


def test_headings_sort_with_the_keyboard_too(window):
    page = window.page
    assert window.column(1) == ["triplet", "margin_miner", "contrastive"]
    heading = page.locator("#leaderboard-table th", has_text="Method")
    heading.locator("button").click()
    assert window.column(1) == ["contrastive", "margin_miner", "triplet"]
    assert heading.get_attribute("aria-sort") == "ascending"
    page.keyboard.press("Enter")
    assert window.column(1) == ["triplet", "margin_miner", "contrastive"]
    score = page.locator("#leaderboard-table th.primary button")
    score.click()
    assert window.column(1)[0] == "triplet"
    score.click()
    assert window.column(1)[0] == "contrastive"
    assert page.locator("#leaderboard-table [aria-sort]").count() == 1


@pytest.mark.slow
def test_rows_are_filtered_by_name_and_by_ties(window):
    page = window.page
    page.fill("#leaderboard-filter", "MINER")
    assert window.column(1) == ["margin_miner"]
    assert page.inner_text("#leaderboard-count") == "1 of 4 rows"
    page.fill("#leaderboard-filter", "")
    page.check("#leaderboard-tied")
    assert window.column(1) == ["triplet"]


@pytest.mark.slow
def test_verdicts_are_against_the_row_that_is_chosen(window, judged_study):
    from equimetric.studies.judgement import judge_study

    page = window.page
    assert page.inner_text("#leaderboard-baseline") == "contrastive"
    page.check('#leaderboard-table input[value="triplet"]')
    assert page.inner_text("#leaderboard-baseline") == "triplet"
    found = judge_study(judged_study).rows.between("margin_miner", "triplet")
    shown = page.inner_text('tr[data-row="margin_miner"] .against')
    assert shown.startswith(f"{found.verdict} {100 * found.interval.mean:.1f}".replace("-", "−"))
    assert found.effect.standardized < -20
    effect = page.locator('tr[data-row="margin_miner"] .effect')
    assert effect.inner_text() == "< −20"
    assert effect.get_attribute("title") == f"{found.effect.standardized:.1f}".replace("-", "−")
    assert page.inner_text('tr[data-row="triplet"] .against') == "–"


@pytest.mark.slow
def test_rows_keep_their_order_when_the_baseline_changes(window):
    page = window.page
    page.locator("#leaderboard-table th", has_text="Against").first.locator("button").click()
    assert window.column(1)[0] == "triplet"
    page.check('#leaderboard-table input[value="triplet"]')
    differences = page.locator("#leaderboard-table tbody.trained .against")
    values = differences.evaluate_all("cells => cells.map((cell) => Number(cell.dataset.value))")
    assert values == sorted(values, reverse=True)
    assert page.locator("#leaderboard .notes", has_text="“Against triplet”").count() == 1


def test_lesser_columns_are_folded(window):
    page = window.page
    heading = page.locator("#leaderboard-table th", has_text="Parameters")
    assert not heading.is_visible()
    page.click("#leaderboard-more")
    assert heading.is_visible()
    assert page.get_attribute("#leaderboard-more", "aria-expanded") == "true"
    page.click("#leaderboard-more")
    assert not heading.is_visible()


def test_a_table_uses_the_window_and_shows_that_it_scrolls(browser, judged_study, tmp_path):
    more = {f"metric_number_{k}": 0.5 for k in range(9)}
    runs = tuple(replace(run, metrics={**run.metrics, **more}) for run in judged_study.runs)
    page = Window(
        browser, write_report(replace(judged_study, runs=runs), tmp_path), viewport={"width": 1600, "height": 900}
    ).page
    region = page.locator("#leaderboard .wide")
    page.click("#leaderboard-more")
    assert region.bounding_box()["width"] > 1400
    assert region.get_attribute("data-more") == "right"
    assert region.evaluate("one => getComputedStyle(one).maskImage") != "none"
    region.evaluate("one => { one.scrollLeft = one.scrollWidth; }")
    page.locator('#leaderboard .wide[data-more="left"]').wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 1600
    page.close()


@pytest.mark.slow
def test_two_methods_are_compared_class_by_class(window, judged_study):
    page = window.page
    page.select_option("#compare-first", "margin_miner")
    page.select_option("#compare-second", "raw_pixels")
    page.locator("#compare-words", has_text="A = margin_miner, B = raw_pixels").wait_for()
    runs = judged_study.runs_of("margin_miner", "done")
    mean = sum(run.per_class["map@r"] for run in runs) / len(runs)
    (baseline,) = judged_study.runs_of("raw_pixels", "done")
    wins = int((mean > baseline.per_class["map@r"]).sum())
    assert f"A scores higher on {wins}" in page.inner_text("#compare-words")
    differences = sorted(mean - baseline.per_class["map@r"])
    first = page.inner_text("#compare-wins tbody tr:first-child td:last-child")
    assert float(first) == pytest.approx(100 * differences[-1], abs=0.06)


def test_the_histogram_names_the_methods_that_are_chosen(window):
    page = window.page
    page.select_option("#compare-first", "margin_miner")
    page.select_option("#compare-second", "raw_pixels")
    page.locator("#compare-words", has_text="A = margin_miner, B = raw_pixels").wait_for()
    assert page.inner_text("#figure-compare figcaption").startswith("A = margin_miner, B = raw_pixels: how many")
    assert "margin_miner (A) less raw_pixels (B)" in page.get_attribute("#figure-compare .canvas", "aria-label")
    assert page.inner_text("#compare-wins thead th:last-child") == "A − B, points"


def test_a_method_is_never_compared_with_itself(window):
    page = window.page
    first, second = page.input_value("#compare-first"), page.input_value("#compare-second")
    page.select_option("#compare-first", second)
    page.locator("#compare-words", has_text=f"A = {second}, B = {first}").wait_for()
    assert page.input_value("#compare-second") == first


def test_queries_that_are_not_shown_are_counted(browser, judged_study, file):
    (block,) = re.findall(r'<script type="application/json" id="data-compare">(.*?)</script>', file.read_text())
    data = json.loads(block)
    scores = judged_study.queries.scores
    lost = (scores["triplet"] < scores["contrastive"]).nonzero()[0]
    data["queries"]["shown"] = [one for one in data["queries"]["shown"] if one["query"] in lost]
    file.write_text(file.read_text().replace(block, json.dumps(data).replace("<", "\\u003c")))
    page = Window(browser, file, viewport={"width": 1280, "height": 900}).page
    assert {page.input_value("#compare-first"), page.input_value("#compare-second")} == {"triplet", "contrastive"}
    page.select_option("#compare-first", "triplet")
    assert page.inner_text("#compare-query-wins") == f"none of the {len(lost)} queries shown; {24 - len(lost)} in all"
    page.close()


def test_without_scripts_no_dead_controls_are_shown(browser, file):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(file.as_uri())
    assert page.locator("form.controls").count() == 2
    assert not any(form.is_visible() for form in page.locator("form.controls").all())
    assert page.locator("#leaderboard-table th", has_text="Parameters").is_visible()
    context.close()


def test_a_printed_page_is_unfolded_and_drawn_for_its_sheet(window):
    page = window.page
    folded = page.locator("details:not([open], .runs)").count()
    assert folded > 0
    page.click("#theme")
    page.click("#theme")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    page.set_viewport_size({"width": 703, "height": 900})
    page.emulate_media(media="print", color_scheme="dark")
    assert page.locator("details:not([open], .runs)").count() == 0
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"
    assert page.is_visible("#compare-first")
    assert not page.is_visible("#leaderboard-filter")
    page.wait_for_function("""() => [...document.querySelectorAll(".canvas svg")].every((figure) =>
        figure.getBoundingClientRect().right <= 703 && figure.width.baseVal.value <= 703)""")
    body, caption = (
        page.locator(name).first.evaluate("one => parseFloat(getComputedStyle(one).fontSize)")
        for name in ("body", "figcaption")
    )
    assert caption < body
    table = page.locator("#leaderboard-table").bounding_box()
    assert table["x"] + table["width"] <= 703
    page.emulate_media(media="screen")
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.locator("details:not([open], .runs)").count() == folded


def test_legends_have_as_many_columns_as_fit(browser, file):
    phone = Window(browser, file, viewport={"width": 360, "height": 740})
    legend = phone.page.locator("#figure-curves .role-legend").bounding_box()
    figure = phone.page.locator("#figure-curves .canvas").bounding_box()
    assert legend["x"] + legend["width"] <= figure["x"] + figure["width"]
    phone.page.close()


def test_a_phone_shows_the_verdict_beside_the_score(browser, file):
    phone = Window(browser, file, viewport={"width": 360, "height": 740})
    brief = phone.page.locator('tr[data-row="triplet"] .brief')
    assert brief.inner_text().startswith("better +")
    box = brief.bounding_box()
    assert box["x"] + box["width"] <= 360
    phone.page.close()


@pytest.mark.slow
def test_pictures_show_the_queries_that_changed(window):
    page = window.page
    page.select_option("#compare-first", "triplet")
    page.select_option("#compare-second", "contrastive")
    page.locator("#compare-query-wins img").first.wait_for()
    assert page.inner_text("#compare-query-words") == (
        "Of 24 test queries, 12 score higher with A, 12 with B, 0 alike."
    )
    assert page.locator("#compare-query-wins .query img").count() == 8
    assert page.locator("#compare-query-losses .query img").count() == 8


def test_neighbours_of_a_changed_query_stand_side_by_side(window, judged_study):
    page = window.page
    page.select_option("#compare-first", "triplet")
    page.select_option("#compare-second", "contrastive")
    first = page.locator("#compare-query-wins > li").first
    first.locator(".query img").wait_for()
    strips = [first.locator(".retrieval").nth(place) for place in range(2)]
    labels, rows = judged_study.queries.images.labels, judged_study.queries.neighbours
    differences = judged_study.queries.scores["triplet"] - judged_study.queries.scores["contrastive"]
    shown = first.locator(".query span").inner_text()
    assert shown == judged_study.queries.class_names[int(differences.argmax())]
    for strip, method, letter in zip(strips, ("triplet", "contrastive"), "AB", strict=True):
        assert strip.locator(".letter").inner_text().startswith(f"{letter} ")
        query = next(
            place
            for place in range(24)
            if [labels[row] == labels[place] for row in rows[method][place]]
            == [name == "right" for name in strip.locator("li").evaluate_all("all => all.map(one => one.className)")]
            and judged_study.queries.class_names[place] == shown
        )
        assert differences[query] == pytest.approx(differences.max())
        assert strip.locator("img").count() == 3


def test_runs_are_links_only_where_the_page_was_written(browser, judged_study, tmp_path):
    folder = tmp_path / "runs" / "my study"
    runs = tuple(replace(run, folder=f"{run.method}/{run.seed}-<b>") for run in judged_study.runs)
    record = replace(judged_study, runs=runs)
    own = write_report(record, folder / "report", study=folder)
    other = write_report(record, tmp_path / "pages", study=folder)
    moved = tmp_path / "mail" / "report.html"
    moved.parent.mkdir()
    moved.write_bytes(own.read_bytes())
    for file, base in ((own, folder), (other, folder), (moved, None)):
        window = Window(browser, file, viewport={"width": 1280, "height": 900})
        links = window.page.locator("#leaderboard-table .runs a")
        assert window.page.locator("#leaderboard-table .runs [data-run]").count() == len(runs)
        if base is None:
            assert links.count() == 0
        else:
            found = links.first.evaluate("link => link.href")
            assert found == (base / "triplet" / "0-<b>" / "result.json").as_uri()
        assert "triplet/0-<b>" in window.page.locator("#leaderboard-table .runs").first.text_content()
        assert window.complaints == []
        window.page.close()


@pytest.mark.slow
def test_colours_follow_the_system_and_the_button(browser, file):
    dark = Window(browser, file, viewport={"width": 1280, "height": 900}, color_scheme="dark")
    colour = "getComputedStyle(document.body).backgroundColor"
    assert dark.page.evaluate(colour) == "rgb(20, 23, 27)"
    words = dark.page.locator("#figure-intervals svg text").first
    assert words.evaluate("text => getComputedStyle(text).fill") == "rgb(230, 232, 235)"
    dark.page.click("#theme")
    assert dark.page.evaluate(colour) == "rgb(252, 251, 249)"
    assert dark.complaints == []
    dark.page.close()


@pytest.mark.slow
def test_a_phone_scrolls_in_one_direction_only(browser, file):
    phone = Window(browser, file, viewport={"width": 360, "height": 740})
    assert phone.page.evaluate("document.documentElement.scrollWidth") <= 360
    assert phone.complaints == []
    phone.page.close()


@pytest.mark.slow
def test_axe_finds_no_serious_fault(window, browser, file, serious_faults):
    dark = Window(browser, file, viewport={"width": 1280, "height": 900}, color_scheme="dark")
    for page in (window.page, dark.page):
        assert serious_faults(page) == []
    dark.page.close()


@pytest.mark.slow
def test_a_page_without_verdicts_works_as_well(browser, study, tmp_path):
    plain = Window(
        browser, write_report(replace(study, galleries={}), tmp_path), viewport={"width": 900, "height": 700}
    )
    plain.page.click("#leaderboard-table th.primary button")
    assert plain.complaints == []
    plain.page.close()


def test_names_sort_by_the_numbers_in_them(browser, run, study_of, tmp_path):
    record = study_of(*(run(f"dim {size}", 0, 0.5 + size / 1000) for size in (8, 128, 16)))
    window = Window(browser, write_report(record, tmp_path), viewport={"width": 900, "height": 700})
    window.page.locator("#leaderboard-table th", has_text="Method").locator("button").click()
    assert window.column(1) == ["dim 8", "dim 16", "dim 128"]
    window.page.close()
