"""`equimetric published`."""

import csv
import io
import json

import pytest

from equimetric.cli.published import PAPERS as LISTED
from equimetric.published import PAPERS


def test_the_help_names_every_paper():
    assert tuple(PAPERS) == LISTED


def test_without_options_it_says_what_there_is(equimetric):
    code, out, _ = equimetric("published")
    assert code == 0
    assert "883 published results" in out
    assert "Musgrave, Belongie, Lim" in out


def test_filters_and_formats(equimetric):
    filters = ("--paper", "reality-check", "--dataset", "cub", "--method", "contrastive", "--metric", "recall@1")
    _, table, _ = equimetric("published", *filters)
    assert "68.13 ± 0.31" in table
    _, markdown, _ = equimetric("published", *filters, "--format", "md")
    assert "| Contrastive | BN-Inception | 512 concatenated | **68.13 ± 0.31** |" in markdown
    _, latex, _ = equimetric("published", *filters, "--format", "tex")
    assert r"512 concatenated & \textbf{68.13 $\pm$ 0.31} \\" in latex
    _, text, _ = equimetric("published", *filters, "--format", "csv")
    assert [row["value"] for row in csv.DictReader(io.StringIO(text))] == ["68.13", "59.73"]
    _, document, _ = equimetric("published", *filters, "--dim", 128, "--format", "json")
    assert [row["value"] for row in json.loads(document)["rows"]] == [59.73]


def test_hyperparameters(equimetric):
    code, out, _ = equimetric("published", "--hyperparameters", "--method", "arcface", "--format", "csv")
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(out)))
    assert {(row["our_option"], row["dataset"], row["batch"]) for row in rows} > {("margin_rad", "CUB-200-2011", "256")}


def test_improvement_prints_both_tables_and_draws_the_figure(equimetric, tmp_path):
    code, out, err = equimetric("published", "--improvement", "--figure", tmp_path / "papers.png")
    assert code == 0, err
    assert "over contrastive loss" in out
    assert "over triplet loss" in out
    assert "Trend over the years" in out
    assert (tmp_path / "papers.png").read_bytes().startswith(b"\x89PNG")
    _, text, _ = equimetric("published", "--improvement", "--figure", tmp_path / "again.png", "--format", "csv")
    assert len(text.splitlines()) == 1 + 20 + 2 * 39


def test_improvement_of_a_table_of_ones_own(equimetric, tmp_path):
    (tmp_path / "mine.csv").write_text("method,dataset,value\ncontrastive,cub,50\ntriplet,cub,40\ncircle,cub,60\n")
    code, out, err = equimetric("published", "--improvement", "--reality", tmp_path / "mine.csv", "--format", "csv")
    assert code == 0, err
    mine = [row for row in csv.DictReader(io.StringIO(out)) if row["source"] == "mine"]
    assert [(row["base"], row["method"], row["percent"]) for row in mine] == [
        ("contrastive", "triplet", "-20.0"),
        ("contrastive", "circle", "20.0"),
        ("triplet", "contrastive", "25.0"),
        ("triplet", "circle", "50.0"),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--dataset", "mnist"), "unknown data set with published results 'mnist'"),
        (("--paper", "tcm", "--dataset", "in_shop"), "no paper has such a result"),
        (("--figure", "a.png"), "belong to --improvement"),
        (("--improvement", "--paper", "tcm"), "--paper has no meaning beside --improvement"),
        (("--hyperparameters", "--dim", "64"), "--dim has no meaning beside --hyperparameters"),
        (("--hyperparameters", "--method", "circle"), "has no hyperparameters for that"),
        (("--improvement", "--figure", "a.docx"), "a figure is a file"),
        (("--improvement", "--metric", "NMI"), "the Reality Check has no NMI"),
        (("--improvement", "--metric", "RP", "--reality", "a.csv"), "leave one out"),
        (("--improvement", "--reality", "a.csv"), "cannot read the table a.csv"),
    ],
)
def test_mistakes_are_one_sentence(equimetric, is_one_sentence, arguments, message):
    code, _, err = equimetric("published", *arguments)
    assert code == 2
    assert is_one_sentence(err), err
    assert message in err
