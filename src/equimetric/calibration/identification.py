"""`calibrate_identification`: the threshold of a false positive identification rate, with its certificate.

The threshold is the largest at which at most the target share of strangers match an entry. Its effect on strangers it
was not fitted to is measured by folds of classes: those of a fold are in no gallery, and are searched at the threshold
of other strangers in the same galleries, which are as large as all others. It holds for the size of gallery it was
fitted to, because FPIR grows with the gallery.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from equimetric.calibration.calibrate import assign_folds, data_fingerprint
from equimetric.calibration.certificate_base import CalibrationData, CertificateBase
from equimetric.calibration.certificate_file import FAMILY, SCHEMA
from equimetric.calibration.cohort import CertifiedCohort, require_other_classes
from equimetric.calibration.identification_file import TASK, read_identification
from equimetric.errors import EquimetricError, unknown_name
from equimetric.evaluation.cohort import Cohort
from equimetric.evaluation.engine.arrays import Integers
from equimetric.evaluation.engine.inputs import EmbeddingsLike, LabelsLike, prepare_sets
from equimetric.evaluation.engine.label_sets import require_one_class
from equimetric.evaluation.engine.sets import GeometryName, LabelledSets
from equimetric.evaluation.identification.draws import count_identities, draw_galleries
from equimetric.evaluation.identification.jackknife import (
    MIN_CLASSES,
    JackknifeEstimate,
    jackknife_fnir,
    jackknife_fpir,
    leave_one_out_points,
)
from equimetric.evaluation.identification.protocol import IdentificationProtocol, NamingRule
from equimetric.evaluation.identification.rates import check_fpir, fnir_at, fpir_at, threshold_at_fpir
from equimetric.evaluation.identification.scores import IdentificationScores, join_scores
from equimetric.evaluation.identification.search import search_galleries
from equimetric.evaluation.metrics.roc import MIN_ERRORS
from equimetric.intervals import check_confidence

__all__ = ["IdentificationCertificate", "calibrate_identification"]


@dataclass(frozen=True)
class IdentificationCertificate(CertificateBase):
    """What was calibrated on what: `IdentificationCertificate.load("identify.json").decide(probes, entries)`.

    target_fpir          target share of strangers who match an entry
    threshold            gallery entries at a smaller distance are accepted; with a cohort, those of a larger score
    threshold_interval   of the threshold, from deleting one class at a time; None with fewer than 10 classes
    identities           of the gallery that it holds for; FPIR grows with their number
    items                enrolled images in it
    fpir, fnir           at the threshold, on its own data
    held_out_fpir, …     of strangers who had no part in their threshold
    fpir_bound, …        upper bounds of the rates over all classes such as these; None where nothing tells them
    strangers, mated     searches behind the rates
    model                sha256 of the weights that made the embeddings
    preprocessing        how images were brought to the model
    runtime              the arithmetic that an exported model computes in: float32 or int8
    cohort               what normalises the scores; None for distances

    Entries are gallery items, or class means: of unit vectors for cosine, then at unit length.
    """

    target_fpir: float
    threshold: float
    threshold_interval: tuple[float, float] | None
    identities: int
    items: float
    fpir: float
    fnir: float
    held_out_fpir: float
    held_out_fnir: float
    fpir_bound: float | None
    fnir_bound: float | None
    fold_thresholds: tuple[float, ...]
    strangers: int
    mated: int
    geometry: str
    protocol: IdentificationProtocol
    confidence: float
    data: CalibrationData
    equimetric: str
    date: str
    model: str | None = None
    preprocessing: str | None = None
    cohort: CertifiedCohort | None = None
    runtime: str | None = None

    task = TASK

    @classmethod
    def load(cls, file: str | Path) -> "IdentificationCertificate":
        """Read a certificate; a damaged file, one of a newer version or of another task raises an error."""
        return cls(**read_identification(Path(file)))

    def to_dict(self) -> dict[str, Any]:
        """The document in plain types."""
        return {
            "schema": f"{FAMILY}/{SCHEMA}",
            "task": self.task,
            "score": self.score,
            "accepts": self.rule,
            **asdict(self),
            "fold_thresholds": list(self.fold_thresholds),
            "statement": self.statement,
        }

    @property
    def statement(self) -> str:
        """What the threshold promises, in a sentence, and what it does not."""
        accepted = "at a distance below" if self.cohort is None else "of a score above"
        missed = ""
        if self.held_out_fpir > self.target_fpir:
            missed = " Held-out strangers exceed the target: calibrate for a lower FPIR, or on more classes."
        bound = "" if self.fpir_bound is None else f", at most {self.fpir_bound:.3g} over all such classes"
        return (
            f"Where entries {accepted} {self.threshold:.6g} are accepted, {self.held_out_fpir:.3g} of "
            f"held-out strangers match an entry in a gallery of {self.identities} identities "
            f"({self.protocol.description}; target {self.target_fpir:g}{bound}); "
            f"the share grows with the gallery, so calibrate again for a larger one.{missed}"
        )

    def __str__(self) -> str:
        folds, confidence_text = len(self.fold_thresholds), f"{self.confidence:.0%}"
        interval, data = self.threshold_interval, self.data
        ends = (
            "not known"
            if interval is None
            else f"{interval[0]:.6g} … {interval[1]:.6g} ({confidence_text}, over classes)"
        )
        bounds = [
            f"{name} at most {bound:.3g}"
            for name, bound in (("FPIR", self.fpir_bound), ("FNIR", self.fnir_bound))
            if bound is not None
        ]
        accepted = "distances below" if self.cohort is None else "scores above"
        bounds_text = f"{', '.join(bounds)} (each with {confidence_text} confidence)"
        reason = f"no bound, which needs errors of at least {MIN_CLASSES} classes"
        lines = [
            f"Identification at FPIR {self.target_fpir:g}: accept {accepted} {self.threshold:.6g}",
            f"  gallery      {self.identities} identities, {self.protocol.description}, {self.geometry}",
            *([] if self.cohort is None else [f"  cohort       {self.cohort.text}"]),
            f"  threshold    {ends}",
            f"  fitted       FPIR {self.fpir:.3g}, FNIR {self.fnir:.3g}",
            f"  held out     FPIR {self.held_out_fpir:.3g}, FNIR {self.held_out_fnir:.3g} ({folds} folds of strangers)",
            f"  new classes  {bounds_text if bounds else reason}",
            *(["  missed       held-out FPIR above the target"] if self.held_out_fpir > self.target_fpir else []),
            f"  data         {data.samples} samples of {data.classes} classes, dimension {data.dimension}",
            "  FPIR grows with the gallery: for a larger one calibrate again.",
        ]
        return "\n".join(lines)


def calibrate_identification(
    embeddings: EmbeddingsLike,
    labels: LabelsLike,
    fpir: float = 1e-2,
    *,
    by: NamingRule = "item",
    k: int = 5,
    enrolled: int | None = None,
    strangers: float = 0.5,
    repeats: int = 10,
    geometry: GeometryName = "cosine",
    cohort: Cohort | None = None,
    model: str | None = None,
    preprocessing: str | None = None,
    folds: int = 4,
    confidence: float = 0.95,
    seed: int = 0,
    block_rows: int | None = None,
    progress: bool = False,
) -> IdentificationCertificate:
    """Find the distance threshold at which at most a share `fpir` of strangers match a gallery entry.

    strangers      share of the classes that is left out of the gallery, drawn `repeats` times; the others are the
                   gallery that the certificate holds for
    geometry       distances 'cosine' (Euclidean between unit vectors) or 'euclidean' (between the vectors themselves)
    cohort         other classes by which cosines are normalised: the threshold is then of the score, and entries with
                   a larger one are accepted
    model          sha256 of the weights that made the embeddings, for the certificate
    preprocessing  how images were brought to the model, for the certificate
    folds          parts of the classes; those of each are searched at the threshold of the other strangers
    confidence     of the interval of the threshold and of the bounds for new classes

    The rest is as in `evaluate_identification`.
    """
    check_fpir(fpir)
    if geometry not in ("cosine", "euclidean"):
        raise unknown_name("geometry", geometry, ["cosine", "euclidean"])
    check_confidence(confidence)
    protocol = IdentificationProtocol(by, k, enrolled, strangers, repeats, seed)
    sets = prepare_sets(embeddings, labels, geometry=geometry, multi_label=True, cohort=cohort)
    require_one_class(sets, "identification")
    if cohort is not None:
        require_other_classes(cohort, sets)
    held_out = _hold_out_classes(sets, protocol, folds)
    draws = draw_galleries(sets, protocol)
    fold_draws = [draw_galleries(sets, protocol, held_out=classes) for classes in held_out]
    all_draws = [draw for group in (draws, *fold_draws) for draw in group]
    searches = iter(search_galleries(sets, protocol, all_draws, block_rows=block_rows, progress=progress))
    scores, *fold_scores = (join_scores([next(searches) for _ in group]) for group in (draws, *fold_draws))
    _check_support(scores, fpir)
    threshold, classes = threshold_at_fpir(scores, fpir), len(sets.class_labels)
    fpir_estimate, fnir_estimate = (
        jackknife_fpir(scores, classes, threshold),
        jackknife_fnir(scores, classes, threshold),
    )
    threshold_estimate = JackknifeEstimate.from_leave_one_out(threshold, leave_one_out_points(scores, classes, fpir)[0])
    fold_thresholds, held_out_rates = _held_out_rates(fold_scores, held_out, fpir)
    interval = _threshold_interval(threshold_estimate, confidence)
    if cohort is not None:
        # With a cohort, distances are negated scores.
        threshold, fold_thresholds = -threshold, tuple(-value for value in fold_thresholds)
        interval = None if interval is None else (-interval[1], -interval[0])
    elif interval is not None:
        interval = max(0.0, interval[0]), interval[1]
    return IdentificationCertificate(
        target_fpir=fpir,
        threshold=threshold,
        threshold_interval=interval,
        identities=draws[0].identities,
        items=float(np.mean([len(draw.items) for draw in draws])),
        fpir=fpir_estimate.value,
        fnir=fnir_estimate.value,
        held_out_fpir=held_out_rates[0],
        held_out_fnir=held_out_rates[1],
        fpir_bound=fpir_estimate.upper_bound(confidence),
        fnir_bound=fnir_estimate.upper_bound(confidence),
        fold_thresholds=fold_thresholds,
        strangers=scores.strangers,
        mated=scores.mated,
        geometry=geometry,
        protocol=protocol,
        confidence=confidence,
        data=CalibrationData(
            data_fingerprint(embeddings, labels), len(sets.queries), int(embeddings.shape[1]), classes
        ),
        equimetric=version("equimetric"),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        model=model,
        preprocessing=preprocessing,
        cohort=None if cohort is None else CertifiedCohort.from_cohort(cohort),
    )


def _hold_out_classes(sets: LabelledSets, protocol: IdentificationProtocol, folds: int) -> list[Integers]:
    """The classes of each fold, which others must be strangers beside."""
    if folds < 2:
        raise EquimetricError(f"folds is {folds}; held-out strangers need at least 2")
    fold_of_class = assign_folds(sets, folds, protocol.seed)
    left_out = len(sets.class_labels) - count_identities(sets, protocol)
    largest = int(np.bincount(fold_of_class).max())
    if left_out <= largest:
        raise EquimetricError(
            f"{left_out} classes are strangers, and {folds} folds hold out up to {largest} of them, which leaves none "
            "to fit a threshold to; give more folds, or a larger share of strangers"
        )
    return [np.flatnonzero(fold_of_class == fold) for fold in range(folds)]


def _held_out_rates(
    scores: Sequence[IdentificationScores], held_out: Sequence[Integers], fpir: float
) -> tuple[tuple[float, ...], tuple[float, float]]:
    """The threshold of the other strangers of each fold, and FPIR of its own and FNIR at these thresholds."""
    thresholds, errors, searches = [], np.zeros(2), np.zeros(2)
    for fold_scores, classes in zip(scores, held_out, strict=True):
        is_held_out = np.isin(fold_scores.probe_class, classes)
        threshold = threshold_at_fpir(fold_scores.select(~is_held_out), fpir)
        part, fold_threshold = fold_scores.select(is_held_out | ~fold_scores.stranger), np.array([threshold])
        sizes = np.array([part.strangers, part.mated])
        errors += sizes * [fpir_at(part, fold_threshold)[0], fnir_at(part, fold_threshold)[0]]
        searches += sizes
        thresholds.append(threshold)
    return tuple(thresholds), (float(errors[0] / searches[0]), float(errors[1] / searches[1]))


def _threshold_interval(estimate: JackknifeEstimate, confidence: float) -> tuple[float, float] | None:
    if estimate.classes < MIN_CLASSES:
        return None
    half_width = estimate.quantile((1 + confidence) / 2) * estimate.error
    return estimate.value - half_width, estimate.value + half_width


def _check_support(scores: IdentificationScores, fpir: float) -> None:
    needed, available = math.ceil(MIN_ERRORS / fpir), scores.different_strangers
    if available < needed:
        raise EquimetricError(
            f"an FPIR of {fpir:g} needs at least {needed} strangers, so that {MIN_ERRORS} false accepts are "
            f"expected; there are {available}: give more images, or a larger fpir"
        )
