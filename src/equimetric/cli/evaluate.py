"""`equimetric evaluate`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from equimetric.cli.command import EVALUATE, command
from equimetric.cli.console import show
from equimetric.cli.embeddings import EMBEDDINGS_SOURCE, LABELS_FILE, RUN_PART, EmbeddingSource, load_embeddings
from equimetric.errors import EquimetricError
from equimetric.escaping import name_text

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
"""Figure → the metrics it draws from; `utility_far` is drawn by `plot_utility(rate="far")`."""


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
    """,
)
def evaluate_command(
    source: Annotated[Path, EMBEDDINGS_SOURCE],
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics", "-m", help="Names separated by commas, such as recall@1,map@r,nmi,eer,opis,opis@10%."
        ),
    ] = None,
    ks: Annotated[
        str | None, typer.Option("--ks", help="The K of Recall@K, unless --metrics is given; by default 1,2,4,8.")
    ] = None,
    labels: Annotated[Path | None, LABELS_FILE] = None,
    part: Annotated[str, RUN_PART] = "test",
    geometry: Annotated[
        str | None,
        typer.Option(
            "--geometry", help="cosine, euclidean, dot, hamming (of the signs), l1, l3, linf; by default cosine."
        ),
    ] = None,
    parents: Annotated[
        str | None,
        typer.Option(
            "--parents",
            help="Compare within superclasses alone: an attribute of a run's data, or an array of the .npz file.",
        ),
    ] = None,
    intervals: Annotated[
        bool, typer.Option("--intervals", help="Add 95 % intervals, from resampling whole classes.")
    ] = False,
    compare: Annotated[
        Path | None,
        typer.Option("--compare", help="Other embeddings of the same queries: differences, intervals, p-values."),
    ] = None,
    class_thresholds: Annotated[
        str | None,
        typer.Option(
            "--class-thresholds",
            help="A wanted rate, such as 1e-2 or far=1e-2 or frr=0.1: the threshold each class needs, worst first.",
        ),
    ] = None,
    plots: Annotated[
        Path | None, typer.Option("--plots", help="Write figures to this folder: utility curves, ROC, distances.")
    ] = None,
    block_rows: Annotated[
        int | None,
        typer.Option("--block-rows", help="Queries per block, which bounds memory; by default what fits in 64 MB."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object: metrics by name, sizes.")] = False,
) -> None:
    """Evaluate embeddings exactly: retrieval, clustering, verification, threshold consistency.

    Embeddings may come from anywhere: an .npz file with arrays 'embeddings' and 'labels' (and 'gallery_embeddings',
    'gallery_labels' where queries and gallery differ), a .parquet file with columns 'embedding' and 'label', or an .npy
    file with the labels in a .csv beside it. A run is evaluated on its test classes, with its own metrics and geometry
    unless others are given: the figures are those of its result.
    """
    from equimetric.evaluation import ClassThresholds, evaluate

    found = load_embeddings(source, labels, part, parents)
    wanted = wanted_metrics(found, metrics, ks)
    drawn = [name for needed in PLOTS.values() for name in needed] if plots is not None else []
    gaps = [] if class_thresholds is None else [gap_metric(class_thresholds)]
    names = list(dict.fromkeys([*wanted, *drawn, *gaps]))
    options: dict[str, Any] = {"geometry": geometry or found.geometry, "block_rows": block_rows, "progress": True}
    result = evaluate(**found.arrays, metrics=names, **options)
    summary = result.to_dict()
    values = summary.pop("metrics")
    document = {**{name: values[name] for name in wanted}, **summary}
    lines = [repr(result)]
    for name in gaps:
        needed = result.detail(ClassThresholds, name)
        assert needed is not None
        document["class_thresholds"] = needed.to_dict()
        lines.append(repr(needed))
    if intervals:
        ends = {name: interval for name in wanted if (interval := interval_or_none(result, name)) is not None}
        document["intervals"] = {name: [one.low, one.high] for name, one in ends.items()}
        lines += ["95 % intervals, whole classes resampled:"]
        lines += [f"  {name}  {one.low:.4f} to {one.high:.4f}" for name, one in ends.items()]
    if compare is not None:
        other = load_embeddings(compare, None, part, parents)
        if geometry is None and other.geometry != found.geometry:
            raise EquimetricError(
                f"{str(source)!r} is compared by {found.geometry} and {str(compare)!r} by {other.geometry}; "
                "give --geometry to compare both alike"
            )
        comparison = result.compare(evaluate(**other.arrays, metrics=wanted, **options))
        document["comparison"] = comparison.to_dict()
        lines += [f"Compared with {name_text(str(compare))}:", repr(comparison)]
    if plots is not None:
        lines += [f"figure: {name_text(str(file))}" for file in write_plots(result, plots)]
    if as_json:
        typer.echo(json.dumps(document))
    else:
        show("\n".join(lines))


def interval_or_none(result: "Evaluation", name: str) -> Any:
    """The interval of a metric; None where it cannot be resampled by class."""
    try:
        return result.interval(name)
    except EquimetricError:
        return None


def write_plots(result: "Evaluation", folder: Path) -> list[Path]:
    """Write each figure as a PNG file."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name in PLOTS:
        file = folder / f"{name}.png"
        kind, _, rate = name.partition("_")
        getattr(result, f"plot_{kind}")(**({"rate": rate} if rate else {})).savefig(file, dpi=150)
        files.append(file)
    return files


def gap_metric(wanted: str) -> str:
    """'1e-2', 'far=1e-2' or 'frr=0.1' → the metric that finds the thresholds of classes."""
    from equimetric.evaluation import Metric

    name = f"threshold_gap@{wanted if '=' in wanted else f'far={wanted}'}"
    try:
        Metric.parse(name)
    except EquimetricError:
        raise EquimetricError(
            f"--class-thresholds takes a rate between 0 and 1, such as 1e-2, far=1e-2 or frr=0.1, not {wanted!r}"
        ) from None
    return name


def split_names(text: str) -> list[str]:
    """'recall@1, map@r' → ['recall@1', 'map@r']."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise EquimetricError("--metrics is empty; give names separated by commas, such as recall@1,map@r")
    return names


def wanted_metrics(found: EmbeddingSource, metrics: str | None, ks: str | None) -> list[str]:
    """The metrics that are named, else those of the run, else the usual ones."""
    if metrics is not None:
        return split_names(metrics)
    if ks is None and found.metrics is not None:
        return found.metrics
    from equimetric.evaluation import default_metrics

    try:
        numbers = [int(number) for number in (ks or "1,2,4,8").split(",")]
    except ValueError:
        raise EquimetricError(f"--ks takes whole numbers separated by commas, such as 1,10,100, not {ks!r}") from None
    return default_metrics(numbers)
