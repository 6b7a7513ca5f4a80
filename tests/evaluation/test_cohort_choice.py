"""Which cohort, form and strength validation classes choose, and what a cohort changes."""

import numpy as np
import pytest
import torch

import equimetric as em
from equimetric.errors import EquimetricWarning
from equimetric.evaluation import Cohort, choose_cohort, compare_cohort, threshold_consistency
from equimetric.evaluation.cohort_plots import plot_cohort

FAR = 0.05


def draw(classes, samples, seed):
    """Half of the classes share a direction, so that their samples are close to each other."""
    generator = np.random.default_rng(seed)
    shared = np.random.default_rng(0).normal(size=8)
    centres = generator.normal(size=(classes, 8)) + 2 * shared * (np.arange(classes) % 2)[:, None]
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


def test_the_largest_rate_wins_and_the_table_is_kept(spaces):
    (embeddings, labels), (train, train_labels) = spaces["validation"], spaces["train"]
    candidates = {
        "train": Cohort(train, nearest=9),
        "validation": Cohort(embeddings, labels, nearest=9),
        "both": Cohort(np.concatenate([train, embeddings]), np.concatenate([train_labels, labels]), nearest=9),
    }
    choice = choose_cohort(embeddings, labels, candidates, far=FAR)
    tried = {(trial.cohort, trial.form, trial.strength): trial.tar for trial in choice.trials}
    assert len(tried) == len(choice.trials) == 1 + 3 * 5
    for (name, form, strength), found in tried.items():
        cohort = Cohort(candidates[name].embeddings, candidates[name].labels, strength, 9, form)
        queries, items = cohort.extend(embeddings, labels)
        assert found == pytest.approx(tar((queries @ items.T).numpy(), labels, FAR), abs=1e-12)
    best = max(tried.values())
    assert choice.best.tar == best
    assert best > tried["train", "mean", 0.0]
    assert choice.best.strength == min(strength for (*_, strength), found in tried.items() if found == best)
    assert (choice.cohort.strength, choice.cohort.form) == (choice.best.strength, choice.best.form)
    metric = f"tar@far={FAR}"
    assert em.evaluate(embeddings, labels, metrics=[metric], cohort=choice.cohort)[metric] == pytest.approx(best)
    assert repr(choice).count("chosen") == 1
    assert len(repr(choice).splitlines()) == 18


def test_ties_go_to_the_smaller_strength():
    """With one sample for all of the cohort every m is the same, and no order changes."""
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.eye(6, dtype=torch.float64).repeat_interleave(5, 0)
    embeddings = embeddings + 0.1 * torch.randn(30, 6, generator=generator, dtype=torch.float64)
    labels = torch.arange(6).repeat_interleave(5)
    choice = choose_cohort(embeddings, labels, {"far away": Cohort(torch.ones(3, 6, dtype=torch.float64))}, far=0.1)
    assert {trial.tar for trial in choice.trials} == {1.0}
    assert choice.best.strength == choice.cohort.strength == 0


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
