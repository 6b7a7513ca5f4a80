"""The cohort by which a fitted model normalises similarities, as the run behind it chose on validation classes."""

from __future__ import annotations

from equimetric.runs.evaluation import CohortOverride
from equimetric.runs.result import CohortSetting, ScoredCohort

__all__ = ["describe_normalization", "fitted_cohort"]


def fitted_cohort(setting: CohortSetting | None) -> CohortOverride:
    """The cohort of a run for all parts of its classes; "none" where it normalises nothing."""
    if setting is None or setting.strength == 0:
        return CohortOverride("none")
    return CohortOverride(setting.part, setting.strength, setting.form)


def describe_normalization(setting: CohortSetting | None) -> str:
    """The choice, and the figures behind it."""
    if setting is None:
        return "No cohort was tried."
    chosen = next(one for one in setting.tried if (one.form, one.strength) == (setting.form, setting.strength))
    default = next(one for one in setting.tried if one.is_default)
    none = next(one for one in setting.tried if one.strength == 0)
    what = (
        f"Cohort normalisation by {setting.classes} {setting.part} classes, {describe_form(chosen)}"
        if chosen.strength
        else "No cohort normalisation"
    )
    rates = f"at FAR {setting.far:g} validation classes have a true accept rate of {none.tar:.1%} without it"
    if chosen is default:
        return f"{what}, the default: {rates} and {default.tar:.1%} with it."
    gain = f"{chosen.tar - default.tar:+.1%}, with a standard error of {chosen.error:.1%}"
    if chosen is none:
        return f"{what}: {rates} and {default.tar:.1%} with the default ({gain})."
    return f"{what}: {rates}, {default.tar:.1%} with the default and {chosen.tar:.1%} with this one ({gain})."


def describe_form(trial: ScoredCohort) -> str:
    """'mean form, strength 0.5'."""
    return f"{trial.form} form, strength {trial.strength:g}" if trial.form == "mean" else f"{trial.form} form"
