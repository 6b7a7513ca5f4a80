"""How often studies without any difference claim one, and whether repeated studies contradict themselves."""

from itertools import combinations

import numpy as np
import pytest

from equimetric.seeding import derive_seed
from equimetric.studies.statistics import ClassScores, compare_rows

SPREADS = {
    # Over seeds of each method, in common, of cells, of a method over classes, in points; test classes.
    "characters": ((0.6, 0.8, 1.0, 1.2, 1.5), 0.5, 6.0, 4.0, 300),
    "photographs": ((0.25, 0.3, 0.35, 0.4, 0.45), 0.6, 2.7, 1.5, 40),
}


def draw(name, methods, seeds, generator, gains=None):
    """Rows of one study; without gains all have the same mean over classes in the long run."""
    spreads, common, cell, by_class, classes = SPREADS[name]
    level = generator.normal(60, 15, classes)
    effects = generator.normal(0, by_class, (methods + 1, classes))
    gains = np.zeros(methods + 1) if gains is None else np.asarray(gains)

    def study():
        shared = generator.normal(0, common, (seeds, 1))
        rows = {
            f"m{i}": ClassScores(
                level
                + gains[i]
                + effects[i]
                + shared
                + generator.normal(0, spreads[i % len(spreads)], (seeds, 1))
                + generator.normal(0, cell, (seeds, classes)),
                seeds=range(seeds),
            )
            for i in range(methods)
        }
        rows["raw"] = ClassScores((level + gains[-1] + effects[-1])[None], seeds=None)
        return rows

    return study


def verdicts(rows):
    found = compare_rows(rows, equivalence_margin=0.5)
    return {pair: found.between(*pair).verdict for pair in combinations(rows, 2)}


def rates(name, methods, seeds, repetitions):
    """Shares of studies that claim a difference where there is none, and that contradict their repetition."""
    generator = np.random.default_rng(derive_seed("repeated studies", name, methods, seeds))
    wrong = reversed_ = 0
    for _ in range(repetitions):
        study = draw(name, methods, seeds, generator)
        first, second = verdicts(study()), verdicts(study())
        wrong += bool({"better", "worse"} & set(first.values()))
        reversed_ += any({first[pair], second[pair]} == {"better", "worse"} for pair in first)
    return wrong / repetitions, reversed_ / repetitions


@pytest.mark.parametrize("seeds", [2, 3, 5])
@pytest.mark.parametrize(("name", "methods"), [("characters", 2), ("characters", 5), ("photographs", 5)])
def test_few_studies_claim_a_difference_that_is_not_there(name, methods, seeds):
    # 5 % and two standard errors of 80 repetitions; each pair for itself, with Satterthwaite and Holm, reaches 30 %.
    wrong, contradicted = rates(name, methods, seeds, 80)
    assert wrong <= 0.10
    assert contradicted <= 0.0125


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [2, 3, 5])
@pytest.mark.parametrize(("name", "methods"), [("characters", 2), ("characters", 5), ("photographs", 5)])
def test_few_of_many_studies_claim_a_difference_that_is_not_there(name, methods, seeds):
    wrong, contradicted = rates(name, methods, seeds, 1000)
    assert wrong <= 0.06
    assert contradicted <= 0.01


def test_most_verdicts_are_the_same_when_a_study_is_repeated():
    generator = np.random.default_rng(derive_seed("repeated studies", "gains"))
    same = []
    for _ in range(30):
        study = draw("characters", 5, 5, generator, gains=[0.0, 1.0, 3.0, 6.0, 8.5, -40.0])
        first, second = verdicts(study()), verdicts(study())
        assert {first[f"m{i}", "raw"] for i in range(5)} == {"better"}
        same.append(np.mean([first[pair] == second[pair] for pair in first]))
    assert np.mean(same) >= 0.85
