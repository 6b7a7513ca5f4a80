"""Few-shot adaptation: the head learns from a few labelled images of the test classes."""

from collections.abc import Sequence
from pathlib import Path

from equimetric.runs.access_log import record_test_access
from equimetric.runs.few_shot import adapt
from equimetric.studies.probes.probe import Progress, probe

__all__ = ["few_shot_probe"]

SHOTS = (2, 5)


@probe("few-shot", title="Few-shot adaptation to the test classes, whose labels it uses", version=2)
def few_shot_probe(folders: Sequence[Path], progress: Progress) -> dict[str, float]:
    """Every metric before and after adaptation to two and five images of each test class, means over ten episodes."""
    (folder,) = folders
    adapted = adapt(folder, shots=SHOTS, progress=progress)
    record_test_access(folder, "few-shot probe")
    values = {}
    for result in adapted.by_shots:
        for metric in result.few_shot:
            values[f"{metric} before {result.shots} shots"] = result.before(metric).mean
            values[f"{metric} after {result.shots} shots"] = result.after(metric).mean
    return values
