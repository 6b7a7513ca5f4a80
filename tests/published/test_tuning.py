"""The Reality Check's search ranges and optima, in its words and in ours."""

from math import radians, sqrt

import pytest

from equimetric.errors import EquimetricError
from equimetric.objectives import Context, build_objective, find_recipe
from equimetric.published import hyperparameters, select_hyperparameters
from equimetric.published.tuning import LEARNING_RATE
from equimetric.search_space import Integer, LogUniform, Uniform


def one(parameter, **filters):
    (found,) = (found for found in select_hyperparameters(**filters) if found.parameter == parameter)
    return found


@pytest.mark.parametrize(
    ("dataset", "batch", "method", "parameter", "bounds", "optimum"),
    [
        ("cub", 32, "Contrastive", "neg_margin", (-0.2, 2.0, "linear"), 0.3841),
        ("cub", 256, "contrastive", "pos_margin", (-0.2, 2.0, "linear"), 0.2227),
        ("sop", 32, "NT-Xent", "temperature", (1e-5, 100.0, "log"), 0.0002),
        ("cars", 32, "FastAP", "num_bins", (2, 32, "integer"), 27),
        ("cub", 256, "FastAP", "num_bins", (2, 250, "integer"), 86),
        ("sop", 32, "MS+Miner", "beta", (0.01, 200.0, "linear"), 156.61),
        ("sop", 32, "ArcFace", "scale", (0.01, 300.0, "linear"), 220.3),
        ("cars", 32, "Margin", "lr", (1e-6, 1.0, "log"), 1.11e-4),
    ],
)
def test_known_ranges_and_optima(dataset, batch, method, parameter, bounds, optimum):
    found = one(parameter, dataset=dataset, batch=batch, method=method)
    assert (found.low, found.high, found.scale) == bounds
    assert found.optimum == optimum


def test_every_method_was_tuned_on_every_data_set():
    frame = hyperparameters()
    assert len(frame) == 143
    settings = frame.groupby(["dataset", "batch"])["method"].nunique()
    assert settings.to_dict() == {
        ("CUB-200-2011", 32): 14,
        ("Cars-196", 32): 14,
        ("SOP", 32): 14,
        ("CUB-200-2011", 256): 14,
    }
    assert ((frame["low"] <= frame["optimum"]) & (frame["optimum"] <= frame["high"])).all()
    assert ((frame["our_low"] <= frame["our_optimum"]) & (frame["our_optimum"] <= frame["our_high"])).all()


@pytest.mark.parametrize(
    ("method", "parameter", "option", "value"),
    [
        ("ArcFace", "margin", "margin_rad", radians(23.22)),
        ("ProxyNCA", "softmax_scale", "embedding_multiplier", sqrt(13.98)),
        ("Margin", "margin", "alpha", 0.0878),
        ("Margin/class", "beta", "beta", 0.9796),
        ("SNR", "regularizer_weight", "reg", 0.1382),
        ("SoftTriple", "reg_weight", "tau", 0.3754),
        ("SoftTriple", "margin", "delta", 0.4307),
        ("CosFace", "lr", LEARNING_RATE, 0.00253),
    ],
)
def test_optima_as_options_of_ours(method, parameter, option, value):
    found = one(parameter, dataset="cub", batch=32, method=method)
    assert found.our_option == option
    assert found.our_optimum == pytest.approx(value, rel=1e-12)


def test_the_scale_of_proxy_nca_is_the_squared_multiplier():
    found = one("softmax_scale", dataset="cub", batch=32, method="ProxyNCA")
    assert (found.our_low, found.our_high, found.our_scale) == (pytest.approx(0.1), pytest.approx(10.0), "square")


@pytest.mark.parametrize("dataset", ["cub", "cars", "sop"])
def test_our_methods_take_the_optima(dataset):
    by_method = {}
    for found in select_hyperparameters(dataset=dataset, batch=32):
        if found.our_option != LEARNING_RATE:
            key = (found.our_method, tuple(found.our_options.items()))
            by_method.setdefault(key, dict(found.our_options))[found.our_option] = found.our_optimum
    assert len(by_method) == 14
    for (method, _), options in by_method.items():
        build_objective(method, options, Context(classes=5, dim=8, images=20))


def test_the_search_ranges_of_our_losses_are_those_of_cub():
    """Where a range was widened for another data set or a larger batch, ours is the one of CUB with batches of 32."""
    kinds = {"linear": Uniform, "log": LogUniform, "integer": Integer}
    known_differences = {
        ("proxy_nca_plus_plus", "embedding_multiplier"),  # evenly in its logarithm, over a narrower range
        ("multi_similarity", "alpha"),  # 0.001 on CUB, 0.01 elsewhere
        ("softtriple", "gamma"),  # 0.0001 on CUB, 0.01 elsewhere
        ("softtriple", "tau"),  # twice the range, with the divisor of the paper
    }
    different = set()
    for found in select_hyperparameters(dataset="cub", batch=32):
        if found.our_option != LEARNING_RATE:
            ours = find_recipe(found.our_method).search[found.our_option]
            theirs = kinds[found.scale](found.our_low, found.our_high)
            same = type(ours) is type(theirs) and (ours.low, ours.high) == pytest.approx(
                (theirs.low, theirs.high), 1e-5
            )
            different |= set() if same else {(found.our_method, found.our_option)}
    assert different == known_differences


def test_what_was_not_tuned_is_an_error_that_says_what_was():
    with pytest.raises(EquimetricError, match="tuned the methods of its table on CUB-200-2011"):
        hyperparameters(method="circle")
    with pytest.raises(EquimetricError, match="tuned the methods"):
        hyperparameters(dataset="sop", batch=256)
