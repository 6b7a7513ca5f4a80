"""Tables for papers: thresholds, training, fairness, classes; their units, their rows, and whether LaTeX takes them."""

import csv
import io
import shutil
from dataclasses import replace

import pytest
from latex_checks import check_latex_structure, compile_latex

from equimetric.cli.protocols import describe_search
from equimetric.dotted import format_setting
from equimetric.escaping import latex_text
from equimetric.intervals import t_interval
from equimetric.report import PlainTable, TableColumn, TableRow, study_tables, to_csv, to_latex, to_markdown
from equimetric.report.change_table import change_cell
from equimetric.report.metric_cells import metric_cell, metric_column, value_cell
from equimetric.report.search_table import search_table
from equimetric.report.table_data import format_number, number_cell, text_cell
from equimetric.report.threshold_table import threshold_table
from equimetric.studies.ledger import LedgerEntry
from equimetric.studies.table import comparison_table


@pytest.fixture
def closely_known(study, closer, class_list):
    """The study with thresholds, neighbours and maps of two methods."""
    return replace(study, runs=tuple(replace(run, classes=class_list) for run in study.runs), **closer)


def test_every_threshold_of_the_page_is_in_a_table(closely_known):
    table = study_tables(closely_known)["thresholds"]
    rows = {row["method"]: row for row in table.records()}
    for method, profile in closely_known.profiles.items():
        assert rows[method]["opis"] == pytest.approx(profile.run.thresholds.consistency.opis)
        assert rows[method]["certified_threshold"] == pytest.approx(profile.run.certified.threshold)
    assert "OPIS (×10⁻³)" in [column.heading for column in table.columns]


def test_a_bound_that_no_certificate_has_is_no_column(closely_known):
    runs = {name: profile.run for name, profile in closely_known.profiles.items()}
    bounded = {n: replace(r, certified=replace(r.certified, far_bound=0.02)) for n, r in runs.items()}
    without = {n: replace(r, certified=replace(r.certified, far_bound=float("nan"))) for n, r in runs.items()}
    assert threshold_table("a", bounded).columns[-1].name == "FAR, new classes"
    table = threshold_table("a", without)
    assert table.columns[-1].name == "FRR"
    assert not any("95 %" in note for note in table.footnotes)
    assert threshold_table("a", {}) is None


def test_the_ledger_says_what_was_checked_and_describes_conditions(judged_study):
    rows = study_tables(judged_study)["ledger"].records()
    assert [(row["factor"], row["status"]) for row in rows] == [
        ("2 Embedding dimension", "differs"), ("Training budget", "waived"), ("backbone", ""),
    ]  # fmt: skip
    assert study_tables(replace(judged_study, ledger=None, conditions={})).get("ledger") is None


def test_classes_come_by_falling_difference_in_the_unit_of_the_metric(judged_study):
    table = study_tables(judged_study)["classes"]
    differences = [row["difference"] for row in table.records()]
    assert len(differences) == 12
    assert differences == sorted(differences, reverse=True)
    first = table.rows[0].cells[-1]
    assert table.columns[-1].heading == "difference (%)"
    assert first.text == f"+{100 * first.data['difference']:.2f}"


def test_training_says_where_weights_were_chosen(judged_study):
    rows = {row["method"]: row for row in study_tables(judged_study)["training"].records()}
    assert rows["margin_miner"]["selected_last"] == 300
    assert rows["margin_miner"]["seconds"] == 60.0


def test_readers_see_both_ends_of_a_long_table_and_programs_all_of_it():
    rows = tuple(TableRow((text_cell("class", f"class {place}"),)) for place in range(40))
    table = PlainTable("Classes", (TableColumn("class", is_text=True),), rows, ends=3)
    assert len(list(csv.reader(io.StringIO(to_csv(table))))) == 41
    shown = [line for line in to_markdown(table).splitlines() if line.startswith("| class ")]
    assert shown[1:] == [f"| class {place} |" for place in (0, 1, 2, 37, 38, 39)]
    assert "The first and the last 3 of 40 rows" in to_latex(table)
    assert len(replace(table, ends=20).for_readers().rows) == 40


def test_captions_are_short_and_notes_below(judged_study):
    for table in study_tables(judged_study).values():
        text = to_latex(table)
        check_latex_structure(text)
        caption = text[text.index(r"\caption{") : text.index(r"\medskip")]
        assert len(caption) < 120
        for note in table.footnotes:
            assert note.split()[0] not in caption.split()[:1]


def test_all_of_them_compile_and_none_is_wider_than_the_text(judged_study, closely_known, tmp_path):
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed; the structure is checked above")
    tables = {**study_tables(closely_known), **study_tables(judged_study)}
    assert {"thresholds", "training", "ledger", "classes"} <= set(tables)
    text = "\n".join(map(to_latex, tables.values()))
    compile_latex(text, tmp_path)
    compile_latex(text, tmp_path, r"\usepackage{booktabs,graphicx}")
    assert "Overfull \\hbox" not in (tmp_path / "table.log").read_text(encoding="latin-1")


def test_one_minus_everywhere_but_in_csv(judged_study, closely_known):
    assert format_number(-40, 1) == "−40.0"
    assert format_number(0.4, 1, signed=True) == "+0.4"
    assert number_cell("a", -1.5, 1, 0.25).text == "−1.5 ± 0.2"
    assert change_cell("map@r", t_interval([-0.4, -0.4])).text.startswith("−40.0")
    for study in (judged_study, closely_known):
        for table in study_tables(study).values():
            for cell in (cell for row in table.rows for cell in row.cells):
                assert not cell.text.startswith("-"), cell
    table = comparison_table(judged_study)
    texts = [table.verdict_text(row, table.columns[0], table.baseline) for row in table.rows]
    assert any("worse −" in text for text in texts)
    assert not any("-" in text for text in texts)
    assert "difference" in to_csv(table)
    assert "−" not in to_csv(table)


def test_settings_are_written_as_a_file_may_have_them(judged_study):
    """The values of a search can be copied into a configuration, also from the protocols."""
    search = judged_study.searches["triplet"]
    params = {"margin": -0.123456, "lr": 1e-05}
    choice = replace(search.choice, params=params)
    tuned = replace(judged_study, searches={"triplet": replace(search, choice=choice)})
    (row,) = search_table(tuned).rows
    assert row.cells[1].text == "margin = -0.1235, lr = 1e-05"
    assert row.cells[1].data["chosen margin"] == -0.123456
    assert format_setting(0.123456) == "0.123456"
    assert describe_search({"search": {"margin": {"uniform": [-0.2, 2.0]}, "lr": {"choice": [1e-06, 3]}}}) == (
        "margin -0.2…2 uniform; lr 1e-06, 3"
    )


def test_one_unit_for_a_metric_everywhere(judged_study):
    assert metric_column("map@r").heading == "map@r (%)"
    assert metric_column("opis").heading == "opis"
    assert metric_cell("a", "map@r", t_interval([0.66, 0.66])).text == "66.00 ± 0.00"
    assert metric_cell("a", "opis", None).text == "–"
    assert value_cell("a", "recall@1", 0.6813).data == {"a": 0.6813}
    assert value_cell("a", "opis", 0.00234).text == "0.00234"
    tuned = search_table(judged_study)
    assert [column.heading for column in tuned.columns][3] == "validation map@r (%)"
    assert tuned.rows[0].cells[3].text == "58.00"


@pytest.fixture
def tuned_ledger(judged_study):
    """A ledger of twenty tuned methods, each with an option of its own."""
    findings = ", ".join(f"learning_rate {1e-4 * place:g} for method_{place}" for place in range(1, 21))
    entries = tuple(
        LedgerEntry(factor=factor, status="differs", finding=findings)
        for factor in ("optimizer", "dimension", "augmentation", "batch")
    )
    ledger = judged_study.ledger.model_copy(update={"entries": entries, "notes": ("Tuned as <published>.",) * 12})
    conditions = {f"condition_{place}": "the same text for all of the methods, of some length" for place in range(30)}
    return study_tables(replace(judged_study, ledger=ledger, conditions=conditions))["ledger"]


def test_a_long_ledger_continues_on_further_pages(tuned_ledger, tmp_path):
    text = to_latex(tuned_ledger)
    check_latex_structure(text)
    assert text.count(r"\begin{table}") > 1
    assert text.count("continued") == text.count(r"\begin{table}") - 1
    assert text.count("Tuned as") == 12
    for row in tuned_ledger.rows:
        assert text.count(latex_text(row.cells[0].text) + " & ") == 1
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed; the structure is checked above")
    for package in ("", r"\usepackage{booktabs,graphicx}"):
        compile_latex(text, tmp_path, package)


def test_cells_that_wrap_take_no_empty_line(judged_study, tmp_path):
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed")
    conditions = {f"condition {place}": "one line" for place in range(36)}
    table = study_tables(replace(judged_study, ledger=None, conditions=conditions))["ledger"]
    text = to_latex(table)
    assert text.count(r"\begin{table}") == 1
    compile_latex(text, tmp_path)
