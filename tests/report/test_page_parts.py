"""Parts of a page: how many bytes they may take, names beside points, memory, notes, and pages without pictures."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from equimetric.report import comparison_table, render_html
from equimetric.report.bundle import page_style
from equimetric.report.curve_figure import curve_figure
from equimetric.report.label_placement import (
    CHARACTER,
    LINE,
    LabelOffset,
    box_distance,
    crosses,
    label_box,
    place_labels,
)
from equimetric.report.member_tables import cost_table
from equimetric.report.memory_cells import format_bytes
from equimetric.report.page_budget import PAGE_BYTES, image_byte_budget, other_bytes, threshold_byte_budget
from equimetric.report.palette import DARK_PALETTE, PALETTE, WORD_COLOURS
from equimetric.report.section import SECTIONS
from equimetric.report.sections.compare import most_changed
from equimetric.report.sections.explorer import fit_methods
from equimetric.report.sections.leaderboard import BAR, describe_comparison, format_effect_size, heading
from equimetric.report.sections.training import training_table
from equimetric.studies.judgement import judge_study
from equimetric.studies.report_records import remove_images
from equimetric.studies.table import Column


@pytest.fixture
def known(study, closer, class_list) -> object:
    """The small study with profiles."""
    runs = tuple(replace(run, classes=class_list) for run in study.runs)
    return replace(study, runs=runs, **closer)


def test_pictures_leave_room_for_the_thresholds(known):
    many = replace(known, profiles={f"m{k}": known.profiles["contrastive"] for k in range(40)})
    assert image_byte_budget(many) < image_byte_budget(known)
    rows = len(many.methods)
    assert image_byte_budget(many) + threshold_byte_budget(rows, 40) + other_bytes(rows) <= PAGE_BYTES
    parts = [image_byte_budget(known, name) for name in ("faults", "gallery", "compare")]
    assert sum(parts) == pytest.approx(image_byte_budget(known), abs=3)


def test_many_methods_are_shown_in_less_detail(known):
    run = known.profiles["contrastive"].run
    few, many, most = (
        fit_methods({f"m{k}": run for k in range(number)}, {}, threshold_byte_budget(number, number))
        for number in (2, 60, 72)
    )
    assert (few["m0"]["levels"], many["m0"]["levels"]) == (101, 11)
    for number, methods in ((2, few), (60, many), (72, most)):
        assert len(json.dumps(methods)) < threshold_byte_budget(number, number)
    assert len(most["m0"]["worst"]) < len(many["m0"]["worst"]) <= len(few["m0"]["worst"])
    assert many["m0"]["positive"] == few["m0"]["positive"]


def test_no_name_covers_another():
    draw = np.random.default_rng(0)
    points = [(x, y, f"method {k}") for k, (x, y) in enumerate(draw.uniform((0, 0), (300, 200), (30, 2)).tolist())]
    places = place_labels(points, 300, 200)
    boxes = []
    for (x, y, name), place in zip(points, places, strict=True):
        if place is not None:
            left = x + place.dx - (CHARACTER * len(name) if place.align == "right" else 0)
            boxes.append((left, y + place.dy, left + CHARACTER * len(name)))
    assert 5 < len(boxes) < 30
    assert all(left >= 0 and right <= 300 for left, _, right in boxes)
    assert all(LINE / 2 <= middle <= 200 - LINE / 2 for _, middle, _ in boxes)
    for k, (left, middle, right) in enumerate(boxes):
        for other_left, other_middle, other_right in boxes[:k]:
            apart = left >= other_right or right <= other_left
            assert apart or abs(middle - other_middle) >= LINE


def test_no_name_seems_to_belong_to_another_point():
    """A circle between two others, whose names would end beside each other's circles."""
    points = [(120.0, 100.0, "a long name of a method"), (200.0, 98.0, "short"), (280.0, 101.0, "another long name")]
    for stretch in (1.0, 1.2):
        places = place_labels(points, 320, 200, needed=3, widest=384)
        assert None not in places
        for (x, y, name), offset in zip(points, places, strict=True):
            box = label_box(stretch * x, y, offset, name)
            own, *others = sorted(points, key=lambda point: point[2] != name)
            nearest = min(box_distance(box, (stretch * other[0], other[1])) for other in others)
            assert offset.is_far or nearest > box_distance(box, (stretch * own[0], own[1]))
            assert nearest > 6


def test_names_above_or_below_their_points_are_joined_to_them():
    assert [LabelOffset(9.0, dy, "left").is_far for dy in (-7.0, 12.0, 3.5, -18.0, 23.0)] == [False] * 3 + [True] * 2
    crowd = [(100.0 + 14 * k, 100.0, f"name {k}") for k in range(4)]
    places = place_labels(crowd, 300, 200, needed=4)
    assert all(offset.is_far for offset in places[1:3])
    # No line passes through another name.
    boxes = [label_box(x, y, offset, name) for (x, y, name), offset in zip(crowd, places, strict=True)]
    for number, ((x, y, _), offset) in enumerate(zip(crowd, places, strict=True)):
        end = (x + offset.line_end[0], y + offset.line_end[1])
        assert not offset.is_far or not any(crosses((x, y), end, box) for k, box in enumerate(boxes) if k != number)


def test_points_in_one_place_have_a_name_each():
    assert None not in place_labels([(100.0, 100.0, "one"), (100.0, 100.0, "other")], 300, 200)


def test_training_and_cost_show_memory_where_runs_know_it(study):
    assert "did not measure memory" in training_table(study).footnotes[-1]
    peaks = {"contrastive": 412_000_000, "multi_similarity": 1_270_000_000}
    cost = {"dim": 8, "parameters": 10, "training_only": 0, "forward_passes": 1}
    runs = tuple(
        replace(run, memory={"process": peaks[run.method] - run.seed}, cost=cost, members=({"name": "a"},))
        if run.method in peaks
        else run
        for run in study.runs
    )
    measured = replace(study, runs=runs)
    rows = {row["method"]: row for row in training_table(measured).records()}
    assert {method: rows[method]["process_bytes"] for method in peaks} == peaks
    assert "largest resident set" in training_table(measured).footnotes[-1]
    texts = {row.cells[0].text: row.cells[-1].text for row in cost_table(measured).rows}
    assert texts == {"contrastive": "412 MB", "multi_similarity": "1.27 GB"}
    assert format_bytes(999_600_000) == "1000 MB"


def test_without_logs_validation_has_no_columns(judged_study):
    names = [column.name for column in training_table(judged_study).columns]
    assert names[1:3] == ["selected at step", "last validation"]
    bare = training_table(replace(judged_study, runs=tuple(replace(run, history=()) for run in judged_study.runs)))
    assert [column.name for column in bare.columns] == [name for name in names if name not in names[1:3]]
    assert not any("validation" in note for note in bare.footnotes)
    assert len(bare.rows) == 3


def test_methods_with_the_same_note_share_a_line(run, study_of):
    note = "The cohort has 10 classes"
    runs = [run(f"m{k}", seed, 0.5, notes=(note,)) for k in range(5) for seed in range(2)]
    alone = run("other", 0, 0.5, notes=("collapse: it collapsed",))
    assert study_of(*runs, alone).grouped_notes == (
        ("m0, m1, m2 and 2 more methods, 10 runs", note),
        ("other, seed 0", "collapse: it collapsed"),
    )


def test_changed_queries_begin_with_both_ends_of_the_pair(judged_study):
    queries = judged_study.queries
    differences = queries.scores["triplet"] - queries.scores["contrastive"]
    first, second, *_ = most_changed(queries, ("triplet", "contrastive"))
    assert differences[first] == differences.max()
    assert differences[second] == differences.min()


def test_methods_are_chosen_among_from_the_best_to_the_baselines(judged_study):
    shown = SECTIONS["compare"].data(judged_study)
    assert shown["names"] == ["triplet", "margin_miner", "contrastive", "raw_pixels"]


def test_a_page_without_pictures_keeps_names_and_neighbours(judged_study, known):
    record = remove_images(replace(judged_study, images=judged_study.queries.images))
    payload = SECTIONS["compare"].data(record)["payload"]["queries"]
    assert payload["images"] == {}
    assert payload["neighbours"]["triplet"][0]
    assert record.galleries == {}
    faults = SECTIONS["faults"].data(remove_images(known))["values"]
    assert faults["images"] == {}
    worst = faults["methods"]["contrastive"]["faults"]["queries"][0]
    shown = [worst["query"], *(row for row, _ in worst["neighbours"])]
    assert all(faults["names"][str(row)] for row in shown)
    assert "data:image" not in render_html(record)


def contrast(one: str, other: str) -> float:
    """The ratio of the relative luminances of two colours, as WCAG 2 defines it."""
    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    return float(linear(colour) @ (0.2126, 0.7152, 0.0722))


def linear(colour: str) -> np.ndarray:
    """Linear red, green and blue of a colour."""
    parts = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


# What protanopes and deuteranopes see of linear colours: Machado, Oliveira and Fernandes (2009), full severity.
DEFICIENCIES = {
    "none": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
}


def lab(colour: str, deficiency: str) -> np.ndarray:
    """CIELAB of what is seen of a colour."""
    matrix = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
    seen = (np.array(DEFICIENCIES[deficiency]) @ linear(colour)).clip(0, 1)
    x, y, z = np.cbrt(np.array(matrix) @ seen / (0.95047, 1, 1.08883))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize(
    ("colours", "pages"),
    [(PALETTE, ("#fcfbf9", "#ffffff", "#f3f5f7")), (DARK_PALETTE, ("#14171b", "#1b1f25", "#20262d"))],
)
def test_colours_of_figures_can_be_seen_and_told_apart(colours, pages):
    assert all(contrast(colour, page) >= 3 for colour in colours for page in pages)
    places = [PALETTE.index(colour) for colour in WORD_COLOURS]
    assert all(contrast(colours[place], page) >= 4.5 for place in places for page in pages)
    for deficiency in DEFICIENCIES:
        seen = [lab(colour, deficiency) for colour in colours]
        apart = [np.linalg.norm(one - other) for k, one in enumerate(seen) for other in seen[:k]]
        assert min(apart) > 15, deficiency


def test_figures_of_a_page_take_its_colours(judged_study):
    figure = SECTIONS["answer"].data(judged_study)["figure"]
    assert PALETTE[0] in json.dumps(figure.spec())
    themed = json.dumps(figure.page_spec())
    assert not any(colour in themed for colour in PALETTE)
    assert "var(--series-1)" in themed
    for number, (light, dark) in enumerate(zip(PALETTE, DARK_PALETTE, strict=True), start=1):
        assert f"--series-{number}: light-dark({light}, {dark});" in page_style()


def test_curves_mark_the_selected_steps_and_bands_are_of_several_runs(study, run, study_of):
    table = comparison_table(study)
    figure = curve_figure(study, table)
    values = figure.spec()["data"]["values"]
    selected = {(value["method"], value["step"]): value["selected"] for value in values}
    assert selected[("multi_similarity", 100)] == 3
    assert selected[("multi_similarity", 0)] == 0
    assert "its band reaches" in figure.caption
    history = tuple({"kind": "validation", "step": step, "map@r": 0.1} for step in (1, 2))
    single = study_of(run("triplet", 0, 0.5, history=history))
    assert "A line is one run." in curve_figure(single, comparison_table(single)).caption


def test_every_method_is_in_the_legend(run, study_of):
    history = ({"kind": "validation", "step": 1, "map@r": 0.1},)
    made = study_of(*(run(f"m{k}", 0, 0.5, history=history) for k in range(33)))
    spec = curve_figure(made, comparison_table(made)).spec()
    assert spec["config"]["legend"]["symbolLimit"] == 0
    assert spec["layer"][0]["encoding"]["color"]["legend"]["columns"] == 5


def test_effects_beyond_twenty_deviations_say_so():
    assert [format_effect_size(size) for size in (-406.3, -20.0, 1.26, 20.1)] == ["< −20", "−20.0", "+1.3", "> 20"]


def test_bars_of_baselines_stay_in_their_cells(study):
    rows = {row["name"]: row for row in SECTIONS["leaderboard"].data(study)["rows"]}
    assert rows["raw pixels"]["cells"][0]["bar"]["beyond"] == "left"
    for row in rows.values():
        for cell in row["cells"]:
            bar = cell["bar"] or {"mean": 0, "low": None, "high": None}
            assert all(0 <= end <= BAR for end in bar.values() if isinstance(end, float))


def test_every_cell_of_the_leaderboard_has_a_heading_with_joined_folds_too(judged_study):
    trained = (run for run in judged_study.runs if run.kind == "trained")
    text = render_html(replace(judged_study, joined_runs=tuple(replace(run, fold=-1) for run in trained)))
    (table,) = re.findall(r'id="leaderboard-table">.*?</table>', text, re.DOTALL)
    head, *rows = [len(re.findall(r"<t[hd][ >]", row)) for row in table.split("<tr")[1:]]
    assert "folds joined" in table
    assert rows == [head] * 4


def test_lesser_metrics_are_folded():
    names = ("map@r", "recall@1", "opis", "opis@10%", "map@r plain", "nmi", "ami")
    folded = [heading(place, Column(name, True, 1))["secondary"] for place, name in enumerate(names)]
    assert folded == [False, False, False, True, True, True, True]
    assert not heading(9, Column("recall@1", True, 1), judged=True)["secondary"]


def test_small_differences_keep_their_order(judged_study):
    (one, *_) = judge_study(judged_study).methods.comparisons
    column = Column("opis", percent=False, decimals=6)
    shown = [
        describe_comparison(replace(one, interval=replace(one.interval, mean=mean)), column)["difference"]
        for mean in (1.23456e-5, 2e-5, -3e-7)
    ]
    assert shown == [1.235e-5, 2e-5, -3e-7]
