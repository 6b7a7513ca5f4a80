"""Evaluation within parents, and in Lp and user geometries, against definitions in plain loops."""

import numpy as np
import pytest
import torch

import equimetric as em
from equimetric.errors import EquimetricError
from equimetric.evaluation import Cohort, evaluate
from equimetric.evaluation.files import read_embeddings
from equimetric.geometry import Geometry, LpGeometry

METRICS = ["recall@1", "recall@2", "precision@1", "r_precision", "map@r", "map", "mrr"]
PAIRWISE = ["auc", "eer", "tar@far=1e-1"]


def space(rows=60, classes=9, seed=3):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (rows,), generator=generator)
    return torch.randn(rows, 5, generator=generator), labels, labels // 3


def rank_within(similarity, parents, gallery_parents, itself):
    """For each query the gallery indices of its parent by falling similarity, then rising index."""
    return [
        sorted(
            (j for j in range(len(row)) if parents[i] == gallery_parents[j] and not (itself and i == j)),
            key=lambda j, row=row: (-row[j], j),
        )
        for i, row in enumerate(similarity)
    ]


@pytest.mark.parametrize("block_rows", [None, 7])
@pytest.mark.parametrize("prefilter", ["none", "bfloat16"])
def test_rankings_within_parents_are_those_of_the_definition(block_rows, prefilter, definition):
    embeddings, labels, parents = space()
    unit = torch.nn.functional.normalize(embeddings.double())
    rankings = rank_within((unit @ unit.T).tolist(), parents.tolist(), parents.tolist(), True)
    expected = definition(rankings, labels.tolist(), labels.tolist(), (1, 2))
    metrics = [name for name in METRICS if prefilter == "none" or name not in ("map", "mrr")]
    result = evaluate(
        embeddings, labels, parents=parents, metrics=metrics, block_rows=block_rows, prefilter=prefilter, neighbours=5
    )
    assert dict(result) == pytest.approx({name: expected[name] for name in metrics})
    for row, ranking in zip(result.neighbours.tolist(), rankings, strict=True):
        assert row == (ranking + [-1] * 5)[:5]


def test_within_parents_of_a_gallery(definition):
    embeddings, labels, parents = space(80)
    unit = torch.nn.functional.normalize(embeddings.double())
    rankings = rank_within((unit[:30] @ unit[30:].T).tolist(), parents[:30].tolist(), parents[30:].tolist(), False)
    expected = definition(rankings, labels[:30].tolist(), labels[30:].tolist(), (1, 2))
    result = evaluate(
        embeddings[:30],
        labels[:30],
        embeddings[30:],
        labels[30:],
        parents=parents[:30],
        gallery_parents=parents[30:],
        metrics=METRICS,
    )
    assert dict(result) == pytest.approx({name: expected[name] for name in METRICS})


def pair_rates(embeddings, labels, parents):
    """AUC and the number of pairs within parents, by definition."""
    distance = torch.cdist(embeddings, embeddings).tolist()
    rows = range(len(labels))
    pairs = [(i, j) for i in rows for j in rows if i < j and parents[i] == parents[j]]
    positive = np.array([distance[i][j] for i, j in pairs if labels[i] == labels[j]])
    negative = np.array([distance[i][j] for i, j in pairs if labels[i] != labels[j]])
    return (positive[:, None] < negative).mean() + (positive[:, None] == negative).mean() / 2


@pytest.mark.parametrize("kept", [True, False])
def test_pairs_of_two_parents_are_no_pairs(kept, monkeypatch):
    if not kept:
        monkeypatch.setattr("equimetric.evaluation.engine.pair_distances.MAX_KEPT_PAIRS", 10)
    embeddings, labels, parents = space(120)
    unit = torch.nn.functional.normalize(embeddings.double())
    expected = pair_rates(unit, labels.tolist(), parents.tolist())
    result = evaluate(embeddings.double(), labels, parents=parents, metrics=PAIRWISE)
    assert result["auc"] == pytest.approx(expected, abs=1e-9 if kept else 2e-3)
    whole = evaluate(embeddings.double(), labels, metrics=PAIRWISE)
    assert abs(whole["auc"] - expected) > 5e-3


def test_a_tile_size_changes_nothing_of_pairs_within_parents():
    embeddings, labels, parents = space(120)
    results = [
        dict(evaluate(embeddings, labels, parents=parents, metrics=[*METRICS, *PAIRWISE], block_rows=rows))
        for rows in (None, 1, 17)
    ]
    assert results[1] == pytest.approx(results[0])
    assert results[2] == pytest.approx(results[0])


def test_one_parent_changes_nothing_and_a_parent_per_class_is_perfect():
    embeddings, labels, _ = space()
    plain = evaluate(embeddings, labels, metrics=[*METRICS, *PAIRWISE])
    assert dict(evaluate(embeddings, labels, parents=["a"] * 60, metrics=[*METRICS, *PAIRWISE])) == dict(plain)
    assert set(dict(evaluate(embeddings, labels, parents=labels, metrics=METRICS)).values()) == {1.0}


def test_parents_and_a_cohort():
    embeddings, labels, parents = space()
    other = torch.randn(40, 5, generator=torch.Generator().manual_seed(9))
    result = evaluate(embeddings, labels, parents=parents, metrics=METRICS, cohort=Cohort(other, strength=0.0))
    assert dict(result) == pytest.approx(dict(evaluate(embeddings, labels, parents=parents, metrics=METRICS)))
    assert result.geometry == "cosine, cohort within parents"


def test_wrong_parents_are_errors():
    embeddings, labels, parents = space()
    with pytest.raises(EquimetricError, match="every class has one parent"):
        evaluate(embeddings, labels, parents=torch.arange(60))
    with pytest.raises(EquimetricError, match="'nmi' describes the whole space"):
        evaluate(embeddings, labels, parents=parents, metrics="nmi")
    with pytest.raises(EquimetricError, match="parents alone without"):
        evaluate(embeddings, labels, gallery_parents=parents)
    with pytest.raises(EquimetricError, match="60 embeddings but 5 parents"):
        evaluate(embeddings, labels, parents=parents[:5])


def test_parents_of_a_file_are_read_where_they_are_named(tmp_path):
    embeddings, labels, parents = space()
    arrays = {"embeddings": embeddings.numpy(), "labels": labels.numpy()}
    np.savez(tmp_path / "space.npz", **arrays, genus=parents.numpy())
    found = read_embeddings(tmp_path / "space.npz", parents="genus")
    assert dict(evaluate(**found, metrics=METRICS)) == dict(
        evaluate(embeddings, labels, parents=parents, metrics=METRICS)
    )
    with pytest.raises(EquimetricError, match="has no array 'genius' of parents; did you mean 'genus'"):
        read_embeddings(tmp_path / "space.npz", parents="genius")
    np.savez(tmp_path / "space.npz", **arrays, parents=parents.numpy())
    assert set(read_embeddings(tmp_path / "space.npz")) == {"embeddings", "labels"}
    assert set(read_embeddings(tmp_path / "space.npz", parents="parents")) == {"embeddings", "labels", "parents"}


@pytest.mark.parametrize(("name", "p"), [("l1", 1.0), ("l3", 3.0), ("linf", float("inf"))])
@pytest.mark.parametrize("block_rows", [None, 7])
def test_lp_distances_rank_as_by_definition(name, p, block_rows, definition):
    embeddings, labels, parents = space()
    unit = torch.nn.functional.normalize(embeddings)
    similarity = (-torch.cdist(unit, unit, p=p)).tolist()
    rankings = rank_within(similarity, [0] * 60, [0] * 60, True)
    expected = definition(rankings, labels.tolist(), labels.tolist(), (1, 2))
    result = evaluate(embeddings, labels, geometry=name, metrics=METRICS, block_rows=block_rows, neighbours=8)
    assert result.geometry == name
    assert result.neighbours.tolist() == [ranking[:8] for ranking in rankings]
    assert dict(result) == pytest.approx({metric: expected[metric] for metric in METRICS})
    within = evaluate(embeddings, labels, geometry=name, parents=parents, metrics=["auc"])
    assert 0 < within["auc"] < 1


def test_a_geometry_of_ones_own_and_raw_vectors():
    embeddings, labels, _ = space()
    raw = evaluate(embeddings, labels, geometry=LpGeometry(2, normalize=False), metrics=[*METRICS, *PAIRWISE])
    known = evaluate(embeddings, labels, geometry="euclidean", metrics=[*METRICS, *PAIRWISE])
    assert dict(raw) == pytest.approx(dict(known), rel=1e-5)
    own = Geometry("half_cosine", lambda q, r: q @ r.T / 2)
    assert dict(evaluate(embeddings, labels, geometry=own, metrics=METRICS)) == pytest.approx(
        dict(evaluate(embeddings, labels, metrics=METRICS))
    )
    with pytest.raises(EquimetricError, match="unknown geometry of an evaluation 'snr'"):
        em.evaluate(embeddings, labels, geometry="snr")
