"""Our own numbers: the tables in results/, by method."""

import csv
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

__all__ = ["RESULTS", "OurResult", "our_results"]

RESULTS = Path(__file__).parents[1] / "results"


class OurResult(NamedTuple):
    """Scores of a method in one of the tables, as printed there, with the conditions under which they were reached."""

    method: str
    table: str
    page: str
    trained_on: str
    dim: int
    budget: str
    map_at_r: str
    recall_at_1: str


FOLDS = {"frozen-reality-check": "41 classes in 4 folds", "glyphs-reality-check": "302 classes in 4 folds"}
"""Study with tuning → what its models are trained on."""

REGIMES = {"frozen": (256, 600), "scratch": (64, 600), "last block": (256, 300)}
"""Word in the title of a table of defaults → dimension and steps of its regime."""


@cache
def our_results() -> tuple[OurResult, ...]:
    """Every row of a trained method: with tuned options in the reality checks, with those of the regime in defaults."""
    return (*tuned_results("frozen-reality-check"), *tuned_results("glyphs-reality-check"), *default_results())


def tuned_results(study: str) -> Iterator[OurResult]:
    """Rows of a study's table; rows with a learner or an arm of their own are not those of the method alone."""
    config = tomllib.loads((RESULTS / study / "store" / "study.toml").read_text(encoding="utf-8"))
    methods = config["methods"]
    budget = f"{config['search']['trials']} trials; up to {config['training']['steps']:,} steps"
    conditions = (FOLDS[study], config["model"]["dim"], budget)
    title = (RESULTS / study / "README.md").read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
    with (RESULTS / study / "tables" / "table.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["method"] in methods:
                scores = [
                    f"{percent(row, name)} ± {percent(row, name, 'half_width')}" for name in ("map@r", "recall@1")
                ]
                yield OurResult(methods[row["method"]]["method"], f"{title} (tuned)", study, *conditions, *scores)


def percent(row: dict[str, str], metric: str, field: str = "mean") -> str:
    """A fraction of the table in percent."""
    return f"{100 * float(row[f'{metric}_{field}']):.1f}"


def default_results() -> Iterator[OurResult]:
    """Rows of the tables of defaults, section by section."""
    page = (RESULTS / "defaults" / "README.md").read_text(encoding="utf-8")
    for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        title = section.splitlines()[0]
        classes = re.search(r"(\d+) classes train", section)
        trained_on = f"{classes[1] if classes else 31} classes"
        dim, steps = next((regime for word, regime in REGIMES.items() if word in title), (0, 0))
        for line in re.findall(r"^\| (\w+) \| \d+ \| .*$", section, flags=re.MULTILINE):
            cells = next(row for row in section.splitlines() if row.startswith(f"| {line} |")).split("|")
            conditions = (trained_on, dim, f"no tuning; up to {steps} steps")
            yield OurResult(line, f"{title} (defaults)", "defaults", *conditions, cells[3].strip(), cells[5].strip())
