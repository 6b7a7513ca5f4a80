"""Pair losses against worked values, and against double loops written straight from the formulas."""

import json
from math import log, radians
from pathlib import Path

import pytest
import torch
from pair_formulas import (
    LABELS,
    B,
    angular,
    angular_npair,
    angular_npairs_combo,
    average,
    batch,
    binomial,
    circle,
    ephn,
    equal_weights,
    first_two,
    float64,
    intra_pair_variance,
    lifted,
    lifted_generalized,
    negatives,
    npairs,
    ntxent,
    positive_pairs,
    ranked_list,
    raw,
    snr_contrastive,
    supcon,
    total,
    tuplet_margin,
)
from torch.nn.functional import cross_entropy, normalize, softplus

import equimetric as em
from equimetric.components import LOSSES
from equimetric.losses.triplet import triplet
from equimetric.pairs import Pairs, TripletBand

WORKED = json.loads((Path(__file__).parents[1] / "worked_values" / "pair_losses.json").read_text())


@pytest.mark.parametrize("case", WORKED["losses"], ids=lambda case: case["id"])
def test_worked_values(case):
    data = WORKED["sets"][case["set"]]
    embeddings = float64(data["embeddings"]).requires_grad_()
    value = em.objective(case["method"], **case["options"])(embeddings, torch.tensor(data["labels"]))
    assert value.item() == pytest.approx(case["value"], abs=case["tolerance"])
    if "gradient" in case:
        value.backward()
        torch.testing.assert_close(embeddings.grad, float64(case["gradient"]), rtol=0, atol=case["gradient_tolerance"])


CASES = [
    (lifted, {}),
    (lifted, {"margin": 0.3}),
    (lifted_generalized, {}),
    (lifted_generalized, {"margin": 0.2, "reduction": "valid"}),
    (lifted_generalized, {"margin": -1.5, "geometry": "cosine"}),
    (npairs, {}),
    (npairs, {"l2_reg": 0.0}),
    (npairs, {"l2_reg": 0.3, "symmetric": True}),
    (npairs, {"l2_reg": 0.3, "reduction": "sum"}),
    (npairs, {"l2_reg": 0.3, "repeated": "soft"}),
    (npairs, {"l2_reg": 0.3, "symmetric": True, "repeated": "soft"}),
    (angular, {}),
    (angular, {"alpha_deg": 36.0}),
    (angular_npair, {}),
    (angular_npair, {"alpha_deg": 55.0}),
    (angular_npair, {"reduction": "batch"}),
    (angular_npairs_combo, {}),
    (angular_npairs_combo, {"alpha_deg": 40.0, "lam": 0.7, "l2_reg": 0.1, "symmetric": True}),
    (angular_npairs_combo, {"lam": 0.7, "reduction": "sum"}),
    (tuplet_margin, {}),
    (tuplet_margin, {"scale": 4.0, "margin_deg": 12.0}),
    (intra_pair_variance, {}),
    (intra_pair_variance, {"pos_eps": 0.2, "neg_eps": 0.3}),
    (circle, {}),
    (circle, {"m": 0.25, "gamma": 3.0}),
    (circle, {"m": 0.25, "gamma": 3.0, "mode": "batch"}),
    (ntxent, {}),
    (ntxent, {"temperature": 0.9}),
    (supcon, {}),
    (supcon, {"temperature": 0.9, "reduction": "batch"}),
    (snr_contrastive, {}),
    (snr_contrastive, {"pos_margin": 0.5, "neg_margin": 1.4, "reg": 0.3, "reduction": "mean"}),
    (snr_contrastive, {"pos_margin": 0.5, "reduction": "sum"}),
    (snr_contrastive, {"power": 2}),
    (raw, {}),
    (raw, {"alpha": 5.0, "beta": 7.0, "base": 0.3, "epsilon": 0.1}),
    (binomial, {}),
    (binomial, {"alpha": 3.0, "beta": 11.0, "gamma": 0.4, "epsilon": 0.1}),
    (binomial, {"reduction": "sum", "epsilon": 0.0}),
    (equal_weights, {}),
    (equal_weights, {"epsilon": 0.1}),
    (ranked_list, {}),
    (ranked_list, {"Tp": 3.0, "Tn": 2.0, "alpha": 0.9, "margin": 0.3}),
    (ranked_list, {"form": "additive"}),
    (ranked_list, {"form": "additive", "lam": 0.2}),
    (ranked_list, {"lam": 0.9}),
    (ephn, {}),
    (ephn, {"sigma": 0.4, "semihard": True}),
]


@pytest.mark.parametrize(
    ("formula", "options"), CASES, ids=[f"{f.__name__} {','.join(map(str, o.values()))}" for f, o in CASES]
)
def test_agrees_with_double_loops(formula, options):
    for seed in range(2):
        ours, theirs = batch(seed).requires_grad_(), batch(seed).requires_grad_()
        value = em.objective(formula.__name__, **options)(ours, torch.tensor(LABELS))
        expected = formula(theirs, **options)
        torch.testing.assert_close(value, expected)
        torch.testing.assert_close(
            torch.autograd.grad(value, ours)[0], torch.autograd.grad(expected, theirs)[0], rtol=1e-6, atol=1e-8
        )
        assert expected != 0


def test_every_option_is_tried():
    for formula, _ in CASES:
        tried = {option for other, options in CASES if other is formula for option in options}
        assert set(LOSSES[formula.__name__].options) <= tried


def test_lifted_of_raw_embeddings():
    z = batch() / 3
    value = em.objective("lifted", normalize=False)(z, torch.tensor(LABELS))
    torch.testing.assert_close(value, lifted(z, normalised=False))
    assert not torch.isclose(value, lifted(z))


RELATIVE = [
    "lifted",
    "lifted_generalized",
    "angular",
    "angular_npair",
    "tuplet_margin",
    "circle",
    "ntxent",
    "supcon",
    "ephn",
]


@pytest.mark.parametrize("labels", [torch.arange(5), torch.zeros(5, dtype=torch.int64)], ids=["different", "equal"])
@pytest.mark.parametrize(
    ("method", "options"),
    [
        *((name, {}) for name in RELATIVE),
        *((name, {"epsilon": 0.1}) for name in ("raw", "binomial", "equal_weights")),
        ("npairs", {"l2_reg": 0.0}),
        ("circle", {"mode": "batch"}),
        ("ephn", {"semihard": True}),
    ],
)
def test_relative_losses_are_zero_without_positives_or_negatives(method, options, labels):
    embeddings = batch()[:5].requires_grad_()
    value = em.objective(method, **options)(embeddings, labels)
    assert value.item() == 0
    value.backward()
    assert (embeddings.grad == 0).all()


@pytest.mark.parametrize("method", ["snr_contrastive", "raw", "binomial", "equal_weights", "ranked_list"])
def test_separable_losses_keep_the_side_that_is_there(method):
    embeddings = batch()[:5]
    for labels in (torch.arange(5), torch.zeros(5, dtype=torch.int64)):
        assert em.objective(method)(embeddings, labels).item() != 0


@pytest.mark.parametrize("method", ["lifted", "angular"])
def test_losses_of_a_square_batch_refuse_other_references(method):
    embeddings, labels = batch(), torch.tensor(LABELS)
    objective = em.objective(method)
    with pytest.raises(em.EquimetricError, match="samples of a batch among themselves"):
        objective(embeddings, labels, embeddings[:4], labels[:4])
    with pytest.raises(em.EquimetricError, match="samples of a batch among themselves"):
        objective(embeddings, labels, batch(1), labels)


def test_circle_over_the_batch_refuses_other_references():
    with pytest.raises(em.EquimetricError, match="samples of a batch among themselves"):
        em.objective("circle", mode="batch")(batch(), torch.tensor(LABELS), batch(1), torch.tensor(LABELS))


@pytest.mark.parametrize(
    ("method", "options"),
    [("npairs", {}), ("angular_npair", {}), ("angular_npairs_combo", {}), ("snr_contrastive", {"reg": 0.1})],
)
def test_losses_that_need_queries_say_so(method, options):
    objective = em.objective(method, **options)
    pairs = objective.pairs(batch(), torch.tensor(LABELS))
    alone = Pairs(pairs.similarity, pairs.positive, pairs.negative, geometry=pairs.geometry)
    with pytest.raises(em.EquimetricError, match="know their queries"):
        objective.value(alone)


def test_one_pair_per_class_needs_class_ids():
    several_labels = torch.nn.functional.one_hot(torch.tensor(LABELS))
    with pytest.raises(em.EquimetricError, match="one class id per sample"):
        em.objective("npairs")(batch(), several_labels)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("npairs", {}),
        ("npairs", {"l2_reg": 0.4, "symmetric": True}),
        ("npairs", {"l2_reg": 0.4, "symmetric": True, "repeated": "soft"}),
        ("angular_npair", {"alpha_deg": 40.0}),
        ("angular_npairs_combo", {"l2_reg": 0.4, "lam": 0.7}),
    ],
)
def test_anchors_and_positives_may_come_apart(method, options):
    anchors, positives, labels = batch().requires_grad_(), batch(1).requires_grad_(), torch.arange(B)
    objective = em.objective(method, **options)
    apart = objective(anchors, labels, positives, labels)
    together = em.objective(method, **{**options, **({"repeated": "first"} if "repeated" in options else {})})(
        torch.cat([anchors, positives]), labels.repeat(2)
    )
    torch.testing.assert_close(apart, together)
    torch.testing.assert_close(
        torch.autograd.grad(apart, (anchors, positives)), torch.autograd.grad(together, (anchors, positives))
    )


def test_npairs_of_another_set_need_no_lengths_of_it():
    z, labels = batch(), torch.tensor(LABELS)
    # The anchors against a set that holds just their partners, classes in another order.
    partners = torch.tensor([j for _, j in reversed(first_two())])
    value = em.objective("npairs", l2_reg=0.0)(z, labels, z[partners], labels[partners])
    torch.testing.assert_close(value, npairs(z, l2_reg=0.0))


@pytest.mark.parametrize("symmetric", [False, True])
def test_positives_of_repeated_classes_share_the_target(symmetric):
    anchors, positives = batch(), batch(1)
    objective = em.objective("npairs", l2_reg=0.0, repeated="soft", symmetric=symmetric)
    distinct = torch.arange(B) * 3 - 5
    logits = anchors @ positives.T
    hard = cross_entropy(logits, torch.arange(B))
    if symmetric:
        hard = (hard + cross_entropy(logits.T, torch.arange(B))) / 2
    torch.testing.assert_close(objective(anchors, distinct, positives, distinct), hard)
    labels = torch.tensor(LABELS)
    equal = (labels[:, None] == labels).double()
    soft = cross_entropy(logits, equal / equal.sum(1, keepdim=True))
    if symmetric:
        soft = (soft + cross_entropy(logits.T, equal / equal.sum(1, keepdim=True))) / 2
    torch.testing.assert_close(objective(anchors, labels, positives, labels), soft)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("circle", {"mode": "pair"}, "mode must be 'anchor' or 'batch', got 'pair'"),
        ("supcon", {"reduction": "rows"}, "reduction must be 'query', 'valid' or 'batch', got 'rows'"),
        ("lifted_generalized", {"reduction": "rows"}, "reduction"),
        ("ranked_list", {"form": "linear"}, "form"),
        ("binomial", {"reduction": "median"}, "reduction"),
        ("snr_contrastive", {"reduction": "median"}, "reduction"),
        ("npairs", {"repeated": "last"}, "repeated must be 'first' or 'soft'"),
        ("arcface", {"mode": "hard", "classes": 4, "dim": 5}, "mode must be 'plain', 'monotone' or 'easy'"),
        ("triplet", {"reduction": "zzz"}, "'valid', 'none' or None, got 'zzz'"),
        ("dcl", {"reduction": "zzz"}, "reduction must be 'query', 'mean'"),
    ],
)
def test_unknown_words_are_refused_when_an_objective_is_built(method, options, message):
    with pytest.raises(em.EquimetricError, match=message):
        em.objective(method, **options)


def drop_and_double(pairs):
    """Weights 0, 1 and 2 that are equal for both orders of a pair."""
    count = len(pairs.similarity)
    weight = torch.randint(0, 3, (count, count), generator=torch.Generator().manual_seed(2)).triu(1)
    return (weight + weight.T).double()


def lifted_weighted(d, w, margin=1.0):
    terms, counts = [], []
    for i, j in positive_pairs():
        ends = total(w[i, k] * (margin - d[i, k]).exp() for k in negatives(i))
        ends = ends + total(w[j, k] * (margin - d[j, k]).exp() for k in negatives(j))
        terms.append(w[i, j] * (ends.log() + d[i, j]).relu() ** 2 / 2)
        counts.append(w[i, j])
    return total(terms) / total(counts)


def angular_weighted(d, w):
    s = 1 - d**2 / 2
    terms, counts = [], []
    for a, p in positive_pairs():
        near = total(w[a, n] * (4 * (s[a, n] + s[p, n]) - 4 * s[a, p]).exp() for n in negatives(a))
        terms.append(w[a, p] * (1 + near).log())
        counts.append(w[a, p])
    return total(terms) / total(counts)


@pytest.mark.parametrize(("method", "formula"), [("lifted", lifted_weighted), ("angular", angular_weighted)])
def test_weights_are_multiplicities_in_a_square_batch(method, formula):
    objective = em.objective(method)
    pairs = objective.pairs(batch(), torch.tensor(LABELS))
    weight = drop_and_double(pairs)
    torch.testing.assert_close(objective.value(pairs.weighted(weight)), formula(pairs.distance(), weight))


def test_weights_are_multiplicities_in_the_circle_of_a_batch():
    objective = em.objective("circle", mode="batch", m=0.25, gamma=3.0)
    pairs = objective.pairs(batch(), torch.tensor(LABELS))
    weight, s = drop_and_double(pairs), pairs.similarity
    pull = total(
        weight[i, j] * (-3 * (1.25 - s[i, j]).relu() * (s[i, j] - 0.75)).exp() for i, j in positive_pairs() if i < j
    )
    push = total(
        weight[i, k] * (3 * (s[i, k] + 0.25).relu() * (s[i, k] - 0.25)).exp()
        for i in range(B)
        for k in negatives(i)
        if i < k
    )
    torch.testing.assert_close(objective.value(pairs.weighted(weight)), (1 + pull * push).log())


def test_npairs_take_the_next_positive_where_the_first_is_absent():
    objective = em.objective("npairs", l2_reg=0.0)
    pairs = objective.pairs(batch(), torch.tensor(LABELS))
    present = torch.ones_like(pairs.similarity)
    present[:, 2] = 0
    s = pairs.similarity
    chosen = [(0, 5), (1, 4), (3, 7)]
    expected = average((1 + total((s[a, q] - s[a, p]).exp() for b, q in chosen if b != a)).log() for a, p in chosen)
    torch.testing.assert_close(objective.value(pairs.weighted(present)), expected)


def test_swapping_anchors_and_positives_changes_nothing_in_the_symmetric_form():
    z, labels = batch()[:8], torch.tensor([0, 1, 2, 3, 0, 1, 2, 3])
    swapped = z.roll(4, dims=0)
    symmetric, one_way = em.objective("npairs", symmetric=True), em.objective("npairs")
    torch.testing.assert_close(symmetric(swapped, labels), symmetric(z, labels))
    assert not torch.isclose(one_way(swapped, labels), one_way(z, labels))


def test_one_pair_has_nothing_to_compete_with():
    z = batch()[:2].requires_grad_()
    value = em.objective("npairs")(z, torch.tensor([5, 5]))
    assert value == 0
    assert torch.autograd.grad(value, z)[0].abs().max() == 0


def test_raw_is_multi_similarity():
    z, labels = batch(), torch.tensor(LABELS)
    for options in ({}, {"epsilon": 0.1}, {"alpha": 3.0, "base": 0.7}):
        assert em.objective("raw", **options)(z, labels) == em.objective("multi_similarity", **options)(z, labels)


def test_ntxent_is_supcon_for_pairs():
    z, labels = batch()[:8], torch.tensor([0, 1, 2, 3, 0, 1, 2, 3])
    torch.testing.assert_close(
        em.objective("ntxent", temperature=0.2)(z, labels), em.objective("supcon", temperature=0.2)(z, labels)
    )


def test_tiny_temperatures_stay_exact():
    z = float64([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    value = em.objective("ntxent", temperature=1e-5)(z, torch.tensor([0, 0, 1]))
    assert value.item() == pytest.approx((1e5 + log(2)) / 2, rel=1e-9)


def test_snr_distance_is_the_ratio_of_variances():
    z = batch()
    x = normalize(z)
    pairs = em.objective("snr_contrastive").pairs(z, torch.tensor(LABELS))
    expected = torch.stack([torch.stack([(x[i] - x[j]).var() / x[i].var() for j in range(B)]) for i in range(B)])
    torch.testing.assert_close(pairs.distance(), expected)
    assert not torch.allclose(pairs.distance(), pairs.distance().T)


def test_tuplet_margin_lets_positives_inside_the_slack_go_back_to_it():
    angles = torch.tensor([0.0, radians(2.0), radians(40.0)], dtype=torch.float64)
    objective = em.objective("tuplet_margin", margin_deg=5.0)
    pairs = objective.pairs(torch.stack([angles.cos(), angles.sin()], 1), torch.tensor([0, 0, 1]))
    similarity = pairs.similarity.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(objective.value(pairs.replace(similarity=similarity)), similarity)
    assert gradient[0, 1] > 0
    assert "monotone" in LOSSES["tuplet_margin"].exempt


@pytest.mark.parametrize("method", ["intra_pair_variance", "supcon"])
def test_easy_positives_are_let_go_where_positives_are_held_against_each_other(method):
    objective = em.objective(method)
    pairs = objective.pairs(batch(), torch.tensor(LABELS))
    similarity = pairs.similarity.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(objective.value(pairs.replace(similarity=similarity)), similarity)
    assert (gradient[pairs.positive] > 0).any()
    assert "monotone" in LOSSES[method].exempt


def test_many_positives_and_negatives_agree_with_all_triples_at_once():
    generator = torch.Generator().manual_seed(8)
    x = normalize(torch.randn(40, 6, generator=generator, dtype=torch.float64))
    labels = torch.randint(0, 6, (40,), generator=generator)
    s, same = x @ x.T, labels[:, None] == labels[None, :]
    positive = same & ~torch.eye(40, dtype=torch.bool)
    triples = positive[:, :, None] & ~same[:, None, :]
    f = 4 * (s[:, None, :] + s[None, :, :]) - 4 * s[:, :, None]
    expected = (1 + (f.exp() * triples).sum(2)).log()[positive].mean()
    torch.testing.assert_close(em.objective("angular")(x, labels), expected)
    expected = softplus(torch.where(triples, (s[:, None, :] - s[:, :, None]) / 0.5, -torch.inf).logsumexp(2))
    torch.testing.assert_close(em.objective("ntxent", temperature=0.5)(x, labels), expected[positive].mean())


@pytest.mark.parametrize(("few", "plain"), [(0, False), (16, False), (16, True)])
@pytest.mark.parametrize("reduction", ["nonzero", "mean", "sum", "batch"])
@pytest.mark.parametrize("bounds", [{}, {"below": 0.1}, {"above": -0.3}, {"at_least": -0.1, "below": 0.3}])
def test_triplet_over_a_band_is_that_of_its_listed_triples(bounds, reduction, few, plain, monkeypatch):
    monkeypatch.setattr("equimetric.ops.triplets.FEW_POSITIVES", few)
    monkeypatch.setattr("equimetric.ops.triplets.is_tracing", lambda: plain)
    torch.manual_seed(3)
    embeddings = torch.randn(9, 4, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 3])
    band = TripletBand(em.objective("triplet").pairs(embeddings, labels), **bounds)
    listed = triplet(band.triplets(), margin=0.2, reduction="sum" if reduction == "batch" else reduction)
    expected = listed / 9 if reduction == "batch" else listed
    value = triplet(band, margin=0.2, reduction=reduction)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(*(torch.autograd.grad(v, embeddings, retain_graph=True)[0] for v in (value, expected)))


@pytest.mark.parametrize("options", [{}, {"margin": 0.9, "lam": 0.3}])
def test_global_loss_written_out(options):
    torch.manual_seed(1)
    embeddings = torch.randn(7, 4, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 0, 1, 1, 1, 2, 3])
    x = torch.nn.functional.normalize(embeddings)
    distance = (x[:, None] - x[None]).square().sum(2) / 4
    same = labels[:, None] == labels
    positive = distance[same & ~torch.eye(7, dtype=torch.bool)]
    negative = distance[~same]
    apart = (positive.mean() - negative.mean() + options.get("margin", 0.4)).relu()
    expected = positive.var(correction=0) + negative.var(correction=0) + options.get("lam", 1.0) * apart
    value = em.objective("global_loss", **options)(embeddings, labels)
    torch.testing.assert_close(value, expected)
    gradients = [torch.autograd.grad(one, embeddings, retain_graph=True)[0] for one in (value, expected)]
    torch.testing.assert_close(*gradients)
    for alone in (torch.zeros(7, dtype=torch.int64), torch.arange(7)):
        kind = distance[~torch.eye(7, dtype=torch.bool)]
        torch.testing.assert_close(em.objective("global_loss")(embeddings, alone), kind.var(correction=0))


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("selection", ["all", "batch_hard"])
def test_terms_of_triplets_one_by_one_and_per_query(soft, selection):
    x, labels = batch(), torch.tensor(LABELS)
    terms = em.objective("triplet", selection=selection, soft=soft, reduction="none")(x, labels)
    assert terms.ndim == 1
    for reduction, expected in (("sum", terms.sum()), ("mean", terms.mean()), ("batch", terms.sum() / len(x))):
        value = em.objective("triplet", selection=selection, soft=soft, reduction=reduction)(x, labels)
        torch.testing.assert_close(value, expected)


def test_default_margins_of_triplets():
    x, labels = batch(), torch.tensor(LABELS)
    assert em.objective("triplet", soft=True)(x, labels) == em.objective("triplet", soft=True, margin=0.0)(x, labels)
    for geometry, margin in (("euclidean", 0.05), ("cosine", 0.05), ("sqeuclidean", 0.2)):
        for selection in ("all", "violating", "semihard"):
            parts = {"geometry": geometry, "selection": selection}
            expected = em.objective("triplet", margin=margin, **parts)(x, labels)
            assert em.objective("triplet", **parts)(x, labels) == expected
            assert em.objective("triplet", margin=1.7 * margin, **parts)(x, labels) != expected


@pytest.mark.parametrize("method", ["triplet", "multi_similarity_miner"])
@pytest.mark.parametrize("outer", [1.0, 3.0])
def test_without_active_terms_the_gradient_is_zero_but_present(method, outer):
    x = (10 * torch.eye(4, dtype=torch.float64).repeat_interleave(2, 0)).requires_grad_()
    objective = em.objective(method)
    labels = torch.arange(4).repeat_interleave(2)
    (outer * objective(x, labels)).backward()
    assert torch.equal(x.grad, torch.zeros_like(x))
    similarity = objective.pairs(x, labels).similarity.detach().requires_grad_()
    pairs = objective.pairs(x.detach(), labels).replace(similarity=similarity)
    assert torch.equal(torch.autograd.grad(objective.value(pairs), similarity)[0], torch.zeros_like(similarity))


def test_without_active_terms_parameters_have_a_zero_gradient():
    objective = em.objective("triplet", references="proxies", classes=4, dim=4).double()
    with torch.no_grad():
        objective.references.weight.copy_(torch.eye(4))
    x = torch.eye(4, dtype=torch.float64, requires_grad=True)
    objective(x, torch.arange(4)).backward()
    assert torch.equal(objective.references.weight.grad, torch.zeros(4, 4, dtype=torch.float64))
