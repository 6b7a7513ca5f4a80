"""Output of `equimetric evaluate --trials` and `calibrate --trials`."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from equimetric.cli.console import show, show_path
from equimetric.cli.embeddings import EmbeddingSource
from equimetric.cli.figures import save_figures
from equimetric.errors import EquimetricError

if TYPE_CHECKING:
    from equimetric.evaluation import TrialEvaluation

__all__ = ["show_trial_threshold", "show_trials"]


def show_trials(
    embeddings: EmbeddingSource,
    source: Path,
    labels: Path | None,
    trials: Path,
    metrics: str | None,
    geometry: str | None,
    plots: Path | None,
    as_json: bool,
) -> None:
    """Print the rates of the listed pairs; classes are resampled for the intervals, because labels are known."""
    result = verify_trials(
        embeddings, source, labels, trials, geometry, None if metrics is None else parse_rates(metrics)
    )
    if plots is not None:
        save_figures(plots, [("trials", result.plot)])
    if as_json:
        typer.echo(json.dumps(result.to_dict()))
        return
    show(repr(result))
    if plots is not None:
        show_path("figure", plots / "trials.png")


def show_trial_threshold(
    embeddings: EmbeddingSource,
    source: Path,
    labels: Path | None,
    trials: Path,
    far: float,
    geometry: str | None,
    as_json: bool,
) -> None:
    """Print the threshold of a false accept rate on exactly the listed pairs, with both rates and their intervals."""
    result = verify_trials(embeddings, source, labels, trials, geometry, [far])
    point = result.calibrate(far)
    # With a cohort a threshold is of the score, which is accepted above it.
    threshold = point.threshold if embeddings.cohort is None else -point.threshold
    accepts = f"{'distance <' if embeddings.cohort is None else 'score >'} threshold"
    document = {**asdict(point), "threshold": threshold, "accepts": accepts, "resampled": result.resampled}
    if as_json:
        typer.echo(json.dumps(document))
        return
    rates = [
        f"{name} {value:.3g}" + ("" if ends is None else f" ({ends[0]:.3g} … {ends[1]:.3g})")
        for name, value, ends in (("FAR", point.far, point.far_interval), ("FRR", point.frr, point.frr_interval))
    ]
    accepted = "distances below" if embeddings.cohort is None else "scores above"
    show(
        f"Calibration for FAR {far:g} on {len(result.same)} listed pairs: accept {accepted} {threshold:.6g}\n"
        f"  {', '.join(rates)} ({result.confidence:.0%}, {result.resampled} resampled)\n"
        "  fitted to these pairs; a certificate with held-out classes needs calibrate without --trials"
    )


def verify_trials(
    embeddings: EmbeddingSource,
    source: Path,
    labels: Path | None,
    trials: Path,
    geometry: str | None,
    far: list[float] | None,
) -> "TrialEvaluation":
    """The rates of the listed pairs of a file of embeddings, or of a run."""
    from equimetric.evaluation.trial_lists import read_ids
    from equimetric.evaluation.trials import evaluate_trials

    if not embeddings.pooled:
        raise EquimetricError(
            f"{str(source)!r} has a separate gallery; a trial list names rows of one set of embeddings"
        )
    ids = None if source.is_dir() else read_ids(source, labels)
    options: dict[str, Any] = {} if far is None else {"far": far}
    options |= {"geometry": geometry or embeddings.geometry, "cohort": embeddings.cohort}
    return evaluate_trials(embeddings.pooled["embeddings"], ids, trials, labels=embeddings.pooled["labels"], **options)


def parse_rates(metrics: str) -> list[float]:
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
