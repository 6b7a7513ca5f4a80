"""Rows of open-metric-learning, and the metrics of both libraries: they build, and agree with the stored values."""

import json
from pathlib import Path

import pytest
import torch

import equimetric as em
from equimetric.batches import build_batches
from equimetric.errors import EquimetricError
from equimetric.objectives import Context, build_objective
from equimetric.objectives.counterparts import KINDS, LIBRARIES, counterparts

WORKED = json.loads((Path(__file__).parents[1] / "worked_values" / "migration.json").read_text())
EMBEDDINGS, PROXIES = (torch.tensor(WORKED["batch"][name], dtype=torch.float64) for name in ("embeddings", "proxies"))
LABELS = torch.tensor(WORKED["batch"]["labels"])
CONTEXT = Context(classes=4, dim=EMBEDDINGS.shape[1], images=len(EMBEDDINGS))
OTHER = counterparts("open-metric-learning")
ROWS = [("open-metric-learning", row) for row in OTHER]
ROWS += [("pytorch-metric-learning", row) for row in counterparts() if row.kind not in KINDS]
COMPARED = [(library, row) for library, row in ROWS if row.compared]
TRIPLES = [0, 1, 4, 4, 5, 8, 8, 9, 12, 12, 13, 0]
NAMES = {
    "losses": {"ArcFaceLoss", "ArcFaceLossWithMLP", "SurrogatePrecision", "TripletLoss", "TripletLossPlain"}
    | {"TripletLossWithMiner"},
    "miners": {"AllTripletsMiner", "HardClusterMiner", "HardTripletsMiner", "MinerWithBank", "NHardTripletsMiner"}
    | {"PairsMiner", "TripletMinerWithMemory"},
    "samplers": {"BalanceSampler", "CategoryBalanceSampler", "DistinctCategoryBalanceSampler"},
}
"""The public classes of open-metric-learning 4.0."""


def case_of(library, row):
    return WORKED["cases"][f"{library}: {row.example}"]


def name_of(value):
    return value if isinstance(value, str) else f"{value.theirs}: {value.construction}"


def test_every_public_name_has_a_row():
    assert {kind: {row.theirs for row in OTHER if row.kind == kind} for kind in NAMES} == NAMES


def test_what_agrees_is_compared_unless_it_is_drawn_at_random():
    assert [row.theirs for _, row in ROWS if row.verdict == "agrees" and not row.compared] == ["BalanceSampler"]
    assert {f"{library}: {row.example}" for library, row in COMPARED} == set(WORKED["cases"])


def test_what_does_not_agree_says_why():
    assert all(row.reason.endswith(".") for _, row in ROWS if row.verdict != "agrees")


@pytest.mark.parametrize("row", [row for row in OTHER if row.ours and row.kind in ("losses", "miners")], ids=name_of)
def test_every_construction_builds(row):
    rows = TRIPLES if row.options.get("selection") == "triplet_rows" else range(16)
    options = {"dim": 5, **row.options} if "references" in row.options else row.options
    assert build_objective(row.ours, options, CONTEXT)(EMBEDDINGS.float()[rows], LABELS[rows]).isfinite().all()


@pytest.mark.parametrize("row", [row for row in OTHER if row.kind == "samplers"], ids=name_of)
def test_every_sampler_builds(row):
    labels = torch.arange(8).repeat_interleave(4)
    options = dict(row.options)
    shape = {name: options.pop(name) for name in ("classes", "samples")}
    if "superclass" in options:
        options["superclass"] = (labels // 4).tolist()
    assert len(build_batches(row.ours, labels, **shape, batches=3, options=options).batch(0)) == 8


@pytest.mark.parametrize(("library", "row"), [one for one in COMPARED if one[1].kind != "metrics"], ids=name_of)
def test_value_and_gradient_agree(library, row):
    case = case_of(library, row)
    objective = build_objective(row.ours, row.options, CONTEXT).double()
    matrices = [parameter for parameter in objective.parameters() if parameter.ndim == 2]
    for parameter in matrices:
        parameter.data = PROXIES[: len(parameter)].clone()
    embeddings = EMBEDDINGS.clone().requires_grad_()
    value = objective(embeddings[case["rows"]], LABELS[case["rows"]])
    assert value.item() == pytest.approx(case["value"], abs=1e-6)
    assert case["value"] != 0
    found = torch.autograd.grad(value, [embeddings, *matrices])
    for one, other in zip(found, case["gradients"], strict=True):
        torch.testing.assert_close(one, torch.tensor(other, dtype=torch.float64), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("library", "row"), [one for one in ROWS if one[1].kind == "metrics" and one[1].ours], ids=name_of
)
def test_metrics_agree(library, row):
    score = em.evaluate(EMBEDDINGS, LABELS, metrics=[row.ours])[row.ours]
    if row.compared:
        assert score == pytest.approx(case_of(library, row)["value"], abs=1e-6)
        assert 0 < score < 1


def test_an_unknown_library_is_named_with_those_that_are_known():
    assert set(LIBRARIES) == {"pytorch-metric-learning", "open-metric-learning"}
    with pytest.raises(EquimetricError, match="open-metric-learning"):
        counterparts("open_metric_learning")
