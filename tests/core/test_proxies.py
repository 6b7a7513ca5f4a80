"""Losses against class representatives: worked values, the formulas written out, identities, extreme values."""

import json
from math import acos, cos, exp, log, pi, sin, sqrt
from pathlib import Path

import pytest
import torch
from torch.nn.functional import normalize

import equimetric as em
from equimetric.errors import EquimetricError
from equimetric.losses.large_margin import multiply_angle
from equimetric.objectives import Context, build_objective
from equimetric.pairs import Pairs

WORKED = json.loads((Path(__file__).parents[1] / "worked_values" / "proxy_losses.json").read_text())


def float64(values):
    return torch.tensor(values, dtype=torch.float64)


def build(method, weight, classes, **options):
    """An objective of a method in float64, with the class representatives given; outside training nothing anneals."""
    context = Context(classes=classes, dim=weight.shape[1], images=1)
    objective = build_objective(method, options, context).double().eval()
    objective.references.weight.data = weight.clone()
    return objective


@pytest.mark.parametrize("case", WORKED["losses"], ids=lambda case: case["id"])
def test_worked_values(case):
    data = WORKED["sets"][case["set"]]
    embeddings = float64(data["embeddings"]).requires_grad_()
    objective = build(case["method"], float64(data[case["weight"]]), len(data["proxies"]), **case["options"])
    if case["options"].get("bias"):
        objective.references.bias.data = float64(data["bias"])
    value = objective(embeddings, torch.tensor(data["labels"]))
    assert value.item() == pytest.approx(case["value"], abs=1e-6)
    value.backward()
    if "gradient" in case:
        torch.testing.assert_close(embeddings.grad, float64(case["gradient"]), rtol=0, atol=1e-5)
    if "weight_gradient" in case:
        gradient = objective.references.weight.grad
        torch.testing.assert_close(gradient, float64(case["weight_gradient"]), rtol=0, atol=1e-5)


CLASSES, DIMENSION = 6, 5
LABELS = torch.tensor([3, 0, 0, 5, 3, 1, 0])
"""Unequal and unsorted, with singletons and classes that do not occur."""


def random_batch(per_class=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    embeddings = torch.randn(len(LABELS), DIMENSION, generator=generator, dtype=torch.float64) * 1.5
    weight = torch.randn(CLASSES * per_class, DIMENSION, generator=generator, dtype=torch.float64)
    return embeddings, weight


def softmax_by_hand(logits):
    """Mean of log Σ_c e^{z_c} − z_y over samples, from lists of logits."""
    losses = [torch.stack(row).exp().sum().log() - row[y] for row, y in zip(logits, LABELS.tolist(), strict=True)]
    return sum(losses) / len(losses)


def cosines(embeddings, weight, **_):
    return [[x.dot(w) / x.norm() / w.norm() for w in weight] for x in embeddings]


def plain_softmax(embeddings, weight, label_smoothing=0.0, smoothing="others"):
    total = 0
    for x, y in zip(embeddings, LABELS.tolist(), strict=True):
        logits = torch.stack([x.dot(w) for w in weight])
        logs = logits - logits.exp().sum().log()
        others = CLASSES - 1 if smoothing == "others" else CLASSES
        share = label_smoothing / others
        target = [share] * CLASSES
        target[y] = 1 - label_smoothing + (0 if smoothing == "others" else share)
        total = total - sum(t * one for t, one in zip(target, logs, strict=True))
    return total / len(embeddings)


def margin_cosine(embeddings, weight, margin=0.35, scale=64.0):
    rows = cosines(embeddings, weight)
    for row, y in zip(rows, LABELS.tolist(), strict=True):
        row[y] = row[y] - margin
    return softmax_by_hand([[scale * one for one in row] for row in rows])


def multiplied(cosine, m):
    angle = acos(max(-1.0, min(1.0, cosine.item())))
    k = min(int(m * angle / pi), m - 1)
    return (-1) ** k * torch.cos(m * torch.acos(cosine)) - 2 * k


def large_margin(embeddings, weight, m=4, lambda_min=5.0, lambda_base=1000.0, unit_weights=False, scale=None):
    blend = max(lambda_min, lambda_base)
    rows = cosines(embeddings, weight)
    for row, x, y in zip(rows, embeddings, LABELS.tolist(), strict=True):
        row[y] = (blend * row[y] + multiplied(row[y], m)) / (1 + blend)
        for c in range(CLASSES):
            length = x.norm() if scale is None else scale
            row[c] = row[c] * length * (1 if unit_weights else weight[c].norm())
    return softmax_by_hand(rows)


def sphereface(embeddings, weight, **options):
    return large_margin(embeddings, weight, unit_weights=True, **options)


def anchor(embeddings, weight, alpha=32.0, delta=0.1):
    table = cosines(embeddings, weight)
    pull, push = [], []
    for c in range(CLASSES):
        near = [(-alpha * (row[c] - delta)).exp() for row, y in zip(table, LABELS.tolist(), strict=True) if y == c]
        far = [(alpha * (row[c] + delta)).exp() for row, y in zip(table, LABELS.tolist(), strict=True) if y != c]
        if near:
            pull.append((1 + sum(near)).log())
        push.append((1 + sum(far)).log())
    return sum(pull) / len(pull) + sum(push) / len(push)


def subcentres(embeddings, weight, per_class=3, margin_rad=0.5, scale=64.0):
    logits = []
    for row, y in zip(cosines(embeddings, weight), LABELS.tolist(), strict=True):
        best = [max(row[c * per_class : (c + 1) * per_class]) for c in range(CLASSES)]
        angle = torch.acos(best[y])
        past = angle.item() > pi - margin_rad
        best[y] = best[y] - margin_rad * sin(margin_rad) if past else torch.cos(angle + margin_rad)
        logits.append([scale * one for one in best])
    return softmax_by_hand(logits)


def soft_triple(embeddings, weight, per_class=10, la=20.0, delta=0.01, gamma=0.1, tau=0.2, divisor="ordered"):
    logits = []
    for row, y in zip(cosines(embeddings, weight), LABELS.tolist(), strict=True):
        pooled = []
        for c in range(CLASSES):
            own = row[c * per_class : (c + 1) * per_class]
            parts = [(one / gamma).exp() for one in own]
            pooled.append(sum(part / sum(parts) * one for part, one in zip(parts, own, strict=True)))
        logits.append([la * (one - (delta if c == y else 0)) for c, one in enumerate(pooled)])
    spread = 0
    for c in range(CLASSES):
        own = [w / w.norm() for w in weight[c * per_class : (c + 1) * per_class]]
        for t in range(per_class):
            for s in range(t + 1, per_class):
                spread = spread + (2 + 1e-5 - 2 * own[t].dot(own[s])).sqrt()
    pairs = CLASSES * per_class * (per_class - 1) / (1 if divisor == "ordered" else 2)
    return softmax_by_hand(logits) + tau * spread / pairs


def triplet_terms(embeddings, weight, margin, multiplier):
    """[d² of the right proxy − d² of another + margin]₊ for every sample and every other proxy."""
    return [
        [(2 * multiplier**2 * (row[c] - row[y]) + margin).clamp_min(0) for c in range(CLASSES) if c != y]
        for row, y in zip(cosines(embeddings, weight), LABELS.tolist(), strict=True)
    ]


def triplet_sum(embeddings, weight, margin=1.0, reduction="mean", embedding_multiplier=1.0):
    terms = triplet_terms(embeddings, weight, margin, embedding_multiplier)
    flat = [term for row in terms for term in row]
    divisor = {
        "mean": len(flat),
        "batch": len(terms),
        "sum_neg_mean_batch": len(terms),
        "nonzero": sum(bool(term > 0) for term in flat),
        "nonzero_mean": sum(bool(term > 0) for term in flat),
    }
    return sum(flat) / divisor[reduction]


@pytest.mark.parametrize("multiplier", [1.0, 3.0])
def test_proxy_triplet_of_each_sample(multiplier):
    embeddings, weight = (part.detach() for part in random_batch())
    options = {"margin": 0.7, "embedding_multiplier": multiplier, "reduction": "none"}
    found = build("proxy_triplet", weight, CLASSES, **options)(embeddings, LABELS)
    expected = [sum(row) / len(row) for row in triplet_terms(embeddings, weight, 0.7, multiplier)]
    torch.testing.assert_close(found, torch.stack(expected))


WRITTEN_OUT = [
    ("softmax", plain_softmax, {}),
    ("softmax", plain_softmax, {"label_smoothing": 0.1}),
    ("softmax", plain_softmax, {"label_smoothing": 0.1, "smoothing": "uniform"}),
    ("cosface", margin_cosine, {}),
    ("cosface", margin_cosine, {"margin": 0.1, "scale": 10.0}),
    ("large_margin_softmax", large_margin, {}),
    ("large_margin_softmax", large_margin, {"m": 3, "lambda_base": 0.0, "lambda_min": 0.3}),
    ("sphereface", sphereface, {}),
    ("sphereface", sphereface, {"m": 2, "lambda_base": 2.0, "lambda_min": 0.3}),
    ("sphereface", sphereface, {"m": 5, "lambda_base": 0.0, "lambda_min": 0.0, "scale": 4.0}),
    ("proxy_anchor", anchor, {}),
    ("proxy_anchor", anchor, {"alpha": 5.0, "delta": 0.3}),
    ("subcenter_arcface", subcentres, {"per_class": 3}),
    ("subcenter_arcface", subcentres, {"per_class": 2, "margin_rad": 0.2, "scale": 8.0}),
    ("softtriple", soft_triple, {"per_class": 10}),
    ("softtriple", soft_triple, {"per_class": 2, "la": 5.0, "delta": 0.3, "gamma": 2.0, "tau": 1.0}),
    ("softtriple", soft_triple, {"per_class": 3, "divisor": "unordered"}),
    ("proxy_triplet", triplet_sum, {}),
    ("proxy_triplet", triplet_sum, {"margin": 0.7, "reduction": "batch"}),
    ("proxy_triplet", triplet_sum, {"margin": 0.7, "reduction": "sum_neg_mean_batch"}),
    ("proxy_triplet", triplet_sum, {"embedding_multiplier": 2.0, "reduction": "nonzero_mean"}),
]


@pytest.mark.parametrize(("method", "formula", "options"), WRITTEN_OUT)
def test_the_formula_written_out(method, formula, options):
    embeddings, weight = random_batch(options.get("per_class", 1))
    objective = build(method, weight, CLASSES, **options)
    embeddings.requires_grad_()
    value = objective(embeddings, LABELS)
    value.backward()
    plain, plain_weight = embeddings.detach().clone().requires_grad_(), weight.clone().requires_grad_()
    expected = formula(plain, plain_weight, **options)
    expected.backward()
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(embeddings.grad, plain.grad)
    torch.testing.assert_close(objective.references.weight.grad, plain_weight.grad)


def test_softtriple_with_one_centre_is_cosface():
    embeddings, weight = random_batch()
    soft = build("softtriple", weight, CLASSES, per_class=1, la=20.0, delta=0.3)
    torch.testing.assert_close(
        soft(embeddings, LABELS), build("cosface", weight, CLASSES, scale=20.0, margin=0.3)(embeddings, LABELS)
    )


@pytest.mark.parametrize("method", ["arcface", "cosface", "subcenter_arcface"])
def test_without_margin_it_is_normalized_softmax(method):
    embeddings, weight = random_batch()
    margin = {"margin": 0.0} if method == "cosface" else {"margin_rad": 0.0}
    extra = {"per_class": 1} if method == "subcenter_arcface" else {}
    objective = build(method, weight, CLASSES, scale=16.0, **margin, **extra)
    expected = build("normalized_softmax", weight, CLASSES, temperature=1 / 16)
    torch.testing.assert_close(objective(embeddings, LABELS), expected(embeddings, LABELS))


def test_sphereface_that_multiplies_by_one_is_softmax_on_unit_weights():
    embeddings, weight = random_batch()
    objective = build("sphereface", weight, CLASSES, m=1, lambda_base=0.0, lambda_min=0.0)
    softmax = build("softmax", normalize(weight), CLASSES)
    torch.testing.assert_close(objective(embeddings, LABELS), softmax(embeddings, LABELS))
    large = build("large_margin_softmax", weight, CLASSES, m=1, lambda_base=0.0, lambda_min=0.0)
    torch.testing.assert_close(large(embeddings, LABELS), build("softmax", weight, CLASSES)(embeddings, LABELS))


@pytest.mark.parametrize("m", [1, 2, 3, 4, 5])
def test_the_multiplied_angle_falls_from_one_without_jumps(m):
    angles = torch.linspace(0, pi, 2001, dtype=torch.float64)
    psi = multiply_angle(angles.cos(), m)
    assert psi[0].item() == pytest.approx(1)
    assert psi[-1].item() == pytest.approx(1 - 2 * m)
    steps = psi.diff()
    assert (steps <= 1e-12).all()
    assert steps.abs().max() < 2 * m * pi / 2000


@pytest.mark.parametrize("method", ["large_margin_softmax", "sphereface"])
def test_the_margin_is_phased_in_by_training_steps_and_survives_a_restart(method):
    embeddings, weight = random_batch()
    objective = build(method, weight, CLASSES)
    assert objective(embeddings, LABELS) == objective(embeddings, LABELS)
    assert objective.loss.iteration == 0
    objective.train()
    values = [objective(embeddings, LABELS).item() for _ in range(4)]
    assert len(set(values)) == 4
    assert objective.loss.iteration == 4
    assert objective.loss.step_lambda(torch.float64).item() == pytest.approx(1000 / (1 + 0.12 * 4))
    restarted = build(method, weight, CLASSES)
    restarted.load_state_dict(objective.state_dict())
    objective.eval()
    assert restarted(embeddings, LABELS) == objective(embeddings, LABELS)
    restarted.loss.iteration.fill_(10**6)
    assert restarted.loss.step_lambda(torch.float64) == 5.0


def test_a_multiplied_angle_needs_lengths():
    pairs = Pairs(torch.eye(2), torch.eye(2).bool(), ~torch.eye(2).bool())
    with pytest.raises(EquimetricError, match="per_class=1"):
        em.objective("sphereface", classes=2, dim=2).loss(pairs)
    several = em.objective("large_margin_softmax", classes=2, dim=2, per_class=2)
    with pytest.raises(EquimetricError, match="per_class=1"):
        several(torch.eye(2), torch.tensor([0, 1]))


def test_proxy_anchor_keeps_a_proxy_without_negatives_in_its_divisor():
    weight = float64([[1.0, 0.0], [0.0, 1.0]])
    value = build("proxy_anchor", weight, 2, alpha=2.0, delta=0.1)(weight[:1], torch.tensor([0]))
    expected = log(1 + exp(-2 * 0.9)) + (0 + log(1 + exp(2 * 0.1))) / 2
    assert value.item() == pytest.approx(expected)


@pytest.mark.parametrize(
    "method",
    ["softmax", "cosface", "large_margin_softmax", "sphereface", "subcenter_arcface", "softtriple", "arcface"],
)
def test_one_value_per_sample(method):
    per_class = {"subcenter_arcface": 3, "softtriple": 10}.get(method, 1)
    embeddings, weight = random_batch(per_class)
    own = {"tau": 0.0} if method == "softtriple" else {}
    each = build(method, weight, CLASSES, reduction="none", **own)(embeddings, LABELS)
    assert each.shape == LABELS.shape
    torch.testing.assert_close(each.mean(), build(method, weight, CLASSES, **own)(embeddings, LABELS))


def test_one_value_per_proxy():
    embeddings, weight = random_batch()
    each = build("proxy_anchor", weight, CLASSES, reduction="none")(embeddings, LABELS)
    assert each.shape == (CLASSES,)
    table = float64([[one.item() for one in row] for row in cosines(embeddings, weight)])
    absent = (32 * (table[:, 2] + 0.1)).exp().sum().log1p()
    torch.testing.assert_close(each[2], absent)
    with pytest.raises(EquimetricError, match="reduction"):
        build("proxy_anchor", weight, CLASSES, reduction="sum")(embeddings, LABELS)


EXTREME = {
    "normalized_softmax": {"temperature": 0.01},
    "cosface": {"scale": 64.0},
    "arcface": {"scale": 64.0},
    "subcenter_arcface": {"scale": 64.0, "per_class": 2},
    "softtriple": {"la": 100.0, "gamma": 0.01, "per_class": 2},
    "proxy_anchor": {"alpha": 128.0},
    "sphereface": {"scale": 64.0, "lambda_base": 0.0, "lambda_min": 0.0},
    "large_margin_softmax": {"lambda_base": 0.0, "lambda_min": 0.0},
    "softmax": {},
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("method", EXTREME)
def test_aligned_opposite_and_zero_embeddings_stay_finite(method, dtype):
    axis = torch.eye(3)
    per_class = EXTREME[method].get("per_class", 1)
    weight = axis.repeat_interleave(per_class, 0)
    objective = build(method, weight, 3, **EXTREME[method]).to(dtype)
    embeddings = torch.cat([axis, -axis, torch.zeros(1, 3), 1e4 * axis[:1]]).to(dtype).requires_grad_()
    value = objective(embeddings, torch.tensor([0, 1, 2, 0, 1, 2, 0, 1]))
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(embeddings.grad).all()
    assert torch.isfinite(objective.references.weight.grad).all()


def test_an_aligned_sample_costs_what_the_formula_says():
    value = build("cosface", torch.eye(2, dtype=torch.float64), 2)(float64([[1.0, 0.0]]), torch.tensor([0]))
    assert value.item() == pytest.approx(log(1 + exp(-64 * 0.65)), abs=1e-12)
    opposite = build("arcface", torch.eye(2, dtype=torch.float64), 2)(float64([[-1.0, 0.0]]), torch.tensor([0]))
    assert opposite.item() == pytest.approx(64 * (1 + 0.5 * sin(0.5)), abs=1e-6)


def test_the_gradient_goes_to_the_nearest_subcentre_alone():
    weight = float64([[1.0, 0.0], [cos(0.3), sin(0.3)], [0.0, 1.0], [-sqrt(0.5), sqrt(0.5)]])
    objective = build("subcenter_arcface", weight, 2, per_class=2, scale=4.0)
    objective(float64([[cos(0.2), sin(0.2)]]), torch.tensor([0])).backward()
    moved = objective.references.weight.grad.abs().sum(1) > 0
    assert moved.tolist() == [False, True, True, False]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("method", ["softmax", "normalized_softmax", "cosface", "arcface", "sphereface", "softtriple"])
def test_one_label_among_all_classes_is_a_special_case_of_masks(method, reduction):
    torch.manual_seed(0)
    objective = em.objective(method, classes=4, dim=3, reduction=reduction).double().eval()
    embeddings = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    pairs = objective.pairs(embeddings, torch.tensor([0, 3, 1, 1, 2]))
    by_label, by_masks = objective.value(pairs), objective.value(pairs.replace(positive=pairs.positive))
    torch.testing.assert_close(by_label, by_masks)
    gradients = [torch.autograd.grad(value.sum(), embeddings, retain_graph=True)[0] for value in (by_label, by_masks)]
    torch.testing.assert_close(*gradients)
