"""Values of options are checked by the annotations of what takes them."""

import functools

import numpy as np
import pytest
import torch
from torch import nn

import equimetric as em
from equimetric.option_values import Count, Range, Share, check_options

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
        ("triplet", {"reduction": 3}, "reduction must be a name or None, got 3"),
        ("multi_similarity_miner", {"epsilon": None}, "selection 'multi_similarity': epsilon must be a number"),
        ("arcface", {**PROXIES, "label_smoothing": 2}, "label_smoothing must be a number between 0 and 1, got 2"),
        ("arcface", {"classes": 5.0, "dim": 3}, "references 'proxies': classes must be a whole number, got 5.0"),
        ("arcface", {"classes": "5", "dim": 3}, "must be a whole number, got '5'"),
        ("proxy_nca", {**PROXIES, "proxy_multiplier": -1}, "must be a number above 0 or None, got -1"),
        ("r_margin", {"p_switch": 1.5}, "between 0 and 1"),
    ],
)
def test_values_that_make_no_sense_are_refused_by_name(method, options, message):
    with pytest.raises(em.EquimetricError, match=message):
        em.objective(method, **options)


@pytest.mark.parametrize("value", [1, 0.5, np.float32(0.5), np.int64(2), torch.tensor(0.5)])
def test_every_kind_of_number_is_one(value):
    embeddings, labels = torch.randn(6, 4), torch.tensor([0, 0, 1, 1, 2, 2])
    expected = em.objective("ntxent", temperature=float(value))(embeddings, labels)
    torch.testing.assert_close(em.objective("ntxent", temperature=value)(embeddings, labels), expected)


def test_ranges_say_what_they_are():
    assert str(Range(0.0, 1.0)) == "between 0 and 1"
    assert str(Range(0.0, 1.0, without_low=True)) == "above 0 and up to 1"
    assert Range(0.0, 1.0).holds(0)
    assert not Range(0.0, 1.0, without_low=True).holds(0)


def test_annotations_of_a_module_are_read_from_its_constructor():
    class Weighted(nn.Module):
        def __init__(self, *, share: Share = 0.5, number: Count | None = None) -> None:
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


def test_a_loss_that_returns_no_tensor_is_refused():
    with pytest.raises(em.EquimetricError, match="loss 'length' returned int; it must return a scalar tensor"):
        em.objective(lambda_named_length())(torch.randn(4, 3), torch.tensor([0, 0, 1, 1]))


def lambda_named_length():
    def length(pairs):
        return len(pairs.similarity)

    return length
