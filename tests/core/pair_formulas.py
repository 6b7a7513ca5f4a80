"""Pair losses as double loops written straight from the formulas, on a batch that meets both sides of every hinge."""

from math import cos, exp, radians, sin, tan

import torch
from torch.nn.functional import normalize

# Unequal, unsorted classes with two singletons.
LABELS = [3, 7, 3, 1, 7, 3, 9, 1, 7, 3, 4]
B = len(LABELS)


def float64(values):
    return torch.tensor(values, dtype=torch.float64)


def batch(seed=0, dimension=4):
    # One common direction, so that the classes lie close enough for every hinge to meet both sides.
    noise = torch.randn(B, dimension, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return noise + 0.7


def positives(i, labels=LABELS):
    return [j for j in range(len(labels)) if j != i and labels[j] == labels[i]]


def negatives(i, labels=LABELS):
    return [k for k in range(len(labels)) if labels[k] != labels[i]]


def positive_pairs():
    return [(a, p) for a in range(B) for p in positives(a)]


def both_sides():
    return [i for i in range(B) if positives(i) and negatives(i)]


def total(terms):
    return sum(terms, start=float64(0.0))


def average(terms):
    terms = list(terms)
    return total(terms) / max(1, len(terms))


def log_sum(terms):
    return total(term.exp() for term in terms).log()


def cosines(z):
    x = normalize(z)
    return x @ x.T


def distances(z):
    x = normalize(z)
    return [[(x[i] - x[j]).norm() if i != j else float64(0.0) for j in range(B)] for i in range(B)]


def lifted(z, margin=1.0, normalised=True):
    x = normalize(z) if normalised else z

    def d(i, j):
        return (x[i] - x[j]).norm()

    terms = []
    for i, j in positive_pairs():
        if i < j:
            both = [margin - d(i, k) for k in negatives(i)] + [margin - d(j, k) for k in negatives(j)]
            terms.append((log_sum(both) + d(i, j)).relu() ** 2)
    return total(terms) / (2 * len(terms))


def lifted_generalized(z, margin=1.0, geometry="euclidean", reduction="batch"):
    a = distances(z) if geometry == "euclidean" else -cosines(z)
    terms = [
        (log_sum(a[i][j] for j in positives(i)) + log_sum(margin - a[i][k] for k in negatives(i))).relu()
        for i in both_sides()
    ]
    return total(terms) / (B if reduction == "batch" else len(terms))


def first_two():
    rows = {label: [i for i in range(B) if LABELS[i] == label] for label in LABELS}
    return [members[:2] for members in rows.values() if len(members) > 1]


def npairs_with_shared_targets(z, l2_reg):
    """Within a batch, the sample itself left out; reversed pairs are the same pairs."""
    everyone = {i: log_sum(z[i] @ z[j] for j in range(B) if j != i) for i in both_sides()}
    values = average(everyone[i] - average(z[i] @ z[p] for p in positives(i)) for i in both_sides())
    return values + l2_reg / 2 * average(z[i] @ z[i] for i in both_sides())


def from_mean(mean, reduction):
    """The mean over one pair per class as another reduction."""
    return mean * {"mean": 1, "sum": len(first_two()), "batch": len(first_two()) / B}[reduction]


def npairs(z, l2_reg=0.002, symmetric=False, repeated="first", reduction="mean"):
    if repeated == "soft":
        return npairs_with_shared_targets(z, l2_reg)
    a, p = z[[i for i, _ in first_two()]], z[[j for _, j in first_two()]]

    def one_way(a, p):
        others = [[j for j in range(len(a)) if j != i] for i in range(len(a))]
        return average((1 + total((a[i] @ p[j] - a[i] @ p[i]).exp() for j in others[i])).log() for i in range(len(a)))

    value = (one_way(a, p) + one_way(p, a)) / 2 if symmetric else one_way(a, p)
    return from_mean(value + l2_reg / 4 * (a.square().sum(1).mean() + p.square().sum(1).mean()), reduction)


def triangle(a, p, n, alpha_deg):
    squared = tan(radians(alpha_deg)) ** 2
    return 4 * squared * (a + p) @ n - 2 * (1 + squared) * a @ p


def angular(z, alpha_deg=45.0):
    x = normalize(z)
    return average(
        (1 + total(triangle(x[a], x[p], x[n], alpha_deg).exp() for n in negatives(a))).log()
        for a, p in positive_pairs()
    )


def angular_npair(z, alpha_deg=45.0, reduction="mean"):
    x, pairs = normalize(z), first_two()
    mean = average(
        (1 + total(triangle(x[a], x[p], x[q], alpha_deg).exp() for b, q in pairs if b != a)).log() for a, p in pairs
    )
    return from_mean(mean, reduction)


def angular_npairs_combo(z, alpha_deg=45.0, lam=2.0, reduction="mean", **options):
    return npairs(z, reduction=reduction, **options) + lam * angular_npair(z, alpha_deg, reduction)


def tuplet_margin(z, scale=64.0, margin_deg=5.73):
    s, beta = cosines(z), radians(margin_deg)
    slack = [(a, s[a, p] * cos(beta) + (1 - s[a, p] ** 2).sqrt() * sin(beta)) for a, p in positive_pairs()]
    return average((1 + total((scale * (s[a, n] - own)).exp() for n in negatives(a))).log() for a, own in slack)


def intra_pair_variance(z, pos_eps=0.01, neg_eps=0.01):
    s = cosines(z)
    positive = [s[a, p] for a, p in positive_pairs()]
    negative = [s[a, n] for a in range(B) for n in negatives(a)]
    low, high = (1 - pos_eps) * average(positive), (1 + neg_eps) * average(negative)
    return average((low - one).relu() ** 2 for one in positive) + average((one - high).relu() ** 2 for one in negative)


def circle(z, m=0.4, gamma=80.0, mode="anchor"):
    s = cosines(z)
    w = s.detach()

    def pull(i, j):
        return -gamma * max(0, 1 + m - w[i, j]) * (s[i, j] - (1 - m))

    def push(i, k):
        return gamma * max(0, w[i, k] + m) * (s[i, k] - m)

    if mode == "batch":
        pulls = log_sum(pull(i, j) for i, j in positive_pairs() if i < j)
        return (1 + (pulls + log_sum(push(i, k) for i in range(B) for k in negatives(i) if i < k)).exp()).log()
    return average(
        (1 + (log_sum(pull(i, j) for j in positives(i)) + log_sum(push(i, k) for k in negatives(i))).exp()).log()
        for i in both_sides()
    )


def ntxent(z, temperature=0.07):
    e = (cosines(z) / temperature).exp()
    return average(-(e[a, p] / (e[a, p] + total(e[a, n] for n in negatives(a)))).log() for a, p in positive_pairs())


def supcon(z, temperature=0.1, reduction="valid"):
    e = (cosines(z) / temperature).exp()
    terms = [
        average(-(e[i, p] / total(e[i, j] for j in range(B) if j != i)).log() for p in positives(i))
        for i in both_sides()
    ]
    return total(terms) / (B if reduction == "batch" else len(terms))


def snr_contrastive(z, pos_margin=0.0, neg_margin=1.0, reg=0.0, reduction="nonzero", power=1):
    x = normalize(z)

    def d(i, j):
        return (x[i] - x[j]).var() / x[i].var()

    def reduced(terms):
        counted = [term for term in terms if term > 0] if reduction == "nonzero" else terms
        return total(terms) if reduction == "sum" else total(terms) / max(1, len(counted))

    pull = [(d(a, p) - pos_margin).relu() ** power for a, p in positive_pairs()]
    push = [(neg_margin - d(a, n)).relu() ** power for a in range(B) for n in negatives(a)]
    return reduced(pull) + reduced(push) + reg * average(row.sum().abs() for row in x)


def mined(s, epsilon):
    """Positives and negatives of every anchor, all of them or those of valid triplets."""
    kept = []
    for i in range(B):
        inside, outside = positives(i), negatives(i)
        if epsilon is not None:
            hardest = max((s[i, k].item() for k in outside), default=-9.0)
            easiest = min((s[i, j].item() for j in positives(i)), default=9.0)
            inside = [j for j in inside if s[i, j].item() < hardest + epsilon]
            outside = [k for k in outside if s[i, k].item() > easiest - epsilon]
        kept.append((i, inside, outside))
    return kept


def raw(z, alpha=2.0, beta=50.0, base=0.5, epsilon=None):
    s = cosines(z)
    return average(
        (1 + total((-alpha * (s[i, j] - base)).exp() for j in inside)).log() / alpha
        + (1 + total((beta * (s[i, k] - base)).exp() for k in outside)).log() / beta
        for i, inside, outside in mined(s, epsilon)
    )


def binomial(z, alpha=2.0, beta=50.0, gamma=0.5, reduction="mean", epsilon=None):
    s = cosines(z)
    value = total(
        average((1 + (alpha * (gamma - s[i, j])).exp()).log() for j in inside)
        + average((1 + (beta * (s[i, k] - gamma)).exp()).log() for k in outside)
        for i, inside, outside in mined(s, epsilon)
    )
    return value / (B if reduction == "mean" else 1)


def equal_weights(z, epsilon=None):
    s = cosines(z)
    return average(
        average(1 - s[i, j] for j in inside) + average(s[i, k] for k in outside)
        for i, inside, outside in mined(s, epsilon)
    )


def ranked_list(z, alpha=1.2, margin=0.4, Tn=10.0, Tp=0.0, form="convex", lam=None):
    d = distances(z)

    def side(violations, temperature):
        active = [(v, exp(temperature * v.item())) for v in violations if v > 0]
        return total(w * v for v, w in active) / sum(w for _, w in active) if active else float64(0.0)

    lam = {"convex": 0.5, "additive": 1.0}[form] if lam is None else lam
    terms = []
    for i in range(B):
        pull = side([d[i][j] - (alpha - margin) for j in positives(i)], Tp)
        push = side([alpha - d[i][k] for k in negatives(i)], Tn)
        terms.append((1 - lam) * pull + lam * push if form == "convex" else pull + lam * push)
    return average(terms)


def ephn(z, sigma=0.1, semihard=False):
    s = cosines(z)
    terms = []
    for a in both_sides():
        positive = max(s[a, p] for p in positives(a))
        allowed = [s[a, n] for n in negatives(a) if not semihard or s[a, n] < positive]
        if allowed:
            terms.append((1 + ((max(allowed) - positive) / sigma).exp()).log())
    return average(terms)
