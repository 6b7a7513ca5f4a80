"""Fold models joined: the embeddings of several runs side by side, evaluated as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from equimetric.geometry import unit
from equimetric.runs.configuration import RunConfig
from equimetric.runs.evaluation import (
    NEIGHBOURS,
    CohortOverride,
    LabelledEmbeddings,
    embed_run,
    evaluate_defined,
    per_query_arrays,
)
from equimetric.runs.folder import RunFolder
from equimetric.runs.key import RunKey
from equimetric.runs.result import RunResult

__all__ = ["join_folds"]


def join_folds(members: Sequence[Path], run: RunFolder, config: RunConfig, key: RunKey) -> tuple[str, ...]:
    """Evaluate the test embeddings of several runs, each of unit length, side by side; write result and scores.

    Gives the names of the data's classes. The test classes are opened once more, by models that are final.
    """
    with run.lock():
        joined = join_embeddings([embed_run(folder, cohort=CohortOverride("none"))[1] for folder in members])
        scores, undefined = evaluate_defined(joined, config.evaluation, neighbours=NEIGHBOURS)
        run.write_config(config)
        run.write_per_query(per_query_arrays(scores, joined))
        dims, folds = joined.embeddings.shape[1], len(members)
        notes = [f"{folds} fold models side by side, {dims} dimensions."]
        notes += [f"{name} of the test classes is not defined: {reason}." for name, reason in undefined.items()]
        run.write_result(
            RunResult(
                status="done",
                role=key.role,
                method=config.method,
                seed=config.seed,
                metrics=dict(scores),
                parameters=sum(RunFolder(folder).require_result().parameters for folder in members),
                notes=tuple(notes),
            )
        )
    return joined.class_names


def join_embeddings(parts: Sequence[LabelledEmbeddings]) -> LabelledEmbeddings:
    """(M, ΣD) embeddings of the same images side by side, each of unit length, and the whole again."""
    first = parts[0]
    assert all(torch.equal(part.rows, first.rows) for part in parts), "fold models share their test images"
    concatenated = torch.cat([unit(part.embeddings) for part in parts], dim=1)
    return replace(first, embeddings=unit(concatenated), cohort=None)
