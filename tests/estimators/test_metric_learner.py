"""`MetricLearner` keeps the contract of scikit-learn, learns, and decides by a threshold of held-out classes."""

import pickle
import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import SkipTestWarning
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import estimator_checks_generator

import equimetric as em
from equimetric.errors import EquimetricError


def clusters(classes=40, samples=8, dimension=20, seed=0, dtype=np.float64):
    """Classes that differ in a quarter of the dimensions, under noise that is larger in the others."""
    random = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), samples)
    centres = np.zeros((classes, dimension))
    centres[:, : dimension // 4] = random.normal(size=(classes, dimension // 4))
    noise = random.normal(size=(len(labels), dimension)) * np.where(np.arange(dimension) < dimension // 4, 0.3, 2)
    return (centres[labels] + noise).astype(dtype), labels


def checks():
    estimator = em.MetricLearner(steps=5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkipTestWarning)
        return list(estimator_checks_generator(estimator))


@pytest.mark.parametrize(("estimator", "check"), [pytest.param(*pair, id=pair[1].func.__name__) for pair in checks()])
def test_the_checks_of_scikit_learn(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkipTestWarning)
        check(estimator)


def test_it_learns_what_distinguishes_new_classes():
    vectors, labels = clusters()
    train, test = labels < 30, labels >= 30
    before = em.evaluate(vectors[test], labels[test], metrics=["map@r"])["map@r"]
    learner = em.MetricLearner(random_state=1, calibration=0).fit(vectors[train], labels[train])
    assert learner.score(vectors[test], labels[test]) > before + 0.3


@pytest.mark.parametrize(
    ("objective", "options"),
    [
        ("triplet_semihard", {"margin": 0.1}),
        ("arcface", {"scale": 16.0}),
        ("contrastive+tcm", None),
        ("margin_class", None),
        ("softtriple", {"per_class": 2}),
        ("xbm", {"size": 64, "start_iteration": 5}),
        ("dynamic_soft_margin", None),
        ("softmax", None),
    ],
)
def test_any_objective_by_name(objective, options):
    vectors, labels = clusters(classes=12)
    learner = em.MetricLearner(objective, options=options, steps=20, n_components=6).fit(vectors, labels)
    assert learner.transform(vectors).shape == (len(vectors), 6)
    assert learner.score(vectors, labels) > 0.1


def test_an_objective_of_ones_own_is_copied():
    vectors, labels = clusters(classes=6)
    own = em.objective("arcface", classes=6, dim=4)
    before = pickle.dumps(own.state_dict())
    learner = em.MetricLearner(own, n_components=4, steps=5).fit(vectors, labels)
    assert pickle.dumps(own.state_dict()) == before
    assert not torch.equal(learner.objective_.references.weight, own.references.weight)


def test_embeddings_have_unit_length_unless_the_objective_compares_raw_vectors():
    vectors, labels = clusters(classes=6)
    unit = em.MetricLearner(steps=5).fit(vectors, labels).transform(vectors)
    raw = em.MetricLearner("npairs", options={"normalize": False}, steps=5).fit(vectors, labels).transform(vectors)
    assert np.allclose(np.linalg.norm(unit, axis=1), 1)
    assert not np.allclose(np.linalg.norm(raw, axis=1), 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_same_seed_gives_the_same_embeddings_and_leaves_torch_alone(dtype):
    vectors, labels = clusters(classes=8, dtype=dtype)
    state = torch.get_rng_state()
    first, second, third = (
        em.MetricLearner("margin", steps=10, hidden=(16,), random_state=seed).fit(vectors, labels).transform(vectors)
        for seed in (3, 3, 4)
    )
    assert np.array_equal(first, second)
    assert not np.allclose(first, third)
    assert first.dtype == dtype
    assert torch.equal(torch.get_rng_state(), state)


def test_names_of_classes_may_be_text():
    vectors, labels = clusters(classes=6)
    names = np.array([f"kind {label}" for label in labels])
    learner = em.MetricLearner(steps=5).fit(vectors, names)
    assert np.array_equal(learner.transform(vectors), em.MetricLearner(steps=5).fit(vectors, labels).transform(vectors))
    assert learner.score(vectors, names) == learner.score(vectors, labels)


def test_the_threshold_is_that_of_held_out_classes():
    vectors, labels = clusters(classes=60, samples=10)
    known, new = labels < 48, labels >= 48
    learner = em.MetricLearner(far=0.05, random_state=2).fit(vectors[known], labels[known])
    assert len(learner.held_out_classes_) == 12
    assert learner.calibration_.threshold == learner.threshold_
    assert learner.calibration_.fitted.far <= 0.05
    random = np.random.default_rng(0)
    first, second = random.integers(0, new.sum(), (2, 4000))
    pairs, classes = vectors[new], labels[new]
    same = learner.same(pairs[first], pairs[second])
    equal, different = (classes[first] == classes[second]) & (first != second), classes[first] != classes[second]
    assert same[different].mean() < 0.12
    assert same[equal].mean() > 0.6


def test_without_enough_classes_the_threshold_is_of_the_training_classes_and_says_so():
    vectors, labels = clusters(classes=6)
    learner = em.MetricLearner(steps=20).fit(vectors, labels)
    assert not len(learner.held_out_classes_)
    assert learner.calibration_ is None
    with pytest.warns(em.EquimetricWarning, match="training classes"):
        same = learner.same(vectors[:8], vectors[1:9])
    assert same.dtype == bool


def test_in_a_pipeline_and_a_search():
    vectors, labels = load_digits(return_X_y=True)
    vectors, labels = vectors[:300], labels[:300]
    pipeline = make_pipeline(em.MetricLearner(steps=50, n_components=8), KNeighborsClassifier(3))
    assert pipeline.fit(vectors[:200], labels[:200]).score(vectors[200:], labels[200:]) > 0.8
    search = GridSearchCV(em.MetricLearner(steps=5), {"objective": ["triplet", "supcon"]}, cv=2).fit(vectors, labels)
    assert search.best_params_["objective"] in ("triplet", "supcon")
    assert list(search.best_estimator_.get_feature_names_out()[:2]) == [
        "metriclearner0",
        "metriclearner1",
    ]


def test_copies_embed_alike():
    vectors, labels = clusters(classes=6)
    learner = em.MetricLearner(steps=5).fit(vectors, labels)
    again = pickle.loads(pickle.dumps(learner))
    assert np.array_equal(again.transform(vectors), learner.transform(vectors))
    assert np.array_equal(clone(learner).fit(vectors, labels).transform(vectors), learner.transform(vectors))


def test_what_cannot_be_learned_raises_an_error():
    vectors, labels = clusters(classes=6)
    for arguments, match in (
        (em.MetricLearner("tripletx"), "triplet"),
        (em.MetricLearner(options={"alfa": 1}), "alpha"),
        (em.MetricLearner(lambda pairs: pairs), "em.objective"),
        (em.MetricLearner(em.objective("triplet"), options={"margin": 1}), "made already"),
        (em.MetricLearner(steps=0), "steps"),
        (em.MetricLearner(calibration=1.5), "calibration"),
        (em.MetricLearner(far=2.0), "far"),
    ):
        with pytest.raises(EquimetricError, match=match):
            arguments.fit(vectors, labels)
    with pytest.raises(EquimetricError, match="two classes"):
        em.MetricLearner().fit(vectors, np.zeros(len(vectors), int))
    with pytest.raises(EquimetricError, match="pairs of rows"):
        em.MetricLearner(steps=2).fit(vectors, labels).same(vectors[:3], vectors[:2])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"options": [1]}, r"options are \[1\]; give a dict"),
        ({"options": {1: 2}}, "give a dict of names and values"),
        ({"hidden": 8}, "hidden is 8; give the widths of the layers"),
        ({"hidden": "a"}, "hidden is 'a'"),
        ({"hidden": (16, 0)}, r"hidden is \(16, 0\)"),
        ({"hidden": (True,)}, "hidden is"),
        ({"lr": "a"}, "lr must be a number above 0, got 'a'"),
        ({"lr": -1}, "lr must be a number above 0, got -1"),
        ({"lr": float("nan")}, "lr must be a number above 0, got nan"),
        ({"objective_lr": 0}, "objective_lr must be a number above 0"),
        ({"weight_decay": -1}, "weight_decay must be a number of 0 or more"),
        ({"calibration": "a"}, "calibration must be a number, got 'a'"),
        ({"calibration": 1}, "calibration is 1; give a share"),
        ({"far": "x"}, "far must be a number, got 'x'"),
        ({"far": 0}, "far is 0; give a false accept rate"),
        ({"n_components": 0}, "n_components must be a whole number of 1 or more or None, got 0"),
        ({"n_components": -1}, "n_components must be"),
        ({"n_components": 2.5}, "n_components must be"),
        ({"steps": 2.5}, "steps must be a whole number of 1 or more"),
        ({"classes": 0}, "classes must be a whole number of 1 or more"),
        ({"standardize": "no"}, "standardize must be True or False"),
        ({"metric": 3}, "metric must be a name"),
        ({"samples": 1}, "samples is 1, so that no batch has two rows of a class, which 'multi_similarity' compares"),
        ({"samples": 1, "objective": "contrastive+tcm"}, "which 'contrastive.tcm' compares; give 2 or more"),
        ({"samples": 1, "objective": "prototypical"}, "samples is 1"),
    ],
)
def test_parameters_of_the_wrong_kind_are_errors_of_fit(parameters, message):
    vectors, labels = clusters(classes=6)
    learner = em.MetricLearner(**{"steps": 2, **parameters})
    with pytest.raises(EquimetricError, match=message):
        learner.fit(vectors, labels)


@pytest.mark.parametrize(
    "parameters",
    [
        {"n_components": np.int64(3), "lr": np.float32(0.01), "steps": np.int64(2), "hidden": np.array([8, 4])},
        {"hidden": [np.int64(8)], "weight_decay": 0, "standardize": np.True_},
        {"samples": 1, "objective": "arcface"},
        {"samples": 1, "objective": "xbm"},
        {"samples": 1, "objective": "contrastive+softmax"},
        {"classes": 1000},
    ],
)
def test_numbers_of_numpy_and_small_batches_are_accepted(parameters):
    vectors, labels = clusters(classes=6)
    learner = em.MetricLearner(**{"steps": 2, **parameters}).fit(vectors, labels)
    assert learner.transform(vectors).shape == (len(vectors), parameters.get("n_components", 20))
