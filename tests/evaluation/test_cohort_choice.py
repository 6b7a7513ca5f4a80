"""Which cohort, form and strength validation classes choose, and what a cohort changes."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import equimetric as em
from equimetric.errors import EquimetricWarning
from equimetric.evaluation import Cohort, choose_cohort, compare_cohort, threshold_consistency
from equimetric.evaluation.cohort_plots import plot_cohort

FAR = 0.05


def draw(classes, samples, seed, shared_length=2.0):
    """Half of the classes share a direction, so that their samples are close to each other."""
    generator = np.random.default_rng(seed)
    shared = np.random.default_rng(0).normal(size=8)
    centres = generator.normal(size=(classes, 8)) + shared_length * shared * (np.arange(classes) % 2)[:, None]
    labels = np.repeat(np.arange(classes), samples)
    return centres[labels] + 0.8 * generator.normal(size=(len(labels), 8)), labels + 100 * seed


@pytest.fixture
def spaces():
    return {"validation": draw(26, 4, 1), "train": draw(30, 3, 2)}


def tar(score, labels, far):
    """Share of positive pairs above the score that a share `far` of the negative ones exceeds."""
    first, second = np.triu_indices(len(labels), 1)
    same, values = labels[first] == labels[second], score[first, second]
    negative = np.sort(values[~same])[::-1]
    return (values[same] > negative[int(far * len(negative) + 1e-9)]).mean()


def scores(cohort, embeddings, labels):
    queries, items = cohort.extend(embeddings, labels)
    return (queries @ items.T).numpy()


def tar_without(score, labels, far, left_out):
    kept = labels != left_out
    return tar(score[np.ix_(kept, kept)], labels[kept], far)


def test_another_than_the_default_must_gain_more_than_a_standard_error_over_classes():
    """Rates and errors are those of the definition, each class left out with its own threshold."""
    (embeddings, labels), (train, train_labels) = draw(26, 4, 1, 4.0), draw(30, 3, 2, 4.0)
    candidates = {
        "half": Cohort(train[::2], train_labels[::2], nearest=9),
        "all": Cohort(train, train_labels, nearest=9),
    }
    choice = choose_cohort(embeddings, labels, candidates, far=FAR)
    tried = {(trial.cohort, trial.form, trial.strength): trial for trial in choice.trials}
    assert len(tried) == len(choice.trials) == 1 + 2 * 5
    assert choice.default is tried["half", "mean", 0.5]
    base = scores(replace(candidates["half"], strength=0.5), embeddings, labels)
    passed = {}
    for (name, form, strength), trial in tried.items():
        score = scores(replace(candidates[name], strength=strength, form=form), embeddings, labels)
        assert trial.tar == pytest.approx(tar(score, labels, FAR), abs=1e-12)
        gains = [tar_without(score, labels, FAR, c) - tar_without(base, labels, FAR, c) for c in np.unique(labels)]
        if trial is choice.default:
            assert (trial.error, max(gains)) == (0, 0)
            continue
        error = np.sqrt((len(gains) - 1) * np.var(gains))
        assert trial.error == pytest.approx(error, rel=1e-9)
        if trial.tar - choice.default.tar > trial.error:
            passed[name, form, strength] = trial.tar
    assert passed  # otherwise nothing is tested
    assert len(passed) < sum(trial.tar > choice.default.tar for trial in choice.trials)
    assert choice.best is tried[max(passed, key=passed.get)]
    assert (choice.cohort.strength, choice.cohort.form) == (choice.best.strength, choice.best.form)
    metric = f"tar@far={FAR}"
    assert em.evaluate(embeddings, labels, metrics=[metric], cohort=choice.cohort)[metric] == choice.best.tar
    assert repr(choice).count("chosen") == repr(choice).count("  default") == 1
    assert len(repr(choice).splitlines()) == 13


@pytest.mark.parametrize("labelled", [True, False])
def test_a_cohort_of_what_it_is_chosen_on_is_refused(spaces, labelled):
    (embeddings, labels), (train, train_labels) = spaces["validation"], spaces["train"]
    both = np.concatenate([train, embeddings]), np.concatenate([train_labels, labels])
    for vectors, classes in ((embeddings, labels), both):
        cohort = Cohort(vectors * 3, classes if labelled else None, nearest=9)
        expected = "26 classes of the cohort 'own' are validation classes, such as 100"
        if not labelled:
            expected = "104 of 104 validation embeddings are in the cohort 'own'"
        with pytest.raises(em.EquimetricError, match=expected):
            choose_cohort(embeddings, labels, {"train": Cohort(train), "own": cohort}, far=FAR)
    # One image of a hundred in two classes is no contamination.
    choose_cohort(
        embeddings, labels, {"train": Cohort(np.concatenate([np.repeat(train, 2, 0), embeddings[:1]]))}, far=FAR
    )


def test_equal_rates_leave_the_default():
    """With one sample for all of the cohort every m is the same, and no order changes."""
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.eye(6, dtype=torch.float64).repeat_interleave(5, 0)
    embeddings = embeddings + 0.1 * torch.randn(30, 6, generator=generator, dtype=torch.float64)
    labels = torch.arange(6).repeat_interleave(5)
    choice = choose_cohort(embeddings, labels, {"far away": Cohort(torch.ones(3, 6, dtype=torch.float64))}, far=0.1)
    assert {trial.tar for trial in choice.trials} == {1.0}
    assert choice.best is choice.default
    assert choice.best.strength == choice.cohort.strength == 0.5


def test_what_is_given_is_not_chosen(spaces):
    embeddings, labels = spaces["validation"]
    candidates = {"train": Cohort(spaces["train"][0])}
    choice = choose_cohort(embeddings, labels, candidates, strengths=(0, 1), forms=("mean",))
    assert [(trial.form, trial.strength) for trial in choice.trials] == [("mean", 0), ("mean", 1)]
    choice = choose_cohort(embeddings, labels, candidates, strengths=(0.5,), forms=("full",))
    assert [(trial.form, trial.strength) for trial in choice.trials] == [("full", 1)]


def test_errors_and_the_warning_are_one_sentence(spaces):
    embeddings, labels = spaces["validation"]
    with pytest.raises(em.EquimetricError, match="there is nothing to choose from"):
        choose_cohort(embeddings, labels, {})
    with pytest.raises(em.EquimetricError, match="the false accept rate 2 is not between"):
        choose_cohort(embeddings, labels, {"train": Cohort(spaces["train"][0])}, far=2)
    few = {"train": Cohort(spaces["train"][0][:30], spaces["train"][1][:30], nearest=9)}
    with pytest.warns(EquimetricWarning, match="the cohort has 10 classes; with fewer than 25"):
        choose_cohort(embeddings, labels, few, strengths=(1,), forms=("mean",), far=FAR)


def test_the_effect_is_that_of_the_scores_with_and_without(spaces):
    embeddings, labels = spaces["validation"]
    cohort = Cohort(spaces["train"][0], strength=1.0, nearest=9)
    effect = compare_cohort(embeddings, labels, cohort=cohort, far=FAR)
    for strength, found in ((0.0, effect.plain), (1.0, effect.normalized)):
        used = Cohort(spaces["train"][0], strength=strength, nearest=9)
        queries, items = used.extend(embeddings)
        score = (queries @ items.T).numpy()
        assert found.tar == pytest.approx(tar(score, labels, FAR), abs=1e-12)
        accepted = score > found.score
        for number, label in enumerate(np.unique(labels)):
            rate = accepted[labels == label][:, labels != label].mean()
            assert found.class_far[number] == pytest.approx(rate, abs=1e-12)
        assert found.consistency.opis == threshold_consistency(embeddings, labels, cohort=used).opis
    assert effect.normalized.tar > effect.plain.tar
    assert "worst class FAR" in repr(effect)


def test_the_figure_shows_both(spaces):
    embeddings, labels = spaces["validation"]
    effect = compare_cohort(embeddings, labels, cohort=Cohort(spaces["train"][0], strength=1.0), far=FAR)
    figure = plot_cohort(effect)
    titles = [axes.get_title() for axes in figure.axes[:2]]
    assert titles == [
        f"plain cosine: TAR {effect.plain.tar:.1%} at FAR 0.05",
        f"normalised by the cohort: TAR {effect.normalized.tar:.1%} at FAR 0.05",
    ]
    heights = np.array([bar.get_height() for bar in figure.axes[1].patches])
    np.testing.assert_allclose(heights, np.sort(effect.normalized.class_far))
