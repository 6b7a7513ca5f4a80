"""The threshold that each class needs for a target rate."""

import json
from itertools import combinations

import numpy as np
import pytest

from equimetric.errors import EquimetricError
from equimetric.evaluation import ClassThresholds, class_thresholds, evaluate
from equimetric.evaluation.engine import binned_pairs
from equimetric.evaluation.engine import pair_distances as distances_module


def space(classes=7, images=9, seed=0, dimension=5):
    generator = np.random.default_rng(seed)
    labels = np.repeat([f"class {number}" for number in range(classes)], images)
    number = np.repeat(np.arange(classes), images)
    spread = np.linspace(0.3, 0.9, classes)[number, None]
    centres = generator.normal(size=(classes, dimension))
    return centres[number] + spread * generator.normal(size=(len(labels), dimension)), labels


def pairs_by_loops(embeddings, labels):
    """Class → its positive and its negative distances, ascending."""
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    found = {name: ([], []) for name in sorted(set(labels.tolist()))}
    for i, j in combinations(range(len(labels)), 2):
        distance = float(np.sqrt(((unit[i] - unit[j]) ** 2).sum()))
        for name in {labels[i], labels[j]}:
            found[name][int(labels[i] != labels[j])].append(distance)
    return {name: tuple(map(sorted, kinds)) for name, kinds in found.items()}


@pytest.mark.parametrize("far", [0.003, 0.01, 0.1, 0.5])
def test_far_of_every_class(far):
    embeddings, labels = space()
    found = class_thresholds(embeddings, labels, far=far)
    pairs = pairs_by_loops(embeddings, labels)
    for name, needed in zip(found.classes, found.needed, strict=True):
        negative = pairs[name][1]
        at_most = [t for t in negative if sum(d < t for d in negative) <= far * len(negative) + 1e-9]
        assert needed == pytest.approx(max(at_most), abs=1e-12)
    assert found.needed.tolist() == sorted(found.needed)
    every = sorted(d for _, negative in pairs.values() for d in negative)[::2]
    assert found.common == pytest.approx(every[int(far * len(every) + 1e-9)], abs=1e-12)
    assert found.gap == pytest.approx(np.sqrt(np.mean((found.needed - found.common) ** 2)))
    assert not found.possible_error.any()


@pytest.mark.parametrize("frr", [0.03, 0.1, 0.5])
def test_frr_of_every_class(frr):
    embeddings, labels = space()
    found = class_thresholds(embeddings, labels, frr=frr)
    pairs = pairs_by_loops(embeddings, labels)
    for name, needed, rate in zip(found.classes, found.needed, found.rates, strict=True):
        positive = pairs[name][0]
        enough = [t for t in positive if sum(d > t for d in positive) <= frr * len(positive) + 1e-9]
        assert needed == pytest.approx(min(enough), abs=1e-12)
        assert sum(d > needed + 1e-9 for d in positive) <= frr * len(positive)
        assert rate == pytest.approx(sum(d > found.common + 1e-9 for d in positive) / len(positive), abs=1e-12)
    # The widest class comes first: it is rejected most at the common threshold.
    assert found.needed.tolist() == sorted(found.needed, reverse=True)
    assert found.rates[0] > frr > found.rates[-1]
    every = sorted(d for positive, _ in pairs.values() for d in positive)
    assert sum(d > found.common + 1e-9 for d in every) <= frr * len(every)


@pytest.mark.parametrize("kept_positives", [2**22, 0])
@pytest.mark.parametrize("target", [{"far": 1e-3}, {"far": 0.02}, {"far": 0.3}, {"frr": 0.2}])
def test_bins_state_their_error(target, kept_positives, monkeypatch):
    embeddings, labels = space(25, 30, dimension=12)
    exact = class_thresholds(embeddings, labels, **target)
    monkeypatch.setattr(distances_module, "MAX_KEPT_PAIRS", 0)
    monkeypatch.setattr(binned_pairs, "POSITIVES_KEPT", kept_positives)
    binned = class_thresholds(embeddings, labels, block_rows=100, **target)
    place = {name: index for index, name in enumerate(binned.classes)}
    order = [place[name] for name in exact.classes]
    difference = np.abs(binned.needed[order] - exact.needed)
    assert (difference <= binned.possible_error[order] + 1e-6).all()
    assert binned.possible_error.max() < 0.01
    assert binned.common == pytest.approx(exact.common, abs=1e-3)


def test_as_a_metric():
    embeddings, labels = space()
    result = evaluate(embeddings, labels, metrics=["threshold_gap@far=0.05", "threshold_gap@frr=0.1", "opis"])
    direct = class_thresholds(embeddings, labels, far=0.05)
    found = result.detail(ClassThresholds, "threshold_gap@far=0.05")
    assert found.classes == direct.classes
    assert result["threshold_gap@far=0.05"] == pytest.approx(direct.gap, abs=1e-12)
    per_class = {name: scores["threshold_gap@far=0.05"] for name, scores in result.per_class.items()}
    assert per_class == pytest.approx(dict(zip(direct.classes, direct.needed, strict=True)))
    interval = result.interval("threshold_gap@far=0.05", draws=200)
    assert interval.low < direct.gap < interval.high
    summary = json.loads(json.dumps(direct.to_dict()))
    assert [row["class"] for row in summary["classes"]] == list(direct.classes)


def test_shown_worst_first_with_escaped_names():
    embeddings, labels = space(14)
    labels = np.where(labels == "class 13", "class \x1b[31m", labels)
    shown = repr(class_thresholds(embeddings, labels, frr=0.1))
    assert "\x1b" not in shown
    assert "and 4 more classes" in shown
    assert shown.splitlines()[2].split()[0] == "class"


@pytest.mark.parametrize(
    ("target", "message"),
    [({}, "either far or frr"), ({"far": 0.1, "frr": 0.1}, "either far or frr"), ({"far": 1.5}, "between 0 and 1")],
)
def test_invalid_rates(target, message):
    with pytest.raises(EquimetricError, match=message):
        class_thresholds(*space(), **target)
