"""Values of options are checked by the annotations of what takes them."""

import functools
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn

import equimetric as em
from equimetric.option_values import PositiveInt, Range, UnitFraction, check_options

PROXIES = {"classes": 5, "dim": 3}


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("ntxent", {"temperature": 0}, "temperature must be a number above 0, got 0"),
        ("ntxent", {"temperature": "0.1"}, "must be a number above 0, got '0.1'"),
        ("ntxent", {"temperature": float("nan")}, "must be a number above 0, got nan"),
        ("supcon", {"temperature": -1.0}, "above 0"),
        ("circle", {"gamma": 0}, "loss 'circle': gamma must be a number above 0"),
        ("smooth_ap", {"tau": 0.0}, "tau must be a number above 0"),
        ("contrastive", {"power": 0}, "power must be a whole number of 1 or more"),
        ("contrastive", {"pos_margin": True}, "pos_margin must be a number, got True"),
        ("triplet", {"soft": 1}, "soft must be True or False, got 1"),
        (
            "triplet",
            {"reduction": 3},
            "reduction must be 'query', 'nonzero', 'mean', 'sum', 'batch', 'valid', 'none' or None, got 3",
        ),
        ("triplet", {"reduction": "avg", "swap": True}, "'triplet': reduction must be 'nonzero', 'mean', "),
        (
            "npairs",
            {"reduction": "avg"},
            "'npairs': reduction must be 'query', 'mean', 'valid', 'batch', 'sum' or 'none'",
        ),
        ("proxy_anchor", {**PROXIES, "reduction": "avg"}, "'proxy_anchor': reduction must be 'mean' or 'none', got"),
        ("multi_similarity_miner", {"epsilon": None}, "selection 'multi_similarity': epsilon must be a number"),
        ("arcface", {**PROXIES, "label_smoothing": 2}, "label_smoothing must be a number between 0 and 1, got 2"),
        ("arcface", {"classes": 5.0, "dim": 3}, "references 'proxies': classes must be a whole number, got 5.0"),
        ("arcface", {"classes": "5", "dim": 3}, "must be a whole number, got '5'"),
        ("proxy_nca", {**PROXIES, "proxy_multiplier": -1}, "must be a number above 0 or None, got -1"),
        ("r_margin", {"p_switch": 1.5}, "between 0 and 1"),
        ("arcface", {**PROXIES, "margin_rad": 28.6}, "margin_rad must be a number between 0 and 3.14159, got 28.6"),
        ("arcface", {**PROXIES, "scale": float("inf")}, "scale must be a number above 0, got inf"),
        ("sphereface", {**PROXIES, "lambda_min": -1.0}, "lambda_min must be a number of 0 or more"),
        ("sphereface", {**PROXIES, "m": 10**6}, "m must be a whole number between 1 and 64"),
        ("angular", {"alpha_deg": 90.0}, "alpha_deg must be a number between 0 and 89"),
        ("tuplet_margin", {"margin_deg": 400.0}, "between 0 and 180"),
        ("pddm", {"dim": 4, "hidden": 0}, "hidden must be a whole number of 1 or more or None"),
        ("magnet", {"images": -1}, "images must be a whole number of 1 or more or None"),
        ("structured_clustering", {"pam_iters": -1}, "pam_iters must be a whole number of 0 or more"),
        ("xbm", {"dim": 4, "start_iteration": -5}, "start_iteration must be a whole number of 0 or more"),
        ("margin", {"cutoff": 3.0}, "cutoff must be a number above 0 and up to 2"),
        ("margin", {"generator": 0}, "generator must be a torch.Generator or None, got 0"),
        ("triplet_semihard", {"margin": -1.0}, "margin must be a number of 0 or more or None"),
        ("weighted", {"weights": 0.5}, "weights must be a function, got 0.5"),
        ("pads", {"support_limit": 1.4}, "two rising distances, got n_support=30, support_limit=1.4"),
        ("pads", {"support_limit": ("a", "b")}, "two rising distances"),
        ("lifted", {"normalize": "no"}, "objective: normalize must be True or False or None, got 'no'"),
        ("contrastive", {"require_both": "no"}, "objective: require_both must be True or False, got 'no'"),
        *(
            ("margin_loss", {name: value}, f"{name} must be a number of boundaries of 1 or more, or the values")
            for name in ("beta_class", "beta_img")
            for value in (0, -3, 4.0, True, "abc", ["a"], float("nan"), torch.zeros(4, 1), [float("inf")])
        ),
    ],
)
def test_invalid_values_are_errors_that_name_the_option(method, options, message):
    with pytest.raises(em.EquimetricError, match=message):
        em.objective(method, **options)


@pytest.mark.parametrize(
    "value", [1, 0.5, np.float32(0.5), np.int64(2), np.array(0.5), Fraction(1, 2), torch.tensor(0.5)]
)
def test_every_kind_of_number_is_accepted(value):
    embeddings, labels = torch.randn(6, 4), torch.tensor([0, 0, 1, 1, 2, 2])
    expected = em.objective("ntxent", temperature=float(value))(embeddings, labels)
    torch.testing.assert_close(em.objective("ntxent", temperature=value)(embeddings, labels), expected)


def test_numpy_booleans_and_sizes_are_accepted():
    embeddings, labels = torch.randn(6, 4), torch.tensor([0, 0, 1, 1, 2, 2])
    soft = em.objective("triplet", soft=np.bool_(True))
    assert soft(embeddings, labels) == em.objective("triplet", soft=True)(embeddings, labels)
    for number in (3, np.int64(3), torch.tensor(3)):
        assert em.objective("margin_class", beta_class=number).loss.beta_class.shape == (3,)
    started = em.objective("margin_loss", beta_class=[0.1, -0.1, 0.2], beta_img=torch.arange(6.0)).loss
    torch.testing.assert_close(started.beta_class.data, torch.tensor([0.1, -0.1, 0.2]))
    torch.testing.assert_close(started.beta_img.data, torch.arange(6.0))


@pytest.mark.parametrize("ks", [5, ["a"], [1.5], [], [0, 1], None])
def test_invalid_ranks_are_errors(ks):
    with pytest.raises(em.EquimetricError, match="needs ranks such as"):
        em.objective("recall_at_k_surrogate", ks=ks)(torch.randn(4, 3), torch.tensor([0, 0, 1, 1]))


@pytest.mark.parametrize("ks", [torch.tensor([1, 2]), np.array([1, 2]), [1, 2]])
def test_ranks_may_be_any_sequence(ks):
    embeddings, labels = torch.randn(6, 4), torch.tensor([0, 0, 1, 1, 2, 2])
    expected = em.objective("recall_at_k_surrogate", ks=(1, 2))(embeddings, labels)
    assert em.objective("recall_at_k_surrogate", ks=ks)(embeddings, labels) == expected


@pytest.mark.parametrize("weights", [lambda pairs: None, lambda pairs: pairs.similarity[:1]])
def test_weights_of_the_wrong_shape_are_errors(weights):
    with pytest.raises(em.EquimetricError, match=r"weights must be a tensor of shape \(4, 4\), got"):
        em.objective("weighted", weights=weights)(torch.randn(4, 3), torch.tensor([0, 0, 1, 1]))


def test_ranges_as_text():
    assert str(Range(0.0, 1.0)) == "between 0 and 1"
    assert str(Range(0.0, 1.0, without_low=True)) == "above 0 and up to 1"
    assert Range(0.0, 1.0).holds(0)
    assert not Range(0.0, 1.0, without_low=True).holds(0)


def test_annotations_of_a_module_are_read_from_its_constructor():
    class Weighted(nn.Module):
        def __init__(self, *, share: UnitFraction = 0.5, number: PositiveInt | None = None) -> None:
            super().__init__()
            self.share, self.number = share, number

    check_options("it", Weighted, {"share": 1, "number": None})
    with pytest.raises(em.EquimetricError, match="it: number must be a whole number of 1 or more or None, got 0"):
        check_options("it", Weighted, {"number": 0})


def test_annotations_that_cannot_be_read_are_not_checked():
    def own(pairs: "Unknown", *, strength: float = 1.0):  # noqa: F821
        return strength * pairs.similarity.sum()

    assert em.objective(own, strength=2)(torch.ones(2, 1), torch.tensor([0, 1])) == 8


def test_a_loss_of_ones_own_may_be_a_partial_function_or_an_object():
    def pull(pairs, *, strength=1.0):
        return -strength * pairs.similarity[pairs.positive].sum()

    class Pull:
        def __call__(self, pairs):
            return pull(pairs)

    embeddings, labels = torch.randn(4, 3), torch.tensor([0, 0, 1, 1])
    expected = em.objective(pull, strength=3.0)(embeddings, labels)
    halved = em.objective(functools.partial(pull, strength=3.0))
    assert halved.name == "pull"
    torch.testing.assert_close(halved(embeddings, labels), expected)
    called = em.objective(Pull())
    assert called.name == "Pull"
    torch.testing.assert_close(3 * called(embeddings, labels), expected)


def test_a_loss_must_return_a_tensor():
    with pytest.raises(em.EquimetricError, match="loss 'length' returned int; it must return a scalar tensor"):
        em.objective(lambda_named_length())(torch.randn(4, 3), torch.tensor([0, 0, 1, 1]))


def lambda_named_length():
    def length(pairs):
        return len(pairs.similarity)

    return length
