"""Members beside the whole: their scores, their diversity, the cost, and the tables."""

import pytest
import torch

import equimetric as em
from equimetric.evaluation import evaluate
from equimetric.learners import Batch
from equimetric.losses.hierarchical_triplet import HierarchicalTriplet
from equimetric.report.page import study_tables
from equimetric.runs.members import linear_cka
from equimetric.training import train

CONFIG = {
    "method": "contrastive",
    "learner": {"name": "naive_ensemble", "options": {"members": 3}},
    "data": {"name": "digits"},
    "model": {"dim": 10},
    "batch": {"classes": 3, "samples": 4},
    "training": {"steps": 6, "validate_every": 3},
    "evaluation": {"metrics": ["map@r", "recall@1"]},
}


def test_every_member_is_evaluated_by_itself(tmp_path):
    model = train(CONFIG, folder=tmp_path)
    result = model.result
    assert [(member.name, member.dim) for member in result.members] == [("member1", 4), ("member2", 3), ("member3", 3)]
    dataset = em.load_dataset("digits")
    test = torch.isin(dataset.labels, dataset.labels.unique()[5:])
    learner = model.learner.eval()
    with torch.no_grad():
        outputs = learner.outputs(Batch.unlabelled(learner.prepare(dataset.images[test])))
    for member in result.members:
        expected = evaluate(learner.members(outputs)[member.name], dataset.labels[test], metrics=["map@r"])
        assert member.metrics["map@r"] == pytest.approx(expected["map@r"], abs=1e-6)
    right = [
        evaluate(rows, dataset.labels[test], metrics=["recall@1"]).per_query["recall@1"]
        for rows in learner.members(outputs).values()
    ]
    differ = [(right[a] != right[b]).double().mean() for a, b in ((0, 1), (0, 2), (1, 2))]
    assert result.diversity.disagreement == pytest.approx(float(sum(differ)) / 3, abs=1e-3)
    assert 0 < result.diversity.unlikeness < 1
    assert result.cost.forward_passes == 3
    assert result.cost.dim == 10


def test_a_learner_of_one_has_no_members(tmp_path):
    result = train({**CONFIG, "learner": {"name": "single"}, "method": "arcface"}, folder=tmp_path).result
    assert result.members == ()
    assert result.diversity is None
    assert result.cost.forward_passes == 1
    assert result.cost.training_only == 3 * 10, "the class weights"


def test_members_of_frozen_features_are_slices_of_one_head(tmp_path):
    frozen = {"dim": 10, "frozen": True, "backbone": "small_cnn", "head_init": "random"}
    result = train({**CONFIG, "model": frozen}, folder=tmp_path).result
    assert result.cost.forward_passes == 1
    assert [member.dim for member in result.members] == [4, 3, 3]


def test_objectives_of_members_see_the_whole_training_set_by_their_own_member(tmp_path, monkeypatch):
    seen = []

    def note(part, embeddings, labels):
        rows = embeddings()
        seen.append((id(part), rows.shape, len(labels)))
        assert torch.allclose(rows.norm(dim=1), torch.ones(len(labels)))

    monkeypatch.setattr(HierarchicalTriplet, "on_epoch", note)
    train({**CONFIG, "method": "hierarchical_triplet"}, folder=tmp_path)
    assert {shape[1] for _, shape, _ in seen} == {4, 3}
    assert len({part for part, _, _ in seen}) == 3
    assert all(shape[0] == images for _, shape, images in seen)


def test_alignment_knows_rotations_and_scale():
    generator = torch.Generator().manual_seed(0)
    one = torch.randn(200, 4, dtype=torch.float64, generator=generator)
    rotation = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64, generator=generator)).Q
    assert linear_cka(one, 3 * one @ rotation + 1) == pytest.approx(1)
    assert linear_cka(one, torch.randn(200, 4, dtype=torch.float64, generator=generator)) < 0.1
    assert linear_cka(one, torch.zeros(200, 4)) == 0


def test_a_study_shows_members_and_costs(tmp_path):
    methods = {"one": {"method": "contrastive"}, "three": {"method": "contrastive", "learner": CONFIG["learner"]}}
    conditions = {name: CONFIG[name] for name in ("data", "model", "batch", "training", "evaluation")}
    study = {"name": "ensembles", "seeds": [0, 1], "baselines": [], "methods": methods, **conditions}
    tables = study_tables(em.compare(study, output=tmp_path, engine="serial").record)
    rows = [[cell.text for cell in row.cells] for row in tables["members"].rows]
    assert [row[:3] for row in rows] == [
        ["three", "all together", "10"],
        ["three", "member1", "4"],
        ["three", "member2", "3"],
        ["three", "member3", "3"],
    ]
    assert "±" in rows[1][4]
    cost = {row.cells[0].text: [cell.text for cell in row.cells] for row in tables["cost"].rows}
    assert (cost["one"][4], cost["three"][4]) == ("1", "3")
