"""Identification and trial lists by scores that a cohort normalises, against single searches and pairs."""

import dataclasses
import json

import numpy as np
import pytest
import torch

import equimetric as em
from equimetric.calibration import IdentificationCertificate, calibrate_identification
from equimetric.calibration.calibrate import assign_folds
from equimetric.errors import EquimetricError, EquimetricWarning
from equimetric.evaluation import Cohort, gallery_size_curve
from equimetric.evaluation.engine.inputs import prepare_sets
from equimetric.evaluation.identification import IdentificationProtocol
from equimetric.evaluation.identification.draws import draw_galleries

NEAREST = 7
FORMS = [("mean", 0.5), ("mean", 1.0), ("full", 1.0)]


@pytest.fixture(scope="module")
def space():
    """20 classes, every other one in a crowded region, and a cohort of 30 others."""
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(20), 6)
    centres = generator.normal(size=(20, 8)) + 2 * generator.normal(size=8) * (np.arange(20) % 2)[:, None]
    embeddings = centres[labels] + 0.9 * generator.normal(size=(120, 8))
    return embeddings, labels, generator.normal(size=(90, 8)), 100 + np.arange(90) // 3


def unit(vector):
    return vector / np.sqrt(vector @ vector)


class Definition:
    """s' of two vectors, each with its class; the cohort's rows of that class do not count."""

    def __init__(self, cohort, cohort_labels=None, form="mean", strength=0.5):
        self.cohort = [unit(row) for row in cohort]
        self.labels = [None] * len(cohort) if cohort_labels is None else list(cohort_labels)
        self.form, self.strength, self.known = form, strength, {}

    def crowd(self, x, own):
        key = x.tobytes(), own
        if key not in self.known:
            self.known[key] = self.crowd_by_definition(x, own)
        return self.known[key]

    def crowd_by_definition(self, x, own):
        values = sorted((float(x @ c) for c, label in zip(self.cohort, self.labels, strict=True) if label != own))
        largest = np.array(values[-NEAREST:])
        return largest.mean(), max(1e-3, np.sqrt(((largest - largest.mean()) ** 2).mean()))

    def score(self, x, own_x, y, own_y):
        x, y = unit(x), unit(y)
        (m_x, s_x), (m_y, s_y) = self.crowd(x, own_x), self.crowd(y, own_y)
        if self.form == "mean":
            return float(x @ y) - self.strength * (m_x + m_y) / 2
        return ((float(x @ y) - m_x) / s_x + (float(x @ y) - m_y) / s_y) / 2

    def search(self, probe, own, gallery, by):
        """(score, identity) of the best entry of a gallery [(vector, identity)]."""
        if by == "mean":
            gallery = [
                (np.mean([unit(vector) for vector, name in gallery if name == identity], axis=0), identity)
                for identity in sorted({name for _, name in gallery})
            ]
        return max((self.score(probe, own, vector, name), name) for vector, name in gallery)


def searches_by_definition(definition, embeddings, labels, draw, by):
    """{probe: (score, identity)} of one draw; a probe is in no gallery that it is searched in."""
    items = draw.items.tolist()
    return {
        row: definition.search(
            embeddings[row], labels[row], [(embeddings[i], labels[i]) for i in items if i != row], by
        )
        for row in np.flatnonzero(draw.probes.numpy())
    }


@pytest.mark.parametrize("shares_classes", [False, True])
@pytest.mark.parametrize("enrolled", [None, 3])
@pytest.mark.parametrize("by", ["item", "mean"])
@pytest.mark.parametrize(("form", "strength"), FORMS)
def test_every_search_is_by_the_normalised_score(space, form, strength, by, enrolled, shares_classes):
    embeddings, labels, others, other_labels = space
    other_labels = other_labels - 100 if shares_classes else other_labels
    cohort = Cohort(others, other_labels, strength=strength, nearest=NEAREST, form=form)
    definition = Definition(others, other_labels, form, strength)
    how = {"by": by, "enrolled": enrolled, "repeats": 2, "seed": 3}
    found = em.evaluate_identification(embeddings, labels, cohort=cohort, fpir=0.1, block_rows=17, **how)
    assert found.geometry == ("cosine, cohort" if form == "mean" else "cosine, full cohort")
    expected = {}
    for number, draw in enumerate(draw_galleries(prepare_sets(embeddings, labels), IdentificationProtocol(**how))):
        for row, best in searches_by_definition(definition, embeddings, labels, draw, by).items():
            expected[number, row] = *best, bool(draw.stranger[row])
    scores = found.scores
    # Draw by draw, each in the order of the tiles.
    drawn = sorted(number for number, _ in expected)
    for place, (number, row) in enumerate(zip(drawn, scores.probe, strict=True)):
        score, name, stranger = expected[number, row]
        assert scores.distance[place, 0] == pytest.approx(-score, rel=1e-9)
        assert scores.nearest_class[place] == name
        assert scores.stranger[place] == stranger
        assert scores.named[place, 0] == (name == labels[row])
    accepted = np.sort([-score for score, _, stranger in expected.values() if stranger])
    threshold = accepted[int(0.1 * len(accepted))]
    point = found.points[0]
    assert point.threshold == pytest.approx(threshold, rel=1e-9)
    named = [-score < threshold and name == labels[row] for (_, row), (score, name, new) in expected.items() if not new]
    assert point.rank1 == pytest.approx(np.mean(named), rel=1e-9)


def test_a_class_mean_is_no_mean_of_extended_vectors(space):
    embeddings, labels, others, _ = space
    cohort = Cohort(others, strength=1.0, nearest=NEAREST)
    found = em.evaluate_identification(embeddings, labels, by="mean", cohort=cohort, repeats=1, fpir=0.1)
    queries, items = cohort.extend(embeddings)
    averaged = em.evaluate_identification(
        queries, labels, items, labels, by="mean", geometry="dot", repeats=1, fpir=0.1, strangers=0.5,
        query_ids=np.arange(120), gallery_ids=np.arange(120),
    )  # fmt: skip
    assert (found.scores.probe == averaged.scores.probe).all()
    assert abs(found.scores.distance - averaged.scores.distance).max() > 0.01


def test_block_rows_and_precision(space):
    embeddings, labels, others, _ = space
    cohort = Cohort(others, nearest=NEAREST)
    for by in ("item", "mean", "nearest"):
        how = {"by": by, "cohort": cohort, "repeats": 2, "fpir": 0.1}
        one, other = (em.evaluate_identification(embeddings, labels, **how, block_rows=rows) for rows in (None, 5))
        assert one.to_dict() == other.to_dict()
        single = em.evaluate_identification(embeddings.astype(np.float32), labels, **how)
        assert single.points[0].threshold == pytest.approx(one.points[0].threshold, abs=1e-5)


@pytest.mark.parametrize("by", ["item", "mean"])
def test_a_cohort_of_no_strength_orders_as_plain_cosines(space, by):
    embeddings, labels, others, _ = space
    plain = em.evaluate_identification(embeddings, labels, by=by, fpir=0.1)
    same = em.evaluate_identification(embeddings, labels, by=by, fpir=0.1, cohort=Cohort(others, strength=0.0))
    assert (same.points[0].fpir, same.points[0].fnir) == (plain.points[0].fpir, plain.points[0].fnir)
    assert same.points[0].threshold == pytest.approx(plain.points[0].threshold ** 2 / 2 - 1, rel=1e-9)


@pytest.mark.parametrize("by", ["item", "mean"])
def test_metrics_and_gallery_sizes_are_those_of_the_evaluation(space, by):
    embeddings, labels, others, _ = space
    cohort = Cohort(others, nearest=NEAREST, strength=1.0)
    found = em.evaluate_identification(embeddings, labels, by=by, fpir=0.1, cohort=cohort)
    values = em.evaluate(
        embeddings, labels, metrics=["fnir@fpir=0.1", "rank1@fpir=0.1"], cohort=cohort, identification={"by": by}
    )
    assert values["fnir@fpir=0.1"] == found.points[0].fnir
    assert values["rank1@fpir=0.1"] == found.points[0].rank1
    curve = gallery_size_curve(embeddings, labels, by=by, fpir=0.1, sizes=[1, 10], cohort=cohort)
    assert curve.geometry == "cosine, cohort"
    assert curve.threshold == found.points[0].threshold
    assert (curve.sizes[1].fpir, curve.sizes[1].fnir) == (found.points[0].fpir, found.points[0].fnir)
    # One identity at a time, just below a stranger's own score, which the definition computes with other rounding.
    below = curve.threshold - 1e-9
    far = gallery_size_curve(embeddings, labels, by=by, threshold=below, sizes=[1], cohort=cohort, repeats=2).far
    definition, accepted, pairs = Definition(others, None, "mean", 1.0), 0, 0
    for draw in draw_galleries(prepare_sets(embeddings, labels), curve.protocol, 10)[:2]:
        items = draw.items.tolist()
        for row in np.flatnonzero(draw.stranger.numpy()):
            for identity in np.unique(labels[items]):
                entries = [(embeddings[i], labels[i]) for i in items if labels[i] == identity]
                score, _ = definition.search(embeddings[row], labels[row], entries, by)
                accepted, pairs = accepted + (-score < below), pairs + 1
    assert far == pytest.approx(accepted / pairs, rel=1e-9)
    curve.plot()
    found.plot()


@pytest.mark.parametrize(("form", "strength"), FORMS)
def test_the_certificate_is_of_the_score(space, tmp_path, form, strength):
    embeddings, labels, others, other_labels = space
    cohort = Cohort(others, other_labels, strength=strength, nearest=NEAREST, form=form)
    found = calibrate_identification(embeddings, labels, 0.15, cohort=cohort, repeats=2, model="abc", by="mean")
    point = em.evaluate_identification(
        embeddings, labels, cohort=cohort, fpir=0.15, strangers=0.5, repeats=2, by="mean"
    ).points[0]
    assert (found.threshold, found.fpir, found.fnir) == (-point.threshold, point.fpir, point.fnir)
    assert found.threshold_interval[0] < found.threshold < found.threshold_interval[1]
    assert found.data.dimension == 8
    assert found.accepts(np.array([found.threshold, found.threshold + 1])).tolist() == [False, True]
    found.save(tmp_path / "identify.json")
    loaded = IdentificationCertificate.load(tmp_path / "identify.json")
    assert loaded == found
    assert loaded.model == "abc"
    document = json.loads((tmp_path / "identify.json").read_text())
    verification = em.calibrate(embeddings, labels, far=0.05, cohort=cohort, resamples=5).certificate()
    assert document["accepts"] == verification["accepts"] == "score > threshold"
    assert document["score"] == verification["score"]
    assert document["cohort"] == verification["cohort"]
    assert f"accept scores above {found.threshold:.6g}" in str(loaded)
    assert "of a score above" in loaded.statement
    assert cohort.fingerprint[:12] in str(loaded)

    definition = Definition(others, other_labels, form, strength)
    probes, entries = embeddings[:5], embeddings[60:65]
    expected = [definition.score(x, None, y, None) for x, y in zip(probes, entries, strict=True)]
    assert loaded.scores(probes, entries, cohort).tolist() == pytest.approx(expected, rel=1e-9)
    assert loaded.decide(probes, entries, cohort=cohort).tolist() == [score > loaded.threshold for score in expected]


def test_held_out_strangers_by_the_score(space):
    embeddings, labels, others, _ = space
    found = calibrate_identification(embeddings, labels, 0.15, cohort=Cohort(others, nearest=NEAREST), repeats=2)
    definition, sets = Definition(others), prepare_sets(embeddings, labels)
    fold_of_class, accepted, strangers, thresholds = assign_folds(sets, 4, 0), 0, 0, []
    for fold in range(4):
        held_out, fitted, new = np.flatnonzero(fold_of_class == fold), [], []
        for draw in draw_galleries(sets, found.protocol, held_out=held_out):
            gallery = [(embeddings[i], labels[i]) for i in draw.items.tolist()]
            for row in np.flatnonzero(draw.stranger.numpy()):
                score, _ = definition.search(embeddings[row], labels[row], gallery, "item")
                (new if labels[row] in held_out else fitted).append(score)
        thresholds.append(sorted(fitted, reverse=True)[int(0.15 * len(fitted))])
        accepted, strangers = accepted + sum(score > thresholds[-1] for score in new), strangers + len(new)
    assert found.fold_thresholds == pytest.approx(thresholds, rel=1e-9)
    assert found.held_out_fpir == pytest.approx(accepted / strangers, rel=1e-9)


def test_a_certificate_refuses_another_cohort_and_other_embeddings(space):
    embeddings, labels, others, _ = space
    cohort = Cohort(others, nearest=NEAREST)
    scored = calibrate_identification(embeddings, labels, 0.1, cohort=cohort)
    plain = calibrate_identification(embeddings, labels, 0.1, model="abc", preprocessing="resize 32")
    pair = embeddings[:2], embeddings[2:4]
    for other, message in [
        (None, "give the same cohort"),
        (Cohort(others + 1, nearest=NEAREST), "sha256"),
        (Cohort(others, nearest=3), "nearest 7, not 3"),
        (Cohort(others, nearest=NEAREST, strength=1.0), "strength 0.5, not 1.0"),
        (Cohort(others, nearest=NEAREST, form="full"), "form 'mean', not 'full'"),
    ]:
        with pytest.raises(EquimetricError, match=message):
            scored.decide(*pair, cohort=other)
    with pytest.raises(EquimetricError, match="this certificate is of distances"):
        plain.decide(*pair, cohort=cohort)
    with pytest.raises(EquimetricError, match="for the model 'abc', not 'xyz'"):
        plain.decide(*pair, model="xyz")
    with pytest.raises(EquimetricError, match="for the dimension 8, not 7"):
        plain.decide(embeddings[:2, :7], embeddings[2:4, :7])
    with pytest.raises(EquimetricError, match="NaN or infinite"):
        plain.accepts(np.array([0.1, np.nan]))
    with pytest.raises(EquimetricError, match="among those that are calibrated on"):
        calibrate_identification(embeddings, labels, 0.1, cohort=Cohort(others, np.arange(90) // 3))
    distances = np.linalg.norm(
        embeddings[:2] / np.linalg.norm(embeddings[:2], axis=1, keepdims=True)
        - embeddings[2:4] / np.linalg.norm(embeddings[2:4], axis=1, keepdims=True),
        axis=1,
    )
    assert plain.decide(*pair).tolist() == (distances < plain.threshold).tolist()


@pytest.mark.parametrize(
    "change",
    [{"form": "half"}, {"strength": "x"}, {"nearest": None}, {"sha256": ...}, {"classes": "many"}],
)
def test_damaged_cohorts_of_certificates(space, tmp_path, change):
    embeddings, labels, others, _ = space
    document = calibrate_identification(embeddings, labels, 0.1, cohort=Cohort(others, nearest=NEAREST)).to_dict()
    document["cohort"] |= change
    if change.get("sha256") is ...:
        del document["cohort"]["sha256"]
    (tmp_path / "identify.json").write_text(json.dumps(document))
    with pytest.raises(EquimetricError, match="is damaged") as error:
        IdentificationCertificate.load(tmp_path / "identify.json")
    assert "\n" not in str(error.value)


def test_zero_means_have_a_score(space):
    embeddings, labels, others, _ = space
    embeddings, labels = np.concatenate([embeddings, [embeddings[0], -embeddings[0]]]), np.append(labels, [20, 20])
    for form in ("mean", "full"):
        cohort = Cohort(others, nearest=NEAREST, form=form)
        found = em.evaluate_identification(embeddings, labels, by="mean", cohort=cohort, fpir=0.1)
        assert np.isfinite(found.scores.distance).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"geometry": "euclidean"}, "a cohort normalises cosines"),
        ({"cohort": Cohort(np.ones((3, 5)))}, "the cohort has dimension 5, the embeddings 8"),
        ({"cohort": Cohort(np.ones((3, 8)), ["a", "b", "c"])}, "must both be integers or both be strings"),
        ({"cohort": Cohort(np.ones((3, 8)), [1, 1, 1])}, "all cohort embeddings are of class 1"),
        ({"cohort": Cohort(np.full((3, 8), np.nan))}, "cohort embeddings contain NaN"),
        ({"cohort": Cohort(np.zeros((3, 8)))}, "cohort embeddings contain vectors of length zero"),
    ],
)
@pytest.mark.parametrize("by", ["item", "mean"])
@pytest.mark.filterwarnings("ignore::equimetric.errors.EquimetricWarning")
def test_cohorts_that_cannot_be_used(space, by, options, message):
    embeddings, labels, others, _ = space
    options = {"cohort": Cohort(others)} | options
    first, second = np.triu_indices(120, 1)
    trials = first, second, labels[first] == labels[second]
    calls = [
        lambda: em.evaluate_identification(embeddings, labels, by=by, **options),
        lambda: gallery_size_curve(embeddings, labels, by=by, **options),
        lambda: calibrate_identification(embeddings, labels, 0.1, by=by, **options),
        lambda: em.evaluate_trials(embeddings, None, trials, labels=labels, draws=2, **options),
    ]
    for call in calls:
        with pytest.raises(EquimetricError, match=message) as error:
            call()
        assert "\n" not in str(error.value)


def test_several_labels_per_sample_are_refused_in_one_sentence(space):
    embeddings, _, others, _ = space
    several = torch.zeros(120, 4, dtype=torch.int64)
    several[torch.arange(120), torch.arange(120) % 4] = 1
    several[::3, 0] = 1
    sets = [set(row.nonzero().flatten().tolist()) for row in several]
    for labels in (several, several.numpy(), sets):
        for cohort in (None, Cohort(others)):
            for call in (em.evaluate_identification, gallery_size_curve, calibrate_identification):
                with pytest.raises(EquimetricError, match="identification needs one class for every sample"):
                    call(embeddings, labels, cohort=cohort)
        with pytest.raises(EquimetricError, match="needs classes that share no sample"):
            em.evaluate(embeddings, labels, metrics="fnir@fpir=0.1")


@pytest.mark.parametrize("shares_classes", [False, True])
@pytest.mark.parametrize(("form", "strength"), FORMS)
def test_trials_are_scored_pair_by_pair(space, form, strength, shares_classes):
    embeddings, labels, others, other_labels = space
    other_labels = other_labels - 100 if shares_classes else other_labels
    cohort = Cohort(others, other_labels, strength=strength, nearest=NEAREST, form=form)
    definition = Definition(others, other_labels, form, strength)
    generator = np.random.default_rng(1)
    first, second = np.triu_indices(120, 1)
    chosen = generator.permutation(len(first))[:300]
    near = np.flatnonzero(labels[first] == labels[second])[::3]
    first, second = (rows[np.union1d(chosen, near)] for rows in (first, second))
    same = labels[first] == labels[second]
    found = em.evaluate_trials(embeddings, None, (first, second, same), labels=labels, cohort=cohort, far=0.1, draws=20)
    pairs = zip(first, second, strict=True)
    score = np.array([definition.score(embeddings[a], labels[a], embeddings[b], labels[b]) for a, b in pairs])
    assert found.distance == pytest.approx(-score, rel=1e-9)
    assert found.geometry == found.to_dict()["geometry"] == cohort.title
    positive, negative = score[same], np.sort(score[~same])[::-1]
    assert found["auc"] == pytest.approx((positive[:, None] > negative).mean(), rel=1e-9)
    threshold = negative[int(0.1 * len(negative))]
    assert found["tar@far=0.1"] == pytest.approx((positive > threshold).mean(), rel=1e-9)
    point = found.calibrate(far=0.1)
    assert point.threshold == pytest.approx(-threshold, rel=1e-9)
    found.plot()


def test_trials_without_labels_know_no_own_class(space):
    embeddings, labels, others, other_labels = space
    first, second = np.arange(0, 118), np.arange(2, 120)
    trials = first, second, labels[first] == labels[second]
    labelled = Cohort(others, other_labels - 100, nearest=NEAREST)
    found = em.evaluate_trials(embeddings, None, trials, cohort=labelled, draws=2)
    plain = em.evaluate_trials(embeddings, None, trials, cohort=dataclasses.replace(labelled, labels=None), draws=2)
    assert (found.distance == plain.distance).all()


def test_a_narrow_cohort_is_warned_of(space):
    embeddings, labels, others, other_labels = space
    cohort = Cohort(others[:6], other_labels[:6])
    trials = np.arange(118), np.arange(2, 120), labels[:118] == labels[2:]
    for call in (
        lambda: em.evaluate_identification(embeddings, labels, cohort=cohort),
        lambda: em.evaluate_trials(embeddings, None, trials, cohort=cohort, draws=2),
    ):
        with pytest.warns(EquimetricWarning, match="the cohort has 2 classes"):
            call()


def test_texts_show_scores_where_a_cohort_is_used():
    from equimetric.evaluation.identification.protocol import describe_threshold

    assert describe_threshold(-1.25, "cosine, cohort") == "scores above 1.25"
    assert describe_threshold(0.5, "cosine") == "distances below 0.5"
