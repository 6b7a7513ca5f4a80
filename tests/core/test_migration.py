"""Rows of open-metric-learning, the scores of both libraries, and the code of every row: it runs, values agree."""

import json
import re
from pathlib import Path

import pytest
import torch
from rounding import largest_difference
from website.migration_pages import migration_pages

import equimetric as em
from equimetric.errors import EquimetricError
from equimetric.objectives import Context, build_objective
from equimetric.objectives.counterparts import LIBRARIES, METHOD_KINDS, SITUATIONS, counterparts

WORKED = json.loads((Path(__file__).parents[1] / "worked_values" / "migration.json").read_text())
EMBEDDINGS, PROXIES, LENGTHS = (
    torch.tensor(WORKED["batch"][name], dtype=torch.float64) for name in ("embeddings", "proxies", "lengths")
)
LABELS = torch.tensor(WORKED["batch"]["labels"])
CONTEXT = Context(classes=4, dim=EMBEDDINGS.shape[1], images=len(EMBEDDINGS))
OTHER = counterparts("open-metric-learning")
ROWS = [("open-metric-learning", row) for row in OTHER]
ROWS += [
    ("pytorch-metric-learning", row) for row in counterparts() if row.kind not in (*METHOD_KINDS, "samplers", "logits")
]
COMPARED = [(library, row) for library, row in ROWS if row.compared]
TRIPLES = [0, 1, 4, 4, 5, 8, 8, 9, 12, 12, 13, 0]
SCORES = ("metrics", "options")
TOLERANCE = 1e-6
CODE = [(library, row) for library in LIBRARIES for row in counterparts(library) if row.construction]


def case_of(library, row):
    return WORKED["cases"][f"{library}: {row.example}"]


def name_of(value):
    return value if isinstance(value, str) else f"{value.theirs}: {value.construction}"


def test_every_public_name_has_a_row():
    names = WORKED["names"]
    assert {kind: sorted({name for row in OTHER if row.kind == kind for name in row.names}) for kind in names} == names


def test_what_agrees_is_compared():
    assert all(row.compared for _, row in ROWS if row.verdict == "agrees")
    assert all(row.compared or row.kind == "samplers" for _, row in ROWS if row.verdict == "except")
    assert {f"{library}: {row.example}" for library, row in COMPARED} == set(WORKED["cases"])


@pytest.fixture
def variables():
    """What the page tells its readers to have."""
    page = migration_pages()["migrating/index.md"][1]
    found = {}
    exec(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1], found)
    return found


@pytest.mark.parametrize(("library", "row"), CODE, ids=name_of)
def test_the_code_of_every_row_runs_as_it_stands(library, row, variables):
    assert eval(row.construction, variables) is not None


def test_code_without_its_variables_would_not_run(variables):
    with pytest.raises(EquimetricError, match="needs classes=…, dim=…"):
        eval("em.objective('arcface')", variables)


def test_what_does_not_agree_says_why():
    assert all(row.reason.endswith(".") for _, row in ROWS if row.verdict != "agrees")


@pytest.mark.parametrize("row", [row for row in OTHER if row.ours and row.kind in ("losses", "miners")], ids=name_of)
def test_every_construction_builds(row):
    rows = TRIPLES if row.options.get("selection") == "triplet_rows" else range(16)
    options = {"dim": 5, **row.options} if "references" in row.options else row.options
    assert build_objective(row.ours, options, CONTEXT)(EMBEDDINGS.float()[rows], LABELS[rows]).isfinite().all()


def our_numbers(library, row, situation):
    """The score, or the value and the gradients, as the row's code gives them for the worked batch."""
    case = case_of(library, row)[situation]
    embeddings = EMBEDDINGS * (LENGTHS[:, None] if situation == "lengths" else 1)
    rows, labels = case["rows"], torch.tensor(case["labels"])
    if row.kind in SCORES:
        (score,) = eval(row.construction, {"em": em, "embeddings": embeddings[rows], "labels": labels}).values()
        return [torch.tensor(score, dtype=torch.float64)]
    objective = build_objective(row.ours, row.options, CONTEXT).double()
    matrices = [parameter for parameter in objective.parameters() if parameter.ndim == 2]
    for parameter in matrices:
        parameter.data = PROXIES[: len(parameter)].clone()
    embeddings.requires_grad_()
    value = objective(embeddings[rows], labels)
    return [value, *torch.autograd.grad(value, [embeddings, *matrices])]


@pytest.mark.parametrize(
    ("library", "row", "situation"),
    [(library, row, situation) for library, row in COMPARED for situation in case_of(library, row)],
    ids=name_of,
)
def test_value_and_gradient_agree_but_where_the_row_says_otherwise(library, row, situation):
    case = case_of(library, row)[situation]
    if situation not in row.unlike:
        assert largest_difference(our_numbers(library, row, situation), case) <= TOLERANCE
        return
    try:
        numbers = our_numbers(library, row, situation)
    except EquimetricError:
        return
    assert "error" in case or largest_difference(numbers, case) > 100 * TOLERANCE


@pytest.mark.parametrize(("library", "row"), COMPARED, ids=name_of)
def test_every_row_is_compared_in_every_situation(library, row):
    without_triples = row.options.get("selection") == "triplet_rows" or row.kind in SCORES
    missing = {"each once"} if without_triples else set()
    missing |= {"one class"} if row.kind in SCORES else set()
    assert set(case_of(library, row)) == set(SITUATIONS) - missing
    value = case_of(library, row)["even"]["value"]
    assert 0 < value < 1 if row.kind in SCORES else value != 0


def test_an_unknown_library_is_named_with_those_that_are_known():
    assert set(LIBRARIES) == {"pytorch-metric-learning", "open-metric-learning"}
    with pytest.raises(EquimetricError, match="open-metric-learning"):
        counterparts("open_metric_learning")


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((), {"indices_tuple": (0, 1, 2)}, "no indices_tuple=…; give triplets as triplets=torch.stack([anchors, "),
        ((), {"ref_emb": EMBEDDINGS}, "no ref_emb=…; references follow the labels: objective(embeddings, labels, ref"),
        ((), {"ref_labels": LABELS}, "no ref_labels=…; references follow the labels"),
        (
            ((LABELS, LABELS, LABELS),),
            {},
            "got a tuple; give triplets as triplets=torch.stack([anchors, positives, neg",
        ),
    ],
)
@pytest.mark.parametrize("method", ["triplet", "contrastive+tcm"])
def test_calls_of_the_other_library_say_how_to_call_here(method, arguments, options, message):
    with pytest.raises(EquimetricError, match=re.escape(message)):
        em.objective(method)(EMBEDDINGS, LABELS, *arguments, **options)
