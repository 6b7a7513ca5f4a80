"""Test images under conditions: noise, blur, compression, contrast, occlusion, crops, viewpoints."""

from collections.abc import Sequence
from pathlib import Path

from equimetric.runs.access_log import record_test_access
from equimetric.runs.image_conditions import KINDS, evaluate_conditions
from equimetric.studies.probes.probe import probe

__all__ = ["conditions_probe"]


@probe("conditions", title="Test images under conditions")
def conditions_probe(folders: Sequence[Path]) -> dict[str, float]:
    """Every metric under every condition at three levels, and the mean relative drop of each kind of condition."""
    (folder,) = folders
    table = evaluate_conditions(folder)
    record_test_access(folder, "conditions probe")
    values = {f"{metric} under {name}": value for name, row in table.under.items() for metric, value in row.items()}
    for kind, title in KINDS.items():
        values |= {f"relative drop of {metric}, {title}": table.mean_drop(metric, kind) for metric in table.clean}
    return values
