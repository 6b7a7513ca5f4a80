"""Losses beside plain loops over samples, in value and gradient, in float64."""

import math

import pytest
import torch
from rounding import assert_same_digits

import equimetric as em
from equimetric.errors import EquimetricError
from equimetric.objectives import Context, build_objective

LABELS = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 3])
ROWS = range(len(LABELS))
CONTEXT = Context(classes=4, dim=5, images=len(LABELS))


def batch(seed=0, rows=9):
    return torch.randn(rows, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def build(method, **options):
    torch.manual_seed(1)
    return build_objective(method, options, CONTEXT).double()


def agree(objective, loop, *arguments):
    """Value and gradient of the objective are those of a function of the same embeddings."""
    results = []
    for function in (lambda x: objective(x, LABELS, *arguments), loop):
        embeddings = batch().requires_grad_()
        value = function(embeddings)
        results.append((value.detach(), *torch.autograd.grad(value, [embeddings, *objective.parameters()])))
    assert_same_digits(results[0], results[1])
    assert results[0][0] != 0
    assert results[0][1].abs().max() > 1e-9


def unit(embeddings):
    return embeddings / embeddings.norm(dim=1, keepdim=True)


def positives(i):
    return [j for j in ROWS if j != i and LABELS[j] == LABELS[i]]


def negatives(i):
    return [j for j in ROWS if LABELS[j] != LABELS[i]]


def triples():
    return [(a, p, n) for a in ROWS for p in positives(a) for n in negatives(a)]


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("reduction", ["nonzero", "mean", "sum", "batch"])
def test_triplet_with_swap(soft, reduction):
    def loop(x):
        z, terms = unit(x), []
        for a, p, n in triples():
            nearer = torch.minimum((z[a] - z[n]).norm(), (z[p] - z[n]).norm())
            violation = (z[a] - z[p]).norm() - nearer + 0.3
            terms.append(torch.nn.functional.softplus(violation) if soft else violation.relu())
        total, active = sum(terms), sum(1 for term in terms if term > 0)
        return total / {"nonzero": active, "mean": len(terms), "sum": 1, "batch": len(LABELS)}[reduction]

    agree(em.objective("triplet", swap=True, margin=0.3, soft=soft, reduction=reduction), loop)


def test_swap_in_a_selection_takes_the_selected_triples():
    def loop(x):
        z = unit(x)
        s = z @ z.T
        chosen = [(a, p, n) for a, p, n in triples() if -0.4 < s[a, n] - s[a, p] < 0]
        terms = [(torch.maximum(s[a, n], s[p, n]) - s[a, p] + 0.4).relu() for a, p, n in chosen]
        return sum(terms) / sum(1 for term in terms if term > 0)

    agree(em.objective("triplet_semihard", geometry="cosine", swap=True, margin=0.4), loop)


def test_swap_needs_the_batch_as_references():
    with pytest.raises(EquimetricError, match="swap=True"):
        em.objective("triplet", swap=True)(batch(), LABELS, batch(1), LABELS)


def test_swap_is_the_same_in_a_large_batch(monkeypatch):
    objective = em.objective("triplet", swap=True)
    expected = objective(batch(), LABELS)
    monkeypatch.setattr("equimetric.ops.chunks.MIN_CHUNKED_PAIRS", 1)
    torch.testing.assert_close(objective(batch().requires_grad_(), LABELS).detach(), expected)


def shares_below(violations, nodes=512):
    """The cumulative share of violations at the node below each, counts split between the two nodes around."""
    width, counts = 4 / (nodes - 1), [0.0] * nodes
    for v in violations:
        place = (v + 2) / width
        low = math.floor(place)
        counts[low] += 1 - (place - low)
        counts[low + 1] += place - low
    return counts, [sum(counts[: math.floor((v + 2) / width) + 1]) / sum(counts) for v in violations]


@pytest.mark.parametrize("nodes", [11, 512])
def test_dynamic_soft_margin_of_all_triples(nodes):
    def loop(x):
        z = unit(x)
        violations = [(z[a] - z[p]).norm() - (z[a] - z[n]).norm() for a, p, n in triples()]
        shares = shares_below([v.item() for v in violations], nodes=nodes)[1]
        return sum(share * v for share, v in zip(shares, violations, strict=True)) / len(violations)

    agree(build("dynamic_soft_margin", selection="all", nodes=nodes), loop)


def test_dynamic_soft_margin_takes_the_hardest_triple_of_each_anchor():
    def loop(x):
        z = unit(x)
        d = (z[:, None] - z).square().sum(2).clamp_min(1e-30).sqrt()
        violations = [
            max(d[a, p] for p in positives(a)) - min(d[a, n] for n in negatives(a)) for a in ROWS if positives(a)
        ]
        shares = shares_below([v.item() for v in violations])[1]
        return sum(share * v for share, v in zip(shares, violations, strict=True)) / len(violations)

    agree(build("dynamic_soft_margin"), loop)


def test_the_histogram_of_the_dynamic_soft_margin_moves_in_training_alone():
    objective = build("dynamic_soft_margin", selection="all", nodes=11, momentum=0.25)

    def histogram(seed):
        z = unit(batch(seed))
        counts = shares_below([((z[a] - z[p]).norm() - (z[a] - z[n]).norm()).item() for a, p, n in triples()], nodes=11)
        return torch.tensor(counts[0]).double() / sum(counts[0])

    for seed in (1, 2):
        objective(batch(seed).requires_grad_(), LABELS).backward()
    expected = 0.75 * histogram(1) + 0.25 * histogram(2)
    torch.testing.assert_close(objective.loss.histogram, expected)
    objective.eval()(batch(3), LABELS)
    torch.testing.assert_close(objective.state_dict()["loss.histogram"], expected)


def test_the_dynamic_soft_margin_holds_the_largest_violation():
    points = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    value = em.objective("dynamic_soft_margin", nodes=5)(points, torch.tensor([0, 0, 1]))
    assert value.item() == pytest.approx(1.0)  # v = 2 for one anchor, 0 for the other, of cumulative shares 1 and ½


@pytest.mark.parametrize("include_query", [False, True])
def test_instance(include_query):
    def loop(x):
        z = unit(x)
        s = 3.0 * z @ z.T
        terms = []
        for i in ROWS:
            own = [s[i, j].exp() for j in positives(i)] + ([torch.tensor(3.0).double().exp()] if include_query else [])
            if own:
                terms.append(-(sum(own) / (sum(own) + sum(s[i, j].exp() for j in negatives(i)))).log())
        return sum(terms) / len(terms)

    agree(em.objective("instance", gamma=3.0, include_query=include_query), loop)


def test_instance_without_labels_in_common_repels_all():
    embeddings, each = batch().requires_grad_(), torch.arange(len(LABELS))
    objective = em.objective("instance", gamma=2.0, include_query=True)
    objective(embeddings, each).backward()
    assert embeddings.grad.abs().max() > 0
    assert em.objective("instance")(batch(), each) == 0


def test_instance_is_learned_classification_with_a_proxy_per_instance():
    torch.manual_seed(0)
    learned = em.objective("normalized_softmax", classes=4, dim=5, temperature=0.5).double()
    proxies = learned.references.weight.detach()
    others = em.objective("instance", gamma=2.0)(batch(), LABELS, proxies, torch.arange(4))
    torch.testing.assert_close(others, learned(batch(), LABELS).detach())


def test_manifold():
    objective = build("manifold", proxies=3, alpha=0.7, context=0.5, margin=0.01)
    own = objective.loss.meta_classes[LABELS].tolist()

    def n_pairs(similarity):
        terms = []
        for i in ROWS:
            violations = [similarity(i, k) - similarity(i, own[i]) + 0.01 for k in range(3) if k != own[i]]
            terms.append((1 + sum(v.exp() for v in violations if v >= 0)).log())
        return sum(terms) / len(terms)

    def loop(x):
        nodes = unit(torch.cat([x, objective.loss.proxies]))
        size = len(nodes)
        affinity = [
            [(2 * (u @ v).relu()).exp() if i != j else u.new_zeros(()) for j, v in enumerate(nodes)]
            for i, u in enumerate(nodes)
        ]
        degree = [sum(row) for row in affinity]
        walk = torch.stack(
            [torch.stack([affinity[i][j] / (degree[i] * degree[j]).sqrt() for j in range(size)]) for i in range(size)]
        )
        # The walk itself, step by step, until it no longer moves.
        reached, step = torch.zeros_like(walk), torch.eye(size, dtype=torch.float64)
        for _ in range(100):
            reached, step = reached + 0.3 * step, 0.7 * step @ walk
        rows = len(LABELS)
        intrinsic = n_pairs(lambda i, k: reached[i, rows + k])
        context = n_pairs(lambda i, k: torch.cosine_similarity(reached[i], reached[rows + k], dim=0))
        return intrinsic + 0.5 * context

    agree(objective, loop)


def test_manifold_groups_classes_and_takes_small_batches():
    objective = build("manifold", proxies=50)
    assert len(set(objective.loss.meta_classes.tolist())) == 4
    assert objective(batch(rows=2), torch.tensor([0, 3])).isfinite()
    many = em.objective("manifold", classes=100, dim=5, proxies=8)
    assert set(torch.bincount(many.loss.meta_classes).tolist()) == {12, 13}


def test_p2sgrad():
    objective = build("p2sgrad")

    def loop(x):
        z, w = unit(x), unit(objective.references.weight)
        terms = [((z[i] @ w[c]) - float(c == LABELS[i])) ** 2 / 2 for i in ROWS for c in range(4)]
        return sum(terms) / len(LABELS)

    agree(objective, loop)


def test_the_gradient_of_p2sgrad_is_the_distance_of_each_cosine_from_its_target():
    objective = build("p2sgrad")
    pairs = objective.pairs(batch(), LABELS)
    cosine = pairs.similarity.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(objective.value(pairs.replace(similarity=cosine)), cosine)
    torch.testing.assert_close(gradient, (cosine - pairs.positive.double()).detach() / len(LABELS))


PENALTIES = {
    "O": lambda r: r,
    "Iu": lambda r: (1 + r) * (1 + r).log(),
    "Ib": lambda r: (3 * r - (1 + 3 * r).log()) / 9,
    "Ds": lambda r: (1 + r).log(),
    "Dq": lambda r: 1 - 1 / (1 + r) ** 2,
}


@pytest.mark.parametrize("include_query", [False, True])
@pytest.mark.parametrize("variant", PENALTIES)
def test_pnp(variant, include_query):
    def loop(x):
        z = unit(x)
        s, terms = z @ z.T, []
        for q in ROWS:
            own = positives(q) + ([q] if include_query else [])
            if positives(q):
                before = [sum(((s[q, n] - s[q, i]) / 0.1).sigmoid() for n in negatives(q)) for i in own]
                terms.append(sum(map(PENALTIES[variant], before)) / len(own))
        return sum(terms) / len(terms)

    agree(em.objective("pnp", variant=variant, tau=0.1, alpha=2.0, b=3.0, include_query=include_query), loop)


def test_pnp_of_an_unknown_variant():
    with pytest.raises(EquimetricError, match="variant"):
        em.objective("pnp", variant="Dx")(batch(), LABELS)


def moments(z):
    rows, dim = len(z), z.shape[1]
    centred = [row - sum(z) / rows for row in z]
    covariance = [[sum(row[d] * row[e] for row in centred) / (rows - 1) for e in range(dim)] for d in range(dim)]
    still = sum((1.5 - (covariance[d][d] + 0.01).sqrt()).relu() for d in range(dim)) / dim
    return still, sum(covariance[d][e] ** 2 for d in range(dim) for e in range(dim) if d != e) / dim


VICREG = {"invariance": 2.0, "variance": 3.0, "covariance": 0.5, "deviation": 1.5, "epsilon": 0.01}


def test_vicreg_of_a_batch():
    def loop(x):
        apart = [(x[i] - x[j]).square().sum() / 5 for i in ROWS for j in positives(i)]
        still, common = moments(x)
        return 2.0 * sum(apart) / len(apart) + 3.0 * still + 2 * 0.5 * common

    agree(em.objective("vicreg", **VICREG), loop)


def test_vicreg_of_two_views():
    each, second = torch.arange(len(LABELS)), batch(1)
    objective = em.objective("vicreg", **VICREG)

    def loop(x):
        (still, common), (other_still, other_common) = moments(x), moments(second)
        apart = sum((x[i] - second[i]).square().sum() / 5 for i in ROWS) / len(LABELS)
        return 2.0 * apart + 3.0 * (still + other_still) / 2 + 0.5 * (common + other_common)

    results = []
    for function in (lambda x: objective(x, each, second, each), loop):
        embeddings = batch().requires_grad_()
        value = function(embeddings)
        results.append((value.detach(), *torch.autograd.grad(value, embeddings)))
    torch.testing.assert_close(results[0], results[1])


NEW = ["dynamic_soft_margin", "instance", "manifold", "p2sgrad", "pnp", "vicreg", "lp", "zero_mean"]


@pytest.mark.parametrize("row", [0, 8], ids=["with positives", "without"])
@pytest.mark.parametrize("method", [*NEW, "softmax+regular_face", "triplet_swap"])
def test_nan_is_passed_on(method, row):
    objective = build("triplet", swap=True) if method == "triplet_swap" else build(method)
    embeddings = batch()
    embeddings[row] = torch.nan
    assert objective(embeddings, LABELS).isnan()
