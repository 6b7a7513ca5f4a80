"""Papers versus reality: relative improvement, by hand."""

import pytest

from equimetric.errors import EquimetricError
from equimetric.published import (
    BASES,
    average_by_year,
    compare_improvements,
    paper_accuracies,
    paper_improvements,
    publication_year,
    read_baselines,
    reality_check_rows,
    relative_improvement,
    reported_baselines,
    table_accuracies,
    table_improvements,
)

TABLE = [
    {"method": "contrastive", "dataset": "glyphs", "value": 0.50},
    {"method": "Triplet", "dataset": "glyphs", "value": 0.40},
    {"method": "circle", "dataset": "glyphs", "value": 0.60},
    {"method": "my own", "dataset": "glyphs", "value": 0.55, "year": 2026},
    {"method": "nameless", "dataset": "glyphs", "value": 0.45},
]


def test_the_worked_example():
    assert relative_improvement(67.5, 68.13) == -0.9247027741083157
    found = {(one.method, one.dataset): one for one in table_improvements(reality_check_rows(), "contrastive")}
    assert found["ArcFace", "CUB-200-2011"].percent == -0.9247027741083157


@pytest.mark.parametrize("base", [0.0, -1.0, float("nan")])
def test_a_base_of_nothing_is_an_error(base):
    with pytest.raises(EquimetricError, match="needs a base above 0"):
        relative_improvement(1.0, base)


def test_fourteen_papers_report_baselines():
    frame = reported_baselines()
    assert frame["title"].nunique() == 14
    assert (frame["contrastive"].count(), frame["triplet"].count()) == (29, 31)
    lifted = frame[(frame["method"] == "Lifted structure") & (frame["dataset"] == "Cars-196")].iloc[0]
    assert (lifted["contrastive"], lifted["triplet"], lifted["proposed"]) == (21.7, 39.1, 49.2)
    assert (lifted["year"], lifted["quoted_by"]) == (2016, "unbiased")


def test_papers_are_compared_within_themselves():
    found = {(one.method, one.dataset): one for one in paper_improvements("triplet")}
    cascaded = found["HDC", "SOP"]
    assert (cascaded.value, cascaded.base_value, cascaded.year) == (69.5, 42.1, 2017)
    assert cascaded.percent == pytest.approx(65.0831354, rel=1e-8)
    over_contrastive = {(one.method, one.dataset) for one in paper_improvements("contrastive")}
    assert ("Angular", "SOP") not in over_contrastive, "the paper has no contrastive baseline"
    assert ("HDC", "SOP") in over_contrastive


def test_doubtful_quotations_are_left_out():
    doubtful = {(one.method, one.dataset) for one in read_baselines() if one.doubt}
    assert doubtful == {("Lifted structure", "CUB-200-2011"), ("N-pairs", "CUB-200-2011")}
    used = {(one.method, one.dataset) for base in BASES for one in paper_improvements(base)}
    assert not used & doubtful


def test_the_table_of_the_reality_check():
    rows = reality_check_rows(metric="MAP@R", variant="separated")
    assert len(rows) == 3 * 14
    found = table_improvements(rows, "triplet")
    assert len(found) == 3 * 13
    assert [one.year for one in found] == sorted(one.year for one in found)
    assert {one.method for one in found if one.year == 2006} == {"Contrastive"}
    assert "Pretrained" not in {one.method for one in found}
    contrastive = next(one for one in found if (one.method, one.dataset) == ("Contrastive", "CUB-200-2011"))
    assert contrastive.percent == pytest.approx(100 * (21.18 - 18.75) / 18.75)


def test_a_table_of_ones_own_in_any_unit():
    found = table_improvements(TABLE, "contrastive", source="mine")
    assert [(one.method, one.year) for one in found] == [
        ("Triplet", 2006),
        ("circle", 2020),
        ("my own", 2026),
        ("nameless", None),
    ]
    assert [one.percent for one in found] == pytest.approx([-20, 20, 10, -10])
    percent = table_improvements([{**row, "value": 100 * row["value"]} for row in TABLE], "contrastive")
    assert [one.percent for one in percent] == pytest.approx([one.percent for one in found])
    assert [one.percent for one in table_improvements(TABLE, "triplet")] == pytest.approx([25, 50, 37.5, 12.5])


def test_the_trend_averages_each_year():
    rows = [
        {"method": "contrastive", "dataset": "a", "value": 1.0, "year": 2006},
        {"method": "contrastive", "dataset": "b", "value": 2.0, "year": 2006},
        {"method": "x", "dataset": "a", "value": 1.5, "year": 2019},
        {"method": "x", "dataset": "b", "value": 2.0, "year": 2019},
        {"method": "y", "dataset": "a", "value": 0.9, "year": 2020},
        {"method": "nameless", "dataset": "a", "value": 9.0},
    ]
    trend = average_by_year(table_improvements(rows, "contrastive"))
    assert [(one.year, one.percent, one.n) for one in trend] == [(2019, 25.0, 2), (2020, pytest.approx(-10.0), 1)]


def test_years_of_methods():
    known = {"contrastive": 2006, "Margin/class": 2017, "contrastive+tcm": 2024, "circle": 2020, "no such": None}
    assert {name: publication_year(name) for name in known} == known


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (TABLE[1:], "no row of 'contrastive' on 'glyphs'"),
        ([*TABLE, {"method": "circle", "dataset": "digits", "value": 1.0}], "on 'digits'"),
        ([{"method": "circle", "value": 1.0}], "needs 'dataset'"),
    ],
)
def test_a_table_without_what_it_takes_is_an_error(rows, message):
    with pytest.raises(EquimetricError, match=message):
        table_improvements(rows, "contrastive")


def test_an_unknown_base_is_an_error():
    with pytest.raises(EquimetricError, match="did you mean 'triplet'"):
        table_improvements(TABLE, "triplets")


def test_accuracies_of_papers_are_their_own_and_the_means_of_their_baselines():
    found = {(one.method, one.dataset): one for one in paper_accuracies()}
    reported = [one.contrastive for one in read_baselines() if one.dataset == "SOP" and one.contrastive is not None]
    mean = found["Contrastive", "SOP"]
    assert (mean.value, mean.n, mean.year) == (pytest.approx(sum(reported) / len(reported)), len(reported), 2006)
    assert (found["HDC", "Cars-196"].value, found["HDC", "Cars-196"].n) == (73.7, 1)
    assert ("Lifted structure", "CUB-200-2011") not in found, "a doubtful quotation"
    years = [one.year for one in paper_accuracies()]
    assert years == sorted(years)


def test_accuracies_of_a_table_are_in_the_order_of_publication():
    rows = [
        {"method": "circle", "dataset": "a", "value": 2.0},
        {"method": "mine", "dataset": "a", "value": 3.0},
        TABLE[0],
    ]
    assert [(one.method, one.year) for one in table_accuracies(rows)] == [
        ("contrastive", 2006),
        ("circle", 2020),
        ("mine", None),
    ]


def test_a_table_in_a_file(tmp_path):
    file = tmp_path / "mine.csv"
    file.write_text("method,dataset,value,year\ncontrastive,cub,50,\ntriplet,cub,40,\nnew,cub,60,2025\n")
    found = [one for one in compare_improvements(file) if one.source == "mine"]
    assert [(one.base, one.method, one.year, one.percent) for one in found] == [
        ("contrastive", "triplet", 2006, -20.0),
        ("contrastive", "new", 2025, 20.0),
        ("triplet", "contrastive", 2006, 25.0),
        ("triplet", "new", 2025, 50.0),
    ]


@pytest.mark.parametrize("text", ["method,dataset\ncontrastive,cub\n", "method,dataset,value\ncontrastive,cub,high\n"])
def test_a_file_without_values_is_an_error(tmp_path, text):
    file = tmp_path / "mine.csv"
    file.write_text(text)
    with pytest.raises(EquimetricError, match="needs the columns method, dataset and value"):
        compare_improvements(file)
    with pytest.raises(EquimetricError, match="cannot read the table"):
        compare_improvements(tmp_path / "missing.csv")
