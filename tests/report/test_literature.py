"""Published results and papers versus reality as tables and as a figure."""

import csv
import io
import json
import re
from dataclasses import replace

import pytest

from equimetric.errors import EquimetricError
from equimetric.published import (
    BASES,
    compare_accuracies,
    compare_improvements,
    read_results,
    select_hyperparameters,
    select_results,
)
from equimetric.published.improvement import Improvement
from equimetric.report import (
    accuracy_table,
    draw_improvements,
    hyperparameter_records,
    hyperparameter_table,
    improvement_records,
    improvement_table,
    overview_table,
    printed_tables,
    result_records,
    to_csv,
    to_json,
    to_latex,
    to_markdown,
    trend_table,
)


def lines_of(table):
    """Text of the first cell → texts of the others."""
    return {row.cells[0].text: [cell.text for cell in row.cells[1:]] for row in table.rows}


def test_the_overview_counts_every_result():
    table = overview_table(read_results())
    assert sum(row.cells[2].data["results"] for row in table.rows) == 883
    assert any("Musgrave, Belongie, Lim" in citation for citation in table.footnotes)


def test_results_are_laid_out_as_printed():
    (table,) = printed_tables(select_results(paper="reality-check", dataset="cub", variant="concatenated"))
    assert table.title == "reality-check, Accuracy on CUB-200-2011"
    assert [column.heading for column in table.columns][3:] == ["P@1 (%)", "RP (%)", "MAP@R (%)"]
    assert lines_of(table)["Contrastive"] == [
        "BN-Inception", "512 concatenated", "68.13 ± 0.31", "37.24 ± 0.28", "26.53 ± 0.29",
    ]  # fmt: skip
    assert "| **68.13 ± 0.31** |" in to_markdown(table)
    assert "Bold as in the paper." in table.footnotes


def test_doubts_stand_below_the_table():
    (table,) = printed_tables(select_results(paper="unbiased", dataset="sop"))
    assert lines_of(table)["N-Pairs"][-1] == "67.31 (?)"
    assert lines_of(table)["N-Pairs (quoted)"][2] == "67.70"
    assert "(?) N-Pairs, NMI: about 20 points below every other NMI on SOP." in table.footnotes
    assert [row.group for row in table.rows] == sorted((row.group for row in table.rows), key="quoted".__eq__)


def test_all_printed_tables_render():
    tables = printed_tables(read_results())
    assert len(tables) == 22
    texts = [cell.text for table in tables for row in table.rows for cell in row.cells[3:]]
    assert sum(bool(re.search(r"\d", text)) for text in texts) == 883 - 53
    for table in tables:
        assert to_latex(table).count(r"\\") >= len(table.rows)


def test_programs_get_every_field():
    rows = list(csv.DictReader(io.StringIO(to_csv(result_records(read_results())))))
    assert len(rows) == 883
    wanted = [row for row in rows if (row["method"], row["dataset"], row["dim"]) == ("ArcFace", "SOP", "512")]
    assert [json.loads(row["our_options"]) for row in wanted] == [{"mode": "plain"}] * 3
    document = json.loads(to_json(result_records(select_results(paper="tcm"))))
    assert len(document["rows"]) == 96
    assert document["rows"][0]["our_metric"] == "opis"


def test_hyperparameters_as_tables():
    found = select_hyperparameters(dataset="cub", method="arcface", batch=32)
    (_, margin, _) = hyperparameter_table(found).rows
    assert [cell.text for cell in margin.cells[3:]] == [
        "margin", "0 … 90", "linear", "23.22", "arcface", "margin_rad", "0.4053",
    ]  # fmt: skip
    record = hyperparameter_records(found).records()[1]
    assert record["our_optimum"] == pytest.approx(0.40526545, rel=1e-7)


def test_improvements_as_a_table_per_base():
    found = compare_improvements()
    table = improvement_table(found, "contrastive")
    assert [column.name for column in table.columns] == ["source", "method", "year", "CUB-200-2011", "Cars-196", "SOP"]
    texts = {(row.cells[0].text, row.cells[1].text): [cell.text for cell in row.cells[2:]] for row in table.rows}
    assert texts["Reality Check (P@1)", "ArcFace"] == ["2019", "−0.9", "+4.5", "+4.2"]
    assert texts["papers (P@1)", "Margin"] == ["2017", "–", "–", "+141.5"]
    arcface = next(record for record in table.records() if record["method"] == "ArcFace")
    assert arcface["CUB-200-2011"] == -0.9247027741083157
    papers = [row.cells[2].text for row in table.rows if row.group.startswith("papers")]
    assert papers == sorted(papers)


def test_the_trend_has_a_row_per_source_and_base():
    texts = lines_of(trend_table(compare_improvements()))
    assert list(texts) == [f"{source} (P@1) over {base}" for source in ("papers", "Reality Check") for base in BASES]
    assert texts["papers (P@1) over triplet"][0] == "–"
    assert texts["Reality Check (P@1) over contrastive"][0] == "−3.2 (n = 3)"


def test_improvements_for_programs_hold_both_values():
    records = improvement_records(compare_improvements(metric="MAP@R")).records()
    arcface = [one for one in records if (one["method"], one["base"], one["dataset"]) == ("ArcFace", "triplet", "SOP")]
    assert arcface == [
        {
            "source": "Reality Check (MAP@R)", "base": "triplet", "method": "ArcFace", "year": 2019, "dataset": "SOP",
            "value": 47.41, "base_value": 43.37, "percent": pytest.approx(100 * 4.04 / 43.37),
        }
    ]  # fmt: skip


def test_accuracy_over_the_years_as_a_table():
    texts = {
        (row.cells[0].text, row.cells[1].text): [cell.text for cell in row.cells[2:]]
        for row in accuracy_table(compare_accuracies()).rows
    }
    assert texts["papers (P@1)", "Contrastive"] == ["2006", "30.1 (n = 10)", "30.8 (n = 9)", "39.0 (n = 10)"]
    assert texts["papers (P@1)", "HTL"] == ["2018", "57.1", "81.4", "74.8"]
    assert texts["Reality Check (P@1)", "SoftTriple"] == ["2019", "67.3", "84.5", "76.1"]


def test_the_figure_has_the_panels_of_accuracy_over_the_years(tmp_path):
    """One for what papers report, one for reality, on one scale, which shows all that both of them draw."""
    file = tmp_path / "figure.svg"
    text = draw_improvements(compare_improvements(), file, compare_accuracies()).read_text()
    shown = re.findall("<!-- (.*?) -->", text)
    assert {"papers (P@1): over the years (* mean over papers)", "Reality Check (P@1): over the years"} < set(shown)
    assert {"Contrastive* 2006", "Triplet* 2006", "SoftTriple 2019"} < set(shown)
    assert shown.count("80") == 2, "the tick of both panels"
    fractions = [replace(one, value=one.value / 100, source="mine") for one in compare_accuracies()]
    assert draw_improvements(compare_improvements(), file, [*fractions, *compare_accuracies()]).stat().st_size > 0


def test_the_figure_draws_every_method_and_data_set(tmp_path):
    text = draw_improvements(compare_improvements(), tmp_path / "new" / "figure.svg").read_text()
    shown = set(re.findall("<!-- (.*?) -->", text))
    assert shown > {"CUB-200-2011", "Cars-196", "SOP", "relative improvement (%)", "year of publication"}
    assert shown > {f"{one.method} {one.year}" for one in compare_improvements()}
    assert {name for name in shown if "over" in name} == {
        *(f"{source} (P@1): over {base} loss (own scale)" for source in ("papers", "Reality Check") for base in BASES),
        *(f"trend: over {base} loss, all on one scale" for base in BASES),
    }


@pytest.mark.parametrize("ending", ["png", "pdf"])
def test_figures_as_pictures_and_pages(tmp_path, ending):
    file = draw_improvements(compare_improvements(), tmp_path / f"figure.{ending}")
    assert file.read_bytes().startswith(b"\x89PNG" if ending == "png" else b"%PDF")


def test_a_figure_of_one_base_with_hostile_names_and_many_data_sets(tmp_path):
    found = [
        Improvement("$mine$ \\frac", "triplet", "a$b$ _c_\n{d}", None, f"set {place}", 1.0 + place, 1.0)
        for place in range(8)
    ]
    assert draw_improvements(found, tmp_path / "figure.png").stat().st_size > 0


def test_a_figure_that_cannot_be_drawn_is_an_error(tmp_path):
    with pytest.raises(EquimetricError, match=r"a figure is a file \.png, \.pdf, \.svg"):
        draw_improvements(compare_improvements(), tmp_path / "figure.docx")
    with pytest.raises(EquimetricError, match="no improvement to draw"):
        draw_improvements([], tmp_path / "figure.png")
