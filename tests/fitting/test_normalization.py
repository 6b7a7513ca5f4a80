import pytest

from equimetric.fitting.normalization import choose_normalization, describe_normalization
from equimetric.fitting.outcome import BoundedRate
from equimetric.runs.evaluation import CohortOverride
from equimetric.runs.result import CohortSetting


def setting(mild, plain=0.4, full=0.9):
    tried = [("mean", 0.0, plain), ("mean", 0.5, mild), ("full", 1.0, full)]
    tried = [{"part": "cohort", "form": form, "strength": strength, "tar": tar} for form, strength, tar in tried]
    return CohortSetting.model_validate({"part": "cohort", "classes": 12, "far": 0.01, "tried": tried})


def test_a_clear_gain_of_the_mild_form_takes_the_cohort():
    assert choose_normalization(setting(0.43)) == CohortOverride("cohort", 0.5, "mean")
    assert "by 12 cohort classes" in describe_normalization(setting(0.43))
    assert "from 40.0% to 43.0% at FAR 0.01" in describe_normalization(setting(0.43))


@pytest.mark.parametrize("mild", [0.3, 0.4, 0.415])
def test_without_one_there_is_no_cohort_whatever_the_full_form_gains(mild):
    assert choose_normalization(setting(mild)) == CohortOverride("none")
    assert describe_normalization(setting(mild)).startswith("No cohort normalisation")
    assert choose_normalization(None) == CohortOverride("none")


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
