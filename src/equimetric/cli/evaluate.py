"""`equimetric evaluate`."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from equimetric.cli.console import console
from equimetric.errors import EquimetricError
from equimetric.evaluation import Evaluation
from equimetric.evaluation import evaluate as evaluate_embeddings
from equimetric.evaluation.files import read_embeddings
from equimetric.runs.evaluation import embed_run

__all__ = ["embedding_arrays", "evaluate"]

PLOTS = {
    "utility": ("opis",),
    "roc": ("auc", "eer", "tar@far=1e-3"),
    "distances": ("auc",),
}
"""Figure → the metrics whose evidence it shows."""


def evaluate(
    source: Annotated[
        Path,
        typer.Argument(help="An .npz, .parquet or .npy file of embeddings and labels, or the folder of a run."),
    ],
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics", "-m", help="Names separated by commas, such as recall@1,map@r,nmi,eer,opis,opis@10%."
        ),
    ] = None,
    ks: Annotated[str, typer.Option("--ks", help="The K of Recall@K where no metrics are named.")] = "1,2,4,8",
    labels: Annotated[
        Path | None, typer.Option("--labels", help="The .csv with the labels of an .npy file; default: beside it.")
    ] = None,
    geometry: Annotated[
        str, typer.Option("--geometry", help="cosine, euclidean, dot, or hamming (of the signs).")
    ] = "cosine",
    intervals: Annotated[
        bool, typer.Option("--intervals", help="Add 95 % intervals, from resampling whole classes.")
    ] = False,
    compare: Annotated[
        Path | None,
        typer.Option("--compare", help="Another space on the same queries: differences, intervals, p-values."),
    ] = None,
    plots: Annotated[
        Path | None, typer.Option("--plots", help="Folder for figures: utility curves, ROC, distances.")
    ] = None,
    block_rows: Annotated[
        int | None, typer.Option("--block-rows", help="Queries compared at a time: sets the memory; default 64 MB.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object: metrics by name, sizes.")] = False,
) -> None:
    """Judge an embedding space: retrieval, clustering, verification, threshold consistency; all exact.

    Embeddings may come from anywhere: an .npz file with arrays 'embeddings' and 'labels' (and 'gallery_embeddings',
    'gallery_labels' where queries and gallery differ), a .parquet file with columns 'embedding' and 'label', or an .npy
    file with the labels in a .csv beside it. A run folder is judged on its test classes.

    Example: equimetric evaluate space.npz -m recall@1,map@r,opis --compare other.npz --plots figures
    """
    names = list(split_names(metrics)) if metrics is not None else default_names(ks)
    asked = list(names)
    if plots is not None:
        names += [name for needed in PLOTS.values() for name in needed if name not in names]
    options: dict[str, Any] = {"geometry": geometry, "block_rows": block_rows, "progress": True}
    result = evaluate_embeddings(**embedding_arrays(source, labels), metrics=names, **options)
    summary = result.to_dict()
    values = summary.pop("metrics")
    document = {**{name: values[name] for name in asked}, **summary}
    lines = [repr(result)]
    if intervals:
        found = {name: interval for name in asked if (interval := interval_or_none(result, name)) is not None}
        document["intervals"] = {name: [one.low, one.high] for name, one in found.items()}
        lines += ["95 % intervals, whole classes resampled:"]
        lines += [f"  {name}  {one.low:.4f} to {one.high:.4f}" for name, one in found.items()]
    if compare is not None:
        other = evaluate_embeddings(**embedding_arrays(compare, None), metrics=asked, **options)
        comparison = result.compare(other)
        document["comparison"] = comparison.to_dict()
        lines += [f"Compared with {compare}:", repr(comparison)]
    if plots is not None:
        lines += [f"figure: {file}" for file in write_plots(result, plots)]
    if as_json:
        typer.echo(json.dumps(document))
    else:
        console.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)


def embedding_arrays(source: Path, labels: Path | None) -> dict[str, Any]:
    """The embeddings and labels of a file, or of the test classes of a run."""
    if not source.is_dir():
        return dict(read_embeddings(source, labels))
    return embed_run(source)[1].arrays()


def interval_or_none(result: Evaluation, name: str) -> Any:
    """The interval of a metric, None for one that cannot be resampled by class."""
    try:
        return result.interval(name)
    except EquimetricError:
        return None


def write_plots(result: Evaluation, folder: Path) -> list[Path]:
    """Every figure as a PNG file."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name in PLOTS:
        file = folder / f"{name}.png"
        getattr(result, f"plot_{name}")().savefig(file, dpi=150)
        files.append(file)
    return files


def split_names(text: str) -> tuple[str, ...]:
    """'recall@1, map@r' → ('recall@1', 'map@r')."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise EquimetricError("--metrics is empty; give names separated by commas, such as recall@1,map@r")
    return names


def default_names(ks: str) -> list[str]:
    """What is measured where no metrics are named."""
    try:
        numbers = [int(number) for number in ks.split(",")]
    except ValueError:
        raise EquimetricError(f"--ks takes whole numbers separated by commas, such as 1,10,100, not {ks!r}") from None
    return ["precision@1", *(f"recall@{k}" for k in numbers), "r_precision", "map@r"]
