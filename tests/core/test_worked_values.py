"""Values and gradients worked out by hand and by independent programs, in float64."""

import json
from pathlib import Path

import pytest
import torch

import equimetric as em
from equimetric.objectives import Context, build_objective
from equimetric.selection.distance_weighted import negative_probabilities

FOLDER = Path(__file__).parents[1] / "worked_values"
PAIRS = json.loads((FOLDER / "pairs.json").read_text())
PROXIES = json.loads((FOLDER / "proxies.json").read_text())


def float64(values):
    return torch.tensor(values, dtype=torch.float64)


def set_parameters(objective, parameters):
    named = dict(objective.named_parameters())
    for name, value in parameters.items():
        named[name].data = float64(value)
    return named


@pytest.mark.parametrize("case", PAIRS["losses"], ids=lambda case: case["id"])
def test_pair_losses(case):
    data = PAIRS["sets"][case["set"]]
    embeddings = float64(data["embeddings"]).requires_grad_()
    labels = torch.tensor(data["labels"])
    objective = em.objective(case["method"], **case["options"]).double()
    parameters = set_parameters(objective, case.get("parameters", {}))
    pairs = objective.pairs(embeddings, labels, index=torch.arange(len(labels)))
    if "triplets" in case:
        value = objective.loss(em.Triplets(pairs, *torch.tensor(case["triplets"]).T))
    else:
        value = objective.value(pairs)
    assert value.item() == pytest.approx(case["value"], abs=case["tolerance"])
    value.backward()
    if "gradient" in case:
        torch.testing.assert_close(embeddings.grad, float64(case["gradient"]), rtol=0, atol=case["gradient_tolerance"])
    for name, gradient in case.get("parameter_gradients", {}).items():
        assert parameters[name].grad.item() == pytest.approx(gradient, abs=1e-6)


@pytest.mark.parametrize("case", PROXIES["losses"], ids=lambda case: case["id"])
def test_proxy_losses(case):
    data = PROXIES["sets"][case["set"]]
    embeddings = float64(data["embeddings"]).requires_grad_()
    proxies = float64(data["proxies"])
    options = {"classes": proxies.shape[0], "dim": proxies.shape[1], **case["options"]}
    objective = em.objective(case["method"], **options).double()
    weight = set_parameters(objective, {"references.weight": proxies.tolist()})["references.weight"]
    value = objective(embeddings, torch.tensor(data["labels"]))
    assert value.item() == pytest.approx(case["value"], abs=case["tolerance"])
    value.backward()
    if "gradient" in case:
        torch.testing.assert_close(embeddings.grad, float64(case["gradient"]), rtol=0, atol=case["gradient_tolerance"])
    if "proxy_gradient" in case:
        torch.testing.assert_close(weight.grad, float64(case["proxy_gradient"]), rtol=0, atol=1e-5)


@pytest.mark.parametrize("case", PAIRS["selections"], ids=lambda case: case["id"])
def test_selections(case):
    embeddings, labels = float64(case["embeddings"]), torch.tensor(case["labels"])
    if case["method"] == "dw_probs":
        pairs = em.objective("margin").pairs(embeddings, labels)
        probabilities = negative_probabilities(pairs, **case["options"])
        torch.testing.assert_close(probabilities, float64(case["expected"]), rtol=0, atol=case["tolerance"])
    else:
        objective = em.objective("multi_similarity_miner", **case["options"])
        chosen = objective.select(objective.pairs(embeddings, labels))
        for mask, expected in (
            (chosen.positive, case["expected"]["positives_per_anchor"]),
            (chosen.negative, case["expected"]["negatives_per_anchor"]),
        ):
            assert [row.nonzero()[:, 0].tolist() for row in mask] == expected


def five():
    data = PROXIES["sets"]["five"]
    return float64(data["embeddings"]), torch.tensor(data["labels"]), float64(data["proxies"])


def with_proxies(method, proxies, **options):
    objective = build_objective(method, options, Context(classes=len(proxies), dim=proxies.shape[1], images=1)).double()
    objective.references.weight.data = proxies
    return objective


def test_proxy_nca_plus_plus_is_normalized_softmax_at_half_the_temperature():
    embeddings, labels, proxies = five()
    nca = with_proxies("proxy_nca_plus_plus", proxies, embedding_multiplier=3.0)
    softmax = with_proxies("normalized_softmax", proxies, temperature=1 / 18)
    torch.testing.assert_close(nca(embeddings, labels), softmax(embeddings, labels))


def test_proxy_nca_plus_plus_is_softplus_of_the_original():
    embeddings, labels, proxies = five()
    original = with_proxies("proxy_nca", proxies, reduction="none")(embeddings, labels)
    included = with_proxies("proxy_nca_plus_plus", proxies, reduction="none")(embeddings, labels)
    torch.testing.assert_close(included, torch.logaddexp(original, torch.zeros_like(original)))


@pytest.mark.parametrize("mode", ["plain", "monotone", "easy"])
def test_arcface_without_margin_is_normalized_softmax(mode):
    embeddings, labels, proxies = five()
    arcface = with_proxies("arcface", proxies, margin_rad=0.0, scale=20.0, mode=mode)
    softmax = with_proxies("normalized_softmax", proxies, temperature=0.05)
    torch.testing.assert_close(arcface(embeddings, labels), softmax(embeddings, labels))


def test_uniform_smoothing_is_that_of_torch():
    embeddings, labels, proxies = five()
    smoothed = with_proxies("normalized_softmax", proxies, label_smoothing=0.1, smoothing="uniform")
    cosines = torch.nn.functional.normalize(embeddings) @ torch.nn.functional.normalize(proxies).T
    expected = torch.nn.functional.cross_entropy(cosines / 0.05, labels, label_smoothing=0.1)
    torch.testing.assert_close(smoothed(embeddings, labels), expected)


def test_a_sum_of_objectives_adds_its_named_terms():
    data = PAIRS["sets"]["W2"]
    embeddings, labels = float64(data["embeddings"]), torch.tensor(data["labels"])
    together = em.objective("contrastive + 0.5*tcm", m_pos=0.9)
    terms = together.terms(embeddings, labels)
    assert list(terms) == ["contrastive", "tcm"]
    assert terms["tcm"].item() == pytest.approx(0.5 * 0.612693, abs=1e-6)
    assert together(embeddings, labels).item() == pytest.approx(sum(v.item() for v in terms.values()))
    by_hand = em.objective("contrastive") + 0.5 * em.objective("tcm")
    torch.testing.assert_close(by_hand(embeddings, labels), together(embeddings, labels))
