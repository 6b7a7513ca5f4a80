"""Pages about one run or one file: nothing in them is compared, and their words say so."""

import re
from dataclasses import replace

import numpy as np
import pytest

from equimetric.evaluation import evaluate
from equimetric.intervals import t_interval
from equimetric.report import figures_of, record_tables, render_html
from equimetric.report.interval_figure import draw_intervals
from equimetric.report.retrieval_data import retrieval_faults
from equimetric.report.sections.answer import answer_section
from equimetric.report.sections.embeddings_answer import threshold_sentences
from equimetric.report.sections.embeddings_faults import embeddings_faults_section
from equimetric.report.sections.explorer import explorer_section
from equimetric.report.table_data import format_share
from equimetric.studies.profiles import MethodProfile, StudyImages
from equimetric.studies.report_records import load_embeddings_record
from equimetric.studies.table import comparison_table

OF_A_STUDY = (
    "Leaderboard", "Filter by name", "every method", "best method", "Fairness ledger", "over 1 runs", "1 runs",
    "What was compared", "all methods",
)  # fmt: skip


def words_of(page):
    """The text of a page without its scripts and styles."""
    body = re.sub(r"<(script|style).*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", body).split())


@pytest.fixture
def single(run, study_of, closer, class_list):
    runs = [run("contrastive", 0, 0.7, classes=class_list, folder="contrastive/0")]
    profiles = {"contrastive": closer["profiles"]["contrastive"]}
    return study_of(*runs, images=closer["images"], profiles=profiles, test_accesses={"train": 1})


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    draw = np.random.default_rng(0)
    labels = np.repeat(["<script>alert(1)</script>", *(f"class {number}" for number in range(1, 12))], 6)
    vectors = np.repeat(draw.normal(size=(12, 4)), 6, axis=0) + 0.8 * draw.normal(size=(72, 4))
    path = tmp_path_factory.mktemp("space") / "my space.npz"
    np.savez(path, embeddings=vectors.astype(np.float32), labels=labels)
    return path


@pytest.fixture(scope="module")
def space(file):
    return load_embeddings_record(file)


def test_the_page_of_one_run_compares_nothing(single):
    text = words_of(render_html(single))
    assert [words for words in OF_A_STUDY if words in text] == []
    for heading in ("Scores", "Conditions", "What was measured", "Where retrieval goes wrong"):
        assert heading in text
    assert "A run looks once at its test classes" in text


def test_a_study_keeps_its_words(judged_study):
    text = words_of(render_html(judged_study))
    for words in ("Leaderboard", "Filter by name", "Fairness ledger", "What was compared", "Conditions"):
        assert words in text


def test_one_row_has_no_figure_of_rows_and_rows_without_intervals_no_empty_axis(single, run, study_of):
    assert "intervals" not in [figure.name for figure in figures_of(single)]
    pair = study_of(run("a", 0, 0.5), run("b", 0, 0.6))
    assert "low" not in str(draw_intervals(pair, comparison_table(pair)).to_dict())


def test_a_page_of_one_failed_run_says_why(run, study_of):
    text = words_of(render_html(study_of(run("a", status="failed", error="the loss became NaN"))))
    assert "The run failed" in text
    assert "the loss became NaN" in text


@pytest.fixture
def single_with_classes(run, study_of, class_list):
    """One run with a score of every class."""
    scores = np.random.default_rng(0).uniform(0.4, 0.9, 24)
    history = ({"kind": "validation", "step": 100, "map@r": 0.6},)
    fields = {"classes": class_list, "per_class": {"map@r": scores}, "history": history}
    return study_of(run("contrastive", 0, float(scores.mean()), **fields))


def test_a_run_has_the_interval_over_its_classes(single_with_classes):
    (only,) = single_with_classes.runs
    interval = t_interval(only.per_class["map@r"].tolist())
    (text,) = answer_section(single_with_classes)["sentences"][1:]
    low, high = (f"{100 * end:.1f}\u00a0%" for end in (interval.low, interval.high))
    assert text.startswith(f"The 95\u00a0% interval for other classes of the same kind is {low} to {high}; ")
    several = replace(single_with_classes, runs=(only, replace(only, seed=1)))
    assert not any("other classes" in sentence for sentence in answer_section(several)["sentences"])


def test_one_method_has_nothing_to_choose_in_a_legend(single_with_classes, judged_study):
    captions = [
        figure.caption
        for record in (single_with_classes, judged_study)
        for figure in figures_of(record)
        if figure.name == "curves"
    ]
    assert ["Choose a method" in caption for caption in captions] == [False, True]


def test_embeddings_have_intervals_over_classes(space, file):
    with np.load(file) as arrays:
        result = evaluate(arrays["embeddings"], arrays["labels"], metrics=["map@r", "opis"])
    interval = result.interval("map@r")
    assert space.intervals["map@r"] == pytest.approx((interval.low, interval.high))
    rows = {row["metric"]: row for row in record_tables(space)["table"].records()}
    assert rows["map@r"]["low"] == pytest.approx(interval.low)
    texts = {row.cells[0].text: row.cells[1].text for row in record_tables(space)["table"].rows}
    assert texts["map@r (%)"] == f"{100 * result['map@r']:.2f}"


def test_without_intervals_their_columns_are_left_out(embeddings):
    table = record_tables(replace(embeddings, intervals={}))["table"]
    assert [column.name for column in table.columns] == ["metric", "value"]


def test_the_answer_names_sizes_metrics_and_the_spread_of_classes(space):
    text = words_of(render_html(space))
    assert "my space.npz holds 72 items of 12 classes with 6 items each." in text
    assert f"recall@1 is {100 * space.metrics['recall@1']:.2f} %" in text
    assert "One threshold does not treat classes alike" in text
    profile, point = space.profile.thresholds, space.profile.certified
    first, last = profile.calibration
    place = (first + last - 1) // 2 if point is None else int(np.abs(profile.thresholds - point.threshold).argmin())
    assert f"{format_share(float(profile.frr[place]))} % of the pairs of one class rejected" in text


def test_faults_are_those_of_the_neighbours(space):
    shown = embeddings_faults_section(space)
    names = tuple(space.class_name(label) for label in range(12))
    images = StudyImages(space.labels, names, None)
    faults = retrieval_faults(MethodProfile(0, space.profile, space.per_query), images)
    tables = {table.title: table for table in shown["tables"]}
    assert len(tables) == 5
    worst = tables["Queries that are answered worst"].rows[0].cells[0].text
    query = faults["queries"][0]["query"]
    assert worst == f"{query} ({space.class_name(int(space.labels[query]))})"
    assert [figure.name for figure in figures_of(space)] == ["map", "utility-1"]
    page = render_html(space)
    assert "<script>alert" not in page
    assert "Items that turn up everywhere" in page


def test_the_page_says_how_to_measure_the_file_again(space):
    assert space.commands[0] == "equimetric report 'my space.npz'"
    assert "equimetric evaluate" in words_of(render_html(space))


def test_a_bound_that_is_not_known_is_no_column(space):
    assert "new classes" in words_of(render_html(space))
    certified = replace(space.profile.certified, far_bound=float("nan"), frr_bound=float("nan"))
    without = replace(space, profile=replace(space.profile, certified=certified))
    assert "new classes" not in words_of(render_html(without))
    assert len(explorer_section(without)["methods"][0]["certified"]) == 4


def write_space(folder, vectors, labels):
    file = folder / "space.npz"
    np.savez(file, embeddings=np.asarray(vectors, dtype=np.float32), labels=np.asarray(labels))
    return file


def test_rates_of_the_certificate_are_those_of_its_own_threshold(space):
    point = space.profile.certified
    (all_pairs, _) = threshold_sentences(space.profile)
    assert f"{format_share(point.far)} % of the pairs of two classes" in all_pairs
    assert f"{format_share(point.frr)} % of the pairs of one class rejected" in all_pairs
    without_counts = replace(space.profile, certified=replace(point, counts=None))
    assert threshold_sentences(without_counts)[0] == all_pairs


def test_few_classes_are_not_said_to_tell_of_others(tmp_path):
    vectors = [[1, 0.1], [0.8, 0.6], [-1, 0.1], [-0.8, 0.6]]  # each class mirrors the other
    record = load_embeddings_record(write_space(tmp_path, vectors, [0, 0, 1, 1]))
    text = words_of(render_html(record))
    assert "With 2 classes they are too narrow: 10 or more tell of others." in text
    assert "All classes have the same rates there." in text
    assert "does not treat classes alike" not in text


def test_collapsed_embeddings_have_a_page_without_thresholds_and_map(tmp_path):
    record = load_embeddings_record(write_space(tmp_path, np.ones((40, 8)), np.repeat(np.arange(10), 4)))
    assert "opis" not in record.metrics
    assert record.metrics["recall@1"] >= 0
    assert record.profile.thresholds is record.profile.map is None
    text = words_of(render_html(record))
    assert "Without opis" in text
    assert "is empty because too many negative pairs have one distance" in text


def test_tables_of_a_file_are_those_of_its_page(space):
    tables = record_tables(space)
    shown = embeddings_faults_section(space)["tables"]
    faults = ["worst-classes", "worst-queries", "confused-classes", "hubs", "closest-pairs"]
    assert list(tables) == ["table", "thresholds", *faults]
    assert [tables[name] for name in faults] == shown
    for name in faults:
        assert all(None not in row.values() and "" not in row.values() for row in tables[name].records())
    (thresholds,) = tables["thresholds"].records()
    assert thresholds["certified_threshold"] == space.profile.certified.threshold
    neighbours = space.per_query["neighbours"]
    assert tables["hubs"].records()[0]["queries"] == np.bincount(neighbours[neighbours >= 0]).max()
