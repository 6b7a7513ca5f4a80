"""Selections at random: what they draw, how often, and from which generator."""

import math

import pytest
import torch
from choosing import (
    LABELS,
    ROWS,
    WORKED,
    float64,
    listed,
    negatives,
    pairs_of,
    positives,
    random_embeddings,
    repeated,
    select,
)

import equimetric as em
from equimetric.errors import EquimetricError
from equimetric.pairs import Triplets
from equimetric.selection.distance_weighted import negative_probabilities
from equimetric.selection.own_class import OwnClassTriplets
from equimetric.selection.pads import Pads

RANDOM = ["random_soft_hard", "random_semihard", "pads", "spectral_switch", "distance_weighted"]


@pytest.mark.parametrize("dimension", [2, 3, 16])
@pytest.mark.parametrize(("cutoff", "upper"), [(0.5, 1.4), (0.1, 1.9)])
def test_distance_weighted_probabilities(dimension, cutoff, upper):
    x = torch.nn.functional.normalize(random_embeddings(2, dimension))
    found = negative_probabilities(pairs_of(x), cutoff=cutoff, upper=upper)
    for a in ROWS:
        weight = {}
        for n in negatives(a):
            d = (x[a] - x[n]).norm().item()
            if d < upper:
                d = max(d, cutoff)
                weight[n] = 1 / (d ** (dimension - 2) * (1 - d * d / 4) ** ((dimension - 3) / 2))
        expected = [weight.get(j, 0) / max(sum(weight.values()), 1e-300) for j in ROWS]
        torch.testing.assert_close(found[a], float64(expected))


def test_distance_weighted_draws_one_negative_for_each_positive():
    pairs = pairs_of()
    allowed = negative_probabilities(pairs) > 0
    drawn = select("distance_weighted", pairs)
    expected = [(a, p) for a in ROWS if allowed[a].any() for p in positives(a)]
    assert [(a, p) for a, p, _ in listed(drawn)] == expected
    assert allowed[drawn.anchor, drawn.negative].all()


def far_apart(labels):
    """Classes in directions of their own: no negative is nearer than any positive."""
    directions = torch.eye(5, dtype=torch.float64)[labels.unique(return_inverse=True)[1]]
    return torch.cat([5 * directions, random_embeddings()], 1)


@pytest.mark.parametrize("separate", [False, True])
def test_random_soft_hard_draws_evenly_among_the_pairs_that_matter(separate):
    pairs = pairs_of(far_apart(LABELS) if separate else None)
    s = pairs.similarity
    drawn = repeated("random_soft_hard", pairs)
    fallbacks = 0
    for a in ROWS:
        own = [(p, n) for anchor, p, n in drawn if anchor == a]
        if not positives(a):
            assert own == []
            continue
        hard_p = [p for p in positives(a) if s[a, p] < max(s[a, n] for n in negatives(a))]
        hard_n = [n for n in negatives(a) if s[a, n] > min(s[a, p] for p in positives(a))]
        fallbacks += not hard_p
        for column, expected in ((0, hard_p or positives(a)), (1, hard_n or negatives(a))):
            times = [sum(pair[column] == j for pair in own) for j in expected]
            assert sum(times) == len(own) == 300
            # Six standard deviations of a fair draw.
            assert max(abs(t - 300 / len(expected)) for t in times) < 6 * math.sqrt(300 / len(expected))
    assert bool(fallbacks) == separate


@pytest.mark.parametrize("margin", [1e-9, 0.4])
def test_random_semihard_draws_evenly_among_the_semihard_negatives(margin):
    pairs = pairs_of()
    s = pairs.similarity
    drawn = repeated("random_semihard", pairs, margin=margin)
    semihard_found = 0
    for a in ROWS:
        own = [(p, n) for anchor, p, n in drawn if anchor == a]
        times = [sum(pair[0] == p for pair in own) for p in positives(a)]
        assert sum(times) == len(own) == (300 if positives(a) else 0)
        for p, drawn_so_often in zip(positives(a), times, strict=True):
            assert abs(drawn_so_often - 300 / len(times)) < 6 * math.sqrt(300 / len(times))
            semihard = [n for n in negatives(a) if -margin < s[a, n] - s[a, p] < 0]
            semihard_found += bool(semihard)
            expected = semihard or negatives(a)
            of_each = [own.count((p, n)) for n in expected]
            assert sum(of_each) == drawn_so_often
            assert max(abs(t - drawn_so_often / len(expected)) for t in of_each) < 6 * math.sqrt(drawn_so_often)
    assert bool(semihard_found) == (margin == 0.4)


@pytest.mark.parametrize("name", RANDOM)
def test_random_selections_follow_the_global_seed(name):
    pairs = pairs_of()
    torch.manual_seed(7)
    first, second = listed(select(name, pairs)), listed(select(name, pairs))
    torch.manual_seed(7)
    assert listed(select(name, pairs)) == first
    assert first != second


@pytest.mark.parametrize("name", RANDOM)
def test_random_selections_draw_from_a_generator_of_ones_own(name):
    pairs, generator = pairs_of(), torch.Generator()
    select_once = em.objective("triplet", selection=name, generator=generator).selection
    before = torch.get_rng_state()
    generator.manual_seed(7)
    first, second = listed(select_once(pairs)), listed(select_once(pairs))
    generator.manual_seed(7)
    assert listed(select_once(pairs)) == first != second
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("own", [False, True])
def test_a_large_batch_is_differentiated_over_the_triples_that_gave_its_value(own, monkeypatch):
    """A contrastive loss of drawn triples, computed by rows, goes over the batch twice and must draw the same twice."""
    monkeypatch.setattr("equimetric.ops.chunks.MIN_CHUNKED_PAIRS", 1)
    monkeypatch.setattr("equimetric.ops.chunks.CHUNK_ENTRIES", 4 * len(LABELS))
    generator = torch.Generator() if own else torch.default_generator
    options = {"generator": generator} if own else {}
    objective = em.objective("contrastive_cosine", selection="random_soft_hard", lam=-1.0, **options)
    objective_of_two_ratios = em.objective("tcm", selection="random_soft_hard", m_pos=1.1, m_neg=-1.1, **options)
    for one in (objective, objective_of_two_ratios):
        embeddings = random_embeddings().requires_grad_()

        def value(at, one=one):
            generator.manual_seed(3)
            return one(at, LABELS)

        (gradient,) = torch.autograd.grad(value(embeddings), embeddings)
        step = 1e-7 * random_embeddings(seed=5)
        # With a gradient, or it would not be computed by rows.
        difference = value(embeddings + step) - value(embeddings - step)
        assert difference.item() == pytest.approx(2 * (gradient * step).sum().item(), rel=1e-5)


@pytest.mark.parametrize("name", RANDOM)
def test_random_selections_never_draw_what_has_weight_zero(name):
    absent = torch.tensor([2, 7, 9])
    weight = torch.ones(len(LABELS), len(LABELS), dtype=torch.float64)
    weight[:, absent] = 0
    pairs = pairs_of().weighted(weight)
    torch.manual_seed(0)
    options = {"p_switch": 0.0} if name == "spectral_switch" else {}
    for _ in range(30):
        for triple in listed(select(name, pairs, **options)):
            assert not set(triple[1:]) & set(absent.tolist())


@pytest.mark.parametrize("name", ["random_soft_hard", "random_semihard", "pads"])
def test_what_is_present_twice_is_drawn_twice_as_often(name):
    weight = torch.ones(len(LABELS), len(LABELS), dtype=torch.float64)
    weight[:, 2] = 3
    pairs = pairs_of(torch.ones(len(LABELS), 4, dtype=torch.float64)).weighted(weight)
    options = {"include_pos": False, "include_same": False} if name == "pads" else {}
    drawn = [p for a, p, _ in repeated(name, pairs, **options) if a == 0]
    assert drawn.count(2) / len(drawn) == pytest.approx(3 / 6, abs=0.1)


def test_the_spectral_switch_pushes_all_positives_of_an_anchor_or_none():
    pairs = pairs_of()
    torch.manual_seed(0)
    anchors = [a for a in ROWS if positives(a)]
    drawable = (negative_probabilities(pairs) > 0).any(1)
    switched = 0
    for _ in range(100):
        triples = listed(select("spectral_switch", pairs, p_switch=0.3))
        for a in anchors:
            own = [(p, n) for anchor, p, n in triples if anchor == a]
            if own and own[0][0] == a:
                switched += 1
                assert own == [(a, p) for p in positives(a)]
            else:
                assert [p for p, _ in own] == (positives(a) if drawable[a] else [])
                assert all(n in negatives(a) for _, n in own)
    assert switched / (100 * len(anchors)) == pytest.approx(0.3, abs=0.08)


@pytest.mark.parametrize("p_switch", [0.0, 1.0])
def test_the_spectral_switch_never_and_always(p_switch):
    embeddings = random_embeddings()
    objective = em.objective("triplet", selection="spectral_switch", p_switch=p_switch, margin=0.5)
    torch.manual_seed(1)
    value = objective(embeddings, LABELS)
    if p_switch:
        x = torch.nn.functional.normalize(embeddings)
        distance = [(x[a] - x[p]).norm() for a in ROWS for p in positives(a)]
        expected = torch.stack([(0.5 - d).relu() for d in distance]).mean()
    else:
        torch.manual_seed(1)
        torch.rand(len(LABELS), 1)
        expected = em.objective("triplet", selection="distance_weighted", margin=0.5)(embeddings, LABELS)
    torch.testing.assert_close(value, expected)


def test_a_loss_of_pairs_pushes_the_positives_of_switched_anchors():
    objective = em.objective("contrastive", selection="spectral_switch", p_switch=0.5, neg_margin=2.0)
    pairs = objective.pairs(random_embeddings(), LABELS)
    similarity = pairs.similarity.detach().requires_grad_()
    torch.manual_seed(0)
    (gradient,) = torch.autograd.grad(objective.value(pairs.replace(similarity=similarity)), similarity)
    pushed = [(gradient[a, p] > 0).item() for a in ROWS for p in positives(a)]
    assert any(pushed)
    assert not all(pushed)
    for a in ROWS:
        assert len({(gradient[a, p] > 0).item() for p in positives(a)}) <= 1
        assert (gradient[a, negatives(a)] >= 0).all()


def test_the_spectral_switch_weighs_triples_as_their_pairs():
    weight = torch.full((len(LABELS), len(LABELS)), 2.0, dtype=torch.float64)
    chosen = select("spectral_switch", pairs_of().weighted(weight), p_switch=0.5)
    assert (chosen.weight == 2).all()
    assert len(chosen.weight) == len(chosen)


def test_the_spectral_switch_needs_the_query_among_the_references():
    objective = em.objective("triplet", selection="spectral_switch", p_switch=1.0)
    embeddings = random_embeddings()
    with pytest.raises(EquimetricError, match="references='batch'"):
        objective(embeddings, LABELS, embeddings, LABELS)
    itself = torch.eye(len(LABELS), dtype=torch.bool)
    value = objective(embeddings, LABELS, embeddings, LABELS, self_mask=itself)
    torch.testing.assert_close(value, objective(embeddings, LABELS))
    with pytest.raises(EquimetricError, match="between 0 and 1"):
        em.objective("triplet", selection="spectral_switch", p_switch=1.5)(embeddings, LABELS)


def test_pads_starts_and_adapts_as_worked_out():
    case = WORKED["pads"]
    pads = Pads(**case["options"]).double()
    pads.set_distribution(torch.where(pads.distribution > 1e-3, 1.0, 1e-15))
    close = {"rtol": 1e-6, "atol": 0}
    torch.testing.assert_close(Pads().distribution.double(), float64(case["initial"]), **close)
    torch.testing.assert_close(pads.distribution, float64(case["initial"]), **close)
    assert pads.bins(float64(case["distances"])).tolist() == case["bin_of_distance"]
    pads.adapt(float64(case["multipliers"]))
    torch.testing.assert_close(pads.distribution, float64(case["updated"]), **close)


@pytest.mark.parametrize("include_pos", [False, True])
def test_pads_draws_negatives_by_the_probability_of_their_bin(include_pos):
    pads = Pads(include_pos=include_pos).double()
    histogram = torch.rand(29, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    pads.set_distribution(histogram)
    x = torch.nn.functional.normalize(random_embeddings())
    found = pads.probabilities(pairs_of(x))
    edges = [0.1 + 1.3 * k / 29 for k in range(1, 29)]
    for a in ROWS:
        candidates = ROWS if include_pos else negatives(a)
        distance = [(x[a] - x[j]).norm().item() for j in ROWS]
        weight = [histogram[sum(e < distance[j] for e in edges)].item() if j in candidates else 0.0 for j in ROWS]
        torch.testing.assert_close(found[a], float64(weight) / sum(weight))


@pytest.mark.parametrize("include_same", [False, True])
@pytest.mark.parametrize("include_pos", [False, True])
def test_pads_draws_one_triple_per_anchor_from_its_candidates(include_pos, include_same):
    pads = Pads(include_pos=include_pos, include_same=include_same).double()
    pads.set_distribution(torch.ones(29))
    torch.manual_seed(0)
    chosen = {"pushed": 0, "itself": 0}
    for _ in range(100):
        triples = listed(pads(pairs_of()))
        assert [a for a, _, _ in triples] == [a for a in ROWS if positives(a)]
        for a, p, n in triples:
            assert p != n
            assert p in [*positives(a), *([a] if include_same else [])]
            assert include_pos or n in negatives(a)
            chosen["pushed"] += n not in negatives(a)
            chosen["itself"] += p == a
    assert (chosen["pushed"] > 0) == include_pos
    assert (chosen["itself"] > 0) == include_same


def test_pads_as_pairs_pushes_what_was_drawn_as_negative():
    pads = Pads().double()
    pads.set_distribution(torch.ones(29))
    torch.manual_seed(0)
    chosen = pads(pairs_of())
    pairs = chosen.as_pairs()
    assert isinstance(chosen, Triplets)
    for a, p, n in listed(chosen):
        assert pairs.positive[a, p] == (p != a)
        assert pairs.negative[a, n] == (n != a)
    assert int(pairs.mask.sum()) == sum((p != a) + (n != a) for a, p, n in listed(chosen))


def test_pads_keeps_its_distribution_in_the_state_of_an_objective():
    objective, copy = (em.objective("margin_loss", selection="pads").double() for _ in range(2))
    objective.selection.adapt(torch.linspace(0.8, 1.25, 29))
    copy.load_state_dict(objective.state_dict())
    assert torch.equal(copy.selection.distribution, objective.selection.distribution)
    assert not torch.equal(Pads().distribution.double(), objective.selection.distribution)


def test_no_bin_of_pads_is_ever_lost_for_good():
    pads = Pads()
    for _ in range(400):
        pads.adapt(torch.cat([torch.full((28,), 0.8), torch.tensor([1.25])]))
    assert (pads.distribution > 0).all()
    assert pads.distribution.sum().item() == pytest.approx(1)
    assert torch.isfinite(pads.probabilities(pairs_of(random_embeddings().float()))).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda: Pads().set_distribution(torch.ones(30)), "has 29 bins"),
        (lambda: Pads().set_distribution(torch.zeros(29)), "not all zero"),
        (lambda: Pads().set_distribution(-torch.ones(29)), "not negative"),
        (lambda: Pads().set_distribution(torch.full((29,), torch.nan)), "must be finite"),
        (lambda: Pads(n_support=2), "at least 3 edges"),
        (lambda: Pads(support_limit=(1.4, 0.1)), "two rising distances"),
        (lambda: select("pads", pairs_of(geometry="dot")), "do not follow from the dot geometry"),
    ],
)
def test_pads_refuses_what_makes_no_sense(change, message):
    with pytest.raises(EquimetricError, match=message):
        change()


@pytest.mark.parametrize("weighted", [False, True])
def test_margin_terms_of_triples_that_hold_the_anchor_itself(weighted):
    objective = em.objective("margin_loss", alpha=0.7, beta=0.6, nu=0.02).double()
    x = torch.nn.functional.normalize(
        torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    )
    pairs = objective.pairs(x, torch.tensor([0, 0, 1, 1]))
    anchor, positive, negative = torch.tensor([[0, 0, 2], [1, 0, 3], [3, 1, 2]]).unbind()
    weight = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64) if weighted else None
    found = objective.loss(OwnClassTriplets(pairs, anchor, positive, negative, weight))
    total = active = 0.0
    for t in range(3):
        times = 1.0 if weight is None else weight[t].item()
        pull = max(0.0, 0.7 + (x[anchor[t]] - x[positive[t]]).norm().item() - 0.6)
        push = max(0.0, 0.7 - (x[anchor[t]] - x[negative[t]]).norm().item() + 0.6)
        total += times * (pull + push + 0.02 * 0.6)
        active += times * ((pull > 0) + (push > 0))
    assert found.item() == pytest.approx(total / active, abs=1e-7)


# Of torch itself, where a graph is broken by shapes that depend on data.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_distance_weighted_negatives_are_the_same_in_a_compiled_graph():
    objective = em.objective("margin").double()
    embeddings = torch.randn(24, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    labels = torch.arange(24) % 6
    torch.manual_seed(7)
    expected = objective(embeddings, labels)
    torch._dynamo.reset()
    compiled = torch.compile(objective, backend="eager")
    torch.manual_seed(7)
    assert torch.equal(compiled(embeddings, labels), expected)
