"""A study beside the literature."""

from dataclasses import replace

import pytest

from equimetric.report import study_tables
from equimetric.report.sections.literature import literature_section
from equimetric.report.study_literature import published_table, study_accuracies, study_improvements


@pytest.fixture
def birds(run, study_of):
    values = {"Contrastive": 0.6, "Triplet": 0.5, "MS": 0.66}
    metrics = {row: {"map@r": value / 3, "recall@1": value} for row, value in values.items()}
    study = study_of(*(run(row, seed, metrics=metrics[row]) for row in values for seed in (0, 1)))
    recipes = {"Contrastive": ("contrastive", {}), "Triplet": ("triplet", {}), "MS": ("multi_similarity", {})}
    return replace(study, recipes=recipes, dataset="cub", table_metrics=("map@r", "recall@1"))


def test_published_values_of_the_same_method_data_set_and_metric_stand_beside_ours(birds):
    rows = [tuple(row.cells) for row in published_table(birds).rows]
    contrastive = [row for row in rows if (row[0].text, row[1].text) == ("Contrastive", "recall@1 (%)")]
    assert [row[2].data["ours"] for row in contrastive] == [pytest.approx(0.6)] * len(contrastive)
    # P@1 of 512 dimensions in the Reality Check.
    assert 0.6813 in [row[3].data["published"] for row in contrastive]
    assert published_table(replace(birds, dataset="glyphs")) is None


def test_improvements_over_both_bases_whatever_their_rows_are_called(birds):
    ours = f"this study ({birds.primary_metric})"
    found = {(one.base, one.method): one.percent for one in study_improvements(birds) if one.source == ours}
    assert found["contrastive", "MS"] == pytest.approx(10.0)
    assert found["triplet", "MS"] == pytest.approx(32.0)
    assert any(one.source != ours for one in study_improvements(birds))
    assert study_improvements(replace(birds, recipes={"MS": ("multi_similarity", {})})) == []


def test_accuracy_over_the_years_of_papers_and_of_the_study(birds):
    ours = [one for one in study_accuracies(birds) if one.source == "this study (recall@1)"]
    assert [(one.method, one.year, one.value) for one in ours] == [
        ("contrastive", 2006, pytest.approx(60.0)),
        ("triplet", 2006, pytest.approx(50.0)),
        ("MS", 2019, pytest.approx(66.0)),
    ]
    assert len(study_accuracies(birds)) > len(ours)
    assert study_accuracies(replace(birds, recipes={"MS": ("multi_similarity", {})})) == []
    figures = literature_section(birds)["figures"]
    assert [figure.name for figure in figures][:2] == ["accuracies-0", "accuracies-1"]
    drawn = [figure.draw().to_dict() for figure in figures[:2]]
    assert [value["method"] for value in drawn[1]["data"]["values"]] == ["contrastive 2006", "triplet 2006", "MS 2019"]
    assert {value["dataset"] for value in drawn[0]["data"]["values"]} == {"CUB-200-2011", "Cars-196", "SOP"}
    assert "accuracy" in study_tables(birds)
