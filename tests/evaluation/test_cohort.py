"""Cohort normalisation as inner products of extended vectors, against its formula pair by pair."""

import numpy as np
import pytest
import torch
from rounding import assert_same_digits

import equimetric as em
from equimetric.errors import EquimetricWarning
from equimetric.evaluation import Cohort, class_thresholds, threshold_consistency
from equimetric.evaluation.engine import cohort_statistics
from equimetric.evaluation.engine import pair_distances as pair_distances_module
from equimetric.evaluation.engine.inputs import prepare_sets
from equimetric.evaluation.engine.pair_distances import pair_distances

METRICS = ["recall@1", "map@r", "r_precision", "map", "mrr", "auc", "eer", "tar@far=1e-1", "opis"]
LABELS = torch.arange(48) % 8
FORMS = [("mean", 0.5, 5), ("mean", 1.0, 1), ("mean", 0.25, 100), ("full", 1.0, 5), ("full", 0.5, 100)]


@pytest.fixture
def space():
    generator = torch.Generator().manual_seed(4)
    centres = torch.randn(8, 6, generator=generator, dtype=torch.float64)
    embeddings = centres[LABELS] + torch.randn(48, 6, generator=generator, dtype=torch.float64)
    return embeddings, torch.randn(30, 6, generator=generator, dtype=torch.float64)


def unit(vectors):
    return vectors / vectors.norm(dim=1, keepdim=True)


def crowd(x, cohort, nearest, own=None, cohort_labels=None):
    """m(x) and s(x) of one unit vector, without the cohort's rows of its own class."""
    values = [float(x @ c) for c in unit(cohort)]
    if cohort_labels is not None:
        values = [value for value, label in zip(values, cohort_labels, strict=True) if label != own]
    largest = np.sort(values)[::-1][:nearest]
    return largest.mean(), max(np.sqrt(((largest - largest.mean()) ** 2).mean()), 1e-3)


def normalised(first, second, cohort, *, form="mean", strength=0.5, nearest=50, labels=None, cohort_labels=None):
    """s'(x, y) by its formula, pair by pair."""

    def crowds_of(vectors, classes):
        classes = [None] * len(vectors) if classes is None else classes
        found = zip(unit(vectors), classes, strict=True)
        return [(x, *crowd(x, cohort, nearest, own, cohort_labels)) for x, own in found]

    labels = (None, None) if labels is None else labels
    rows, items = [], crowds_of(second, labels[1])
    for x, m_x, s_x in crowds_of(first, labels[0]):
        row = []
        for y, m_y, s_y in items:
            s = float(x @ y)
            if form == "mean":
                row.append(s - strength * (m_x + m_y) / 2)
            else:
                row.append(((s - m_x) / s_x + (s - m_y) / s_y) / 2)
        rows.append(row)
    return torch.tensor(rows, dtype=torch.float64)


def pairs_of(score, labels):
    """Scores of positive and of negative pairs, and the classes of the latter."""
    first, second = np.triu_indices(len(labels), 1)
    values = score.numpy()[first, second]
    same = (labels[first] == labels[second]).numpy()
    return values[same], values[~same], first, second, values, same


def opis_by_definition(score, labels, rate="both"):
    """Mean variance of the F1 of class-wise true accept and true reject rates, or of one, between FAR 1e-2 and 1e-1."""
    _, negative, first, second, values, same = pairs_of(score, labels)
    low, high = np.quantile(-negative, [1e-2, 1e-1])
    thresholds = np.linspace(low, high, 101)
    curves = []
    for label in np.unique(labels.numpy()):
        ends = (labels.numpy()[first] == label), (labels.numpy()[second] == label)
        inside, across = -values[same & ends[0]], -values[~same & (ends[0] | ends[1])]
        tpr = np.array([(inside <= t).mean() for t in thresholds])
        tnr = np.array([(across > t).mean() for t in thresholds])
        curves.append({"both": 2 * tpr * tnr / (tpr + tnr), "far": tnr, "frr": tpr}[rate])
    variance = np.var(curves, axis=0)
    return np.trapezoid(variance, thresholds) / (high - low)


@pytest.mark.parametrize(("form", "strength", "nearest"), FORMS)
def test_inner_products_of_extended_vectors_are_the_formula(space, form, strength, nearest):
    embeddings, cohort = space
    normaliser = Cohort(cohort, strength=strength, nearest=nearest, form=form)
    (queries, _), (_, items) = normaliser.extend(embeddings[:20]), normaliser.extend(embeddings[20:])
    expected = normalised(embeddings[:20], embeddings[20:], cohort, form=form, strength=strength, nearest=nearest)
    assert_same_digits(queries @ items.T, expected, digits=11)
    assert queries.shape[1] == (8 if form == "mean" else 14)


@pytest.mark.parametrize(("form", "strength", "nearest"), FORMS)
@pytest.mark.parametrize("block_rows", [None, 7])
def test_every_metric_follows_the_normalised_similarity(space, definition, form, strength, nearest, block_rows):
    embeddings, cohort = space
    score = normalised(embeddings, embeddings, cohort, form=form, strength=strength, nearest=nearest)
    assert_same_digits(score, score.T, digits=11)
    options = {"neighbours": 4, "cohort": Cohort(cohort, strength=strength, nearest=nearest, form=form)}
    names = [*METRICS, "opis_far", "opis_frr"]
    found = em.evaluate(embeddings, LABELS, metrics=names, block_rows=block_rows, **options)

    ranked = score.clone().fill_diagonal_(-torch.inf).argsort(dim=1, descending=True)[:, :-1]
    assert torch.equal(found.neighbours, ranked[:, :4])
    by_definition = definition(ranked.tolist(), LABELS.tolist(), LABELS.tolist(), (1,))
    for name in ("recall@1", "map@r", "r_precision", "map", "mrr"):
        assert found[name] == pytest.approx(by_definition[name], abs=1e-12)
    positive, negative, *_ = pairs_of(score, LABELS)
    assert found["auc"] == pytest.approx((positive[:, None] > negative).mean(), abs=1e-12)
    threshold = np.sort(negative)[::-1][int(0.1 * len(negative))]
    assert found["tar@far=1e-1"] == pytest.approx((positive > threshold).mean(), abs=1e-12)
    assert found["opis"] == pytest.approx(opis_by_definition(score, LABELS), abs=1e-12)
    for rate in ("far", "frr"):
        assert found[f"opis_{rate}"] == pytest.approx(opis_by_definition(score, LABELS, rate), abs=1e-12)
    assert found.gallery is None
    assert found.geometry == ("cosine, cohort" if form == "mean" else "cosine, full cohort")


def test_every_pair_is_computed_once(space):
    embeddings, cohort = space
    names = ["recall@1", "map@r", "tar@far=1e-1", "opis"]
    options = {"metrics": names, "block_rows": 16, "neighbours": 5}
    halves = em.evaluate(embeddings, LABELS, cohort=Cohort(cohort), **options)
    assert "each pair once" in halves.path
    whole = em.evaluate(embeddings, LABELS, cohort=Cohort(cohort), **{**options, "metrics": [*names, "mrr"]})
    assert "each pair once" not in whole.path
    assert dict(halves) == pytest.approx({name: whole[name] for name in names}, abs=1e-12)
    assert torch.equal(halves.neighbours, whole.neighbours)


@pytest.mark.parametrize("form", ["mean", "full"])
def test_coarse_products_find_the_same_neighbours(space, form):
    embeddings, cohort = space
    options = {"metrics": ["recall@1", "map@r"], "neighbours": 6, "cohort": Cohort(cohort, form=form)}
    exact, coarse = (
        em.evaluate(embeddings.float(), LABELS, prefilter=name, **options) for name in ("none", "bfloat16")
    )
    assert dict(exact) == dict(coarse)
    assert torch.equal(exact.neighbours, coarse.neighbours)


def test_many_candidates_from_half_the_matrix():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(2200) % 11
    embeddings = torch.randn(11, 8, generator=generator)[labels] + torch.randn(2200, 8, generator=generator)
    cohort = Cohort(torch.randn(300, 8, generator=generator))
    halves = em.evaluate(embeddings, labels, metrics=["map@r"], neighbours=90, cohort=cohort, block_rows=256)
    whole = em.evaluate(embeddings, labels, metrics=["map@r", "mrr"], neighbours=90, cohort=cohort, block_rows=256)
    assert "each pair once" in halves.path
    assert halves["map@r"] == whole["map@r"]
    assert torch.equal(halves.neighbours, whole.neighbours)


def test_strength_zero_is_the_plain_cosine_on_the_axis_of_scores(space):
    embeddings, cohort = space
    plain = em.evaluate(embeddings, LABELS, metrics=METRICS[:-1], neighbours=5)
    expected = {**plain, "opis": opis_by_definition(unit(embeddings) @ unit(embeddings).T, LABELS)}
    for form in ("mean", "full"):
        normaliser = Cohort(cohort, strength=0.0, form=form)
        with_cohort = em.evaluate(embeddings, LABELS, metrics=METRICS, neighbours=5, cohort=normaliser)
        assert dict(with_cohort) == pytest.approx(expected, abs=1e-9)
        assert torch.equal(with_cohort.neighbours, plain.neighbours)
        assert with_cohort.gallery is None
    assert em.evaluate(embeddings, LABELS, cohort=Cohort(cohort, strength=0.0)).geometry == "cosine, cohort"


@pytest.mark.parametrize("form", ["mean", "full"])
def test_a_gallery_of_its_own(space, form):
    embeddings, cohort = space
    options = {"metrics": ["recall@1", "tar@far=1e-1"], "neighbours": 3, "cohort": Cohort(cohort, form=form)}
    found = em.evaluate(embeddings[:20], LABELS[:20], embeddings[20:], LABELS[20:], **options)
    expected = normalised(embeddings[:20], embeddings[20:], cohort, form=form)
    assert torch.equal(found.neighbours, expected.argsort(dim=1, descending=True)[:, :3])
    same = LABELS[:20, None] == LABELS[20:]
    positive, negative = expected[same].numpy(), expected[~same].numpy()
    threshold = np.sort(negative)[::-1][int(0.1 * len(negative))]
    assert found["tar@far=1e-1"] == pytest.approx((positive > threshold).mean())
    assert found.gallery == 28


@pytest.mark.parametrize("form", ["mean", "full"])
@pytest.mark.parametrize("kind", [int, str])
def test_the_own_class_never_counts(space, form, kind):
    embeddings, _ = space
    labels = LABELS if kind is int else [f"class {label}" for label in LABELS.tolist()]
    own = LABELS.tolist() if kind is int else labels
    with pytest.warns(EquimetricWarning, match="the cohort has 8 classes"):
        found = em.evaluate(
            embeddings, labels, metrics=["recall@1"], neighbours=4, cohort=Cohort(embeddings, labels, 0.5, 7, form)
        )
    expected = normalised(
        embeddings, embeddings, embeddings, form=form, nearest=7, labels=(own, own), cohort_labels=own
    )
    ranked = expected.fill_diagonal_(-torch.inf).argsort(dim=1, descending=True)
    assert torch.equal(found.neighbours, ranked[:, :4])
    # All that is left counts, where that is less than the nearest.
    queries, items = Cohort(embeddings, labels, 1.0, 45, form).extend(embeddings, labels)
    expected = normalised(
        embeddings,
        embeddings,
        embeddings,
        form=form,
        strength=1.0,
        nearest=45,
        labels=(own, own),
        cohort_labels=own,
    )
    assert_same_digits(queries @ items.T, expected, digits=11)


def test_labels_of_other_classes_exclude_nothing(space):
    embeddings, cohort = space
    others = torch.arange(30) + 100
    for labelled in (others, others.flip(0)):
        expected, found = (Cohort(cohort, some).extend(embeddings, LABELS) for some in (None, labelled))
        for one, other in zip(expected, found, strict=True):
            assert_same_digits(one, other, digits=12)


def test_a_class_mean_is_a_sample_of_unit_length(space):
    embeddings, cohort = space
    means = torch.stack([embeddings[label == LABELS].mean(0) for label in range(8)])
    normaliser = Cohort(cohort, nearest=5)
    (queries, _), (_, items) = normaliser.extend(embeddings), normaliser.extend(means)
    assert_same_digits(queries @ items.T, normalised(embeddings, means, cohort, nearest=5), digits=11)


@pytest.mark.parametrize("form", ["mean", "full"])
def test_near_ties_are_resolved_without_rounding(reference, form):
    """Duplicates tie, by lower index, whatever the block in which they and their crowds were computed."""
    generator = torch.Generator().manual_seed(1)
    distinct = torch.randn(25, 12, generator=generator)
    embeddings = distinct[torch.randint(25, (110,), generator=generator)]
    labels = torch.randint(5, (110,), generator=generator)
    cohort = Cohort(torch.randn(70, 12, generator=generator), nearest=9, form=form)
    queries, items = cohort.extend(embeddings)
    assert len(torch.unique(queries, dim=0)) == len(torch.unique(items, dim=0)) == len(torch.unique(embeddings, dim=0))
    expected = reference(queries, labels.tolist(), items, labels.tolist(), same_image=lambda i, j: i == j)
    for block_rows in (None, 32):
        found = em.evaluate(
            embeddings, labels, metrics=["recall@4", "map@r"], neighbours=40, cohort=cohort, block_rows=block_rows
        )
        assert found.neighbours.tolist() == [ranking[:40] for ranking in expected.rankings]
        assert found["map@r"] == pytest.approx(expected.scores["map@r"], abs=1e-12)


def test_duplicates_of_two_classes_have_their_own_crowds():
    generator = torch.Generator().manual_seed(1)
    embeddings = torch.randn(20, 6, generator=generator, dtype=torch.float64)
    embeddings[10:] = embeddings[:10]
    labels = torch.arange(20) // 10
    cohort, cohort_labels = torch.randn(12, 6, generator=generator, dtype=torch.float64), torch.arange(12) % 3
    queries, items = Cohort(cohort, cohort_labels, 1.0, 3).extend(embeddings, labels)
    own = labels.tolist()
    expected = normalised(
        embeddings,
        embeddings,
        cohort,
        strength=1.0,
        nearest=3,
        labels=(own, own),
        cohort_labels=cohort_labels.tolist(),
    )
    assert_same_digits(queries @ items.T, expected, digits=11)


def test_blocks_and_precision_change_nothing(space, monkeypatch):
    embeddings, cohort = space
    whole = Cohort(cohort).extend(embeddings)[0]
    monkeypatch.setattr(cohort_statistics, "BLOCK_BYTES", 1)
    monkeypatch.setattr(cohort_statistics, "MIN_ROWS", 5)
    assert_same_digits(Cohort(cohort).extend(embeddings)[0], whole, digits=12)
    single = Cohort(cohort.numpy()).extend(embeddings.float())[0]
    torch.testing.assert_close(single.double(), whole, rtol=0, atol=1e-6)


@pytest.mark.parametrize("form", ["mean", "full"])
def test_consistency_with_a_cohort(space, form):
    embeddings, cohort = space
    normaliser = Cohort(cohort, nearest=5, form=form)
    score = normalised(embeddings, embeddings, cohort, form=form, nearest=5)
    found = threshold_consistency(embeddings, LABELS, cohort=normaliser)
    assert found.opis == pytest.approx(opis_by_definition(score, LABELS), abs=1e-12)
    assert found.opis == em.evaluate(embeddings, LABELS, metrics=["opis"], cohort=normaliser)["opis"]
    options = {"cohort": normaliser, "calibration_range": found.calibration_range}
    sampled = threshold_consistency(embeddings, LABELS, sample=48, **options)
    np.testing.assert_allclose(sampled.utility, found.utility, atol=1e-12)


@pytest.mark.parametrize("form", ["mean", "full"])
@pytest.mark.parametrize("kept_pairs", [2**23, 0])
def test_class_thresholds_are_negated_scores(space, form, kept_pairs, monkeypatch):
    monkeypatch.setattr(pair_distances_module, "MAX_KEPT_PAIRS", kept_pairs)
    embeddings, cohort = space
    normaliser = Cohort(cohort, nearest=5, form=form)
    score = normalised(embeddings, embeddings, cohort, form=form, nearest=5)
    *_, first, second, values, same = pairs_of(score, LABELS)
    found = class_thresholds(embeddings, LABELS, far=0.1, cohort=normaliser)
    needed = []
    for label in found.classes:
        of_class = (LABELS.numpy()[first] == label) | (LABELS.numpy()[second] == label)
        negative = np.sort(-values[~same & of_class])
        needed.append(negative[int(0.1 * len(negative))])
    assert (np.abs(found.needed - needed) <= found.possible_error + 1e-12).all()
    assert found.possible_error.max() <= (1e-2 * np.ptp(values) if kept_pairs == 0 else 0)
    assert found.common == pytest.approx(np.sort(-values[~same])[int(0.1 * (~same).sum())], abs=1e-3)
    result = em.evaluate(embeddings, LABELS, metrics=["threshold_gap@far=0.1"], cohort=normaliser)
    assert result["threshold_gap@far=0.1"] == found.gap


def test_data_sets_keep_the_cohort(space):
    embeddings, cohort = space
    members = (LABELS >= 4).long()
    normaliser = Cohort(cohort, nearest=5)
    found = threshold_consistency(embeddings, LABELS, members=members, cohort=normaliser)
    score = normalised(embeddings, embeddings, cohort, nearest=5)
    for number in (0, 1):
        inside = members == number
        positive, negative, *_ = pairs_of(score[inside][:, inside], LABELS[inside])
        tpr = np.array([(-positive <= t).mean() for t in found.thresholds])
        tnr = np.array([(-negative > t).mean() for t in found.thresholds])
        np.testing.assert_allclose(found.utility[number], 2 * tpr * tnr / (tpr + tnr), atol=1e-12)


def test_a_selection_of_rows_keeps_its_cohort(space):
    embeddings, cohort = space
    sets = prepare_sets(embeddings, LABELS, cohort=Cohort(cohort, nearest=5), query_ids=torch.arange(48) // 2)
    chosen = torch.tensor([40, 3, 11, 4, 12, 5, 2, 10])
    part = sets.select(chosen)
    score = normalised(embeddings, embeddings, cohort, nearest=5)[chosen][:, chosen]
    assert_same_digits(part.queries @ part.gallery_vectors.T, score, digits=11)
    assert part.class_labels == (0, 2, 3, 4, 5)
    assert part.labels.tolist() == LABELS[chosen].tolist()
    assert {tuple(sorted(pair)) for pair in part.excluded.tolist()} == {(1, 6), (2, 7), (3, 5)}
    mask = torch.zeros(48, dtype=torch.bool)
    mask[chosen] = True
    assert pair_distances(sets.select(mask)).negatives == pair_distances(part).negatives
    with pytest.raises(em.EquimetricError, match="all labels are the same class"):
        sets.select(LABELS == 3)
    with pytest.raises(em.EquimetricError, match="no query has a gallery item of its class"):
        sets.select(torch.arange(8))


def test_binned_distances_are_those_of_the_scores():
    """So many pairs that they are counted in bins."""
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(4200) % 60
    embeddings = torch.randn(60, 8, generator=generator)[labels] + torch.randn(4200, 8, generator=generator)
    cohort = torch.randn(200, 8, generator=generator)
    normaliser = Cohort(cohort, strength=1.0)
    found = em.evaluate(embeddings, labels, metrics=["tar@far=1e-2", "opis", "opis_far", "auc"], cohort=normaliser)
    (queries, items) = normaliser.extend(embeddings.double())
    score = queries @ items.T
    first, second = torch.triu_indices(4200, 4200, 1)
    values, same = score[first, second].numpy(), (labels[first] == labels[second]).numpy()
    positive, negative = values[same], np.sort(values[~same])[::-1]
    threshold = negative[int(0.01 * len(negative))]
    assert found["tar@far=1e-2"] == pytest.approx((positive > threshold).mean(), abs=1e-4)
    below = np.searchsorted(negative[::-1], positive) / len(negative)
    assert found["auc"] == pytest.approx(below.mean(), abs=1e-5)
    low, high = np.quantile(-negative, [1e-2, 1e-1])
    rates = threshold_consistency(embeddings, labels, cohort=normaliser)
    assert rates.calibration_range == pytest.approx((low, high), abs=1e-4)
    assert found["opis"] == pytest.approx(rates.opis, rel=1e-3)
    thresholds, negatives = np.linspace(low, high, 101), (labels[:, None] != labels).numpy()
    close = [[np.sort(-score[row].numpy()[negatives[row]]) for row in range(c, 4200, 60)] for c in range(60)]
    far = [np.mean([np.searchsorted(row, thresholds, "right") / len(row) for row in rows], axis=0) for rows in close]
    expected = np.trapezoid(np.var(far, axis=0), thresholds) / (high - low)
    assert found["opis_far"] == pytest.approx(expected, rel=1e-3)


def test_what_makes_no_sense_is_one_sentence(space):
    embeddings, cohort = space
    for options, message in (
        ({"metrics": ["nmi"]}, "'nmi' describes embeddings, which a cohort does not change"),
        ({"metrics": ["far@distance=0.5"]}, "similarities normalised by a cohort have none"),
        ({"geometry": "dot"}, "a cohort normalises cosines"),
    ):
        with pytest.raises(em.EquimetricError, match=message):
            em.evaluate(embeddings, LABELS, cohort=Cohort(cohort), **options)
    with pytest.raises(em.EquimetricError, match="the cohort has dimension 3, the embeddings 6"):
        em.evaluate(embeddings, LABELS, cohort=Cohort(cohort[:, :3]))
    for arguments in ({"strength": 1.5}, {"nearest": 0}, {"form": "half"}):
        with pytest.raises(em.EquimetricError):
            Cohort(cohort, **arguments)
    with pytest.raises(em.EquimetricError, match="there are 30 embeddings but 3 cohort labels"):
        Cohort(cohort, [1, 2, 3]).extend(embeddings)
    with pytest.raises(em.EquimetricError, match="must both be integers or both be strings"):
        Cohort(cohort, ["a"] * 30).extend(embeddings, LABELS)
    with pytest.raises(em.EquimetricError, match="all cohort embeddings are of class 2, and a sample's own class"):
        Cohort(cohort, [2] * 30).extend(embeddings, LABELS)


def test_few_classes_are_a_warning(space):
    embeddings, cohort = space
    few, enough = torch.arange(30) % 24 + 100, torch.arange(30) % 25 + 100
    with pytest.warns(EquimetricWarning, match="the cohort has 24 classes; with fewer than 25"):
        em.evaluate(embeddings, LABELS, cohort=Cohort(cohort, few))
    em.evaluate(embeddings, LABELS, cohort=Cohort(cohort, few, strength=0.0))
    em.evaluate(embeddings, LABELS, cohort=Cohort(cohort, enough))


def test_the_fingerprint_is_of_the_content(space):
    _, cohort = space
    assert Cohort(cohort).fingerprint == Cohort(cohort.numpy(), strength=1.0).fingerprint
    assert Cohort(cohort).fingerprint != Cohort(cohort.flip(0)).fingerprint
