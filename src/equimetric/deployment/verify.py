"""Verify that this machine and its runtimes reproduce the exported outputs: `verify_model`, `load_verified`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load as parse_arrays

from equimetric.deployment.canaries import TOLERANCE, compute_canaries, largest_difference, split_canaries
from equimetric.deployment.embedder import AnyCertificate, Embedder
from equimetric.deployment.folder import CANARIES, PROGRAM, WEIGHTS, ModelFolder
from equimetric.deployment.load import load_exported
from equimetric.deployment.runtimes import Runtime, RuntimeName, load_program
from equimetric.errors import EquimetricError

__all__ = ["CheckedRuntime", "Verification", "load_verified", "verify_model"]

PIXEL_TOLERANCE = 2
"""Largest allowed difference of a pixel, of 255: versions of Pillow may round differently."""


@dataclass(frozen=True)
class CheckedRuntime:
    """The largest difference between a runtime's outputs and the exported ones, and the tolerance."""

    title: str
    difference: float
    tolerance: float

    @property
    def holds(self) -> bool:
        """Whether the difference is within the tolerance."""
        return self.difference <= self.tolerance


@dataclass(frozen=True)
class Verification:
    """Whether this machine reproduces the outputs of an exported model.

    pixels       largest difference of preprocessed canaries, of 255
    runtimes     every runtime that was tried
    certificate  certificate of the model, if it has one
    skipped      checks that were not run, with reasons
    """

    folder: Path
    pixels: int
    runtimes: tuple[CheckedRuntime, ...]
    certificate: AnyCertificate | None
    skipped: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether preprocessing and all runtimes reproduce the exported outputs."""
        return self.pixels <= PIXEL_TOLERANCE and all(runtime.holds for runtime in self.runtimes)

    def require(self) -> None:
        """Raise an error where it does not hold."""
        if not self.holds:
            raise EquimetricError(self.verdict.rstrip("."))

    @property
    def verdict(self) -> str:
        """One sentence."""
        failed = [runtime.title for runtime in self.runtimes if not runtime.holds]
        failed += [] if self.pixels <= PIXEL_TOLERANCE else ["the preprocessing"]
        if failed:
            return (
                f"The certificate does not hold here: {', '.join(failed)} does not compute what was exported; use the "
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
            "runtimes": [{**asdict(runtime), "holds": runtime.holds} for runtime in self.runtimes],
            "skipped": list(self.skipped),
        }

    def __str__(self) -> str:
        lines = [
            "  files          as exported; model, preprocessing, dimension, arithmetic and task are the certified ones",
            f"  preprocessing  largest difference {self.pixels} of 255",
            *(
                f"  {runtime.title}: largest difference {runtime.difference:.1e}, at most {runtime.tolerance:.0e} "
                "allowed" + ("" if runtime.holds else " – differs")
                for runtime in self.runtimes
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
    """Load an exported model and verify it by its canaries; raises an error where outputs differ."""
    model = load_exported(folder, runtime=runtime, task=task)
    verify_runtimes(ModelFolder.open(Path(folder)), [model.runtime]).require()
    return model


def verify_runtimes(opened: ModelFolder, runtimes: Sequence[Runtime], skipped: tuple[str, ...] = ()) -> Verification:
    """Recompute the canaries in the given runtimes."""
    images, pixels, expected = split_canaries(parse_arrays(opened.read(CANARIES)))
    preprocessing = opened.preprocessing()
    recomputed = np.stack([preprocessing.pixels(image) for image in images]).astype(np.int16)
    tolerance = TOLERANCE[opened.arithmetic]
    return Verification(
        folder=opened.path,
        pixels=int(np.abs(recomputed - pixels).max()),
        runtimes=tuple(
            CheckedRuntime(runtime.title, largest_difference(expected, compute_canaries(runtime, pixels)), tolerance)
            for runtime in runtimes
        ),
        certificate=opened.certificate(preprocessing),
        skipped=skipped,
    )
