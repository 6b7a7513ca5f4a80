"""The certificate of a calibration: what a threshold is, what it may claim, and for which data."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from equimetric.calibration.certificate_base import CalibrationData, CertificateBase
from equimetric.calibration.cohort import CertifiedCohort
from equimetric.calibration.drift import DriftCheck, DriftReference, check_drift
from equimetric.calibration.new_classes import NewClassBounds
from equimetric.calibration.rates import ErrorRates, TargetRate
from equimetric.calibration.targets import Target
from equimetric.errors import EquimetricError
from equimetric.evaluation.cohort import Cohort
from equimetric.evaluation.engine.inputs import EmbeddingsLike, LabelsLike

if TYPE_CHECKING:
    from equimetric.calibration.result import Calibration

__all__ = ["Certificate"]

RatesByName = Mapping[int | str, ErrorRates]


@dataclass(frozen=True)
class Certificate(CertificateBase):
    """What was calibrated on what: `Certificate.load("threshold.json").decide(embeddings_a, embeddings_b)`.

    task                verification: whether two samples are of one class
    target              what the threshold was chosen for
    target_rate         the rate that classes are held to
    threshold           pairs at a smaller distance are accepted as the same; one at the threshold is rejected. With a
                        cohort, pairs of a larger score
    threshold_interval  of the threshold, under resampling of classes
    interval_from       what the interval is from: `pairs`, or `class counts` to first order
    fitted, held_out    rates at the threshold on its own data, and of held-out classes
    new_classes         upper bounds of the rates for classes not seen yet
    worst_classes, violations, exceedances, data_sets, data_set_violations
                        held-out rates by name: see `Calibration`
    data                what the threshold was calibrated on
    cohort              what normalises the scores; None for distances
    model               sha256 of the weights that made the embeddings
    preprocessing       how images were brought to the model
    runtime             the arithmetic that an exported model computes in: float32 or int8
    reference           what the calibrated classes are like: see `check`
    options             of `calibrate`, the geometry of the distances among them
    date                of the calibration, UTC
    equimetric          version that wrote the certificate

    Certificates of schema 1 have None for what they do not say.
    """

    target: Target
    target_rate: TargetRate
    threshold: float
    threshold_interval: tuple[float, float]
    interval_from: str
    fitted: ErrorRates
    held_out: ErrorRates
    fold_thresholds: tuple[float, ...]
    worst_classes: RatesByName
    violations: RatesByName
    exceedances: RatesByName
    data_sets: RatesByName
    data_set_violations: RatesByName
    data: CalibrationData
    options: Mapping[str, Any]
    equimetric: str
    new_classes: NewClassBounds | None = None
    model: str | None = None
    preprocessing: str | None = None
    reference: DriftReference | None = None
    date: str | None = None
    task: str = "verification"
    cohort: CertifiedCohort | None = None
    runtime: str | None = None

    @classmethod
    def from_calibration(cls, calibration: "Calibration") -> "Certificate":
        """The certificate of a calibration."""
        return cls(
            target=calibration.target,
            target_rate=calibration.target_rate,
            threshold=calibration.threshold,
            threshold_interval=calibration.interval,
            interval_from=calibration.resampled,
            fitted=calibration.fitted,
            held_out=calibration.held_out,
            fold_thresholds=calibration.fold_thresholds,
            worst_classes=calibration.worst(),
            violations=calibration.violations,
            exceedances=calibration.exceedances,
            data_sets=calibration.data_sets,
            data_set_violations=calibration.data_set_violations,
            data=CalibrationData(
                calibration.fingerprint, calibration.samples, calibration.dimension, len(calibration.classes)
            ),
            options=dict(calibration.options),
            equimetric=version("equimetric"),
            new_classes=calibration.new_classes,
            model=calibration.model,
            preprocessing=calibration.preprocessing,
            reference=calibration.reference,
            date=calibration.date,
            cohort=calibration.cohort,
        )

    @property
    def target_far(self) -> float | None:
        """The false accept rate that classes are held to; None where it is a false reject rate."""
        return self.target_rate.far

    @property
    def geometry(self) -> str:
        """What the distances are: `cosine` (Euclidean between unit vectors) or `euclidean`."""
        return str(self.options["geometry"])

    @property
    def equivalent_cosine(self) -> float | None:
        """1 − d²/2 at the threshold d: pairs of a larger cosine are accepted; None for other geometries and scores."""
        return 1 - self.threshold**2 / 2 if self.geometry == "cosine" and self.cohort is None else None

    def check(
        self,
        embeddings: EmbeddingsLike,
        labels: LabelsLike | None = None,
        *,
        classes: int | None = None,
        cohort: Cohort | None = None,
        model: str | None = None,
        preprocessing: str | None = None,
    ) -> DriftCheck:
        """Whether embeddings (N, D) are as the calibrated ones; see `drift`.

        Labels, or without them the least number of classes that the images are of, in about equal shares, make smaller
        shifts visible. The answer is 'as certified', 'shifted: recalibrate' or 'too few to say', with the size of the
        change, the false accept rate it leads one to expect, and the smallest shift that would be seen.
        """
        self.check_compatible(model=model, preprocessing=preprocessing)
        vectors = self._vectors(embeddings, "embeddings")
        if self.reference is None:
            raise EquimetricError(
                "this certificate is of an older version and does not say what its data were like; calibrate again"
            )
        return check_drift(
            self.reference,
            vectors,
            geometry=self.geometry,
            labels=labels,
            classes=classes,
            cohort=None if self.cohort is None else self.cohort.require(cohort),
            threshold=self.threshold if self.cohort is None else -self.threshold,
            certified_far=self.fitted.far,
            seed=int(self.options.get("seed", 0)),
        )

    @classmethod
    def load(cls, file: str | Path) -> "Certificate":
        """Read a certificate; a damaged file, or one of a newer version, raises an error."""
        from equimetric.calibration.certificate_file import read_certificate

        return read_certificate(Path(file))

    def to_dict(self) -> dict[str, Any]:
        """The document in plain types."""
        from equimetric.calibration.certificate_file import certificate_document

        return certificate_document(self)

    def __str__(self) -> str:
        from equimetric.calibration.certificate_text import certificate_text

        return certificate_text(self)
