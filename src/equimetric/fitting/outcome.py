"""Results on the test classes, opened once: the fitted model against raw features, and the certificate's bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from equimetric.calibration import Certificate
from equimetric.calibration.rates import class_counts, pooled_rates
from equimetric.evaluation import Cohort, format_score
from equimetric.evaluation.engine.inputs import prepare_sets
from equimetric.evaluation.engine.pair_distances import pair_distances
from equimetric.fitting.normalization import fitted_cohort
from equimetric.runs.access_log import record_test_access
from equimetric.runs.cohorts import cohort_rows
from equimetric.runs.evaluation import LabelledEmbeddings, OpenRun, evaluate_part, open_run

__all__ = ["BoundedRate", "FitOutcome", "open_test_classes"]


@dataclass(frozen=True)
class BoundedRate:
    """A rate of the test classes at the certified threshold, and the certificate's bound, where it has one.

    `at_least` is a lower confidence bound of the rate from how much the test classes differ: a rate above the bound
    contradicts it only where this is above it, too.
    """

    name: str
    measured: float
    at_least: float
    bound: float | None

    @property
    def holds(self) -> bool | None:
        """Whether the rate is within the bound; None without one."""
        return None if self.bound is None else self.measured <= self.bound

    def describe(self) -> str:
        """'FAR 0.80%, bound 1.60%: holds'."""
        if self.bound is None:
            return f"{self.name} {self.measured:.2%}; the certificate promises no bound"
        verdict = "holds"
        if not self.holds:
            noise = f"as few classes may; the rate is at least {self.at_least:.2%} with confidence"
            verdict = "does not hold" if self.at_least > self.bound else f"exceeded, {noise}"
        return f"{self.name} {self.measured:.2%}, bound {self.bound:.2%}: {verdict}"


@dataclass(frozen=True)
class FitOutcome:
    """Results on the test classes.

    Attributes:
        raw: metrics of the raw features, by cosine.
        plain: metrics of the fitted model without cohort normalisation; empty where it has none.
        fitted: metrics of the fitted model as exported.
        rates: FAR and FRR at the certified threshold.
        classes, images: numbers of test classes and images.
    """

    raw: Mapping[str, float]
    plain: Mapping[str, float]
    fitted: Mapping[str, float]
    rates: tuple[BoundedRate, ...]
    classes: int
    images: int

    def rows(self) -> Iterator[tuple[str, Mapping[str, float]]]:
        """The rows of a table: title and metrics."""
        yield "raw features", self.raw
        if self.plain:
            yield "fitted, without the cohort", self.plain
        yield "fitted", self.fitted

    def shortfall(self) -> str:
        """A sentence where the fitted model is below raw features in search or at the threshold; else nothing."""
        below = [
            f"{name} {format_score(name, self.fitted[name]).strip()} against {format_score(name, raw).strip()}"
            for name, raw in self.raw.items()
            if name.startswith(("map@r", "tar@")) and self.fitted[name] < raw
        ]
        if not below:
            return ""
        return f"On these test classes the fitted model is below raw features: {', '.join(below)}."

    def sentences(self) -> Iterator[str]:
        """Sentences below the table: a shortfall, and the certified rates."""
        if shortfall := self.shortfall():
            yield shortfall
        for rate in self.rates:
            yield f"At the certified threshold: {rate.describe()}"


def open_test_classes(folder: Path, certificate: Certificate) -> FitOutcome:
    """Compare the model of a run with raw features, and its certificate with the rates, on the run's test classes."""
    run = open_run(folder)
    record_test_access(folder, "fit")
    fitted = run.embed("test", cohort=fitted_cohort(run.model.result.cohort))
    raw = raw_features(run, fitted)
    evaluation = run.config.evaluation
    return FitOutcome(
        raw=dict(evaluate_part(raw, evaluation)),
        plain={} if fitted.cohort is None else dict(evaluate_part(fitted.plain(), evaluation)),
        fitted=dict(evaluate_part(fitted, evaluation)),
        rates=certified_rates(fitted, certificate),
        classes=len(torch.unique(fitted.labels)),
        images=len(fitted.labels),
    )


def raw_features(run: OpenRun, fitted: LabelledEmbeddings) -> LabelledEmbeddings:
    """The features behind the embeddings; where these have a cohort, as scores of the same kind, not normalised."""
    features = run.eval_data.images("test")
    assert isinstance(features, Tensor), "a frozen backbone has features"
    if fitted.cohort is None:
        return replace(fitted, embeddings=features)
    setting = run.model.result.cohort
    assert setting is not None
    cohort_features = run.eval_data.eval_data.images[cohort_rows(run.data, setting.part)]
    return replace(fitted, embeddings=features, cohort=Cohort(cohort_features, strength=0.0))


def certified_rates(samples: LabelledEmbeddings, certificate: Certificate) -> tuple[BoundedRate, ...]:
    """FAR and FRR of labelled embeddings at the certified threshold."""
    distances = pair_distances(prepare_sets(samples.embeddings, samples.labels, cohort=samples.cohort))
    # With a cohort, distances are negated scores.
    threshold = certificate.threshold if samples.cohort is None else -certificate.threshold
    bounds = certificate.new_classes
    confidence = 0.95 if bounds is None else bounds.confidence
    rates = pooled_rates(class_counts(distances, threshold), certificate.target_rate, confidence)
    return (
        BoundedRate("FAR", rates.far, rates.far_bound, None if bounds is None else bounds.far),
        BoundedRate("FRR", rates.frr, rates.frr_bound, None if bounds is None else bounds.frr),
    )
