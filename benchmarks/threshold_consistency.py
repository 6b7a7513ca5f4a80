"""What TCM and a cohort do to accuracy and consistency: reads a finished study and prints a Markdown table.

Every run is evaluated plainly, by a cohort of its training classes at strengths ½ and 1 (mean form), and by the cohort
that its validation classes chose. All scores are on one axis, and opis figures are in thousandths.

    equimetric compare results/threshold-consistency/omniglot.toml --data.options.root PATH/omniglot_28.npz
    python benchmarks/threshold_consistency.py runs/threshold-consistency-omniglot
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from statistics import mean, stdev

from equimetric.evaluation import evaluate
from equimetric.runs.evaluation import CohortOverride, embed_run
from equimetric.runs.model import load
from equimetric.runs.result import CohortSetting

COLUMNS = {
    "recall@1": ("R@1 %", 100),
    "map@r": ("MAP@R %", 100),
    "tar@far=1e-2": ("TAR at FAR 1e-2 %", 100),
    "opis": ("OPIS", 1000),
    "opis@10%": ("10 %", 1000),
    "opis_noise": ("noise", 1000),
    "opis_far": ("opis_far", 1000),
    "opis_far@10%": ("10 %", 1000),
    "opis_far_noise": ("noise", 1000),
}
STRENGTHS = (0.5, 1.0)
Scores = Mapping[str, float]


def run_folders(study: Path) -> dict[str, list[Path]]:
    """The finished runs of every row."""
    found: dict[str, list[Path]] = {}
    for file in sorted(study.glob("*/*/result.json")):
        found.setdefault(file.parent.parent.name, []).append(file.parent)
    return found


def evaluate_run(folder: Path) -> tuple[dict[str, Scores], CohortSetting | None]:
    """The figures of a run by kind of cohort, and what its validation classes chose."""
    result = load(folder).result
    figures: dict[str, Scores] = {"none": result.plain}
    for strength in STRENGTHS:
        _, found = embed_run(folder, cohort=CohortOverride("train", strength, "mean"))
        figures[f"λ = {strength:g}"] = dict(evaluate(**found.arrays(), metrics=list(COLUMNS)))
    figures["chosen"] = result.metrics
    return figures, result.cohort


def print_row(name: str, kind: str, runs: list[Scores]) -> None:
    """Means over seeds, with the standard deviation of what is to be compared."""
    cells = []
    for metric, (_, factor) in COLUMNS.items():
        values = [factor * scores[metric] for scores in runs]
        digits = 1 if factor == 100 or mean(values) >= 10 else 2 if mean(values) >= 0.1 else 4
        spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 and "noise" not in metric else ""
        cells.append(f"{mean(values):.{digits}f}{spread}")
    print(f"| {name} | {kind} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="+", type=Path, help="folders of studies")
    for study in parser.parse_args().studies:
        print(f"\n## {study.name}\n")
        print("| method | cohort | " + " | ".join(title for title, _ in COLUMNS.values()) + " |")
        print("|---|---|" + "---:|" * len(COLUMNS))
        chosen: dict[str, Counter[str]] = {}
        for name, folders in run_folders(study).items():
            evaluated = [evaluate_run(folder) for folder in folders]
            for kind in evaluated[0][0]:
                print_row(name, kind, [figures[kind] for figures, _ in evaluated])
            settings = [setting for _, setting in evaluated if setting is not None]
            chosen[name] = Counter(f"{one.part}, {one.form}, λ = {one.strength:g}" for one in settings)
        print("\nChosen on validation classes:\n")
        for name, counts in chosen.items():
            print(f"* {name}: {'; '.join(f'{text} ({times}×)' for text, times in counts.items())}")


if __name__ == "__main__":
    main()
