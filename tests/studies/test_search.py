"""Searches: every trial is a function of the trials before it; the best one, its edges, what mattered."""

import math

import pytest

from equimetric.errors import EquimetricError
from equimetric.search_space import Choice, Integer, LogUniform, Uniform
from equimetric.studies.search import ScoredTrial, best_trial, budget, edge_notes, propose
from equimetric.studies.search.edges import describe_edge
from equimetric.studies.search.results import parameter_importance
from equimetric.studies.search_config import SearchConfig

SPACE = {
    "margin": Uniform(-0.2, 2.0),
    "rate": LogUniform(1e-6, 1.0),
    "bins": Integer(2, 32),
    "kind": Choice(("a", "b")),
}


def score(params):
    return -((params["margin"] - 0.5) ** 2) - (math.log10(params["rate"]) + 3) ** 2 / 10 - (params["kind"] == "b")


def run(search, trials, space=SPACE, tried=()):
    tried = list(tried)
    while len(tried) < trials:
        params = propose(space, tried, search, "row")
        tried.append(ScoredTrial(params, score(params)))
    return tried


def inside(params):
    return (
        -0.2 <= params["margin"] <= 2.0
        and 1e-6 <= params["rate"] <= 1.0
        and params["bins"] in range(2, 33)
        and params["kind"] in ("a", "b")
    )


@pytest.mark.parametrize("sampler", ["gp", "tpe"])
def test_a_search_that_is_cut_anywhere_proposes_the_same_trials(sampler):
    search = SearchConfig(sampler=sampler, trials=9, startup=4)
    whole = run(search, 7)
    assert all(inside(one.params) for one in whole)
    for cut in (0, 3, 4, 6):
        assert run(search, 7, tried=whole[:cut]) == whole


def test_a_bayesian_search_tries_better_values_than_a_random_one():
    searches = [run(SearchConfig(kind=kind, trials=60), 40) for kind in ("bayesian", "random")]
    found, by_chance = (sum(one.score for one in tried[20:]) / 20 for tried in searches)
    assert found > by_chance + 0.5


def test_rows_and_seeds_have_trials_of_their_own():
    search = SearchConfig(kind="random")
    first = propose(SPACE, [], search, "row")
    assert propose(SPACE, [], search, "row") == first
    assert propose(SPACE, [], search, "other") != first
    assert propose(SPACE, [], SearchConfig(kind="random", seed=7), "row") != first


def test_quasi_random_trials_cover_the_space_evenly():
    tried = run(SearchConfig(kind="random", trials=64), 64)
    for name, bounds in {"margin": (-0.2, 2.0), "rate": (math.log(1e-6), 0.0)}.items():
        values = [math.log(one.params[name]) if name == "rate" else one.params[name] for one in tried]
        quarters = [int(4 * (value - bounds[0]) / (bounds[1] - bounds[0])) for value in values]
        assert [quarters.count(quarter) for quarter in range(4)] == [16] * 4
    assert sum(one.params["kind"] == "a" for one in tried) == 32


def test_a_grid_has_all_combinations_once():
    space = {"margin": Uniform(0.0, 1.0), "rate": LogUniform(1e-4, 1.0), "kind": Choice(("a", "b"))}
    search = SearchConfig(kind="grid", trials=20, points=3)
    assert budget(space, search) == 18
    points = [propose(space, [ScoredTrial({}, 0.0)] * number, search, "row") for number in range(18)]
    assert len({tuple(point.values()) for point in points}) == 18
    assert {point["margin"] for point in points} == {0.0, 0.5, 1.0}
    assert sorted({point["rate"] for point in points}) == pytest.approx([1e-4, 1e-2, 1.0])
    with pytest.raises(EquimetricError, match=r"a grid of 18 points does not fit search\.trials = 10"):
        budget(space, SearchConfig(kind="grid", trials=10, points=3))


def test_few_combinations_are_all_tried_by_any_search():
    space = {"bins": Integer(2, 32)}
    search = SearchConfig(trials=50)
    assert budget(space, search) == 31
    assert [propose(space, [ScoredTrial({}, 0.0)] * n, search, "row")["bins"] for n in range(31)] == list(range(2, 33))
    assert budget({}, search) == 0


def test_the_first_of_equal_trials_is_the_best():
    assert best_trial([ScoredTrial({}, 0.1), ScoredTrial({}, 0.7), ScoredTrial({}, 0.7)]) == 1


def test_optima_at_the_end_of_their_range_are_named():
    params = {"margin": 1.99, "rate": 1.2e-6, "bins": 12, "kind": "a"}
    notes = edge_notes(SPACE, params)
    assert list(notes) == ["margin", "rate"]
    assert notes["margin"] == "margin = 1.99 lies at the upper end 2 of its range; the best value may lie beyond"
    assert "lower end 1e-06" in notes["rate"]
    assert edge_notes(SPACE, {**params, "margin": 0.5, "rate": 1e-3}) == {}
    assert describe_edge(Uniform(-0.2, 2.0), -0.2) == "at the lower end -0.2"
    assert describe_edge(Uniform(-0.2, 2.0), 1.99) == "close to the upper end 2"
    assert describe_edge(Choice((1, 2)), 1) == ""


def test_the_parameter_that_decides_has_the_largest_share():
    tried = [
        ScoredTrial(one.params, -abs(math.log10(one.params["rate"]) + 3))
        for one in run(SearchConfig(kind="random", trials=60), 60)
    ]
    shares = parameter_importance(SPACE, tried)
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["rate"] > 0.8
    assert parameter_importance(SPACE, tried[:4]) == {}
    assert parameter_importance({"rate": SPACE["rate"]}, tried) == {"rate": 1.0}


def test_without_optuna_the_error_names_the_way_out(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "optuna", None)
    tried = run(SearchConfig(kind="random", trials=60), 12)
    with pytest.raises(EquimetricError, match=r"pip install 'equimetric\[tuning\]', or choose search.kind = 'random'"):
        propose(SPACE, tried, SearchConfig(trials=60), "row")
