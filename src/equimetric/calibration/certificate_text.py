"""A certificate as text for a terminal."""

from collections.abc import Iterator, Mapping

from equimetric.calibration.certificate import Certificate
from equimetric.calibration.cohort import HASH_SHOWN
from equimetric.calibration.rates import ErrorRates
from equimetric.calibration.targets import Costs
from equimetric.escaping import name_text

__all__ = ["certificate_text"]

CLASS_NAMES_SHOWN = 5


def certificate_text(certificate: Certificate) -> str:
    """What the threshold is, what it may claim, and for which data; one line each."""
    accepted = "distances below" if certificate.cohort is None else "scores above"
    return "\n".join(
        [
            f"Calibration for {certificate.target}: accept {accepted} {certificate.threshold:.6g}",
            *(f"  {name:<11}  {text}" for name, text in _lines(certificate)),
        ]
    )


def _lines(certificate: Certificate) -> Iterator[tuple[str, str]]:
    confidence, folds = certificate.options["confidence"], certificate.options["folds"]
    cosine = certificate.equivalent_cosine
    cosine_text = "" if cosine is None else f", the same as a cosine above {cosine:.6g}"
    measure = "distance" if certificate.cohort is None else "score"
    yield measure, f"{certificate.score}{cosine_text}; a pair at the threshold itself is rejected"
    if certificate.cohort is not None:
        yield "cohort", certificate.cohort.text
    low, high = certificate.threshold_interval
    yield "threshold", f"{low:.6g} … {high:.6g} ({confidence:.0%}, classes resampled)"
    yield "fitted", f"FAR {certificate.fitted.far:.3g}, FRR {certificate.fitted.frr:.3g}"
    held_out = certificate.held_out
    yield "held out", f"FAR {held_out.far:.3g}, FRR {held_out.frr:.3g} ({folds} class-disjoint folds)"
    bounds = certificate.new_classes
    if bounds is not None:
        bound_texts = [
            f"{name} at most {value:.3g}"
            for name, value in (("FAR", bounds.far), ("FRR", bounds.frr))
            if value is not None
        ]
        parts = [f"{', '.join(bound_texts)} (each with {bounds.confidence:.0%} confidence)"] if bound_texts else []
        yield "new classes", "; ".join([*parts, *bounds.reasons])
    held_rate = "FAR" if certificate.target_rate.frr is None else "FRR"
    rate = f"FAR {certificate.target_rate.far:.3g}" if isinstance(certificate.target, Costs) else f"target {held_rate}"
    yield (
        "classes",
        f"{len(certificate.exceedances)} of {certificate.data.classes} above the {rate}, "
        f"{len(certificate.violations)} of them with {certificate.options['confidence']:.0%} confidence"
        f"{_name_worst(certificate.violations, held_rate)}",
    )
    if certificate.data_sets:
        violations = certificate.data_set_violations
        yield (
            "data sets",
            f"{len(violations)} of {len(certificate.data_sets)} violate it{_name_worst(violations, held_rate)}",
        )
    data = certificate.data
    yield (
        "data",
        f"{data.samples} samples of {data.classes} classes, dimension {data.dimension}, "
        f"sha256 {data.sha256[:HASH_SHOWN]}…",
    )
    if certificate.model is not None:
        yield "model", f"sha256 {name_text(certificate.model)[:HASH_SHOWN]}…"
    if certificate.preprocessing is not None:
        yield "images", name_text(certificate.preprocessing)
    version_text = f"equimetric {name_text(certificate.equimetric)}"
    if certificate.date is not None:
        yield "written", f"{name_text(certificate.date)} (UTC) by {version_text}, for {certificate.task}"


def _name_worst(rates: Mapping[int | str, ErrorRates], held_rate: str) -> str:
    if not rates:
        return ""
    names = ", ".join(
        f"{name_text(str(name))} ({error_rates.far if held_rate == 'FAR' else error_rates.frr:.2g})"
        for name, error_rates in list(rates.items())[:CLASS_NAMES_SHOWN]
    )
    return f": {names}{', …' if len(rates) > CLASS_NAMES_SHOWN else ''}"
