"""Do the defaults help? Every method's end beside its start and beside raw features or pixels, on test classes.

Reads finished studies and prints a Markdown table of each: mean over seeds, differences to the better of raw and start.
A method meets the mark where it ends above both in MAP@R and at most half a point below both in Recall@1.

    equimetric compare results/defaults/grocery81-frozen.toml --data.options.file PATH/labels.csv
    python benchmarks/defaults.py runs/grocery81-frozen
"""

from __future__ import annotations

import argparse
from statistics import mean, median

from equimetric.studies.records import StudyRecord
from equimetric.studies.store import load_study

METRICS = ("map@r", "recall@1")
ALLOWED_LOSS = 0.5
"""Points of Recall@1."""


def scores(study: StudyRecord, row: str) -> tuple[float, float]:
    """Mean MAP@R and Recall@1 over the seeds of a row, in percent."""
    map_at_r, recall = (100 * mean(study.values(row, metric)) for metric in METRICS)
    return map_at_r, recall


def print_table(study: StudyRecord) -> None:
    baselines = [row for row in study.methods if study.kind_of(row) == "baseline" and study.runs_of(row, "done")]
    best = [max(scores(study, row)[i] for row in baselines) for i in range(2)]
    trained = [row for row in study.methods if study.kind_of(row) == "trained"]
    finished = [row for row in trained if study.runs_of(row, "done")]
    print(f"\n## {study.title}\n")
    print("| method | runs | MAP@R % | above | R@1 % | above | best step | mark |")
    print("|---|---:|---:|---:|---:|---:|---:|---|")
    for row in baselines:
        print("| {} | {} | {:.1f} | | {:.1f} | | | |".format(row, len(study.runs_of(row, "done")), *scores(study, row)))
    num_met = 0
    for row in sorted(finished, key=lambda row: -scores(study, row)[0]):
        (map_at_r, recall), runs = scores(study, row), study.runs_of(row, "done")
        reached = map_at_r > best[0] and recall >= best[1] - ALLOWED_LOSS
        num_met += reached
        steps = median(best_step(run.history) for run in runs)
        cells = f"{map_at_r:.1f} | {map_at_r - best[0]:+.1f} | {recall:.1f} | {recall - best[1]:+.1f} | {steps:.0f}"
        print(f"| {row} | {len(runs)} | {cells} | {'met' if reached else 'missed'} |")
    for row in (row for row in study.methods if not study.runs_of(row, "done")):
        print(f"| {row} | failed | | | | | | {study.runs_of(row, 'failed')[0].error} |")
    print(f"\n{num_met} of {len(trained)} methods meet the mark.")


def best_step(history: object) -> int:
    """The step whose weights were kept."""
    assert isinstance(history, tuple)
    validated = [line for line in history if line.get("kind") == "validation"]
    return int(max(validated, key=lambda line: (line["map@r"], -line["step"]))["step"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="+", help="folders of studies")
    for folder in parser.parse_args().studies:
        print_table(load_study(folder))


if __name__ == "__main__":
    main()
