"""`equimetric evaluate`."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from equimetric.cli.command import EVALUATE, command
from equimetric.cli.console import show
from equimetric.cli.embeddings import (
    CohortOptions,
    EmbeddingSource,
    load_embeddings,
    require_run_for_part,
)
from equimetric.cli.evaluation_report import ClassNames, EvaluationReport
from equimetric.cli.figures import require_figure_folder, save_figures
from equimetric.cli.options import CohortForm, CohortSource, CohortStrength, EmbeddingsPath, LabelsFile, RunPart
from equimetric.errors import EquimetricError

if TYPE_CHECKING:
    from equimetric.evaluation import Evaluation

__all__ = ["evaluate_command"]

PLOTS = {
    "utility": ("opis",),
    "utility_far": ("opis_far",),
    "utility_frr": ("opis_frr",),
    "roc": ("auc", "eer", "tar@far=1e-3"),
    "distances": ("auc",),
}
"""Figure → the metrics it needs; `utility_far` is drawn by `plot_utility(rate="far")`."""


@command(
    "evaluate",
    panel=EVALUATE,
    order=1,
    examples="""
    equimetric evaluate space.npz -m recall@1,map@r,opis --intervals
    equimetric evaluate space.npz --compare other.npz --plots figures
    equimetric evaluate space.npz -m opis,opis_far,opis_frr,opis_noise --class-thresholds 1e-2
    equimetric evaluate runs/single/my-run --json
    equimetric evaluate runs/single/my-run --parents alphabet
    equimetric evaluate runs/single/my-run --condition blur:2
    equimetric evaluate images.npz --gallery texts.npz -m recall@1,map@r,median_rank
    equimetric evaluate space.npz --trials list.csv
    equimetric evaluate space.npz --cohort other_classes.npz --plots figures
    equimetric evaluate large.npy --labels labels.npy --jobs 8
    """,
)
def evaluate_command(
    source: EmbeddingsPath,
    metrics: Annotated[
        str | None,
        typer.Option("--metrics", "-m", help="Names separated by commas, such as recall@1,map@r,macro:map@r,eer,opis."),
    ] = None,
    ks: Annotated[
        str | None, typer.Option("--ks", help="The K of Recall@K, unless --metrics is given; by default 1,2,4,8.")
    ] = None,
    labels: LabelsFile = None,
    part: RunPart = "test",
    geometry: Annotated[
        str | None,
        typer.Option(
            "--geometry",
            help="cosine, euclidean, dot, hamming (of the signs), l1, l3, linf, hyperbolic; by default cosine.",
        ),
    ] = None,
    parents: Annotated[
        str | None,
        typer.Option(
            "--parents",
            help="Compare within superclasses alone: an attribute of a run's data, or an array of the .npz file.",
        ),
    ] = None,
    condition: Annotated[
        str | None,
        typer.Option(
            "--condition",
            help="Images of a run under a condition and level, such as blur:2; 'all' makes a table of all of them.",
        ),
    ] = None,
    overlap: Annotated[
        str | None,
        typer.Option(
            "--overlap", help="Relevance by which ndcg@K grades items of several labels: shared (1 or 0) or jaccard."
        ),
    ] = None,
    cohort: CohortSource = None,
    cohort_strength: CohortStrength = None,
    cohort_form: CohortForm = None,
    intervals: Annotated[
        bool, typer.Option("--intervals", help="Add 95 % intervals, from resampling whole classes.")
    ] = False,
    gallery: Annotated[
        Path | None,
        typer.Option(
            "--gallery",
            help="A second file of embeddings as the gallery of the first, such as texts for images.",
        ),
    ] = None,
    compare: Annotated[
        Path | None,
        typer.Option("--compare", help="Other embeddings of the same queries: differences, intervals, p-values."),
    ] = None,
    class_thresholds: Annotated[
        str | None,
        typer.Option(
            "--class-thresholds",
            help="A target rate, such as 1e-2 or far=1e-2 or frr=0.1: the threshold each class needs, worst first.",
        ),
    ] = None,
    plots: Annotated[
        Path | None,
        typer.Option("--plots", help="Write figures to this folder: utility curves, ROC, distances, cohort."),
    ] = None,
    trials: Annotated[
        Path | None,
        typer.Option(
            "--trials",
            help="Verify exactly the pairs of this .csv or .parquet list with the columns id_a, id_b, same. Ids are "
            "those of the array 'ids' of the .npz (the column 'id' of a table), or row numbers from 0.",
        ),
    ] = None,
    block_rows: Annotated[
        int | None,
        typer.Option("--block-rows", help="Queries per block, which bounds memory; by default what fits in 64 MB."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", help="Number of worker processes of one thread each; the figures are the same, bit for bit."
        ),
    ] = None,
    engine: Annotated[
        str,
        typer.Option(
            "--engine", help="Execution engine: local (worker processes), or ray (a cluster; equimetric[ray])."
        ),
    ] = "local",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object: metrics by name, sizes.")] = False,
) -> None:
    """Evaluate embeddings exactly: retrieval, clustering, verification, threshold consistency.

    Embeddings may come from anywhere: an .npz file with arrays 'embeddings' and 'labels' (and 'gallery_embeddings',
    'gallery_labels' where queries and gallery differ; labels may be multi-hot), a .safetensors file of the same, a
    .parquet file with columns 'embedding' and 'label', or an .npy file with the labels in a .csv beside it. Large
    .npy and .safetensors files are read from disk as needed, and may be larger than memory. A run is evaluated on its
    test classes, with its own metrics and geometry unless others are given: the figures are those of its result.
    """
    from equimetric.evaluation import evaluate

    require_figure_folder(plots)
    require_run_for_part(part, source, compare)
    if condition == "all":
        excluded = (ks, parents, overlap, cohort, gallery, compare, class_thresholds, plots, trials)
        if intervals or any(option is not None for option in excluded):
            raise EquimetricError("--condition all prints one table; beside it give --metrics, --part and --json alone")
        show_conditions(source, part, None if metrics is None else split_names(metrics), as_json)
        return
    cohort_options = CohortOptions(cohort, cohort_strength, cohort_form)
    load = partial(load_embeddings, command="evaluate", condition=condition)
    embeddings = load(source, labels, part, parents, cohort_options)
    if gallery is not None:
        if compare is not None or trials is not None:
            raise EquimetricError("--gallery takes the place of one set; leave --compare and --trials out")
        embeddings = add_gallery(embeddings, source, gallery, parents)
    if trials is not None:
        from equimetric.cli.trials import show_trials

        if compare is not None or parents is not None:
            raise EquimetricError("--trials verifies the listed pairs alone; leave --compare and --parents out")
        show_trials(embeddings, source, labels, trials, metrics, geometry, plots, as_json)
        return
    metric_names = choose_metrics(embeddings, metrics, ks)
    gap_metrics = [] if class_thresholds is None else [gap_metric(class_thresholds)]
    plot_metrics = [] if plots is None else [name for names in PLOTS.values() for name in names]
    options: dict[str, Any] = {"geometry": geometry or embeddings.geometry, "block_rows": block_rows, "progress": True}
    options |= {"jobs": jobs, "engine": engine, **({} if overlap is None else {"overlap": overlap})}
    names = list(dict.fromkeys([*metric_names, *plot_metrics, *gap_metrics]))
    result = evaluate(**embeddings.arrays, metrics=names, cohort=embeddings.cohort, **options)
    class_names = map_class_names(result, embeddings)
    report = EvaluationReport(result, metric_names)
    for name in gap_metrics:
        report.add_class_thresholds(name, class_names)
    if intervals:
        report.add_intervals()
    if compare is not None:
        other = load(compare, None, part, parents, cohort_options)
        require_same_comparison(embeddings, other, source, compare, geometry)
        report.add_comparison(evaluate(**other.arrays, metrics=metric_names, cohort=other.cohort, **options), compare)
    if plots is not None:
        report.add_figures(write_plots(result, plots, class_names) + write_cohort_plot(embeddings, plots, block_rows))
    report.show(as_json)


def map_class_names(result: "Evaluation", embeddings: EmbeddingSource) -> ClassNames:
    """Label → printed name of every class of a result."""
    from equimetric.evaluation.class_names import name_classes

    names = name_classes(result.class_labels, embeddings.origin.get("class_names"))
    return dict(zip(result.class_labels, names, strict=True))


def require_same_comparison(
    embeddings: EmbeddingSource, other: EmbeddingSource, source: Path, compare: Path, geometry: str | None
) -> None:
    """Raise an error where two spaces would be compared by different geometries, parents or normalisation."""
    if geometry is None and other.geometry != embeddings.geometry:
        raise EquimetricError(
            f"{str(source)!r} is compared by {embeddings.geometry} and {str(compare)!r} by {other.geometry}; "
            "give --geometry to compare both alike"
        )
    if ("parents" in other.arrays) != ("parents" in embeddings.arrays):
        raise EquimetricError(
            f"only one of {str(source)!r} and {str(compare)!r} is compared within parents; give --parents for both"
        )
    if (embeddings.cohort is None) != (other.cohort is None):
        raise EquimetricError("only one of the two is normalised by a cohort; give --cohort to compare both alike")


def add_gallery(embeddings: EmbeddingSource, source: Path, gallery: Path, parents: str | None) -> EmbeddingSource:
    """The embeddings of a file as queries, those of another as their gallery."""
    if source.is_dir() or gallery.is_dir():
        raise EquimetricError("--gallery takes two files of embeddings; a run has queries and gallery of its own")
    if "gallery_embeddings" in embeddings.arrays:
        raise EquimetricError(f"{str(source)!r} has a gallery of its own; leave --gallery out")
    from equimetric.evaluation.files import read_embeddings

    gallery_arrays = read_embeddings(gallery, None, parents)
    if "gallery_embeddings" in gallery_arrays:
        raise EquimetricError(f"{str(gallery)!r} has queries and a gallery; --gallery takes one set of embeddings")
    arrays = {
        f"gallery_{name}": gallery_arrays[name]
        for name in ("embeddings", "labels", "parents")
        if name in gallery_arrays
    }
    return replace(embeddings, arrays={**embeddings.arrays, **arrays})


def show_conditions(run: Path, part: str, metrics: list[str] | None, as_json: bool) -> None:
    """Print the metrics of a run under all conditions."""
    from equimetric.data import list_conditions
    from equimetric.progress import show_progress
    from equimetric.runs.access_log import record_test_access
    from equimetric.runs.image_conditions import evaluate_conditions

    if not run.is_dir():
        raise EquimetricError(f"--condition changes the images of a run, and {str(run)!r} is no run's folder")
    with show_progress("Conditions", 1 + len(list_conditions())) as advance:
        table = evaluate_conditions(run, metrics=metrics, part=part, progress=lambda _: advance(1))
    if part == "test":
        record_test_access(run, "evaluate")
    if as_json:
        typer.echo(json.dumps(table.to_dict()))
    else:
        show(str(table))


def write_plots(result: "Evaluation", folder: Path, class_names: ClassNames) -> list[Path]:
    """Write each figure as a PNG file."""

    def make_drawing(name: str) -> tuple[str, Any]:
        kind, _, rate = name.partition("_")
        options = {"names": class_names, "rate": rate or "both"} if kind == "utility" else {}
        return name, partial(getattr(result, f"plot_{kind}"), **options)

    return save_figures(folder, map(make_drawing, PLOTS))


def write_cohort_plot(embeddings: EmbeddingSource, folder: Path, block_rows: int | None) -> list[Path]:
    """Write a figure of plain and normalised similarities; nothing without a cohort, or within parents."""
    if embeddings.cohort is None or "parents" in embeddings.arrays:
        return []
    from equimetric.evaluation import compare_cohort
    from equimetric.evaluation.cohort_plots import plot_cohort

    effect = compare_cohort(**embeddings.arrays, cohort=embeddings.cohort, block_rows=block_rows)
    return save_figures(folder, [("cohort", partial(plot_cohort, effect))])


def gap_metric(rate: str) -> str:
    """'1e-2', 'far=1e-2' or 'frr=0.1' → the metric that finds the thresholds of classes."""
    from equimetric.evaluation import Metric

    name = f"threshold_gap@{rate if '=' in rate else f'far={rate}'}"
    try:
        Metric.parse(name)
    except EquimetricError:
        raise EquimetricError(
            f"--class-thresholds takes a rate between 0 and 1, such as 1e-2, far=1e-2 or frr=0.1, not {rate!r}"
        ) from None
    return name


def split_names(text: str) -> list[str]:
    """'recall@1, map@r' → ['recall@1', 'map@r']."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise EquimetricError("--metrics is empty; give names separated by commas, such as recall@1,map@r")
    return names


def choose_metrics(embeddings: EmbeddingSource, metrics: str | None, ks: str | None) -> list[str]:
    """The metrics that are named, else those of the run, else the defaults."""
    if metrics is not None:
        return split_names(metrics)
    if ks is None and embeddings.metrics is not None:
        return embeddings.metrics
    from equimetric.evaluation import default_metrics

    try:
        values = [int(value) for value in (ks or "1,2,4,8").split(",")]
    except ValueError:
        raise EquimetricError(f"--ks takes whole numbers separated by commas, such as 1,10,100, not {ks!r}") from None
    return default_metrics(values)
