"""Losses of ensembles, whose members share one embedding, and the regulariser of a hierarchy, written out in loops."""

import math
from itertools import combinations

import pytest
import torch
from rounding import assert_same_digits
from torch.nn.functional import normalize

import equimetric as em
from equimetric.errors import EquimetricError
from equimetric.losses.dreml import balanced_map
from equimetric.losses.members import proportional_sizes
from equimetric.ops.sampling import GumbelNoise
from equimetric.ops.special import scale_gradient

# Worked values: three members of three dimensions for BIER, one of four for HDC.
MEMBERS = torch.tensor(
    [
        [-0.114, 0.953, 1.567, -2.08, -0.033, 1.04, -0.471, 0.201, 0.549],
        [-0.538, -0.572, 0.576, -0.66, 0.677, -0.284, 2.573, -0.697, -0.176],
        [0.885, -0.735, -0.893, -0.972, -0.773, -0.284, 0.311, 0.275, -0.864],
        [-1.147, 0.704, 0.204, 0.146, -0.623, 0.395, -0.391, -0.462, -0.83],
        [0.185, -0.572, -0.589, 1.923, 0.363, 0.648, 0.973, 0.884, -0.447],
        [-1.128, -1.312, -1.1, -0.385, -0.663, -0.538, -0.05, -1.785, -0.745],
    ],
    dtype=torch.float64,
)
ONE = torch.tensor(
    [
        [-0.026, -0.5, 0.583, -1.231],
        [0.345, -0.353, -0.074, 0.185],
        [-0.71, -0.343, -0.132, 0.431],
        [1.265, -1.775, -0.219, -1.666],
        [0.342, -0.84, 1.123, -0.391],
        [0.549, 0.348, 2.061, 0.961],
    ],
    dtype=torch.float64,
)
LABELS = torch.tensor([0, 0, 1, 2, 2, 4])
MANY_LABELS = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 3, 3])


def random(rows, columns, seed=0):
    return torch.randn(rows, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def value_and_gradient(function, embeddings):
    leaf = embeddings.clone().requires_grad_()
    value = function(leaf)
    return value.detach(), torch.autograd.grad(value, leaf)[0]


@pytest.mark.parametrize(("ratio", "expected"), [(1.0, 2.0334561799), (0.5, 2.2664987884), (0.2, 4.0838840741)])
def test_hdc_worked_values(ratio, expected):
    assert em.objective("hdc", ratios=(ratio,))(ONE, LABELS).item() == pytest.approx(expected, abs=1e-9)


def hdc_by_loops(embeddings, labels, ratios, margin, factor, cascade):
    pairs = list(combinations(range(len(labels)), 2))
    groups = [[p for p in pairs if (labels[p[0]] == labels[p[1]]).item() is same] for same in (True, False)]
    wanted = [len(group) for group in groups]
    total = 0.0
    for ratio, vectors in zip(ratios, embeddings.chunk(len(ratios), 1), strict=True):
        points = normalize(vectors)

        def loss(pair, same, points=points):
            squared = (points[pair[0]] - points[pair[1]]).square().sum()
            return squared if same else factor * (margin - squared).clamp_min(0)

        kept = []
        for group, number, same in zip(groups, wanted, (True, False), strict=True):
            hard = sorted((p for p in group if loss(p, same) > 0), key=lambda p: -loss(p, same).item())
            kept.append(hard[: math.floor(ratio * number)])
        terms = [loss(p, True) for p in kept[0]] + [loss(p, False) for p in kept[1]]
        if terms:
            total = total + torch.stack(terms).sum() / len(terms)
        if cascade:
            groups = kept
    return total


@pytest.mark.parametrize("cascade", [False, True])
@pytest.mark.parametrize("ratios", [(1.0, 0.5, 0.2), (0.5, 0.3)])
def test_hdc_is_its_definition(ratios, cascade):
    embeddings = random(12, 6)
    options = {"ratios": ratios, "margin": 1.7, "negative_factor": 3.0, "cascade": cascade}
    found = value_and_gradient(lambda x: em.objective("hdc", **options)(x, MANY_LABELS), embeddings)
    expected = value_and_gradient(lambda x: hdc_by_loops(x, MANY_LABELS, ratios, 1.7, 3.0, cascade), embeddings)
    torch.testing.assert_close(found, expected)


def test_a_cascade_passes_on_what_was_hard():
    values = [em.objective("hdc", cascade=cascade)(random(12, 6), MANY_LABELS).item() for cascade in (False, True)]
    assert values[0] != pytest.approx(values[1])


def test_hdc_takes_any_relation_and_refuses_what_it_cannot_use():
    masks = MANY_LABELS[:, None] == MANY_LABELS, MANY_LABELS[:, None] != MANY_LABELS
    objective = em.objective("hdc")
    torch.testing.assert_close(objective(random(12, 6), masks), objective(random(12, 6), MANY_LABELS))
    multi_hot = torch.nn.functional.one_hot(MANY_LABELS)
    torch.testing.assert_close(objective(random(12, 6), multi_hot), objective(random(12, 6), MANY_LABELS))
    with pytest.raises(EquimetricError, match="shares above 0 and up to 1"):
        em.objective("hdc", ratios=(1.0, 0.0))(random(12, 6), MANY_LABELS)
    with pytest.raises(EquimetricError, match="one per member, got"):
        em.objective("hdc", ratios=0.5)(random(12, 6), MANY_LABELS)
    with pytest.raises(EquimetricError, match="3 members of loss 'hdc' cannot share an embedding of dimension 2"):
        objective(random(12, 2), MANY_LABELS)
    with pytest.raises(EquimetricError, match="chooses its pairs itself"):
        em.objective("hdc", selection="semihard")


def test_bier_worked_value():
    objective = em.objective("bier", dim=9, sizes=(3, 3, 3), diversity="none")
    assert objective(MEMBERS, LABELS).item() == pytest.approx(2.0211175811, abs=1e-9)


def bier_by_loops(members, labels, boosting):
    pairs = [(i, j) for i in range(len(labels)) for j in range(len(labels)) if i != j]
    weight = dict.fromkeys(pairs, 1.0)
    score = dict.fromkeys(pairs, 0.5 if boosting == "shrinkage" else 0.0)
    total = 0.0
    for m, vectors in enumerate(members, start=1):
        points = normalize(vectors)
        for same in (True, False):
            chosen = [p for p in pairs if (labels[p[0]] == labels[p[1]]).item() is same]
            sign = 1.0 if same else -25.0
            for i, j in chosen:
                similarity = points[i] @ points[j]
                right = 2 * (similarity - 0.5) * sign
                total = total + weight[i, j] * torch.log1p(torch.exp(-right)) / len(chosen) / len(members)
                if boosting == "shrinkage":
                    score[i, j] += 0.06 * right.item()
                    weight[i, j] = (1 if same else 2) / (1 + math.exp(score[i, j]))
                else:
                    eta = 2 / (m + 1)
                    score[i, j] = (1 - eta) * score[i, j] + eta * similarity.item()
                    weight[i, j] = 1 / (1 + math.exp(2 * (score[i, j] - 0.5) * sign))
    return total


@pytest.mark.parametrize("boosting", ["eta", "shrinkage"])
def test_bier_is_its_definition(boosting):
    objective = em.objective("bier", dim=9, sizes=(2, 3, 4), boosting=boosting, diversity="none")
    found = value_and_gradient(lambda x: objective(x, LABELS), MEMBERS)
    expected = value_and_gradient(lambda x: bier_by_loops(x.split([2, 3, 4], 1), LABELS, boosting), MEMBERS)
    torch.testing.assert_close(found, expected)


def beyond(diversity, **options):
    """What the diversity of members adds to the loss, and the gradient of that."""
    torch.manual_seed(0)
    plain = em.objective("bier", dim=9, sizes=(2, 3, 4), diversity="none")
    diverse = em.objective("bier", dim=9, sizes=(2, 3, 4), diversity=diversity, lambda_div=0.7, **options).double()
    return diverse.loss, value_and_gradient(lambda x: diverse(x, LABELS) - plain(x, LABELS), MEMBERS)


def test_activations_of_any_two_members():
    def definition(embeddings):
        f = embeddings.split([2, 3, 4], 1)
        return 0.7 * sum(
            (f[i][:, :, None] * f[j][:, None, :]).square().mean() for i in range(3) for j in range(i + 1, 3)
        )

    _, found = beyond("activation")
    torch.testing.assert_close(found, value_and_gradient(definition, MEMBERS))


def test_regressors_predict_and_members_evade():
    loss, (value, gradient) = beyond("adversarial", hidden=5, lambda_w=0.3)

    def agreement(embeddings):
        f = embeddings.split([2, 3, 4], 1)
        both = [(0, 1), (0, 2), (1, 2)]
        predicted = [regressor(f[j]) for regressor, (_, j) in zip(loss.regressors, both, strict=True)]
        return 0.7 * sum((f[i] * r).square().mean() for r, (i, _) in zip(predicted, both, strict=True))

    expected, towards = value_and_gradient(agreement, MEMBERS)
    # Rows of unit length and no bias: at the start, regressors have no penalty.
    torch.testing.assert_close(value, -expected)
    # Regressors descend along −agreement, members along +agreement.
    torch.testing.assert_close(gradient, towards)
    with torch.no_grad():
        loss.regressors[0].first.weight.mul_(2)
        loss.regressors[1].second.bias.fill_(3)
        penalties = sum(regressor.penalty() for regressor in loss.regressors)
    assert penalties.item() == pytest.approx((4 - 1) ** 2 + (2 * 9 - 1))


def test_sizes_of_members():
    assert proportional_sizes(512, (96, 160, 256), "bier") == [96, 160, 256]
    assert proportional_sizes(64, (1, 1, 1), "hdc") == [21, 22, 21]
    assert em.objective("a_bier", dim=512).loss.sizes == [96, 160, 256]
    with pytest.raises(EquimetricError, match="with the sum 9, got"):
        em.objective("bier", dim=9, sizes=(3, 3))
    with pytest.raises(EquimetricError, match="must be whole numbers of 1 or more with the sum 9"):
        em.objective("bier", dim=9, sizes=(4.5, 4.5))
    with pytest.raises(EquimetricError, match=r"dimension 6, but the members of 'bier' have 2 \+ 3 \+ 4 = 9"):
        em.objective("bier", dim=9, sizes=(2, 3, 4))(MEMBERS[:, :6], LABELS)
    with pytest.raises(EquimetricError, match="boosting must be 'eta' or 'shrinkage', got 'etta'"):
        em.objective("bier", dim=9, boosting="etta")
    with pytest.raises(EquimetricError, match="diversity must be"):
        em.objective("bier", dim=9, diversity="adversary")


def test_meta_classes_are_balanced_and_each_member_has_its_own():
    for classes, groups in ((10, 4), (3, 5), (12, 12), (100, 12)):
        counts = balanced_map(classes, groups, 7).bincount(minlength=groups)
        assert counts.sum() == classes
        assert counts.max() - counts.min() <= 1
    maps = em.objective("dreml", classes=100, dim=36, members=3).loss.meta_classes
    assert maps.shape == (100, 3)
    assert len({tuple(column) for column in maps.T.tolist()}) == 3
    again, other = (em.objective("dreml", classes=100, dim=36, members=3, seed=s).loss.meta_classes for s in (0, 1))
    assert torch.equal(again, maps)
    assert not torch.equal(other, maps)


@pytest.mark.parametrize("proxies", ["static", "learned"])
def test_dreml_is_its_definition(proxies):
    torch.manual_seed(0)
    objective = em.objective("dreml", classes=5, dim=9, members=2, proxies=proxies, embedding_multiplier=2.0).double()
    maps = objective.loss.meta_classes
    assert (len(list(objective.parameters())) > 0) is (proxies == "learned")

    def definition(embeddings):
        total = 0.0
        for m, vectors in enumerate(embeddings.split(objective.loss.sizes, 1)):
            for i in range(len(LABELS)):
                target = maps[LABELS[i], m]
                if proxies == "static":
                    total = total - vectors[i].log_softmax(0)[target] / len(LABELS)
                else:
                    points = 2 * normalize(objective.loss.proxies[m])
                    squared = (2 * normalize(vectors[i], dim=0) - points).square().sum(1)
                    others = torch.arange(len(points)) != target
                    total = total + (squared[target] + (-squared[others]).logsumexp(0)) / len(LABELS)
        return total

    assert objective.loss.sizes == [4, 5]
    found = value_and_gradient(lambda x: objective(x, LABELS), MEMBERS)
    torch.testing.assert_close(found, value_and_gradient(definition, MEMBERS))


def test_learned_meta_class_proxies_in_single_precision_take_double_embeddings():
    objective = em.objective("dreml", classes=5, dim=9, members=2, proxies="learned")
    assert objective(MEMBERS, LABELS).dtype == torch.float64


def test_dreml_refuses_classes_it_does_not_know():
    objective = em.objective("dreml", classes=4, dim=9, members=3)
    with pytest.raises(EquimetricError, match="class ids 0 … 3 for classes=4, got 0 … 4"):
        objective(MEMBERS, LABELS)
    with pytest.raises(EquimetricError, match="cannot share an embedding of dimension 9"):
        em.objective("dreml", classes=4, dim=9, members=12)
    with pytest.raises(EquimetricError, match="proxies must be 'static' or 'learned'"):
        em.objective("dreml", classes=4, dim=9, members=3, proxies="fixed")


def mobius_distance(u, v, c):
    """The distance in the Poincaré ball as it is defined by Möbius addition."""
    uv, uu, vv = -(u @ v), u @ u, v @ v
    moved = ((1 + 2 * c * uv + c * vv) * -u + (1 - c * uu) * v) / (1 + 2 * c * uv + c * c * uu * vv)
    return 2 / math.sqrt(c) * torch.atanh(math.sqrt(c) * moved.norm())


def hierarchy(**options):
    torch.manual_seed(0)
    options = {"dim": 4, "proxies": 6, "topk": 4, "per_anchor": 5, **options}
    return em.objective("hier", **options).double()


def test_hyperbolic_distance_and_map():
    vectors, root = random(5, 4).requires_grad_(), math.sqrt(0.3)
    lengths = vectors.norm(dim=1, keepdim=True).clamp_max(2.3)
    points = (root * lengths).tanh() / root * normalize(vectors)
    expected = torch.stack([torch.stack([mobius_distance(u, v, 0.3) for v in points[2:]]) for u in points[:2]])
    metric = (1 - 0.3 * points.detach().square().sum(1, keepdim=True)).square() / 4
    (euclidean,) = torch.autograd.grad(expected.sum(), vectors)
    for riemannian, gradient in ((False, euclidean), (True, metric * euclidean)):
        loss = hierarchy(c=0.3, riemannian=riemannian).loss
        tangents = loss.in_ball(vectors)
        found = loss.distance(tangents[:2], tangents[2:])
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(torch.autograd.grad(found.sum(), vectors)[0], gradient)


def test_points_at_the_edge_of_the_ball_keep_finite_distances():
    objective = hierarchy(c=40.0)
    value, gradient = value_and_gradient(
        lambda x: objective.float()(x.float(), torch.arange(8) % 4), random(8, 4) * 1e6
    )
    assert value.isfinite()
    assert gradient.isfinite().all()


def test_triples_are_of_reciprocal_neighbours_and_others():
    loss = hierarchy(per_anchor=200).loss
    closeness = torch.tensor(
        [
            [1.0, 0.9, 0.8, 0.1, 0.2],
            [0.9, 1.0, 0.3, 0.8, 0.1],
            [0.8, 0.3, 1.0, 0.2, 0.1],
            [0.1, 0.8, 0.2, 1.0, 0.7],
            [0.2, 0.1, 0.1, 0.7, 1.0],
        ]
    )
    loss.topk = 3
    # Each with its two nearest others: 0: {1, 2}, 1: {0, 3}, 2: {0, 1}, 3: {1, 4}, 4: {3, 0}.
    related = {(0, 1), (1, 0), (0, 2), (2, 0), (1, 3), (3, 1), (3, 4), (4, 3)}
    i, j, k = loss.draw_triples(closeness, torch.ones(5))
    assert set(zip(i.tolist(), j.tolist(), strict=True)) == related
    every = {(a, b) for a in range(5) for b in range(5) if a != b}
    assert set(zip(i.tolist(), k.tolist(), strict=True)) == every - related
    assert torch.equal(i.bincount(), torch.full((5,), 200))


def test_the_own_class_comes_before_all_others():
    objective = hierarchy(topk=2, per_anchor=20)
    embeddings = random(8, 4)
    labels = torch.arange(8) % 4
    drawn = []
    original = objective.loss.draw_triples
    objective.loss.draw_triples = lambda *given: drawn.append(original(*given)) or drawn[-1]
    objective(embeddings, labels)
    i, j, k = drawn[0]
    assert torch.equal(labels[i], labels[j])
    assert (labels[i] != labels[k]).all()


def test_hier_is_its_definition(monkeypatch):
    c, m, tau = 0.2, 0.3, 0.5
    objective = hierarchy(c=c, margin=m, tau=tau, clip_r=1.5)
    noises, triples = [], []
    loss = objective.loss
    drawn, exponential = loss.draw_triples, torch.Tensor.exponential_

    def note(tensor, generator=None):
        noises.append(exponential(tensor, generator=generator).clone())
        return noises[-1].clone()

    monkeypatch.setattr(torch.Tensor, "exponential_", note)
    loss.draw_triples = lambda *given: triples.append(drawn(*given)) or triples[-1]
    embeddings, labels = random(8, 4), torch.arange(8) % 4
    found = value_and_gradient(lambda x: objective(x, labels), embeddings)
    monkeypatch.undo()
    # Four draws: both ancestors of the triples of samples, and of those of proxies.
    assert len(noises) == 4
    assert len(triples) == 2

    def points(vectors):
        lengths = vectors.norm(dim=1, keepdim=True).clamp_max(1.5)
        ball = math.sqrt(c) ** -1 * (math.sqrt(c) * lengths).tanh() * normalize(vectors)
        # Gradients by points of the ball, by its metric.
        factor = (1 - c * ball.detach().square().sum(1, keepdim=True)) ** 2 / 4
        return ball.detach() + factor * (ball - ball.detach())

    def definition(embeddings):
        samples, proxies = points(embeddings), points(loss.proxies)

        def to_proxies(own, row):
            return torch.stack(
                [
                    own[row].sum() * 0 if own is proxies and row == p else mobius_distance(own[row], proxies[p], c)
                    for p in range(len(proxies))
                ]
            )

        total = 0.0
        for own, chosen, noise in ((samples, triples[0], noises[:2]), (proxies, triples[1], noises[2:])):
            for t, triple in enumerate(chosen.T.tolist()):
                to = [to_proxies(own, row) for row in triple]
                shares = [(-torch.stack(to[:n]).amax(0) / tau - noise[n - 2][t].log()).softmax(0) for n in (2, 3)]
                if shares[0].argmax() == shares[1].argmax():
                    continue
                one, other = (
                    torch.eye(len(proxies), dtype=torch.float64)[share.argmax()] + share - share.detach()
                    for share in shares
                )
                lower = [vector @ one - vector @ other for vector in to]
                value = (lower[0] + m).relu() + (lower[1] + m).relu() + (m - lower[2]).relu()
                total = total + value / chosen.shape[1]
        return total

    torch.testing.assert_close(found, value_and_gradient(definition, embeddings))


@pytest.mark.parametrize("min_pool_size", [2**15, 40])
def test_a_few_triples_at_a_time_are_all_of_them(min_pool_size, monkeypatch):
    # Stretches of a longer row in the second case.
    monkeypatch.setattr("equimetric.ops.sampling.MIN_POOL_SIZE", min_pool_size)

    def both():
        objective = hierarchy(generator=torch.Generator().manual_seed(1), margin=0.4, tau=0.4)
        embeddings = random(8, 4).requires_grad_()
        value = objective(embeddings, torch.arange(8) % 4, sample_weight=torch.arange(8) / 4)
        with torch.no_grad():
            objective.loss.generator.manual_seed(1)
            alone = objective(embeddings, torch.arange(8) % 4, sample_weight=torch.arange(8) / 4)
        return value.detach(), alone, *torch.autograd.grad(value, (embeddings, objective.loss.proxies))

    at_once = both()
    # Several tiles, the last of which is not full.
    monkeypatch.setattr("equimetric.ops.ancestors.TILE", 24)
    assert_same_digits(both(), at_once)


def test_many_rows_of_noise_are_stretches_of_a_longer_one():
    like, generator = torch.zeros((), dtype=torch.float64), torch.Generator()
    few = GumbelNoise.draw((5, 3), like, generator.manual_seed(1)).rows(slice(1, 4))
    drawn = torch.empty(5, 3, dtype=torch.float64).exponential_(generator=generator.manual_seed(1))
    assert torch.equal(few, -drawn.log()[1:4])
    noise = GumbelNoise.draw((4096, 128), like, generator)
    rows = noise.rows(slice(None))
    longer = torch.cat([noise.windows[0], noise.windows[1:, -1]])
    places = [noise.window[row].item() for row in range(4096)]
    assert all(torch.equal(rows[row], longer[place : place + 128]) for row, place in enumerate(places))
    assert len(set(places)) > 3500
    assert rows.mean().item() == pytest.approx(0.5772, abs=0.03)
    assert rows.var().item() == pytest.approx(math.pi**2 / 6, abs=0.06)


def test_hier_draws_from_its_own_generator_and_is_zero_without_neighbours():
    values = []
    for _ in range(2):
        objective = hierarchy(generator=torch.Generator().manual_seed(5))
        torch.manual_seed(len(values))
        values.append(objective(random(8, 4), torch.arange(8) % 4).item())
    assert values[0] == values[1]
    loss = hierarchy().loss
    assert loss.draw_triples(torch.eye(1), torch.ones(1)).shape == (3, 0)
    assert loss.draw_triples(torch.eye(2), torch.ones(2)).shape == (3, 0), (
        "two samples are neighbours, and there is no third"
    )
    with pytest.raises(EquimetricError, match="hier was made for 4"):
        hierarchy()(random(8, 5), torch.arange(8) % 4)


def test_scale_gradient_keeps_values():
    x = random(3, 2).requires_grad_()
    y = scale_gradient(x, -2.0)
    assert torch.equal(y, x)
    y.sum().backward()
    assert (x.grad == -2).all()
