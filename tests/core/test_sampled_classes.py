"""Classes sampled in training (Partial FC): the loss of some columns, drawn by a seed."""

import pytest
import torch

import equimetric as em
from equimetric.references import proxies
from equimetric.references.proxies import sample_classes

CLASSES, DIMENSION = 12, 4
LABELS = torch.tensor([7, 2, 7, 11, 0])
IDS = torch.tensor([0, 2, 3, 7, 8, 11])
"""The classes of the batch and two others."""


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def build(method, classes=CLASSES, weight=None, **options):
    objective = em.objective(method, classes=classes, dim=DIMENSION, **options).double()
    references = objective.references
    weight = random(classes * references.per_class, DIMENSION, seed=1) if weight is None else weight
    references.weight.data = weight.clone()
    if references.bias is not None:
        references.bias.data = torch.arange(classes, dtype=torch.float64) / 10
    return objective


def test_sampled_classes_hold_all_of_the_batch_and_follow_the_generator():
    labels = torch.tensor([7, 2, 7, 40])
    draws = [sample_classes(labels, 50, 12, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    for ids in draws:
        assert len(ids) == 12
        assert (ids.diff() > 0).all()
        assert torch.isin(labels, ids).all()
    assert sample_classes(labels, 50, 2, torch.Generator()).tolist() == [2, 7, 40]
    assert sample_classes(labels, 50, 50, torch.Generator()).tolist() == list(range(50))


def test_other_classes_are_drawn_equally_often():
    objective = build("arcface", sample_rate=0.5)
    times = torch.zeros(CLASSES)
    for _ in range(600):
        objective.references.weight.grad = None
        objective(random(5, DIMENSION), LABELS).backward()
        times += objective.references.weight.grad.abs().sum(1) > 0
    assert (times[LABELS] == 600).all()
    # Two of eight in each of 600 steps.
    others = times[[1, 3, 4, 5, 6, 8, 9, 10]]
    assert others.sum() == 1200
    assert ((others - 150).abs() < 40).all()


CASES = {
    "softmax": ("softmax", {"bias": True}),
    "softmax, smoothed": ("softmax", {"label_smoothing": 0.1}),
    "normalised softmax": ("normalized_softmax", {}),
    "normalised softmax, smoothed": ("normalized_softmax", {"label_smoothing": 0.2, "smoothing": "uniform"}),
    "arcface": ("arcface", {}),
    "arcface, summed": ("arcface", {"mode": "plain", "reduction": "sum"}),
    "cosface": ("cosface", {"scale": 10.0}),
    "sphereface": ("sphereface", {"lambda_base": 2.0}),
    "large margin": ("large_margin_softmax", {"lambda_base": 2.0}),
    "proxy nca": ("proxy_nca", {}),
    "proxy nca ++": ("proxy_nca_plus_plus", {}),
    "proxy anchor": ("proxy_anchor", {}),
    "proxy triplet": ("proxy_triplet", {}),
    "contrastive": ("contrastive", {"references": "proxies"}),
    "subcentres": ("subcenter_arcface", {"per_class": 2}),
    "soft triple": ("softtriple", {"per_class": 2}),
    "soft triple, mean of pairs": ("softtriple", {"per_class": 3, "divisor": "unordered", "tau": 0.7}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_loss_is_that_of_the_sampled_columns_alone(case, monkeypatch):
    method, options = CASES[case]
    monkeypatch.setattr(proxies, "sample_classes", lambda *_: IDS)
    sampled = build(method, sample_rate=0.5, **options)
    embeddings = random(5, DIMENSION).requires_grad_()
    terms = sampled.pair_terms(embeddings, LABELS)
    ((_, pairs),) = terms.weighted_pairs
    assert pairs.similarity.shape == pairs.positive.shape == (5, len(IDS))
    value = terms.combine([sampled.value(pairs)])
    value.backward()

    full = sampled.references.weight.detach().view(CLASSES, -1)
    few = build(method, classes=len(IDS), weight=full[IDS].reshape(-1, DIMENSION), **options)
    if few.references.bias is not None:
        few.references.bias.data = sampled.references.bias.data[IDS]
    again = embeddings.detach().clone().requires_grad_()
    expected = few(again, torch.searchsorted(IDS, LABELS))
    expected.backward()
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(embeddings.grad, again.grad)
    for whole, part in zip(sampled.references.parameters(), few.references.parameters(), strict=True):
        by_class, chosen = whole.grad.view(CLASSES, -1), part.grad.view(len(IDS), -1)
        torch.testing.assert_close(by_class[IDS], chosen)
        assert not by_class[[1, 4, 5, 6, 9, 10]].any()


@pytest.mark.parametrize("case", CASES)
def test_all_classes_are_used_at_a_rate_of_one_and_in_evaluation_mode(case):
    method, options = CASES[case]
    embeddings, full = random(5, DIMENSION), build(method, **options)
    value = full(embeddings, LABELS)
    assert torch.equal(build(method, sample_rate=1.0, **options)(embeddings, LABELS), value)
    evaluated = build(method, sample_rate=0.5, **options).eval()
    assert torch.equal(evaluated(embeddings, LABELS), build(method, **options).eval()(embeddings, LABELS))
    assert evaluated.references.sampled_steps == 0
    # The code path of sampled classes, with all of them.
    almost = build(method, sample_rate=1 - 1e-12, **options)
    torch.testing.assert_close(almost(embeddings, LABELS), value)
    assert almost.references.sampled_steps == 1


@pytest.mark.parametrize(("rate", "columns"), [(0.29, 29), (0.3, 30), (0.001, 4), (0.045, 4), (0.999, 99)])
def test_a_share_of_the_classes_is_rounded_down_but_never_below_those_of_the_batch(rate, columns):
    objective = em.objective("arcface", classes=100, dim=DIMENSION, sample_rate=rate)
    assert objective.pairs(torch.randn(5, DIMENSION), LABELS).similarity.shape == (5, columns)


def values(objective, steps):
    return [objective(random(5, DIMENSION), LABELS).item() for _ in range(steps)]


def test_sampling_follows_its_seed_and_resumes_from_a_saved_state():
    torch.manual_seed(3)
    undisturbed = build("arcface", sample_rate=0.5)
    expected = values(undisturbed, 6)
    assert len(set(expected)) > 3, "every step draws anew"
    torch.manual_seed(3)
    broken_off = build("arcface", sample_rate=0.5)
    torch.rand(7)
    assert values(broken_off, 2) == expected[:2]
    torch.manual_seed(8)
    resumed = build("arcface", sample_rate=0.5)
    assert values(resumed, 6) != expected
    resumed.load_state_dict(broken_off.state_dict())
    resumed.eval()(random(5, DIMENSION), LABELS)
    assert values(resumed.train(), 4) == expected[2:]


def test_without_sampling_the_state_has_no_seed():
    assert set(build("arcface").references.state_dict()) == {"weight"}
