"""A file of embeddings as a report shows it: metrics with intervals, thresholds, neighbours, a map."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch

from equimetric.errors import EquimetricError
from equimetric.evaluation import Evaluation
from equimetric.evaluation.files import read_embeddings
from equimetric.file_hashes import hash_file
from equimetric.runs.configuration import EvaluationConfig
from equimetric.runs.evaluation import NEIGHBOURS, LabelledEmbeddings, evaluate_defined, per_query_arrays
from equimetric.runs.profile import profile_part
from equimetric.studies.embeddings_record import EmbeddingsRecord

__all__ = ["load_embeddings_record"]

METRICS = ("recall@1", "r_precision", "map@r", "auc", "eer", "opis")
"""What a report measures of embeddings alone."""


def load_embeddings_record(file: Path, labels: Path | None = None) -> EmbeddingsRecord:
    """The embeddings of a file with what a report shows of them, which costs a few scans."""
    arrays = read_embeddings(file, labels)
    if "gallery_embeddings" in arrays:
        raise EquimetricError(f"{str(file)!r} has a separate gallery; a report takes one set of labelled embeddings")
    item_labels = np.asarray(arrays["labels"])
    if item_labels.ndim != 1:
        raise EquimetricError(f"{str(file)!r} has several labels for an item; a report takes one label each")
    names, ids = np.unique(item_labels, return_inverse=True)
    class_names = tuple(map(str, names.tolist()))
    vectors = np.array(arrays["embeddings"], dtype=np.float32)
    samples = LabelledEmbeddings(
        torch.from_numpy(vectors),
        torch.from_numpy(ids.astype(np.int64)),
        torch.arange(len(ids)),
        None,
        None,
        class_names,
    )
    config = EvaluationConfig(metrics=list(METRICS))
    result, undefined = evaluate_defined(samples, config, neighbours=NEIGHBOURS)
    defined = [name for name in METRICS if name not in undefined]
    return EmbeddingsRecord(
        name=file.name,
        title=f"Embeddings {file.stem}",
        embeddings=vectors,
        labels=samples.labels.numpy(),
        class_names=dict(enumerate(class_names)),
        metrics={name: float(result[name]) for name in defined},
        intervals=class_intervals(result, defined),
        facts={
            "File": file.name,
            "Vectors": f"{len(item_labels):,} of {vectors.shape[1]:,} dimensions",
            "Classes": f"{len(names):,}",
            "Geometry": "cosine",
            "SHA-256": hash_file(file),
            **{f"Without {name}": reason.partition("; ")[0] for name, reason in undefined.items()},
        },
        profile=profile_part(samples, result, config),
        per_query=per_query_arrays(result, samples),
        commands=repeat_commands(file, labels),
    )


def class_intervals(result: Evaluation, names: Iterable[str]) -> dict[str, tuple[float, float]]:
    """The ends of the intervals from resampling whole classes, of the metrics that allow it."""
    intervals = {}
    for name in names:
        try:
            found = result.interval(name)
        except EquimetricError:
            continue
        if np.isfinite([found.low, found.high]).all():
            intervals[name] = (found.low, found.high)
    return intervals


def repeat_commands(file: Path, labels: Path | None) -> tuple[str, ...]:
    """What measures the same again, in the folder of the file."""
    given = shlex.quote(file.name) + ("" if labels is None else f" --labels {shlex.quote(labels.name)}")
    return (
        f"equimetric report {given}",
        f"equimetric evaluate {given} --metrics {','.join(METRICS)} --intervals",
    )
