import pytest

from equimetric.fitting.normalization import describe_normalization, fitted_cohort
from equimetric.fitting.outcome import BoundedRate
from equimetric.runs.evaluation import CohortOverride
from equimetric.runs.result import CohortSetting

TRIED = [
    {"form": "mean", "strength": 0.0, "tar": 0.4, "error": 0.02},
    {"form": "mean", "strength": 0.5, "tar": 0.43, "is_default": True},
    {"form": "full", "strength": 1.0, "tar": 0.5, "error": 0.03},
]


def setting(**chosen):
    return CohortSetting.model_validate({"part": "cohort", "classes": 12, "far": 0.01, "tried": TRIED, **chosen})


@pytest.mark.parametrize(
    ("chosen", "override", "text"),
    [
        (
            {"form": "mean", "strength": 0.5},
            CohortOverride("cohort", 0.5, "mean"),
            "Cohort normalisation by 12 cohort classes, mean form, strength 0.5, the default: at FAR 0.01 validation "
            "classes have a true accept rate of 40.0% without it and 43.0% with it.",
        ),
        (
            {"form": "full", "strength": 1.0},
            CohortOverride("cohort", 1.0, "full"),
            "Cohort normalisation by 12 cohort classes, full form: at FAR 0.01 validation classes have a true accept "
            "rate of 40.0% without it, 43.0% with the default and 50.0% with this one (+7.0%, with a standard error of "
            "3.0%).",
        ),
        (
            {"form": "mean", "strength": 0.0},
            CohortOverride("none"),
            "No cohort normalisation: at FAR 0.01 validation classes have a true accept rate of 40.0% without it and "
            "43.0% with the default (-3.0%, with a standard error of 2.0%).",
        ),
    ],
)
def test_the_fitted_cohort_is_that_of_the_run_and_its_figures_are_said(chosen, override, text):
    assert fitted_cohort(setting(**chosen)) == override
    assert describe_normalization(setting(**chosen)) == text


def test_without_a_cohort_there_is_none():
    assert fitted_cohort(None) == CohortOverride("none")
    assert describe_normalization(None) == "No cohort was tried."


@pytest.mark.parametrize(
    ("measured", "at_least", "bound", "expected"),
    [
        (0.01, 0.005, 0.02, "FAR 1.00%, bound 2.00%: holds"),
        (0.03, 0.015, 0.02, "FAR 3.00%, bound 2.00%: exceeded, as few classes may; the rate is at least 1.50%"),
        (0.03, 0.025, 0.02, "FAR 3.00%, bound 2.00%: does not hold"),
        (0.03, 0.025, None, "FAR 3.00%; the certificate promises no bound"),
    ],
)
def test_a_bound_is_held_against_the_rate_and_its_noise(measured, at_least, bound, expected):
    rate = BoundedRate("FAR", measured, at_least, bound)
    assert rate.describe().startswith(expected)
    assert rate.holds == (None if bound is None else measured <= bound)
