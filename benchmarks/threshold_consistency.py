"""What TCM and a cohort do to accuracy and consistency: reads a finished study and prints a Markdown table.

The figures of a run without a cohort and with the one that its validation classes chose are in its result; those with
a cohort of its training classes in the mean form are computed for each of `--strengths`, and with `--training` those of
the training classes themselves. All scores are on one axis; opis figures are in thousandths.

    equimetric compare results/threshold-consistency/omniglot.toml --data.options.root PATH/omniglot_28.npz
    python benchmarks/threshold_consistency.py runs/threshold-consistency-omniglot
    python benchmarks/threshold_consistency.py runs/threshold-consistency-grocery81 --strengths 0.5 1 --figures figures
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from statistics import mean, stdev

from equimetric.evaluation import Cohort, evaluate
from equimetric.runs.evaluation import CohortOverride, embed_run
from equimetric.runs.model import load_run
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
TRAINING = "none, training classes"
BASELINES = ("raw_features", "untrained")
Scores = Mapping[str, float]


def run_folders(study: Path) -> dict[str, list[Path]]:
    """The finished runs of every row."""
    folders: dict[str, list[Path]] = {}
    for file in sorted(study.glob("*/*/result.json")):
        folders.setdefault(file.parent.parent.name, []).append(file.parent)
    return folders


def evaluate_run(
    folder: Path, strengths: list[float], training: bool
) -> tuple[dict[str, Scores], CohortSetting | None]:
    """The figures of a run by kind of cohort, and the cohort setting chosen on its validation classes."""
    result = load_run(folder).result
    figures: dict[str, Scores] = {"none": result.plain}
    if training:
        _, samples = embed_run(folder, "train")
        figures[TRAINING] = dict(
            evaluate(**samples.arrays(), cohort=Cohort(samples.embeddings, strength=0.0), metrics=list(COLUMNS))
        )
    for strength in strengths:
        _, samples = embed_run(folder, cohort=CohortOverride("train", strength, "mean"))
        figures[f"λ = {strength:g}"] = dict(evaluate(**samples.arrays(), metrics=list(COLUMNS)))
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


def draw(title: str, rows: Mapping[str, Mapping[str, list[Scores]]], file: Path) -> None:
    """Consistency against accuracy: each method's way from no cohort to the chosen one, with and without TCM."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    for axes, metric in zip(figure.subplots(1, 2), ("opis", "opis_far"), strict=True):
        for name, kinds in rows.items():
            colour = "#d55e00" if name.endswith("+tcm") else "#999999" if name in BASELINES else "#0072b2"
            points = [
                (100 * mean(scores["tar@far=1e-2"] for scores in runs), 1000 * mean(scores[metric] for scores in runs))
                for runs in kinds.values()
            ]
            axes.plot(*zip(*points, strict=True), color=colour, linewidth=0.8)
            for index, point in enumerate(points):
                hollow = index == 0
                axes.plot(*point, "o", color=colour, markerfacecolor="white" if hollow else colour, markersize=5)
            if not name.endswith("+tcm"):
                axes.annotate(name, points[0], fontsize="x-small", xytext=(4, 3), textcoords="offset points")
        axes.set(xlabel="TAR at FAR 1e-2 (%)", ylabel=f"{metric} (×10⁻³, lower is better)", yscale="log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
        axes.tick_params(which="minor", labelsize="x-small")
        axes.grid(alpha=0.3)
    order = " → ".join(next(iter(rows.values())))
    caption = f"{title}\ncohort: {order}, starting from the hollow point; blue plain, orange with TCM, grey not trained"
    figure.suptitle(caption, fontsize="small")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="+", type=Path, help="folders of studies")
    parser.add_argument("--strengths", nargs="*", type=float, default=[], help="of cohorts of the training classes")
    parser.add_argument("--training", action="store_true", help="the training classes, too, without a cohort")
    parser.add_argument("--figures", type=Path, help="folder to draw into, one figure for each study")
    args = parser.parse_args()
    for study in args.studies:
        print(f"\n## {study.name}\n")
        print("| method | cohort | " + " | ".join(title for title, _ in COLUMNS.values()) + " |")
        print("|---|---|" + "---:|" * len(COLUMNS))
        chosen: dict[str, Counter[str]] = {}
        rows: dict[str, dict[str, list[Scores]]] = {}
        for name, folders in run_folders(study).items():
            evaluated = [evaluate_run(folder, args.strengths, args.training) for folder in folders]
            rows[name] = {kind: [figures[kind] for figures, _ in evaluated] for kind in evaluated[0][0]}
            for kind, runs in rows[name].items():
                print_row(name, kind, runs)
            rows[name].pop(TRAINING, None)
            settings = [setting for _, setting in evaluated if setting is not None]
            chosen[name] = Counter(f"{setting.part}, {setting.form}, λ = {setting.strength:g}" for setting in settings)
        if args.figures is not None:
            draw(study.name, rows, args.figures / f"{study.name}.png")
        print("\nChosen on validation classes:\n")
        for name, counts in chosen.items():
            print(f"* {name}: {'; '.join(f'{text} ({times}×)' for text, times in counts.items())}")


if __name__ == "__main__":
    main()
