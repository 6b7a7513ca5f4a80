"""Verdicts of a whole table, letters and ranks, and their sentences."""

import itertools
import re

import numpy as np
import pytest

from equimetric.errors import EquimetricError
from equimetric.seeding import derive_seed
from equimetric.studies.statistics import (
    ClassScores,
    RowComparisons,
    Unit,
    compact_letters,
    compare_rows,
    comparison_notes,
    possible_ranks,
    tied_groups,
    two_way_difference,
    verdict_sentence,
)


def table(gains, seed=0, n=10, c=40, spread=1.0):
    """Rows with these true scores in points above 50; seeds, classes and cells vary by about `spread` points."""
    rng = np.random.default_rng(seed)
    difficulty = rng.normal(50, 15, c)
    return {
        name: ClassScores(
            (difficulty + gain + spread * (rng.normal(0, 0.3, (n, 1)) + rng.normal(0, 2, c) + rng.normal(0, 2, (n, c))))
            / 100,
            seeds=range(n),
        )
        for name, gain in gains.items()
    }


GAINS = {"triplet": 4.0, "margin": 9.0, "contrastive": 9.2, "arcface": 2.0}


@pytest.fixture(scope="module")
def found() -> RowComparisons:
    return compare_rows(table(GAINS))


def test_all_pairs_are_compared_the_better_score_first(found):
    assert len(found.comparisons) == 6
    assert list(found.rows) == sorted(found.rows, key=lambda name: -found.rows[name].mean)
    assert all(one.interval.mean > 0 for one in found.comparisons)
    assert {one.comparisons for one in found.comparisons} == {6}


def test_every_interval_has_the_confidence_at_which_all_hold_together(found):
    rows = table({f"row {i}": 0.35 * i for i in range(8)})
    crowded = compare_rows(rows, equivalence_margin=0)
    assert {one.verdict for one in crowded.comparisons} == {"better", "undecided"}
    for one in (*crowded.comparisons, *found.comparisons):
        assert one.simultaneous == one.interval.at(1 - 0.05 / one.comparisons)
        assert one.simultaneous.low <= one.low <= one.interval.mean <= one.high <= one.simultaneous.high
        if one.verdict == "better" and one.simultaneous.low > 0:
            assert one.interval.p_value < 0.05 / one.comparisons
    wider = compare_rows(rows, comparisons=1000)
    assert wider.comparisons[0].simultaneous.confidence == pytest.approx(1 - 0.05 / 1000)


@pytest.mark.parametrize("seed", range(30))
def test_better_is_transitive_and_never_among_equals(seed):
    rng = np.random.default_rng(seed)
    c = 25
    rows = {}
    for i in range(6):
        n = int(rng.choice([2, 3, 3, 3]))
        by_class = 55 + rng.uniform(0, 6) + rng.normal(0, rng.choice([0.2, 4.0]), c)
        noise = rng.normal(0, rng.choice([0.1, 1.0]), (n, 1)) + rng.normal(0, rng.choice([0.2, 3.0]), (n, c))
        rows[f"row {i}"] = ClassScores((by_class + noise) / 100, seeds=range(n))
    found = compare_rows(rows, equivalence_margin=0.01)
    verdict = {pair: found.between(*pair).verdict for pair in itertools.permutations(rows, 2)}
    for x, y, z in itertools.permutations(rows, 3):
        if verdict[x, y] == verdict[y, z] == "better":
            assert verdict[x, z] == "better"
        if verdict[x, y] == "better":
            assert rows[x].mean > rows[y].mean


def test_a_pair_reads_both_ways(found):
    one, other = found.between("margin", "triplet"), found.between("triplet", "margin")
    assert (one.verdict, other.verdict) == ("better", "worse")
    assert (one.first, other.first, other.interval.low) == ("margin", "triplet", -one.interval.high)
    assert other.effect.standardized == -one.effect.standardized < 0
    assert one.beyond_margin
    assert other.beyond_margin


def test_letters_ranks_and_ties(found):
    assert set(found.tied_with_best) == {"margin", "contrastive"}
    marks = found.letters
    assert marks["margin"] == marks["contrastive"] == "a"
    assert (marks["triplet"], marks["arcface"]) == ("b", "c")
    assert found.rank_intervals == {"margin": (1, 2), "contrastive": (1, 2), "triplet": (3, 3), "arcface": (4, 4)}


def test_some_rows_alone_have_the_same_statements(found):
    some = found.among(["triplet", "margin"])
    assert list(some.rows) == ["margin", "triplet"]
    assert some.comparisons == (found.between("margin", "triplet"),)
    assert some.tied_with_best == ("margin",)
    with pytest.raises(EquimetricError, match="not compared with itself"):
        found.between("margin", "margin")


def test_lower_may_be_better():
    found = compare_rows(table(GAINS), higher_is_better=False)
    assert found.best == "arcface"
    one = found.between("arcface", "triplet")
    assert (one.verdict, one.interval.mean < 0) == ("better", True)
    assert "arcface is better than triplet by" in verdict_sentence(one)
    assert found.rank_intervals["arcface"] == (1, 1)


def test_practically_equal_rows_share_a_letter():
    found = compare_rows(table({"a": 0.0, "b": 0.2}, spread=0.05))
    (one,) = found.comparisons
    assert (one.verdict, one.simultaneous.low > 0) == ("practically equal", True)
    assert found.letters == {"b": "a", "a": "a"}
    assert found.rank_intervals == {"b": (1, 2), "a": (1, 2)}
    assert verdict_sentence(one).endswith("The sign is certain, but so small a difference does not matter.")


def test_rows_of_one_seed_claim_nothing_and_do_not_count():
    rows = table({"a": 0.0, "b": 10.0, "c": 20.0})
    alone = compare_rows({name: rows[name] for name in "ab"})
    with_one = compare_rows({**{name: rows[name] for name in "ab"}, "c": rows["c"].select(seeds=[0])})
    assert with_one.between("a", "b").low == alone.between("a", "b").low
    assert with_one.between("c", "a").high == np.inf
    assert with_one.between("c", "a").verdict == "undecided"
    told = verdict_sentence(with_one.between("c", "a"))
    assert "points. One seed does not tell how much seeds matter: run two or more." in told
    assert comparison_notes(with_one)[1].startswith("The statement holds with 95 % confidence;")
    nothing = compare_rows({name: row.select(seeds=[0]) for name, row in rows.items()})
    assert comparison_notes(nothing) == (
        "No pair of rows can be told apart: one seed does not tell how much seeds matter; run two or more.",
    )


def test_rows_without_seeds_are_compared_by_class():
    rows = table({"a": 0.0, "b": 10.0})
    rows["raw"] = ClassScores(rows["a"].values[:1] - 0.2, seeds=None)
    found = compare_rows(rows)
    assert found.between("b", "raw").verdict == "better"
    assert found.rows["raw"].basis == "40 classes only: there are no seeds"


def test_sentences(found):
    better = verdict_sentence(found.between("margin", "arcface"))
    assert better.startswith("margin is better than arcface by 6.")
    assert better.endswith("), clearly above the 0.50-point threshold that matters.")
    assert verdict_sentence(found.between("arcface", "margin")).startswith("arcface is worse than margin by 6.")
    undecided = verdict_sentence(found.between("margin", "contrastive"))
    assert undecided.startswith("margin and contrastive cannot be told apart: ")
    assert "More seeds do not help, the classes limit it" in undecided
    near = verdict_sentence(compare_rows(table({"a": 0.0, "b": 1.0}, spread=0.4)).comparisons[0])
    assert near.endswith(", possibly below the 0.50-point threshold that matters.")
    unscaled = verdict_sentence(found.between("margin", "arcface"), Unit(1.0, 3, ""))
    assert unscaled.startswith("margin is better than arcface by 0.066 (0.053 to 0.079)")
    assert unscaled.endswith(", clearly above the 0.005 threshold that matters.")
    equal = verdict_sentence(compare_rows(table({"a": 0.0, "b": 0.05}, spread=0.1)).comparisons[0])
    assert equal.endswith(") is within ± 0.50.")


def test_notes_say_what_the_table_can_tell(found):
    estimand, together, detected = comparison_notes(found)
    assert estimand == "Intervals are for new seeds and new classes: 10 seeds × 40 classes."
    assert together == (
        "All statements hold together with 95 % confidence: those on all 6 pairs of rows; differences within ± 0.50 "
        "points count as practically equal."
    )
    by_two = comparison_notes(found, by=("map@r", "recall@1"))[1]
    assert "those on all 6 pairs of rows by map@r and recall@1;" in by_two
    assert detected.startswith("Smallest difference detectable with 80 % power: 1.")
    assert re.search(r" points \(median\); 1\.\d\d as one of 6 comparisons\.$", detected)
    raw = {name: ClassScores(row.values[:1], seeds=None) for name, row in table({"a": 0.0, "b": 3.0}).items()}
    notes = comparison_notes(compare_rows(raw))
    assert notes[0] == "Intervals are for new seeds and new classes: 40 classes only: there are no seeds."
    assert len(notes) == 3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: compare_rows(table({"a": 0.0})), "at least two rows"),
        (lambda: compare_rows(table(GAINS)).between("tripelt", "margin"), "unknown row 'tripelt'; did you mean 'tripl"),
        (lambda: compare_rows(table(GAINS)).between("margin", "x"), "unknown row 'x'"),
        (lambda: compare_rows(table(GAINS), confidence=95), "confidence is 95"),
    ],
)
def test_invalid_tables_raise_an_error(call, message):
    with pytest.raises(EquimetricError, match=message):
        call()


def test_letters_of_a_chain():
    # b is tied with both neighbours, which differ.
    assert compact_letters("abc", [("a", "c")]) == {"a": "a", "b": "ab", "c": "b"}
    assert compact_letters("abc", []) == {"a": "a", "b": "a", "c": "a"}
    assert compact_letters("abc", itertools.combinations("abc", 2)) == {"a": "a", "b": "b", "c": "c"}
    many = [f"row {i}" for i in range(60)]
    assert list(compact_letters(many, itertools.combinations(many, 2)).values())[51:53] == ["Z", "a′"]


@pytest.mark.parametrize("seed", range(20))
def test_rows_share_a_group_exactly_if_they_are_not_different(seed):
    rng = np.random.default_rng(seed)
    names = [f"row {i}" for i in range(9)]
    different = [pair for pair in itertools.combinations(names, 2) if rng.random() < 0.5]
    groups = tied_groups(names, different)
    for pair in itertools.combinations(names, 2):
        assert any(set(pair) <= set(group) for group in groups) == (pair not in different)
    assert set().union(*groups) == set(names)


def test_letters_of_many_rows_come_at_once():
    """Forty pairs of rows that differ have 2^40 largest groups."""
    names = [f"row {i}" for i in range(80)]
    different = list(itertools.pairwise(names))[::2]
    groups = tied_groups(names, different)
    assert len(groups) <= len(names)
    for pair in itertools.combinations(names, 2):
        assert any(set(pair) <= set(group) for group in groups) == (pair not in different)


def test_possible_ranks():
    assert possible_ranks("abc", [("a", "c")]) == {"a": (1, 2), "b": (1, 3), "c": (2, 3)}


def errors(gains, margin, repetitions):
    """Shares of tables with a wrong better or worse, and with a wrong practically equal."""
    wrong = np.zeros(2)
    for repetition in range(repetitions):
        rows = table(gains, seed=derive_seed("errors", repetition), n=5, c=20)
        verdicts = compare_rows(rows, equivalence_margin=margin).comparisons
        truth = {one: gains[one.first] - gains[one.second] for one in verdicts}
        wrong[0] += any(
            (one.verdict == "better" and gain <= 0) or (one.verdict == "worse" and gain >= 0)
            for one, gain in truth.items()
        )
        wrong[1] += any(one.verdict == "practically equal" and abs(gain) > 100 * margin for one, gain in truth.items())
    return wrong / repetitions


def test_few_tables_of_equal_rows_call_one_better():
    direction, _ = errors(dict.fromkeys("abcdef", 0.0), 0.005, 150)
    assert direction <= 0.09


@pytest.mark.slow
def test_wrong_verdicts_are_rare_in_whole_tables():
    direction, _ = errors(dict.fromkeys("abcdef", 0.0), 0.005, 2000)
    assert direction <= 0.05
    gains = {"a": 0.0, "b": 2.1, "c": 4.2, "d": 6.3, "e": 8.4}
    direction, equality = errors(gains, 0.02, 2000)
    assert direction <= 0.05
    assert equality <= 0.05


def test_a_table_of_two_is_a_single_comparison():
    rows = table({"a": 0.0, "b": 1.0})
    (one,) = compare_rows(rows).comparisons
    assert one.interval == one.simultaneous == two_way_difference(rows[one.first], rows[one.second])
    assert one.minimum_detectable > one.interval.half_width
