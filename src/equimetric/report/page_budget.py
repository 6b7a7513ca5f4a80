"""How many bytes the parts of a page may take, so that a page of twenty methods stays below 8 MB."""

from __future__ import annotations

from equimetric.studies.records import StudyRecord

__all__ = ["METHODS_BYTES", "OTHER_BYTES", "PAGE_BYTES", "image_byte_budget"]

PAGE_BYTES = 8_000_000
OTHER_BYTES = 2_300_000
"""Of the scripts, and of sections whose size hardly depends on the study."""

METHODS_BYTES, METHOD_BYTES = 4_000_000, 200_000
"""Of the thresholds of all methods at most, and of one method in full detail."""

PICTURES_BYTES = 4_000_000
SHARES = {"faults": 0.4, "gallery": 0.35, "compare": 0.25}


def image_byte_budget(study: StudyRecord, *sections: str) -> int:
    """Bytes for the images of some sections; the more methods have thresholds, the fewer."""
    runs = [profile.run for profile in study.profiles.values()]
    variants = sum((run.thresholds is not None) + (run.plain is not None) for run in runs)
    left = PAGE_BYTES - OTHER_BYTES - min(METHODS_BYTES, METHOD_BYTES * variants)
    return int(sum(map(SHARES.__getitem__, sections or SHARES)) * min(PICTURES_BYTES, left))
