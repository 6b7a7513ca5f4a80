"""Does this machine, with its runtimes, compute what was certified? `verify_model` says it, `load_verified` insists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load as parse_arrays

from equimetric.deployment.canaries import TOLERANCE, largest_difference, outputs_of_canaries, split_canaries
from equimetric.deployment.embedder import AnyCertificate, Embedder
from equimetric.deployment.folder import CANARIES, PROGRAM, WEIGHTS, ModelFolder
from equimetric.deployment.load import load_exported
from equimetric.deployment.runtimes import Runtime, RuntimeName, load_program
from equimetric.errors import EquimetricError

__all__ = ["CheckedRuntime", "Verification", "load_verified", "verify_model"]

PIXEL_TOLERANCE = 2
"""Of 255: versions of Pillow may round differently."""


@dataclass(frozen=True)
class CheckedRuntime:
    """The largest difference between what a runtime computes and what was exported, and what is allowed."""

    title: str
    difference: float
    tolerance: float

    @property
    def holds(self) -> bool:
        """Whether it computes what was certified."""
        return self.difference <= self.tolerance


@dataclass(frozen=True)
class Verification:
    """Whether an exported model is what it was, on this machine.

    pixels       largest difference of preprocessed canaries, of 255
    runtimes     every runtime that was tried
    certificate  of the model, if it has one
    skipped      what was not tried, and why
    """

    folder: Path
    pixels: int
    runtimes: tuple[CheckedRuntime, ...]
    certificate: AnyCertificate | None
    skipped: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether preprocessing and all runtimes compute what was exported."""
        return self.pixels <= PIXEL_TOLERANCE and all(one.holds for one in self.runtimes)

    def require(self) -> None:
        """Raise an error where it does not hold."""
        if not self.holds:
            raise EquimetricError(self.verdict.rstrip("."))

    @property
    def verdict(self) -> str:
        """One sentence."""
        wrong = [one.title for one in self.runtimes if not one.holds]
        wrong += [] if self.pixels <= PIXEL_TOLERANCE else ["the preprocessing"]
        if wrong:
            return (
                f"The certificate does not hold here: {', '.join(wrong)} does not compute what was exported; use the "
                "versions it was exported with, or export and calibrate on this machine."
            )
        if self.certificate is None:
            return "The model computes what was exported; it has no certificate."
        accepted = "distances below" if self.certificate.cohort is None else "scores above"
        return (
            f"The certificate holds: {self.certificate.task}, accept {accepted} {self.certificate.threshold:.6g}, "
            f"calibrated on {self.certificate.data.samples} images of {self.certificate.data.classes} classes."
        )

    def to_dict(self) -> dict[str, Any]:
        """In plain types."""
        return {
            "holds": self.holds,
            "verdict": self.verdict,
            "pixels": self.pixels,
            "runtimes": [{**asdict(one), "holds": one.holds} for one in self.runtimes],
            "skipped": list(self.skipped),
        }

    def __str__(self) -> str:
        lines = [
            "  files          as exported; model, preprocessing, dimension, arithmetic and task are the certified ones",
            f"  preprocessing  largest difference {self.pixels} of 255",
            *(
                f"  {one.title}: largest difference {one.difference:.1e}, at most {one.tolerance:.0e} allowed"
                + ("" if one.holds else " – differs")
                for one in self.runtimes
            ),
            *(f"  {line}" for line in self.skipped),
        ]
        return "\n".join(["Canaries", *lines])


def verify_model(folder: str | Path, *, program: bool = False) -> Verification:
    """Recompute the canaries of an exported model in PyTorch and ONNX Runtime, as far as it has them.

    program  also load the .pt2 file by PyTorch's own loader: only where you trust the file
    """
    opened = ModelFolder.open(Path(folder))
    runtimes: list[Runtime] = []
    skipped = []
    if opened.has(WEIGHTS):
        runtimes.append(load_exported(folder, runtime="torch").runtime)
    if not opened.has(opened.onnx):
        skipped.append("onnxruntime: not tried, the model has no ONNX graph")
    elif find_spec("onnxruntime") is None:
        skipped.append("onnxruntime: not tried, it is not installed (pip install 'equimetric[onnx]')")
    else:
        runtimes.append(load_exported(folder, runtime="onnx").runtime)
    if program:
        runtimes.append(load_program(opened.read(PROGRAM), opened.outputs))
    if not runtimes:
        raise EquimetricError(f"the model in {str(folder)!r} cannot be computed here: {'; '.join(skipped)}")
    return verify_runtimes(opened, runtimes, tuple(skipped))


def load_verified(folder: str | Path, *, runtime: RuntimeName | None = None, task: str | None = None) -> Embedder:
    """An exported model that computes here what was certified, by its canaries; an error where it does not."""
    model = load_exported(folder, runtime=runtime, task=task)
    verify_runtimes(ModelFolder.open(Path(folder)), [model.runtime]).require()
    return model


def verify_runtimes(opened: ModelFolder, runtimes: Sequence[Runtime], skipped: tuple[str, ...] = ()) -> Verification:
    """Recompute the canaries in some runtimes."""
    images, pixels, expected = split_canaries(parse_arrays(opened.read(CANARIES)))
    preprocessing = opened.preprocessing()
    again = np.stack([preprocessing.pixels(image) for image in images]).astype(np.int16)
    tolerance = TOLERANCE[opened.arithmetic]
    return Verification(
        folder=opened.path,
        pixels=int(np.abs(again - pixels).max()),
        runtimes=tuple(
            CheckedRuntime(one.title, largest_difference(expected, outputs_of_canaries(one, pixels)), tolerance)
            for one in runtimes
        ),
        certificate=opened.certificate(preprocessing),
        skipped=skipped,
    )
