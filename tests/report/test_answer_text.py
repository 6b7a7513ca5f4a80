"""What the top of the page says: the best, ties, what it would take, baselines, unfinished runs."""

from dataclasses import replace

import numpy as np
import pytest

from equimetric.report.answer_text import answer, join_names, missing_runs_sentence
from equimetric.report.section import SECTIONS, render_section
from equimetric.studies.judgement import judge_study
from equimetric.studies.outcomes import ClassList
from equimetric.studies.table import comparison_table

CLASSES = ClassList(tuple(range(12)), tuple(f"class {k}" for k in range(12)), (2,) * 12)


@pytest.fixture
def measured(run, study_of):
    """A study of methods by their means; noise is that of each class and seed."""

    def build(means, noise=0.002, baselines=None, seeds=3):
        generator = np.random.default_rng(0)

        def one(method, seed, mean, **changes):
            scores = mean + generator.normal(0, noise, 12)
            fields = {"metrics": {"map@r": float(scores.mean())}, "per_class": {"map@r": scores}, "classes": CLASSES}
            return run(method, seed, **fields, **changes)

        trained = [one(method, seed, mean) for method, mean in means.items() for seed in range(seeds)]
        others = [one(method, 0, mean, kind="baseline") for method, mean in (baselines or {}).items()]
        return study_of(*trained, *others)

    return build


def sentences(study):
    return answer(study, comparison_table(study), judge_study(study).methods)


def test_one_best_method(measured):
    first, count, baseline = sentences(measured({"a": 0.5, "b": 0.4, "c": 0.3}, baselines={"raw": 0.1}))
    assert first.startswith("a is better than both other methods: its map@r is ")
    assert count == "All 3 pairs of methods can be told apart."
    assert baseline.startswith("All methods are better than raw (10.")


def test_practically_equal_methods_are_told_from_undecided_ones(measured):
    (first,) = sentences(measured({"a": 0.501, "b": 0.500}, noise=0.0005))
    assert "; b (50.0" in first
    assert "is practically equal to it (within ± 0.5" in first
    assert "cannot be told apart" not in first
    first, needed = sentences(measured({"a": 0.51, "b": 0.5}, noise=0.05))
    assert "cannot be told apart from it; none is worse." in first
    assert needed.startswith("If the difference stays this size, ")
    assert needed.endswith(f" would settle the undecided comparison with {first.split()[0]}.")


def test_baselines_are_judged_and_not_compared_by_their_means(measured):
    *_, sentence = sentences(measured({"a": 0.5, "b": 0.305, "c": 0.1}, noise=0.03, baselines={"raw": 0.3}))
    assert sentence.startswith("1 of 3 methods is better than raw (")
    assert "b cannot be told apart from it" in sentence
    assert sentence.endswith("c is worse.")


def test_an_unfinished_study_says_what_is_missing(measured):
    study = measured({"a": 0.5, "b": 0.4})
    assert missing_runs_sentence(study) == ""
    assert missing_runs_sentence(replace(study, planned={"a": 3, "b": 3})) == ""
    unfinished = replace(study, planned={"a": 3, "b": 5, "c": 3})
    assert missing_runs_sentence(unfinished) == "5 of 11 runs have not finished (b 2 and c 3)."
    assert "Unfinished: 5 of 11 runs" in render_section(SECTIONS["answer"], unfinished).body
    assert "5 of 11 runs have not finished" in render_section(SECTIONS["failures"], unfinished).body
    assert "Unfinished" not in render_section(SECTIONS["answer"], study).body


def test_a_list_of_names_leaves_out_two_or_more():
    assert join_names("abcdefghi") == "a, b, c, d, e, f, g, h and i"
    assert join_names("abcdefghij") == "a, b, c, d, e, f, g, h and 2 others"
