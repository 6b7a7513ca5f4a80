"""The counterparts of pytorch-metric-learning: all names, what they build here, and values where definitions agree."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import equimetric as em
from equimetric.errors import EquimetricError
from equimetric.objectives import Context, build_objective
from equimetric.objectives.counterparts import METHOD_KINDS, VERDICTS, Counterpart, counterparts

WORKED = json.loads((Path(__file__).parents[1] / "worked_values" / "counterparts.json").read_text())
EMBEDDINGS, PROXIES = (torch.tensor(WORKED["batch"][name], dtype=torch.float64) for name in ("embeddings", "proxies"))
CONTEXT = Context(classes=4, dim=EMBEDDINGS.shape[1], images=len(EMBEDDINGS))
EVERY = counterparts()
ROWS = [row for row in EVERY if row.kind in (*METHOD_KINDS, "samplers")]
OBJECTIVES = [row for row in ROWS if row.ours and row.kind != "samplers"]
TOLERANCE = 1e-6


def name_of(row):
    return f"{row.theirs}: {row.construction}"


def test_every_public_name_has_a_row():
    found = {
        kind: sorted({name for row in EVERY if row.kind == kind for name in row.names}) for kind in WORKED["names"]
    }
    assert found == WORKED["names"]


def test_every_name_has_a_counterpart_or_a_reason():
    for row in EVERY:
        assert row.verdict in VERDICTS
        assert row.construction or row.reason.endswith("."), row.theirs
        if row.verdict != "agrees":
            assert row.reason.endswith("."), row.theirs


def test_what_agrees_is_compared_and_what_is_drawn_says_so():
    assert all(row.compared for row in EVERY if row.verdict == "agrees")
    assert all(row.compared or row.kind == "samplers" for row in EVERY if row.verdict == "except")
    assert {row.theirs for row in EVERY if row.verdict == "drawn"} == {"FixedSetOfTriplets", "MPerClassSampler"}
    assert {row.example for row in ROWS if row.compared} == set(WORKED["cases"])


@pytest.mark.parametrize("row", OBJECTIVES, ids=name_of)
def test_every_construction_builds(row):
    objective = build_objective(row.ours, row.options, CONTEXT)
    assert isinstance(objective, em.Objective | em.ObjectiveSum)


def set_proxies(objective):
    """Their proxies as those of the objective, row by row."""
    matrices = [parameter for parameter in objective.parameters() if parameter.ndim == 2]
    for parameter in matrices:
        parameter.data = PROXIES[: len(parameter)].clone()
    return matrices


@pytest.mark.parametrize("row", [row for row in ROWS if row.compared], ids=name_of)
def test_value_and_gradient_agree(row):
    case = WORKED["cases"][row.example]
    objective = build_objective(row.ours, row.options, CONTEXT).double()
    matrices = set_proxies(objective)
    embeddings = EMBEDDINGS.clone().requires_grad_()
    given = [embeddings[case["rows"]], torch.tensor(case["labels"])]
    if "reference_rows" in case:
        given += [embeddings[case["reference_rows"]], torch.tensor(case["reference_labels"])]
    value = objective(*given)
    assert value.item() == pytest.approx(case["value"], abs=TOLERANCE)
    assert case["value"] != 0
    if row.compared == "value":
        return
    compared = [embeddings, *(matrices if row.compared == "all" else [])]
    found = torch.autograd.grad(value, compared, allow_unused=True, materialize_grads=True)
    expected = [torch.tensor(one, dtype=torch.float64) for one in case["gradients"]]
    assert len(expected) == len(compared) or row.compared == "embeddings"
    for one, other in zip(found, expected, strict=False):
        torch.testing.assert_close(one, other, rtol=0, atol=TOLERANCE)


def test_rows_are_read_without_torch():
    code = "import sys; from equimetric.objectives.counterparts import counterparts; counterparts();"
    code += "sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_construction_is_code():
    row = Counterpart("losses", "X", "agrees", ours="triplet", options={"margin": 0.1, "selection.margin": 0.2})
    assert row.construction == "em.objective('triplet', margin=0.1, **{'selection.margin': 0.2})"
    proxies = Counterpart("losses", "X", "agrees", ours="arcface", options={"scale": 8.0}, variables=["classes", "dim"])
    assert proxies.construction == "em.objective('arcface', classes=classes, dim=dim, scale=8.0)"
    sampler = Counterpart("samplers", "Y", "agrees", ours="class_balanced", options={"classes_per_batch": 4})
    assert sampler.construction == "em.batches.class_balanced(labels, classes_per_batch=4)"
    other = Counterpart("trainers", "Z", "differs", ours="em.train", reason="R.")
    assert other.construction == "em.train"


@pytest.mark.parametrize(
    "row",
    [
        {"verdict": "differs", "ours": "triplet"},
        {"verdict": "none"},
        {"verdict": "agrees"},
        {"verdict": "none", "ours": "triplet", "reason": "R."},
        {"verdict": "agrees", "ours": "triplet", "compared": "all"},
        {"verdict": "perhaps", "ours": "triplet", "reason": "R."},
    ],
)
def test_a_row_that_says_too_little_is_refused(row):
    with pytest.raises(EquimetricError, match="not complete"):
        Counterpart("losses", "X", **row)
