"""Each public name of pytorch-metric-learning beside what stands for it here, in value and gradient.

Both sides of every example of `equimetric.objectives.counterparts` are computed in float64, with the same proxies, in
every situation: classes of the same and of different sizes, of single samples, a single class, embeddings of any
length. Printed are the largest differences of value and gradient; a compared row must stay within 1e-6 of the largest
number, except in the situations that the row names, where it must not.

    python benchmarks/counterparts.py                                             # print the table
    python benchmarks/counterparts.py --write tests/worked_values/counterparts.json   # store their side for the tests

Without pytorch-metric-learning (pip install "equimetric[peers]") nothing is compared.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import re
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from math import inf, isfinite
from pathlib import Path
from typing import Any

import torch

import equimetric as em
from equimetric.objectives import Context, build_objective
from equimetric.objectives.counterparts import METHOD_KINDS, SITUATIONS, Counterpart, counterparts

CLASSES, SAMPLES, DIM = 4, 4, 5
TOLERANCE = 1e-6
DIGITS = 9
"""Significant digits of the stored numbers."""

MODULES = {
    "datasets": ("[A-Z].*", ["datasets"]),
    "trainers": ("[A-Z].*", ["trainers"]),
    "testers": ("[A-Z].*", ["testers"]),
    "utils": (
        "[A-Z].*",
        [f"utils/{name}.py" for name in ("accuracy_calculator", "distributed", "inference")]
        + [f"utils/{name}.py" for name in ("logging_presets", "loss_tracker")],
    ),
}
"""What else is public: kind → a pattern of its names, and the files or folders that define them."""

Side = tuple[torch.Tensor, list[torch.Tensor]]
"""A value and its gradients, by the embeddings and by every learned matrix."""


SIZES = {"uneven": (7, 4, 3, 2), "singletons": (7, 7, 1, 1), "one class": (16,)}
"""Situation → the sizes of the classes; four of four in all others."""

VIEWS = ("SelfSupervisedLoss", "VICRegLoss")
"""Losses of two views, which have no labels: the second are the same rows shifted by one."""


def worked_batch() -> dict[str, torch.Tensor]:
    """Embeddings that are neither far apart nor separated, so that hinges are active on both sides."""
    generator = torch.Generator().manual_seed(0)

    def draw(rows: int) -> torch.Tensor:
        return torch.randn(rows, DIM, generator=generator, dtype=torch.float64)

    labels = torch.arange(CLASSES).repeat_interleave(SAMPLES)
    embeddings, proxies = draw(CLASSES)[labels] + draw(len(labels)), draw(3 * CLASSES)
    lengths = torch.logspace(-1, 1, len(labels), dtype=torch.float64)[torch.randperm(len(labels), generator=generator)]
    return {"embeddings": embeddings, "labels": labels, "proxies": proxies, "lengths": lengths}


def in_situation(batch: dict[str, torch.Tensor], situation: str) -> dict[str, torch.Tensor]:
    """The batch with the labels and embeddings of one of `SITUATIONS`."""
    sizes = torch.tensor(SIZES.get(situation, (SAMPLES,) * CLASSES))
    factors = batch["lengths"] if situation == "lengths" else torch.ones_like(batch["lengths"])
    return {
        **batch,
        "embeddings": batch["embeddings"] * factors[:, None],
        "labels": torch.arange(len(sizes)).repeat_interleave(sizes),
        "rows": torch.arange(0, CLASSES * SAMPLES, SAMPLES if situation == "each once" else 1),
    }


def case_name(row: Counterpart) -> str:
    """The name under which a row's numbers are stored."""
    return f"{row.kind}: {row.example}"


def situations_of(row: Counterpart) -> list[str]:
    """The situations that a row can be in: few where it reads no labels, and listed triplets need a positive."""
    if row.theirs in VIEWS or row.kind == "logits":
        return ["even", "lengths"]
    lists_triplets = row.options.get("selection") == "triplet_rows"
    return [situation for situation in SITUATIONS if situation != "each once" or not lists_triplets]


def list_triples(labels: torch.Tensor) -> torch.Tensor:
    """Rows of four anchors, positives and negatives; where labels have none, those of even classes."""
    first = [[0, 1, 4], [4, 5, 8], [8, 9, 12], [12, 13, 0]]
    classes = [(labels == label).nonzero().flatten().tolist() for label in labels.unique()]
    found = [
        [*rows[:2], other[0]] for rows, other in zip(classes, [*classes[1:], classes[0]], strict=True) if len(rows) > 1
    ]
    return torch.tensor(found if found and len(classes) > 1 else first).flatten()


def call_rows(row: Counterpart, batch: dict[str, torch.Tensor]) -> dict[str, list[int]]:
    """The rows of the batch that an objective is called with, and their labels.

    Where the example takes two views, the second are the same rows shifted by one, and every sample is a class.
    """
    indices, labels = torch.arange(len(batch["labels"])), batch["labels"]
    view_a = {"rows": indices, "labels": indices}
    view_b = {"reference_rows": indices.roll(1), "reference_labels": indices}
    special = {
        "SelfSupervisedLoss": {"rows": torch.cat([indices, indices.roll(1)]), "labels": indices.repeat(2)},
        "VICRegLoss": {**view_a, **view_b},
        "EmbeddingsAlreadyPackagedAsTriplets": take_rows(list_triples(labels[batch["rows"]]), labels),
    }
    call = special.get(row.theirs, take_rows(batch["rows"], labels))
    return {name: rows.tolist() for name, rows in call.items()}


def take_rows(rows: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"rows": rows, "labels": labels[rows]}


def set_vectors(parameters: list[torch.nn.Parameter], proxies: torch.Tensor) -> None:
    """Make the first proxies the value of every learned matrix, as rows or as columns."""
    for parameter in parameters:
        if parameter.ndim == 2:
            rows = parameter.shape[1] == DIM
            vectors = proxies[: parameter.shape[0] if rows else parameter.shape[1]]
            parameter.data = (vectors if rows else vectors.T).clone()


def differentiate(value: torch.Tensor, embeddings: torch.Tensor, parameters: list[torch.nn.Parameter]) -> Side:
    """A proxy's gradient in each row, however it is stored."""
    matrices = [parameter for parameter in parameters if parameter.ndim == 2]
    grads = torch.autograd.grad(value, [embeddings, *matrices], allow_unused=True, materialize_grads=True)
    return value.detach(), [grads[0], *(grad if grad.shape[1] == DIM else grad.T for grad in grads[1:])]


def their_side(row: Counterpart, batch: dict[str, torch.Tensor]) -> Side:
    """Value and gradients by the other library."""
    names = {kind: import_module(f"pytorch_metric_learning.{kind}") for kind in METHOD_KINDS}
    built = eval(row.example, {**names, "classes": CLASSES, "dim": DIM, "torch": torch})
    loss, miner = built if isinstance(built, tuple) else (built, None)
    parameters = list(loss.double().parameters()) if isinstance(loss, torch.nn.Module) else []
    set_vectors(parameters, batch["proxies"])
    embeddings = batch["embeddings"].clone().requires_grad_()
    call = call_rows(row, batch)
    rows, labels = embeddings[call["rows"]], torch.tensor(call["labels"])
    if row.kind == "logits":
        return loss.get_logits(rows).detach(), []
    if row.theirs in VIEWS:
        value = loss(embeddings, ref_emb=embeddings.roll(1, 0))
    elif row.theirs == "ManifoldLoss":
        value = loss(rows, indices_tuple=labels)
    else:
        value = loss(rows, labels, None if miner is None else miner(rows, labels))
    return differentiate(value, embeddings, parameters)


def our_side(row: Counterpart, batch: dict[str, torch.Tensor]) -> Side:
    """Value and gradients of the same by Equimetric."""
    if row.kind == "logits":
        return our_logits(row, batch), []
    context = Context(classes=CLASSES, dim=DIM, images=len(batch["labels"]))
    objective = build_objective(row.ours, row.options, context).double()
    parameters = list(objective.parameters())
    set_vectors(parameters, batch["proxies"])
    embeddings = batch["embeddings"].clone().requires_grad_()
    call = call_rows(row, batch)
    inputs = [embeddings[call["rows"]], torch.tensor(call["labels"])]
    if "reference_rows" in call:
        inputs += [embeddings[call["reference_rows"]], torch.tensor(call["reference_labels"])]
    return differentiate(objective(*inputs), embeddings, parameters)


def our_logits(row: Counterpart, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """What the row's code gives, with the worked proxies."""
    built, call = row.ours.split(").", 1)
    objective = eval(f"{built})", {"em": em, "classes": CLASSES, "dim": DIM}).double()
    set_vectors(list(objective.parameters()), batch["proxies"])
    variables = {"objective": objective, "embeddings": batch["embeddings"], "labels": batch["labels"]}
    return eval(f"objective.{call}", variables).detach()


def compute(side: Callable[[Counterpart, dict[str, torch.Tensor]], Side], *arguments: Any) -> Side | str:
    """A side, or the name of the error that it raises."""
    try:
        return side(*arguments)
    except Exception as error:
        return type(error).__name__


def public_names() -> dict[str, list[str]]:
    """The names that each module of the other library offers, its metrics, and the options of their calculator."""
    modules = {
        kind: import_module(f"pytorch_metric_learning.{kind}")
        for kind in ("losses", "miners", "samplers", "distances", "reducers", "regularizers")
    }
    calculator = import_module("pytorch_metric_learning.utils.accuracy_calculator").AccuracyCalculator
    found = {kind: [name for name, _ in inspect.getmembers(m, inspect.isclass)] for kind, m in modules.items()}
    found |= defined_names("pytorch_metric_learning", MODULES)
    found["metrics"] = [name.removeprefix("calculate_") for name in vars(calculator) if name.startswith("calculate_")]
    found["options"] = list(inspect.signature(calculator).parameters)
    classes = inspect.getmembers(modules["losses"], inspect.isclass)
    found["logits"] = [name for name, one in classes if hasattr(one, "get_logits")]
    return {kind: sorted(names) for kind, names in found.items()}


def defined_names(package: str, modules: dict[str, tuple[str, list[str]]]) -> dict[str, list[str]]:
    """Names of a package by kind, read from its files: importing them would need all that they import."""
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    root = Path(spec.origin).parent
    found: dict[str, set[str]] = {kind: set() for kind in modules}
    for kind, (pattern, places) in modules.items():
        files = [file for place in places for file in [root / place, *(root / place).rglob("*.py")] if file.is_file()]
        for file in files:
            found[kind] |= {name for name in top_names(file) if re.fullmatch(pattern, name)}
    return {kind: sorted(names) for kind, names in found.items()}


def top_names(file: Path) -> set[str]:
    """The classes, functions and registries that a file defines for others."""
    names: set[str] = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            assigned = {target.id for target in node.targets if isinstance(target, ast.Name)}
            names |= {name for name in assigned if name.endswith("_REGISTRY")}
    return {name for name in names if not name.startswith("_")}


def differences(peer: Side | str, ours: Side | str) -> dict[str, float]:
    """The largest difference of the value, of the gradient by the embeddings, and of all gradients.

    Relative to the largest number of each, where that is above 1; infinite where one side has no number.
    """

    def largest(peer_tensors: list[torch.Tensor], our_tensors: list[torch.Tensor]) -> float:
        if [a.shape for a in peer_tensors] != [b.shape for b in our_tensors]:
            return inf
        scale = max([1.0, *(float(a.abs().max()) for a in peer_tensors)])
        errors = [float((a - b).abs().max()) for a, b in zip(peer_tensors, our_tensors, strict=True)]
        return max(errors, default=0.0) / scale if all(isfinite(error) for error in errors) else inf

    if isinstance(peer, str) or isinstance(ours, str):
        return dict.fromkeys(("value", "embeddings", "all"), inf)
    return {
        "value": largest([peer[0]], [ours[0]]),
        "embeddings": largest(peer[1][:1], ours[1][:1]),
        "all": largest(peer[1], ours[1]),
    }


def is_within_tolerance(row: Counterpart, errors: dict[str, float]) -> bool:
    """Whether the compared values of a row agree within the tolerance."""
    compared = list(errors)[: list(errors).index(row.compared) + 1] if row.compared else []
    return all(errors[name] <= TOLERANCE for name in compared)


def to_rounded(tensor: torch.Tensor) -> list | float:
    """Numbers rounded for storage."""
    if tensor.ndim:
        return [to_rounded(part) for part in tensor]
    return float(f"{tensor.item():.{DIGITS}g}")


def store(side: Side | str) -> dict[str, Any]:
    """A side as JSON."""
    if isinstance(side, str) or not side[0].isfinite().all():
        return {"error": side if isinstance(side, str) else "NaN"}
    return {"value": to_rounded(side[0]), "gradients": [to_rounded(grad) for grad in side[1]]}


def write_worked(path: Path, worked: dict) -> None:
    """JSON with a line for each entry of its tables."""
    tables = {
        name: "{\n" + ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in entry.items()) + "\n}"
        if isinstance(entry, dict)
        else json.dumps(entry)
        for name, entry in worked.items()
    }
    path.write_text("{\n" + ",\n".join(f"{json.dumps(name)}: {text}" for name, text in tables.items()) + "\n}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, help="where to store the other library's side")
    args = parser.parse_args()
    try:
        version = import_module("pytorch_metric_learning").__version__
    except ImportError:
        print('pytorch-metric-learning is not installed: pip install "equimetric[peers]"')
        return
    warnings.simplefilter("ignore")
    batch, cases, failed = worked_batch(), {}, []
    print(f"{'name':37}{'verdict':9}{'value':>10}{'gradient':>10}{'proxies':>10}  ours, or the situation")
    for row in counterparts():
        if row.kind not in (*METHOD_KINDS, "samplers", "logits"):  # scores: see benchmarks/migration.py
            continue
        if not row.example:
            print(f"{row.theirs:37}{row.verdict:39}  {row.construction or row.reason}")
            continue
        for situation in situations_of(row):
            given = in_situation(batch, situation)
            peer, ours = compute(their_side, row, given), compute(our_side, row, given)
            errors = differences(peer, ours)
            holds = is_within_tolerance(row, errors) != (situation in row.unlike)
            failed += [] if holds or not row.compared else [f"{row.theirs} ({situation})"]
            values = "".join(f"{error:10.1e}" for error in errors.values())
            print(f"{row.theirs:37}{row.verdict:9}{values}  {row.construction if situation == 'even' else situation}")
            if row.compared:
                cases.setdefault(case_name(row), {})[situation] = {**call_rows(row, given), **store(peer)}
    if args.write:
        inputs = {name: tensor.tolist() for name, tensor in batch.items()}
        write_worked(args.write, {"version": version, "names": public_names(), "batch": inputs, "cases": cases})
    if failed:
        sys.exit(f"these rows do not hold: {', '.join(failed)}")


if __name__ == "__main__":
    main()
