"""Lp geometries and the selections by angle, share, histogram and strategy: worked values, loops, laws."""

import copy
import json
import pickle
from math import atan, degrees
from pathlib import Path

import pytest
import torch
from choosing import ROWS, listed, negatives, pairs_of, positives, random_embeddings, select
from torch import nn

import equimetric as em
from equimetric.geometry import Geometry, LpGeometry, find_geometry

WORKED = json.loads((Path(__file__).parents[1] / "worked_values/peer_selections.json").read_text(encoding="utf-8"))
X = torch.tensor(WORKED["embeddings"], dtype=torch.float64)
Y = torch.tensor(WORKED["labels"])


@pytest.mark.parametrize("case", WORKED["lp"], ids=lambda case: case["p"])
def test_lp_distances_give_the_worked_losses(case):
    geometry = f"l{case['p']}"
    triplet = em.objective("triplet", geometry=geometry, normalize=False, margin=0.4, reduction="mean")
    contrastive = em.objective("contrastive", geometry=geometry, normalize=False, pos_margin=0.5, neg_margin=3.0)
    assert triplet(X, Y).item() == pytest.approx(case["triplet"], rel=1e-12)
    assert contrastive(X, Y).item() == pytest.approx(case["contrastive"], rel=1e-12)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, float("inf")])
@pytest.mark.parametrize("normalize", [True, False])
def test_lp_distances_by_definition_with_finite_gradients(p, normalize):
    pairs = em.objective("triplet", geometry=LpGeometry(p), normalize=normalize).pairs(X, Y)
    points = torch.nn.functional.normalize(X) if normalize else X
    difference = (points[:, None] - points).abs()
    expected = difference.amax(2) if p == float("inf") else difference.pow(p).sum(2).pow(1 / p)
    torch.testing.assert_close(pairs.distance(), expected)
    coincident = torch.ones(6, 3, requires_grad=True)
    em.objective("contrastive", geometry=LpGeometry(p), normalize=normalize)(coincident, Y[:6]).backward()
    assert coincident.grad.isfinite().all()
    if p != float("inf"):
        measure = LpGeometry(p).measure
        assert torch.autograd.gradcheck(measure, (X[:4].clone().requires_grad_(), X[4:9].clone().requires_grad_()))


def test_lp_geometries_by_name():
    assert find_geometry("l2") is find_geometry("euclidean")
    assert [find_geometry(name).name for name in ("l1", "l1.5", "linf")] == ["l1", "l1.5", "linf"]
    objective = em.objective("triplet", geometry="l1")
    for again in (pickle.loads(pickle.dumps(objective)), copy.deepcopy(objective)):
        torch.testing.assert_close(again(X, Y), objective(X, Y))
    for p in (0.5, "1", True, float("nan")):
        with pytest.raises(em.EquimetricError, match="a number of 1 or more, or inf"):
            LpGeometry(p)
    with pytest.raises(em.EquimetricError, match="unknown geometry 'lp'"):
        em.objective("triplet", geometry="lp")
    with pytest.raises(em.EquimetricError, match="wrap it as Geometry"):
        em.objective("triplet", geometry=torch.cdist)


class Mahalanobis(nn.Module):
    """−‖W(q − r)‖², W learned."""

    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.eye(dim, dtype=torch.float64))

    def forward(self, queries, references):
        return -torch.cdist(queries @ self.weight.T, references @ self.weight.T).square()


def test_a_learned_geometry_is_a_part_of_the_objective():
    measure = Mahalanobis(5)
    geometry = Geometry("mahalanobis", measure, to_distance=torch.neg, normalize=False)
    objective = em.objective("triplet", geometry=geometry, margin=1.0)
    assert list(objective.parameters()) == [measure.weight]
    objective(X, Y).backward()
    assert measure.weight.grad.abs().sum() > 0
    assert "measure.weight" in objective.state_dict()
    again = copy.deepcopy(objective)
    again.measure.weight.data.mul_(2)
    assert again(X, Y) != objective(X, Y), "a copy has a geometry of its own"


def test_angular_selects_the_worked_triples():
    chosen = em.objective("triplet", selection="angular", angle_deg=40.0).select(pairs_of(X, Y))
    assert sorted(map(list, listed(chosen))) == WORKED["angular"]


@pytest.mark.parametrize("geometry", ["cosine", "euclidean", "sqeuclidean"])
@pytest.mark.parametrize("angle", [0.0, 20.0, 45.0])
def test_angular_by_loops(geometry, angle):
    embeddings = random_embeddings(1)
    x = torch.nn.functional.normalize(embeddings)
    expected = []
    for a in ROWS:
        for p in positives(a):
            for n in negatives(a):
                centre = (x[a] + x[p]) / 2
                found = degrees(atan((x[a] - x[p]).norm() / (2 * (x[n] - centre).norm())))
                expected += [(a, p, n)] if found > angle else []
    pairs = pairs_of(embeddings, geometry=geometry)
    chosen = em.objective("triplet", selection="angular", angle_deg=angle, geometry=geometry).select(pairs)
    assert sorted(map(tuple, listed(chosen))) == expected


def test_angular_compares_the_references_of_an_explicit_set():
    objective = em.objective("triplet", selection="angular", angle_deg=30.0)
    itself = torch.eye(len(Y), dtype=torch.bool)
    torch.testing.assert_close(objective(X, Y, X.clone(), Y, self_mask=itself), objective(X, Y))
    with pytest.raises(em.EquimetricError, match="compares references with one another; use references='batch'"):
        em.objective("triplet", selection="angular", references="proxies", classes=4, dim=5)(X, Y)


def test_hdc_selects_the_worked_pairs():
    chosen = em.objective("contrastive", selection="hdc", share=0.3).select(pairs_of(X, Y))
    kept, worked = chosen.positive.nonzero().tolist(), WORKED["hdc"]["positives"]
    # Ties with the last pair are kept here: a pair and its reverse come together.
    assert all(pair in kept for pair in worked)
    assert {tuple(sorted(pair)) for pair in kept} == {tuple(sorted(pair)) for pair in worked}
    kept, worked = chosen.negative.nonzero().tolist(), WORKED["hdc"]["negatives"]
    assert {tuple(sorted(pair)) for pair in kept} == {tuple(sorted(pair)) for pair in worked}


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_hdc_by_loops(share):
    pairs = pairs_of(random_embeddings(2))
    chosen = select("hdc", pairs, share=share)
    s = pairs.similarity.round(decimals=12)
    for mask, kept, hardest_first in ((pairs.positive, chosen.positive, 1), (pairs.negative, chosen.negative, -1)):
        ranked = sorted(hardest_first * value for value in s[mask].tolist())
        number = -(-round(share * 100) * len(ranked) // 100)
        bound = ranked[number - 1] if number else -float("inf")
        torch.testing.assert_close(kept, mask & (hardest_first * s <= bound))
    assert (chosen.positive.sum() == 0) == (share == 0)


@pytest.mark.parametrize("case", WORKED["easy_hard"], ids=lambda case: "-".join(map(str, case["options"].values())))
def test_easy_hard_selects_the_worked_pairs(case):
    chosen = em.objective("contrastive", selection="easy_hard", **case["options"]).select(
        pairs_of(X, Y, geometry="euclidean")
    )
    assert chosen.positive.nonzero().tolist() == case["positives"]
    assert chosen.negative.nonzero().tolist() == case["negatives"]
    if chosen.weight is not None:
        assert (chosen.weight[chosen.mask] == 1).all()


def test_easy_hard_has_the_other_selections_among_its_own():
    for name, strategies in {
        "batch_hard": ("hard", "hard"),
        "easy_positive_hard_negative": ("easy", "hard"),
        "easy_positive_semihard_negative": ("easy", "semihard"),
    }.items():
        named = em.objective("triplet", selection=name)
        general = em.objective("triplet", selection="easy_hard", pos_strategy=strategies[0], neg_strategy=strategies[1])
        torch.testing.assert_close(general(X, Y), named(X, Y))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pos_strategy": "soft"}, "pos_strategy must be 'easy', 'semihard', 'hard' or 'all', got 'soft'"),
        ({"pos_strategy": "semihard"}, "choose 'easy' or 'hard' for one of them"),
        ({"pos_strategy": "all"}, "choose 'easy' or 'hard' for one of them"),
        ({"allowed_pos_range": (1.0, 0.5)}, "two ascending distances"),
        ({"allowed_neg_range": 3}, "two ascending distances"),
    ],
)
def test_strategies_that_make_no_sense_are_errors(options, message):
    with pytest.raises(em.EquimetricError, match=message):
        em.objective("triplet", selection="easy_hard", **options)(X, Y)


def test_uniform_histogram_draws_equally_often_from_every_bin():
    pairs = pairs_of(random_embeddings(3), geometry="euclidean")
    options = {"num_bins": 4, "pos_per_bin": 5, "neg_per_bin": 7}
    chosen = select("uniform_histogram", pairs, generator=torch.Generator().manual_seed(0), **options)
    distance = pairs.distance()
    for mask, per_bin in ((pairs.positive, 5), (pairs.negative, 7)):
        values = distance[mask]
        edges = torch.linspace(values.min().item(), values.max().item(), 5, dtype=values.dtype)
        bins = torch.bucketize(distance, edges[1:-1], right=True)
        for number in range(4):
            inside = mask & (bins == number)
            assert chosen.weight[inside].sum() == (per_bin if inside.any() else 0)
    again = select("uniform_histogram", pairs, generator=torch.Generator().manual_seed(0), **options)
    torch.testing.assert_close(again.weight, chosen.weight)
    other = select("uniform_histogram", pairs, generator=torch.Generator().manual_seed(1), **options)
    assert not torch.equal(other.weight, chosen.weight)


def test_uniform_histogram_draws_by_multiplicity():
    pairs = pairs_of(random_embeddings(3), geometry="euclidean")
    absent = torch.ones_like(pairs.similarity)
    absent[:, 1] = 0
    absent[:, 2] = 50
    options = {"num_bins": 1, "pos_per_bin": 1, "neg_per_bin": 4000}
    chosen = select("uniform_histogram", pairs.weighted(absent), generator=torch.Generator().manual_seed(0), **options)
    assert chosen.weight[:, 1].sum() == 0
    share = chosen.weight[:, 2][pairs.negative[:, 2]].sum() / 4000
    others = (pairs.negative.sum(0) * absent[0]).double()
    assert share.item() == pytest.approx((others[2] / others.sum()).item(), abs=0.03)


@pytest.mark.parametrize("selection", ["angular", "hdc", "uniform_histogram"])
def test_selections_that_look_at_the_whole_batch_are_never_cut_into_rows(selection, monkeypatch):
    options = {"num_bins": 3} if selection == "uniform_histogram" else {}
    objective = em.objective("contrastive", selection=selection, **options)

    def value():
        torch.manual_seed(0)
        return objective(X.clone().requires_grad_(), Y)

    whole = value()
    monkeypatch.setattr("equimetric.ops.chunks.MIN_CHUNKED_PAIRS", 1)
    monkeypatch.setattr("equimetric.ops.chunks.CHUNK_ENTRIES", 24)
    torch.testing.assert_close(value(), whole)
