"""Thresholds of scores that a cohort normalises, and which cohort that is."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from equimetric.errors import EquimetricError
from equimetric.escaping import name_text
from equimetric.evaluation.cohort import FORMS, Cohort, CohortForm
from equimetric.evaluation.engine.sets import LabelledSets
from equimetric.evaluation.metrics.verification import DistanceHistogram

__all__ = ["HASH_SHOWN", "CertifiedCohort", "require_other_classes", "score_histogram"]

HASH_SHOWN = 12


@dataclass(frozen=True)
class CertifiedCohort:
    """The cohort behind the scores of a certificate.

    form, strength, nearest  of `Cohort`
    sha256                   its `fingerprint`: the content of its embeddings
    samples                  number of its embeddings
    classes                  number of its classes, where it has labels
    """

    form: CohortForm
    strength: float
    nearest: int
    sha256: str
    samples: int
    classes: int | None = None

    @classmethod
    def from_cohort(cls, cohort: Cohort) -> "CertifiedCohort":
        """What identifies a cohort."""
        classes = None if cohort.classes is None else len(cohort.classes)
        samples = len(cohort.embeddings)
        return cls(cohort.form, cohort.strength, cohort.nearest, cohort.fingerprint, samples, classes)

    def require(self, cohort: Cohort | None) -> Cohort:
        """The cohort itself; an error where it is another one, or none."""
        if cohort is None:
            raise EquimetricError(
                "this certificate is of scores that a cohort normalises; give the same cohort, cohort=Cohort(…)"
            )
        actual = CertifiedCohort.from_cohort(cohort)
        for name in ("form", "strength", "nearest", "sha256"):
            certified, value = getattr(self, name), getattr(actual, name)
            if value != certified:
                raise EquimetricError(
                    f"this certificate is for a cohort with {name} {certified!r}, not {value!r}; give the same cohort, "
                    "or calibrate with this one"
                )
        return cohort

    def to_dict(self) -> dict[str, Any]:
        """The fields in plain types."""
        return asdict(self)

    @classmethod
    def from_dict(cls, document: Any) -> "CertifiedCohort":
        """The cohort that `to_dict` wrote."""
        if document["form"] not in FORMS:
            raise ValueError(f"the form of its cohort is {document['form']!r}")
        classes = document["classes"]
        return cls(
            document["form"],
            float(document["strength"]),
            int(document["nearest"]),
            str(document["sha256"]),
            int(document["samples"]),
            None if classes is None else int(classes),
        )

    @property
    def text(self) -> str:
        """A line for a terminal."""
        return f"{self}, sha256 {name_text(self.sha256)[:HASH_SHOWN]}…"

    def __str__(self) -> str:
        strength = f" of strength {self.strength:g}" if self.form == "mean" else ""
        classes = "" if self.classes is None else f" of {self.classes} classes"
        return f"{self.form} form{strength}, the {self.nearest} nearest of {self.samples} samples{classes}"


def require_other_classes(cohort: Cohort, sets: LabelledSets) -> None:
    """Raise an error where a cohort has classes that are calibrated on."""
    shared = sorted(set(cohort.classes or ()) & set(sets.class_labels), key=str)
    if shared:
        raise EquimetricError(
            f"{len(shared)} of the cohort's classes are among those that are calibrated on, such as {shared[0]!r}; "
            "give a cohort of other classes"
        )


def score_histogram(negated: DistanceHistogram) -> DistanceHistogram:
    """Counts over scores from counts over negated scores."""
    edges, positive, negative = (np.flip(part) for part in (negated.edges, negated.positive, negated.negative))
    return DistanceHistogram(-edges, positive, negative)
