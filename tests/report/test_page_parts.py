"""Parts of a page: how many bytes they may take, names beside points, memory, notes, and pages without pictures."""

import json
from dataclasses import replace

import numpy as np
import pytest

from equimetric.report import render_html
from equimetric.report.label_placement import CHARACTER, LINE, place_labels
from equimetric.report.member_tables import cost_table
from equimetric.report.memory_cells import format_bytes
from equimetric.report.page_budget import PAGE_BYTES, image_byte_budget, other_bytes, threshold_byte_budget
from equimetric.report.section import SECTIONS
from equimetric.report.sections.compare import most_changed
from equimetric.report.sections.explorer import fit_methods
from equimetric.report.sections.training import training_table
from equimetric.studies.report_records import remove_images


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
