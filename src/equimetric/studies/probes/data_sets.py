"""One threshold for several data sets: how far their utilities differ."""

from collections.abc import Sequence
from pathlib import Path

import torch

from equimetric.evaluation import threshold_consistency
from equimetric.runs.evaluation import CohortOverride, embed_run
from equimetric.studies.probes.probe import Progress, probe

__all__ = ["data_sets_probe"]


@probe("data-sets", title="One threshold for whole data sets", sweep="data-sets")
def data_sets_probe(folders: Sequence[Path], progress: Progress) -> dict[str, float]:  # noqa: ARG001  (every probe takes it)
    """OPIS and its forms with the data sets of the sweep as members, each with the model that was trained on it."""
    parts = [embed_run(folder, cohort=CohortOverride("none"))[1] for folder in folders]
    offsets = torch.tensor([0, *(int(part.labels.max()) + 1 for part in parts[:-1])]).cumsum(0)
    labels = torch.cat([part.labels + offset for part, offset in zip(parts, offsets, strict=True)])
    members = torch.cat([torch.full((len(part.labels),), index) for index, part in enumerate(parts)])
    embeddings = torch.cat([part.embeddings for part in parts])
    return {
        "opis of data sets": threshold_consistency(embeddings, labels, members=members).opis,
        "opis_far of data sets": threshold_consistency(embeddings, labels, members=members, rate="far").opis,
        "opis_frr of data sets": threshold_consistency(embeddings, labels, members=members, rate="frr").opis,
    }
