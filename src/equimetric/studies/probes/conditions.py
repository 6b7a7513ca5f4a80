"""Test images under conditions: noise, blur, compression, contrast, occlusion, crops, viewpoints."""

from collections.abc import Sequence
from itertools import count
from pathlib import Path

from equimetric.data.image_conditions import list_conditions
from equimetric.runs.access_log import record_test_access
from equimetric.runs.image_conditions import KINDS, evaluate_conditions
from equimetric.studies.probes.probe import Progress, probe

__all__ = ["conditions_probe"]


@probe("conditions", title="Test images under conditions")
def conditions_probe(folders: Sequence[Path], progress: Progress) -> dict[str, float]:
    """Every metric under every condition at three levels, and the mean relative drop of each kind of condition."""
    (folder,) = folders
    begun = count()
    table = evaluate_conditions(folder, progress=lambda _: progress(next(begun), len(list_conditions()) + 1))
    record_test_access(folder, "conditions probe")
    values = {f"{metric} under {name}": value for name, row in table.under.items() for metric, value in row.items()}
    for kind, title in KINDS.items():
        values |= {f"relative drop of {metric}, {title}": table.mean_drop(metric, kind) for metric in table.clean}
    return values
