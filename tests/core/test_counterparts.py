"""The counterparts of pytorch-metric-learning: all names, what they build here, and values where definitions agree."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rounding import largest_difference

import equimetric as em
from equimetric.errors import EquimetricError
from equimetric.objectives import Context, build_objective
from equimetric.objectives.counterparts import METHOD_KINDS, SITUATIONS, VERDICTS, Counterpart, counterparts

WORKED = json.loads((Path(__file__).parents[1] / "worked_values" / "counterparts.json").read_text())
EMBEDDINGS, PROXIES, LENGTHS = (
    torch.tensor(WORKED["batch"][name], dtype=torch.float64) for name in ("embeddings", "proxies", "lengths")
)
CONTEXT = Context(classes=4, dim=EMBEDDINGS.shape[1], images=len(EMBEDDINGS))
EVERY = counterparts()
ROWS = [row for row in EVERY if row.kind in (*METHOD_KINDS, "samplers", "logits")]
OBJECTIVES = [row for row in ROWS if row.ours and row.kind in METHOD_KINDS]
COMPARED = [row for row in ROWS if row.compared]
TOLERANCE = 1e-6


def name_of(row):
    return row if isinstance(row, str) else f"{row.theirs}: {row.construction}"


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
    assert {f"{row.kind}: {row.example}" for row in COMPARED} == set(WORKED["cases"])


def test_every_row_with_labels_is_compared_in_every_situation():
    for row in COMPARED:
        missing = {"each once"} if row.options.get("selection") == "triplet_rows" else set()
        reads_no_labels = row.kind == "logits" or row.theirs in ("SelfSupervisedLoss", "VICRegLoss")
        expected = {"even", "lengths"} if reads_no_labels else set(SITUATIONS) - missing
        assert set(cases_of(row)) == expected, row.theirs
    assert {row.theirs for row in COMPARED if row.unlike} >= {"GeneralizedLiftedStructureLoss", "HDCMiner"}


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


def our_numbers(row, situation):
    """The value and the compared gradients, as the row's code gives them for the worked batch."""
    case = cases_of(row)[situation]
    embeddings = EMBEDDINGS * (LENGTHS[:, None] if situation == "lengths" else 1)
    if row.kind == "logits":
        built, call = row.ours.split(").", 1)
        objective = eval(f"{built})", {"em": em, "classes": 4, "dim": EMBEDDINGS.shape[1]}).double()
        set_proxies(objective)
        variables = {"objective": objective, "embeddings": embeddings, "labels": torch.tensor(case["labels"])}
        return [eval(f"objective.{call}", variables)]
    objective = build_objective(row.ours, row.options, CONTEXT).double()
    matrices = set_proxies(objective)
    embeddings.requires_grad_()
    given = [embeddings[case["rows"]], torch.tensor(case["labels"])]
    if "reference_rows" in case:
        given += [embeddings[case["reference_rows"]], torch.tensor(case["reference_labels"])]
    value = objective(*given)
    compared = {"value": [], "embeddings": [embeddings], "all": [embeddings, *matrices]}[row.compared]
    if not compared:
        return [value]
    return [value, *torch.autograd.grad(value, compared, allow_unused=True, materialize_grads=True)]


def cases_of(row):
    """Situation → the numbers of the other library."""
    return WORKED["cases"][f"{row.kind}: {row.example}"]


@pytest.mark.parametrize(
    ("row", "situation"), [(row, situation) for row in COMPARED for situation in cases_of(row)], ids=name_of
)
def test_value_and_gradient_agree_but_where_the_row_says_otherwise(row, situation):
    case = cases_of(row)[situation]
    if situation not in row.unlike:
        assert largest_difference(our_numbers(row, situation), case) <= TOLERANCE
        return
    try:
        numbers = our_numbers(row, situation)
    except EquimetricError:
        return
    assert all(one.isfinite().all() for one in numbers)
    assert "error" in case or largest_difference(numbers, case) > 100 * TOLERANCE


@pytest.mark.parametrize("row", COMPARED, ids=name_of)
def test_what_agrees_is_not_zero(row):
    case = cases_of(row)["even"]
    assert torch.tensor(case["value"]).any() or "even" in row.unlike


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
        {"verdict": "agrees", "ours": "triplet", "example": "E", "compared": "all", "unlike": ["singletons"]},
        {"verdict": "except", "ours": "triplet", "reason": "R.", "unlike": ["singletons"]},
        {"verdict": "except", "ours": "triplet", "reason": "R.", "example": "E", "compared": "all", "unlike": ["odd"]},
    ],
)
def test_a_row_that_says_too_little_is_refused(row):
    with pytest.raises(EquimetricError, match="not complete"):
        Counterpart("losses", "X", **row)
