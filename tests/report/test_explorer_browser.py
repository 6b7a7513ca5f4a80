"""The threshold explorer, the galleries of faults and the map, driven in a browser."""

from dataclasses import replace

import numpy as np
import pytest
from browser_window import NEEDS_CHROMIUM

from equimetric.evaluation.engine.inputs import prepare_sets
from equimetric.evaluation.engine.pair_distances import pair_distances
from equimetric.evaluation.metrics.roc import class_rates, far_and_frr
from equimetric.report import write_report
from equimetric.studies.report_records import load_embeddings_record

pytestmark = [NEEDS_CHROMIUM, pytest.mark.slow]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("explorer")


@pytest.fixture
def page(browser, study, closer, class_list, folder):
    """The page of a study with profiles, at its explorer; a message of the console or a request is an error."""
    file = folder / "index.html"
    if not file.exists():
        runs = tuple(replace(run, classes=class_list) for run in study.runs)
        write_report(replace(study, runs=runs, **closer), folder)
    opened = browser.new_page()
    faults, requests = [], []
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on("dialog", lambda dialog: faults.append(dialog.message))
    opened.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    opened.on("request", lambda request: requests.append(request.url))
    opened.goto(file.as_uri())
    opened.wait_for_selector("#explorer-app:not([hidden])")
    yield opened
    assert faults == []
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []
    opened.close()


THREE_FIGURES = 5.1e-3


def percent(text):
    return float(text.split("%")[0]) / 100


def move(page, place):
    page.evaluate(
        "place => { const s = document.getElementById('explorer-threshold'); s.value = place;"
        " s.dispatchEvent(new Event('input')); }",
        place,
    )


def test_slider_values_equal_the_api(page, spaces):
    panel = page.locator(".threshold-panel").first
    method = panel.locator("select").input_value()
    distances = pair_distances(prepare_sets(spaces[method].embeddings, spaces[method].labels))
    thresholds = page.evaluate("equimetric.explorer.panels[0].method.thresholds")
    for place in (10, 60, 100, len(thresholds) - 1):
        move(page, place)
        far, frr = far_and_frr(distances, thresholds[place])
        shown = {key: panel.locator(f"td[data-value={key}]").inner_text() for key in ("threshold", "far", "frr")}
        assert float(shown["threshold"]) == pytest.approx(thresholds[place], abs=5e-5)
        assert percent(shown["far"]) == pytest.approx(far, rel=THREE_FIGURES)
        assert percent(shown["frr"]) == pytest.approx(frr, rel=THREE_FIGURES)
        each = class_rates(distances, thresholds[place])
        row = panel.locator(".threshold-classes tbody tr").first
        number = spaces[method].class_names.index(row.locator("th").inner_text())
        cells = [percent(text) for text in row.locator("td").all_inner_texts()[:2]]
        assert cells == pytest.approx([each.far[number], each.frr[number]], rel=THREE_FIGURES)
        quantile = percent(panel.locator("td[data-value=classFar]").inner_text().split(", ")[1])
        assert quantile == pytest.approx(np.quantile(each.far, 0.9), rel=THREE_FIGURES, abs=1e-4)


def test_the_button_leads_to_the_certified_threshold(page, closer):
    panel = page.locator(".threshold-panel").first
    certified = closer["profiles"][panel.locator("select").input_value()].run.certified
    assert page.inner_text("#explorer-certified") == "Go to the certified threshold"
    page.click("#explorer-certified")
    assert float(panel.locator("td[data-value=threshold]").inner_text()) == pytest.approx(certified.threshold, abs=5e-5)
    assert percent(panel.locator("td[data-value=far]").inner_text()) == pytest.approx(certified.far, rel=THREE_FIGURES)
    assert panel.locator(".fan-words").text_content() == f"certified: target FAR {100 * certified.target_far:g} %"


def test_a_run_without_counts_there_says_nearest_step(page):
    page.evaluate("""() => {
        const panel = equimetric.explorer.panels[0];
        panel.method.certified.threshold += 1e-6;
        panel.onchange();
    }""")
    assert page.inner_text("#explorer-certified") == "Go to the nearest step to the certified threshold"


def test_other_method_follows_at_the_same_false_accept_rate(page):
    move(page, 80)
    first, second = (
        percent(page.locator(f".threshold-panel >> nth={side} >> td[data-value=far]").inner_text()) for side in (0, 1)
    )
    assert first == pytest.approx(second, abs=5e-3)
    page.select_option("#explorer-link", "threshold")
    shown = page.locator("td[data-value=threshold]").all_inner_texts()
    assert float(shown[0]) == pytest.approx(float(shown[1]), abs=0.05)


def show_threshold(page):
    """What links B to A, and whether the choice of one threshold for both is open."""
    option = page.locator("#explorer-link option").nth(1)
    return page.input_value("#explorer-link"), option.is_disabled(), option.text_content()


def test_a_threshold_that_the_other_has_not_is_not_shown_there(page):
    page.select_option("#explorer-link", "threshold")
    page.evaluate("""() => {
        const [first, second] = equimetric.explorer.panels.map((panel) => panel.method);
        second.thresholds = second.thresholds.map((value, place) => first.thresholds[20] + place * 1e-6);
    }""")
    move(page, 20)
    assert show_threshold(page) == ("threshold", False, "nearest step to the same threshold")
    move(page, 60)
    assert show_threshold(page) == ("far", True, "nearest step to the same threshold (B has none)")
    far = (
        percent(page.locator(f".threshold-panel >> nth={side} >> td[data-value=far]").inner_text()) for side in (0, 1)
    )
    assert next(far) == pytest.approx(next(far), abs=1e-2)
    move(page, 20)
    assert show_threshold(page)[0] == "threshold"


@pytest.mark.parametrize("field", ["scored", "cohort"])
def test_scores_of_another_kind_share_no_threshold(page, field):
    page.select_option("#explorer-link", "threshold")
    page.evaluate("field => { equimetric.explorer.panels[1].method[field] = true; }", field)
    move(page, 60)
    assert show_threshold(page) == ("far", True, "nearest step to the same threshold (B is on another scale)")


def test_a_method_without_all_classes_says_which_have_them(page):
    assert page.locator(".threshold-panel .notes:visible").count() == 0
    page.evaluate("""() => {
        const [first, second] = equimetric.explorer.panels;
        delete first.values.classes[first.name];
        first.choose(first.name);
        first.build();
    }""")
    assert not page.is_visible("#explorer-search-A")
    other = page.input_value("#explorer-method-B")
    note = page.locator(".threshold-panel").first.locator(".notes")
    assert note.inner_text() == f"All classes are in the page for {other} only."


def test_the_search_stands_off_the_table_above(page):
    page.wait_for_selector("#explorer-search-A:not([hidden])")
    table = page.locator(".threshold-values").first.bounding_box()
    assert page.locator("#explorer-class-A").bounding_box()["y"] - table["y"] - table["height"] >= 8


def test_any_class_can_be_looked_up(page, spaces):
    page.wait_for_selector("#explorer-search-A:not([hidden])")
    page.fill("#explorer-class-A", "<script>alert(1)</script>")
    row = page.locator(".threshold-classes .picked").first
    assert row.locator("th").inner_text() == "<script>alert(1)</script>"
    method = page.locator("#explorer-method-A").input_value()
    distances = pair_distances(prepare_sets(spaces[method].embeddings, spaces[method].labels))
    place = page.evaluate("equimetric.explorer.panels[0].index")
    threshold = page.evaluate("equimetric.explorer.panels[0].method.thresholds")[place]
    assert percent(row.locator("td").first.inner_text()) == pytest.approx(
        class_rates(distances, threshold).far[23], rel=THREE_FIGURES
    )


def test_classes_are_found_by_a_part_of_their_names(page):
    page.wait_for_selector("#explorer-search-A:not([hidden])")
    status = page.locator("#explorer-search-A [role=status]")
    page.fill("#explorer-class-A", "CLASS 2")
    panel = page.locator(".threshold-panel").first
    assert panel.locator(".picked th").all_inner_texts() == ["class 2", "class 20", "class 21", "class 22"]
    page.fill("#explorer-class-A", "class")
    assert status.inner_text() == "5 of 23 classes shown"
    page.fill("#explorer-class-A", "no one")
    assert status.inner_text() == "no such class"
    assert panel.locator(".picked").count() == 0


def test_words_of_the_figure_keep_their_size(page):
    for width in (360, 1900):
        page.set_viewport_size({"width": width, "height": 740})
        figure = page.locator(".fan").first
        figure.scroll_into_view_if_needed()
        page.wait_for_function(
            "() => { const f = document.querySelector('.fan');"
            " return Math.abs(f.clientWidth - f.viewBox.baseVal.width) < 2; }"
        )
        assert figure.locator("text").first.evaluate("text => text.getBoundingClientRect().height") == pytest.approx(
            13, abs=3
        )


def test_hidden_elements_stay_hidden(page):
    page.evaluate("document.getElementById('explorer-search-B').hidden = true")
    assert not page.is_visible("#explorer-search-B")


def test_the_image_that_is_chosen_is_marked(page):
    page.locator(".map").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    chosen = page.locator(".map .chosen")
    assert chosen.count() == 1
    assert chosen.evaluate("dot => getComputedStyle(dot).stroke") != "none"


def test_keys_move_the_slider_and_the_map(page):
    slider = page.locator("#explorer-threshold")
    slider.focus()
    before = slider.get_attribute("aria-valuetext")
    page.keyboard.press("ArrowRight")
    assert slider.get_attribute("aria-valuetext") != before
    page.locator(".map").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator(".map-side img").count() == 1
    page.locator(".map circle").nth(5).hover(force=True)
    assert page.locator(".map-side span").inner_text()


def test_faults_show_another_method(page):
    first = page.locator("#faults-app article").first.inner_text()
    other = page.locator("#faults-method option").nth(1).get_attribute("value")
    page.select_option("#faults-method", other)
    assert page.locator("#faults-app article").first.inner_text() != first
    assert page.locator("#faults-app .wrong").count() > 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_needs_no_sideways_scrolling(page, scheme):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


CLOSER = ("accuracy_consistency", "explorer", "weights", "faults", "understand")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault_in_closer_sections(page, serious_faults, scheme):
    page.emulate_media(color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    for name in CLOSER:
        section = page.locator(f"section#{name}")
        assert section.is_visible(), name
        for figure in section.locator("figure.chart").all():
            figure.scroll_into_view_if_needed()
            figure.locator(".canvas svg").first.wait_for(timeout=60_000)
    assert serious_faults(page) == []


def test_axe_sees_a_fault(page, serious_faults):
    page.evaluate("document.querySelectorAll('label').forEach(one => one.remove())")
    assert "select-name" in {rule for rule, _ in serious_faults(page)}


def test_embeddings_alone_have_one_panel(page, spaces, serious_faults, tmp_path):
    space = spaces["contrastive"]
    labels = np.array(space.class_names)[space.labels.numpy()]
    np.savez(tmp_path / "space.npz", embeddings=space.embeddings.numpy(), labels=labels)
    page.goto(write_report(load_embeddings_record(tmp_path / "space.npz"), tmp_path).as_uri())
    page.wait_for_selector("#explorer-app:not([hidden])")
    assert page.locator(".threshold-panel").count() == 1
    assert page.locator(".threshold-controls label").first.inner_text() == "Threshold"
    assert page.locator("#explorer-method-A").count() == 0
    move(page, 60)
    threshold = page.evaluate("equimetric.explorer.panels[0].method.thresholds")[60]
    far, _ = far_and_frr(pair_distances(prepare_sets(space.embeddings, space.labels)), threshold)
    assert percent(page.locator("td[data-value=far]").inner_text()) == pytest.approx(far, rel=THREE_FIGURES)
    assert serious_faults(page) == []
