"""Identification with strangers: rates by definition, enrolment, ties, intervals, gallery sizes."""

import math
from collections import Counter

import numpy as np
import pytest
import torch

from equimetric.errors import EquimetricError
from equimetric.evaluation import Cohort, evaluate
from equimetric.evaluation.engine.inputs import prepare_sets
from equimetric.evaluation.identification import (
    IdentificationProtocol,
    evaluate_identification,
    gallery_size_curve,
)
from equimetric.evaluation.identification.draws import draw_galleries
from equimetric.evaluation.identification.jackknife import leave_one_class_out
from equimetric.evaluation.identification.scores import names_own


def make_space(classes=14, images=6, dimension=6, spread=0.8, seed=0):
    generator = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), images)
    centres = generator.normal(size=(classes, dimension))
    return centres[labels] + spread * generator.normal(size=(len(labels), dimension)), labels


def distance(x, y, geometry):
    if geometry == "cosine":
        x, y = x / math.sqrt(x @ x), y / math.sqrt(y @ y)
    return -float(x @ y) if geometry == "dot" else math.sqrt(float((x - y) @ (x - y)))


def name_by_definition(probe, gallery, by, k, geometry):
    """[(distance, identity named if all entries up to this one are accepted)] of a gallery [(vector, identity)]."""
    if by == "mean":
        unit = (lambda x: x / math.sqrt(x @ x)) if geometry == "cosine" else (lambda x: x)
        identities = sorted({identity for _, identity in gallery})
        gallery = [
            (np.mean([unit(vector) for vector, other in gallery if other == identity], axis=0), identity)
            for identity in identities
        ]
    ranked = sorted((distance(probe, vector, geometry), place, name) for place, (vector, name) in enumerate(gallery))
    ranked = ranked[: k if by == "nearest" else 1]
    found = []
    for j in range(1, len(ranked) + 1):
        votes = Counter(name for _, _, name in ranked[:j])
        most = max(votes.values())
        found.append((ranked[j - 1][0], next(name for _, _, name in ranked[:j] if votes[name] == most)))
    return found


def rates_by_definition(probes, gallery, threshold, by="item", k=5, geometry="cosine"):
    """(FPIR, FNIR) of probes [(vector, label, row)] in a gallery [(vector, label, row)], never against its own row."""
    accepted, strangers, missed, mated = 0, 0, 0, 0
    for vector, label, row in probes:
        others = [(item, name) for item, name, other in gallery if other != row]
        named = [name for far, name in name_by_definition(vector, others, by, k, geometry) if far < threshold]
        if label in {name for _, name in others}:
            mated, missed = mated + 1, missed + (not named or named[-1] != label)
        elif label not in {name for _, name, _ in gallery}:
            strangers, accepted = strangers + 1, accepted + bool(named)
    return accepted / strangers, missed / mated


def rows_of(embeddings, labels, which):
    return [(embeddings[row], labels[row], row) for row in which]


@pytest.mark.parametrize("geometry", ["cosine", "euclidean", "dot"])
@pytest.mark.parametrize("by", ["item", "mean", "nearest"])
def test_rates_of_a_given_gallery_by_definition(by, geometry):
    embeddings, labels = make_space(seed=3)
    in_gallery = (np.arange(len(labels)) % 6 < 3) & (labels < 9)
    probes = rows_of(embeddings, labels, np.flatnonzero(~in_gallery))
    gallery = rows_of(embeddings, labels, np.flatnonzero(in_gallery))
    given = embeddings[~in_gallery], labels[~in_gallery], embeddings[in_gallery], labels[in_gallery]
    found = evaluate_identification(*given, by=by, k=4, geometry=geometry, fpir=0.1, block_rows=7)
    assert (found.identities, found.repeats, found.items) == (9, 1, 27)
    for threshold in np.quantile(found.scores.distance[:, 0], [0.05, 0.2, 0.5, 0.7, 0.95]) + 1e-9:
        rates = found.at_threshold(threshold)
        assert (rates.fpir, rates.fnir) == pytest.approx(
            rates_by_definition(probes, gallery, threshold, by, 4, geometry), abs=1e-12
        )
        assert rates.rank1 == 1 - rates.fnir


@pytest.mark.parametrize("enrolled", [None, 1, 3])
@pytest.mark.parametrize("by", ["item", "mean", "nearest"])
def test_one_set_leaves_the_probe_and_the_strangers_out_of_the_gallery(by, enrolled):
    embeddings, labels = make_space(classes=8, images=5, seed=1)
    protocol = IdentificationProtocol(by=by, k=3, enrolled=enrolled, repeats=3, seed=5)
    found = evaluate_identification(embeddings, labels, by=by, k=3, enrolled=enrolled, repeats=3, seed=5, fpir=0.2)
    draws = draw_galleries(prepare_sets(embeddings, labels), protocol)
    # Just below a stranger's own distance, which the definition computes with other rounding.
    threshold = found.points[0].threshold - 1e-9
    wrong, searches = np.zeros(2), np.zeros(2)
    for draw in draws:
        gallery = rows_of(embeddings, labels, draw.items.tolist())
        enrolled_rows = set(draw.items.tolist()) if enrolled else set()
        probes = rows_of(embeddings, labels, [row for row in range(len(labels)) if row not in enrolled_rows])
        sizes = np.array([int(draw.stranger.sum()), int(draw.mated.sum())])
        wrong += sizes * rates_by_definition(probes, gallery, threshold, by, 3)
        searches += sizes
    rates = found.at_threshold(threshold)
    assert [rates.fpir, rates.fnir] == pytest.approx((wrong / searches).tolist(), abs=1e-12)
    assert (found.scores.strangers, found.scores.mated) == tuple(searches)


def test_draws_take_whole_classes_and_as_many_images_as_asked():
    embeddings, labels = make_space(classes=9, images=5)
    labels = np.concatenate([labels, [9, 9, 10]])
    embeddings = np.concatenate([embeddings, embeddings[:3] + 1])
    sets = prepare_sets(embeddings, labels)
    for draw in draw_galleries(sets, IdentificationProtocol(enrolled=3, strangers=0.4, repeats=6)):
        in_gallery = labels[draw.items.numpy()]
        strangers = set(labels[draw.stranger.numpy()])
        assert len(strangers) == 4
        assert not strangers & set(in_gallery)
        sizes = Counter(in_gallery.tolist())
        # Of two images one is enrolled and one is the probe; a single image is enrolled and never a probe.
        assert all(size == {9: 1, 10: 1}.get(name, 3) for name, size in sizes.items())
        mated = np.flatnonzero(draw.mated.numpy())
        assert not set(mated) & set(draw.items.tolist())
        assert Counter(labels[mated].tolist()) == {name: {9: 1}.get(name, 2) for name in sizes if name != 10}
    draws = draw_galleries(sets, IdentificationProtocol(repeats=6))
    assert len({tuple(draw.items.tolist()) for draw in draws}) > 1
    assert all(draw.mated.sum() + draw.stranger.sum() >= len(labels) - 1 for draw in draws)


def test_smaller_galleries_are_parts_of_larger_ones_with_the_same_strangers():
    sets = prepare_sets(*make_space(classes=12))
    for enrolled in (None, 2):
        protocol = IdentificationProtocol(enrolled=enrolled, repeats=4)
        for small, large in zip(draw_galleries(sets, protocol, 2), draw_galleries(sets, protocol, 5), strict=True):
            assert set(small.items.tolist()) < set(large.items.tolist())
            assert torch.equal(small.stranger, large.stranger)
            assert (small.identities, large.identities) == (2, 5)


def test_exact_ties_go_to_the_lower_index_whatever_the_tiles():
    gallery = np.array([[1.0, 0], [1, 0], [0, 1], [0, 1], [-1, 0]])
    names = np.array(["a", "b", "b", "a", "c"])
    probes, labels = np.array([[2.0, 0], [0, 3], [0.5, 0], [-1, 0]]), np.array(["a", "a", "b", "x"])
    for block_rows in (1, 2, None):
        found = evaluate_identification(probes, labels, gallery, names, fpir=0.5, block_rows=block_rows)
        # Probe 0: item 0, its own; probe 1: item 2, of b; probe 2: item 0, of a; the stranger: item 4.
        assert found.scores.named[found.scores.probe.argsort(), 0].tolist() == [True, False, False, False]
        assert found.at_threshold(1e-6).fnir == pytest.approx(2 / 3)
        assert found.at_threshold(1e-6).fpir == 1
        assert found.at_threshold(0).fpir == 0


def test_a_majority_changes_with_what_is_accepted():
    nearest = np.array([[1, 2, 2, 1, 1], [2, 1, -1, -1, -1]])
    assert names_own(nearest, np.array([1, 2])).tolist() == [
        [True, True, False, True, True],  # tie of 1 and 2 after two entries, and after four: the nearest is of 1
        [True, True, True, True, True],
    ]


def test_a_majority_of_more_items_than_there_are():
    embeddings, labels = make_space(classes=4, images=3, seed=6)
    embeddings, labels = embeddings[:-1], labels[:-1]
    found = evaluate_identification(embeddings, labels, by="nearest", k=50, repeats=6, fpir=0.3)
    assert found.scores.distance.shape[1] == 50
    protocol, threshold = IdentificationProtocol(by="nearest", k=50, repeats=6), 1.1
    wrong, searches = np.zeros(2), np.zeros(2)
    for draw in draw_galleries(prepare_sets(embeddings, labels), protocol):
        gallery, probes = (rows_of(embeddings, labels, rows) for rows in (draw.items.tolist(), range(len(labels))))
        sizes = np.array([int(draw.stranger.sum()), int(draw.mated.sum())])
        wrong += sizes * rates_by_definition(probes, gallery, threshold, "nearest", 50)
        searches += sizes
    rates = found.at_threshold(threshold)
    assert [rates.fpir, rates.fnir] == pytest.approx((wrong / searches).tolist(), abs=1e-12)
    assert rates.fpir_interval is None


def test_a_cohort_of_no_strength_changes_nothing():
    embeddings, labels = make_space(classes=12)
    others = np.random.default_rng(1).normal(size=(60, embeddings.shape[1]))
    plain = evaluate(embeddings, labels, metrics="fnir@fpir=0.1")
    same = evaluate(embeddings, labels, metrics="fnir@fpir=0.1", cohort=Cohort(others, strength=0.0))
    assert same["fnir@fpir=0.1"] == plain["fnir@fpir=0.1"]
    other = evaluate(embeddings, labels, metrics="fnir@fpir=0.1", cohort=Cohort(others, strength=1.0))
    assert other["fnir@fpir=0.1"] != plain["fnir@fpir=0.1"]


def test_tiles_threads_and_precision_do_not_matter(threads):
    embeddings, labels = make_space(classes=20, images=6, dimension=12, seed=2)
    for by in ("item", "mean", "nearest"):
        threads(1)
        whole = evaluate_identification(embeddings.astype(np.float32), labels, by=by, repeats=2)
        double = evaluate_identification(embeddings.astype(np.float32).astype(np.float64), labels, by=by, repeats=2)
        threads(2)
        parts = evaluate_identification(embeddings.astype(np.float32), labels, by=by, repeats=2, block_rows=50)
        assert whole.points == parts.points
        assert [point.fnir for point in double.points] == [point.fnir for point in whole.points]


def test_the_threshold_is_the_largest_with_the_wanted_rate():
    found = evaluate_identification(*make_space(classes=20), fpir=[0.02, 0.1, 0.5])
    for point in found.points:
        assert point.fpir <= point.target_fpir
        assert found.at_threshold(np.nextafter(point.threshold, 9)).fpir > point.target_fpir
    curve = found.curve()
    assert (np.diff(curve["fpir"]) >= 0).all()
    assert curve["fpir"][-1] == 1
    at = curve["threshold"][7]
    assert (curve["fpir"][7], curve["fnir"][7]) == (found.at_threshold(at).fpir, found.at_threshold(at).fnir)


@pytest.mark.parametrize("by", ["item", "mean"])
def test_deleting_a_class_equals_evaluating_without_it(by):
    """Both as probes and in the gallery, where its place goes to the next identity."""
    embeddings, labels = make_space(classes=8, images=5, seed=4)
    known = labels < 5
    gallery = known & (np.arange(len(labels)) % 5 < 3)

    def evaluate_without(missing):
        kept = labels != missing
        parts = [kept & ~gallery, kept & gallery]
        arrays = [part for which in parts for part in (embeddings[which], labels[which])]
        return evaluate_identification(*arrays, by=by, fpir=0.2)

    scores = evaluate_without(-1).scores
    thresholds = np.quantile(scores.distance[:, 0], [0.2, 0.5, 0.8])
    deleted = leave_one_class_out(scores, 8, thresholds)
    for missing in range(8):
        found = evaluate_without(missing)
        for place, threshold in enumerate(thresholds):
            rates = found.at_threshold(threshold)
            assert deleted.fpir[missing, place] == pytest.approx(rates.fpir, abs=1e-12)
            assert deleted.fnir[missing, place] == pytest.approx(rates.fnir, abs=1e-12)


def test_intervals_hold_the_rates():
    found = evaluate_identification(*make_space(classes=40, images=8, spread=0.6, dimension=10), fpir=0.05)
    point = found.points[0]
    assert point.fpir_interval[0] < point.fpir < point.fpir_interval[1]
    assert point.fnir_interval[0] < point.fnir < point.fnir_interval[1]
    assert found.at_threshold(0).fpir_interval is None


def test_metrics_of_evaluate_are_those_of_the_protocol():
    embeddings, labels = make_space(classes=20, images=6, dimension=10, spread=0.5)
    names = ["fnir@fpir=0.05", "rank1@fpir=0.05", "recall@1"]
    for options in ({}, {"by": "mean", "enrolled": 2, "repeats": 4, "seed": 3}):
        result = evaluate(embeddings, labels, metrics=names, identification=options)
        point = evaluate_identification(embeddings, labels, fpir=0.05, **options).points[0]
        assert result["fnir@fpir=0.05"] == point.fnir
        assert result["rank1@fpir=0.05"] == 1 - point.fnir
        interval = result.interval("fnir@fpir=0.05")
        assert interval.low < point.fnir < interval.high
        wide = point.fnir_interval[1] - point.fnir_interval[0]
        assert 0.6 < (interval.high - interval.low) / wide < 1.4
    assert f"{point.fnir:.2%}" in repr(result)
    details = {key: value for one in result.details["fnir@fpir=0.05"] for key, value in one.json_entries().items()}
    assert details["fnir@fpir=0.05 threshold"] == point.threshold
    assert details["fnir@fpir=0.05 identities"] == 10
    weighted = [result.per_class[name]["fnir@fpir=0.05"] for name in range(20)]
    assert np.isfinite(weighted).sum() >= 15


def test_queries_that_a_gallery_lacks_are_the_strangers_of_the_metrics():
    embeddings, labels = make_space(classes=10, images=6)
    in_gallery = (labels < 6) & (np.arange(60) % 2 == 0)
    given = embeddings[~in_gallery], labels[~in_gallery], embeddings[in_gallery], labels[in_gallery]
    found = evaluate_identification(*given, fpir=0.1)
    assert evaluate(*given, metrics="fnir@fpir=0.1")["fnir@fpir=0.1"] == found.points[0].fnir
    assert found.scores.different_strangers == found.scores.strangers == 24


def test_gallery_sizes_equal_direct_recomputation():
    embeddings, labels = make_space(classes=16, images=5, seed=7)
    for by in ("item", "mean", "nearest"):
        full = evaluate_identification(embeddings, labels, by=by, fpir=0.1, repeats=3)
        curve = gallery_size_curve(embeddings, labels, by=by, sizes=[1, 3, 8], fpir=0.1, repeats=3)
        assert [size.identities for size in curve.sizes] == [1, 3, 8]
        assert curve.threshold == full.points[0].threshold
        assert (curve.sizes[-1].fpir, curve.sizes[-1].fnir) == (full.points[0].fpir, full.points[0].fnir)
        # Just below a stranger's own distance, which the definition computes with other rounding.
        at = curve.threshold - 1e-9
        curve = gallery_size_curve(embeddings, labels, by=by, sizes=[1, 3, 8], threshold=at, repeats=3)
        sets, protocol = prepare_sets(embeddings, labels), IdentificationProtocol(by=by, repeats=3)
        for size in curve.sizes:
            wrong, searches = np.zeros(2), np.zeros(2)
            for draw in draw_galleries(sets, protocol, size.identities):
                gallery = rows_of(embeddings, labels, draw.items.tolist())
                probes = rows_of(embeddings, labels, (draw.mated | draw.stranger).nonzero().flatten().tolist())
                sizes = np.array([int(draw.stranger.sum()), int(draw.mated.sum())])
                wrong += sizes * rates_by_definition(probes, gallery, curve.threshold, by)
                searches += sizes
            assert [size.fpir, size.fnir] == pytest.approx((wrong / searches).tolist(), abs=1e-12)
        # One identity at a time: every stranger with every identity of its gallery.
        accepted, pairs = 0, 0
        for draw in draw_galleries(sets, protocol):
            for row in draw.stranger.nonzero().flatten().tolist():
                for identity in set(labels[draw.items].tolist()):
                    items = [(embeddings[i], identity) for i in draw.items.tolist() if labels[i] == identity]
                    far = name_by_definition(embeddings[row], items, by, 5, "cosine")[0][0]
                    accepted, pairs = accepted + (far < curve.threshold), pairs + 1
        assert curve.far == pytest.approx(accepted / pairs, abs=1e-12)
        assert curve.sizes[1].predicted == pytest.approx(1 - (1 - curve.far) ** 3)


def test_sizes_beyond_the_data_are_extrapolated_only_when_asked_and_marked():
    embeddings, labels = make_space(classes=60, images=6, dimension=8, seed=8)
    measured = gallery_size_curve(embeddings, labels, fpir=0.2)
    assert not any(size.extrapolated for size in measured.sizes)
    assert measured.growth is None
    assert measured.sizes[-1].identities == 30
    curve = gallery_size_curve(embeddings, labels, fpir=0.2, extrapolate=[60, 120])
    beyond = [size for size in curve.sizes if size.extrapolated]
    assert [size.identities for size in beyond] == [60, 120]
    assert curve.sizes[-3].fpir < beyond[0].fpir < beyond[1].fpir < 1
    assert all(size.fnir is None for size in beyond)
    assert "extrapolated" in repr(curve)
    with pytest.raises(EquimetricError, match="up to 30 identities are measured"):
        gallery_size_curve(embeddings, labels, extrapolate=[20])


def test_extrapolation_is_near_a_gallery_that_is_really_larger():
    embeddings, labels = make_space(classes=120, images=6, dimension=8, seed=9)
    few = labels < 40
    curve = gallery_size_curve(embeddings[few], labels[few], fpir=0.1, extrapolate=[60])
    larger = evaluate_identification(embeddings, labels, fpir=0.1).at_threshold(curve.threshold)
    assert curve.sizes[-1].fpir == pytest.approx(larger.fpir, rel=0.5)


def test_figures_have_labels(tmp_path):
    embeddings, labels = make_space(classes=20, images=6)
    curve = gallery_size_curve(embeddings, labels, fpir=0.1, extrapolate=[100])
    figure = curve.plot()
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert any("extrapolated" in text for text in texts)
    assert figure.axes[0].get_xlabel() == "identities in the gallery"
    plain = gallery_size_curve(embeddings, labels, fpir=0.1).plot()
    assert not any("extrapolated" in text.get_text() for text in plain.legends[0].get_texts())
    found = evaluate_identification(embeddings, labels)
    assert "FNIR" in found.plot().axes[0].get_ylabel()
    found.plot().savefig(tmp_path / "det.png")
    perfect = gallery_size_curve(*make_space(spread=1e-3), threshold=0.01)
    assert {size.fpir for size in perfect.sizes} == {size.fnir for size in perfect.sizes} == {0.0}
    perfect.plot().savefig(tmp_path / "sizes.png")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": "median"}, "unknown rule of identification 'median'"),
        ({"enrolled": 0}, "enrolled is 0; give a whole number of at least 1"),
        ({"k": True, "by": "nearest"}, "k is True"),
        ({"strangers": 1.0}, "strangers is 1.0; give the share"),
        ({"strangers": 0.0}, "there is no stranger"),
        ({"strangers": "half"}, "strangers is 'half'; give the share"),
        ({"strangers": 0.99}, "nobody is left to enrol"),
        ({"fpir": 0.0}, "the false positive identification rate 0.0 is not between 0 and 1"),
        ({"by": "mean", "geometry": "hamming"}, "a class mean cannot be compared by hamming"),
        ({"confidence": 1.0}, "confidence is 1.0"),
    ],
)
def test_wrong_options_say_what_to_do(options, message):
    with pytest.raises(EquimetricError, match=message) as error:
        evaluate_identification(*make_space(classes=6), **options)
    assert "\n" not in str(error.value)


def test_spaces_that_cannot_be_searched():
    embeddings, labels = make_space(classes=4, images=1)
    with pytest.raises(EquimetricError, match="no query has a gallery item of its class"):
        evaluate_identification(embeddings, labels)
    embeddings, labels = make_space(classes=1, images=5)
    with pytest.raises(EquimetricError, match="all labels are the same class"):
        evaluate_identification(embeddings, labels)
    with pytest.raises(EquimetricError, match="unknown option of identification 'bye'"):
        evaluate(*make_space(), metrics="fnir@fpir=0.1", identification={"bye": "item"})
    with pytest.raises(EquimetricError, match="is not between 0 and 1"):
        evaluate(*make_space(), metrics="fnir@fpir=1.5")
