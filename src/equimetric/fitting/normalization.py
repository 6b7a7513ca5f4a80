"""Decide whether similarities are normalised by a cohort: only where validation classes clearly gain.

Of forms and strengths that ten validation classes choose freely, the strong ones often do harm on other classes: the
mean form at half strength is taken, or none.
"""

from __future__ import annotations

from equimetric.runs.evaluation import CohortOverride
from equimetric.runs.result import CohortSetting

__all__ = ["MIN_RELATIVE_GAIN", "STRENGTH", "choose_normalization", "describe_normalization"]

STRENGTH, MIN_RELATIVE_GAIN = 0.5, 0.02
"""Strength of the mean form, and the gain in true accept rate that it must bring."""


def choose_normalization(setting: CohortSetting | None) -> CohortOverride:
    """The cohort for all parts of a run that tried several on validation classes; "none" without a clear gain."""
    if setting is None or validation_gain(setting) < MIN_RELATIVE_GAIN:
        return CohortOverride("none")
    return CohortOverride(setting.part, STRENGTH, "mean")


def describe_normalization(setting: CohortSetting | None) -> str:
    """The decision, and the gain behind it."""
    if setting is None:
        return "No cohort was tried."
    baseline = true_accept_rate(setting, 0.0)
    change = f"from {baseline:.1%} to {baseline + validation_gain(setting):.1%} at FAR {setting.far:g}"
    if validation_gain(setting) < MIN_RELATIVE_GAIN:
        return (
            f"No cohort normalisation: on validation classes it changed the true accept rate {change}, and "
            f"{MIN_RELATIVE_GAIN:.0%} more are asked for."
        )
    return (
        f"Cohort normalisation by {setting.classes} {setting.part} classes, mean form, strength {STRENGTH:g}: on "
        f"validation classes it raised the true accept rate {change}."
    )


def validation_gain(setting: CohortSetting) -> float:
    """Gain in true accept rate of the validation classes by the mild form."""
    return true_accept_rate(setting, STRENGTH) - true_accept_rate(setting, 0.0)


def true_accept_rate(setting: CohortSetting, strength: float) -> float:
    """True accept rate of the validation classes with the mean form at a strength."""
    return next(trial.tar for trial in setting.tried if (trial.form, trial.strength) == ("mean", strength))
