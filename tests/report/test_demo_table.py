"""The README's table of the demo has the form of what `equimetric demo` writes."""

import re
from importlib.resources import files
from itertools import takewhile
from pathlib import Path

import numpy as np

from equimetric.report import comparison_table, to_markdown
from equimetric.studies.narrative import choose_table_metrics
from equimetric.studies.outcomes import ClassList
from equimetric.studies.study_file import load_study_config

README = Path(__file__).parents[2] / "README.md"
LEFT_OUT = 2
"""Time per run and parameters, which are those of a machine and of a network."""


def table_cells(text):
    """The cells of the first table of a text whose heading begins with the methods."""
    lines = text.splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("| method |"))
    table = takewhile(lambda line: line.startswith("|"), lines[start:])
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def form(cell):
    """A cell without its numbers, its verdict, letters and emphasis."""
    return re.sub(
        r"better|worse|undecided|equal", "verdict", re.sub(r"[+−]?\d+\.\d+", "#", re.sub(r"\*|\b[a-g]+$", "", cell))
    )


def test_the_table_of_the_readme_is_what_the_demo_writes(run, study_of):
    demo = load_study_config(Path(str(files("equimetric.studies") / "demo.toml")))
    generator = np.random.default_rng(0)
    classes = ClassList(tuple(range(40)), tuple(f"c{k}" for k in range(40)), (8,) * 40)
    metrics = choose_table_metrics(demo)

    def one(name, seed, shift=0.0, **changes):
        scores = generator.uniform(0.3, 0.6, 40) + 0.01 * seed + shift
        fields = {"metrics": {metric: float(scores.mean()) for metric in metrics}, "classes": classes}
        return run(name, seed, **fields, per_class=dict.fromkeys(metrics, scores), **changes)

    runs = [one(name, seed) for name in demo.methods for seed in demo.seeds]
    baselines = [one("raw_pixels", 0, 0.1, kind="baseline")]
    baselines += [one("untrained", seed, kind="baseline") for seed in demo.seeds]
    written = to_markdown(
        comparison_table(study_of(*runs, *baselines, table_metrics=metrics, primary_metric=metrics[0]))
    )
    expected, found = table_cells(written), table_cells(README.read_text(encoding="utf-8"))
    assert found[:2] == [line[:-LEFT_OUT] for line in expected[:2]]
    forms = [{line[0]: list(map(form, line[1:])) for line in table[2:]} for table in (expected, found)]
    assert set(forms[1]) == set(forms[0])
    for name, cells in forms[1].items():
        assert cells == forms[0][name][:-LEFT_OUT], name
    # Baselines first, then methods, each by the first metric.
    assert [line[0].endswith("(baseline)") for line in found[2:]] == [True] * 2 + [False] * len(demo.methods)
    means = [float(re.findall(r"\d+\.\d", line[2])[0]) for line in found[2:]]
    assert means[:2] == sorted(means[:2], reverse=True)
    assert means[2:] == sorted(means[2:], reverse=True)
