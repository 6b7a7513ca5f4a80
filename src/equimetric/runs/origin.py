"""Origin of a run's embeddings: its weights and its preprocessing."""

from pathlib import Path

from equimetric.checksums import checksum
from equimetric.data import transform
from equimetric.data.views import CenterCrop, View
from equimetric.runs.folder import WEIGHTS, RunFolder

__all__ = ["describe_preprocessing", "describe_view", "weights_sha256"]

RESIZED = {
    "shorter": "shorter side resized to {0}",
    "square": "resized to {0}×{0}",
    "fit": "shorter side resized to {0}, centre square",
}


def weights_sha256(folder: str | Path) -> str:
    """sha256 of the file of the run's weights, the one that its result names."""
    run = RunFolder(Path(folder))
    expected = run.expected_checksum(WEIGHTS)
    return expected["sha256"] if expected is not None else checksum(run.read(WEIGHTS, None))["sha256"]


def describe_preprocessing(folder: str | Path) -> str:
    """The transform of a run and its test view, in words."""
    run = RunFolder(Path(folder))
    result, name = run.result(), run.config().data.transform
    if result is not None and result.data is not None and result.data.vectors:
        return "feature vectors as they are"
    return f"{name}: {describe_view(transform(name).test)}"


def describe_view(view: View | None) -> str:
    """Resizing and crop of a view, in words."""
    if view is None:
        return "as the data set gives them"
    steps = [] if view.resize is None else [RESIZED[view.resize.how].format(view.resize.side)]
    if view.crop is not None:
        steps.append(f"{'centre' if isinstance(view.crop, CenterCrop) else 'random'} crop of {view.crop.side}")
    return ", ".join(steps)
