"""A drift check in plain words."""

from collections.abc import Mapping
from typing import Any

__all__ = ["drift_text"]


def drift_text(check: Mapping[str, Any]) -> str:
    """The answer, what changed, what would be seen, and what would make the check sharper."""
    if check["change"] is None:
        return f"{check['answer']}: {check['samples']} samples, or a calibration of few classes"
    lines = [check["answer"], f"  compared            {_data(check)}", f"  largest change      {_change(check)}"]
    direction = "closer" if check["moved"] < 0 else "farther apart"
    lines.append(
        f"  expected FAR        {check['expected_far']:.3g} instead of {check['certified_far']:.3g}, if all pairs moved"
        f" as much as classes did: {abs(check['moved']):.3g} {direction}"
    )
    lines.append(f"  would be seen       {_visible(check)}")
    if check["shifted_from"] is not None:
        lines.append(
            f"  if there are {check['shifted_from']} or more classes, this is beyond chance: shifted. Give labels, or "
            "the least number of classes"
        )
    elif not check["labelled"]:
        lines.append("  labels, or the least number of classes, make smaller shifts visible")
    return "\n".join(lines)


def _data(check: Mapping[str, Any]) -> str:
    of = f" of {check['samples']}" if check["compared"] < check["samples"] else ""
    classes = f"{check['classes']} class" + ("es" if check["classes"] != 1 else "")
    known = f"of {classes}" if check["labelled"] else f"without labels; {classes} would explain them best"
    return f"{check['compared']}{of} samples {known}"


def _change(check: Mapping[str, Any]) -> str:
    return f"{check['changed']}: {check['change']:.2f} of what chance alone stays below"


def _visible(check: Mapping[str, Any]) -> str:
    seen = []
    if check["visible_distance"] is not None:
        seen.append(f"all distances smaller by {check['visible_distance']:.2g} (FAR {check['visible_far']:.2g})")
    if check["visible_mean"] is not None:
        seen.append(f"the mean embedding moved by {check['visible_mean']:.2g}")
    if not seen:
        return "not even a large shift, in most of such checks"
    return " or ".join(seen) + ", in four of five such checks"
