"""Studies in results/: tables are those of their stores, and what their READMEs say is what the tables say."""

import csv
import io
import re
from functools import cache
from pathlib import Path

import pytest

from equimetric.report import to_csv
from equimetric.studies.judgement import judge_study
from equimetric.studies.store import load_study
from equimetric.studies.table import comparison_table, joined_table

RESULTS = Path(__file__).parents[2] / "results"
STUDIES = {
    "frozen-reality-check": ("", "raw_features_", "recall@1_raw_features_"),
    "glyphs-reality-check": ("", "recall@1_"),
    "learners": ("", "recall@1_"),
}
"""Study with a store → the verdicts in its README's table, by the beginnings of their columns in table.csv."""
NAMES = {
    "raw features, 1,280-d": "raw_features",
    "pretrained (PCA, 128-d)": "pretrained",
    "untrained head": "untrained",
    "raw pixels": "raw_pixels",
    "untrained network": "untrained",
}


@cache
def read(study):
    return load_study(RESULTS / study / "store")


@cache
def readme(study):
    return (RESULTS / study / "README.md").read_text(encoding="utf-8")


def table_rows(text):
    return {row["method"]: row for row in csv.DictReader(io.StringIO(text))}


def percent(value, decimals, *, signed=False):
    return f"{100 * float(value):{'+' if signed else ''}.{decimals}f}".replace("-", "−")


@pytest.mark.parametrize("study", STUDIES)
def test_tables_are_those_of_the_store(study):
    record = read(study)
    folder = RESULTS / study / "tables"
    assert (folder / "table.csv").read_text(encoding="utf-8") == to_csv(comparison_table(record))
    joined = joined_table(record)
    assert (folder / "joined.csv").exists() == (joined is not None)
    if joined is not None:
        assert (folder / "joined.csv").read_text(encoding="utf-8") == to_csv(joined)


@pytest.mark.parametrize("study", STUDIES)
def test_the_table_of_the_readme_is_that_of_the_study(study):
    rows = table_rows((RESULTS / study / "tables" / "table.csv").read_text(encoding="utf-8"))
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in readme(study).splitlines()]
    shown = {NAMES.get(cells[0], cells[0].replace(" + TCM", "+tcm")): cells for cells in lines if len(cells) > 5}
    assert set(rows) <= set(shown)
    for name, row in rows.items():
        printed = [cell.strip("*") for cell in shown[name]]
        for metric, decimals in (("map@r", 1), ("recall@1", 2 if study.startswith("frozen") else 1)):
            mean, half = row[f"{metric}_mean"], row[f"{metric}_half_width"]
            assert f"{percent(mean, decimals)} ± {percent(half, decimals)}" in printed
        verdicts = []
        for prefix in STUDIES[study]:
            if row[f"{prefix}verdict"]:
                decimals = 2 if prefix.startswith("recall@1") and study.startswith("frozen") else 1
                difference = percent(row[f"{prefix}difference"], decimals, signed=True)
                verdicts.append(f"{row[f'{prefix}verdict']}, {difference}")
        assert [cell for cell in printed if re.match("better|worse|undecided|practically", cell)] == verdicts


@pytest.mark.parametrize("study", STUDIES)
def test_the_readme_counts_what_the_study_says(study):
    judgement, text = judge_study(read(study)), " ".join(readme(study).split())
    statements = sum(len(found.comparisons) for found in judgement.comparisons.values())
    assert f"one family of {statements:,} statements" in text
    footnote = next(note for note in comparison_table(read(study)).footnotes if note.startswith("Smallest"))
    detectable = re.search(rf"(\d\.\d) points .{{0,60}}?(\d\.\d) as one of {statements:,} statements", text)
    assert [float(number) for number in re.findall(r"\d+\.\d+", footnote)] == pytest.approx(
        [float(number) for number in detectable.groups()], abs=0.051
    )
    said = [one.verdict for one in judgement.methods.comparisons]
    methods = judgement.methods.rows
    untrained = judgement.references[1]
    better = sum(judgement.rows.between(method, untrained).verdict == "better" for method in methods)
    apart = sum(verdict in ("better", "worse") for verdict in said)
    counts = {
        "frozen-reality-check": f"{said.count('undecided')} are undecided",
        "glyphs-reality-check": f"Of all {len(said)} pairs of methods {apart} differ and {said.count('undecided')} are",
        "learners": f"better than raw pixels**: {better} of {len(methods)} rows by MAP@R",
    }
    assert counts[study] in text
