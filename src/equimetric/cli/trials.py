"""What `equimetric evaluate --trials` shows."""

import json
from pathlib import Path
from typing import Any

import typer

from equimetric.cli.console import show, show_path
from equimetric.cli.embeddings import EmbeddingSource
from equimetric.errors import EquimetricError

__all__ = ["show_trials"]


def show_trials(
    found: EmbeddingSource,
    source: Path,
    labels: Path | None,
    trials: Path,
    metrics: str | None,
    geometry: str | None,
    plots: Path | None,
    as_json: bool,
) -> None:
    """Print the rates of the listed pairs; classes are resampled for the intervals, because labels are known."""
    from equimetric.evaluation.trial_lists import read_ids
    from equimetric.evaluation.trials import evaluate_trials

    if not found.pooled:
        raise EquimetricError(
            f"{str(source)!r} has a separate gallery; a trial list names rows of one set of embeddings"
        )
    ids = None if source.is_dir() else read_ids(source, labels)
    options: dict[str, Any] = {} if metrics is None else {"far": wanted_rates(metrics)}
    options |= {"geometry": geometry or found.geometry, "cohort": found.cohort}
    result = evaluate_trials(
        found.pooled["embeddings"],
        ids,
        trials,
        labels=found.pooled["labels"],
        **options,
    )
    lines = [] if as_json else [repr(result)]
    if plots is not None:
        plots.mkdir(parents=True, exist_ok=True)
        result.plot().savefig(plots / "trials.png", dpi=150)
    if as_json:
        typer.echo(json.dumps(result.to_dict()))
        return
    show("\n".join(lines))
    if plots is not None:
        show_path("figure", plots / "trials.png")


def wanted_rates(metrics: str) -> list[float]:
    """The false accept rates of the metrics that a trial list has: auc, eer, tar@far=F."""
    from equimetric.evaluation.families import Metric

    rates = []
    for name in (name.strip() for name in metrics.split(",") if name.strip()):
        metric = Metric.parse(name)
        if metric.family == "tar@far=F":
            rates.append(metric["far"])
        elif name not in ("auc", "eer"):
            raise EquimetricError(f"{name!r} cannot be computed from a trial list; ask for auc, eer or tar@far=1e-3")
    return rates
