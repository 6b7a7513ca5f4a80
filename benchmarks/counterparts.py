"""Each public name of pytorch-metric-learning beside what stands for it here, in value and gradient.

Both sides of every example of `equimetric.objectives.counterparts` are computed on one batch in float64, with the same
proxies. Printed are the largest differences of value and gradient; a compared row must stay within 1e-6.

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
from importlib import import_module
from importlib.util import find_spec
from math import inf
from pathlib import Path

import torch

from equimetric.objectives import Context, build_objective
from equimetric.objectives.counterparts import METHOD_KINDS, Counterpart, counterparts

CLASSES, SAMPLES, DIM = 4, 4, 5
TOLERANCE = 1e-6
DIGITS = 12
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


def worked_batch() -> dict[str, torch.Tensor]:
    """Embeddings that are neither far apart nor separated, so that hinges are active on both sides."""
    generator = torch.Generator().manual_seed(0)

    def draw(rows: int) -> torch.Tensor:
        return torch.randn(rows, DIM, generator=generator, dtype=torch.float64)

    labels = torch.arange(CLASSES).repeat_interleave(SAMPLES)
    embeddings = draw(CLASSES)[labels] + draw(len(labels))
    return {"embeddings": embeddings, "labels": labels, "proxies": draw(3 * CLASSES)}


def call_rows(row: Counterpart, labels: torch.Tensor) -> dict[str, list[int]]:
    """The rows of the batch that an objective is called with, and their labels.

    Where the example takes two views, the second are the same rows shifted by one, and every sample is a class.
    """
    indices = torch.arange(len(labels))
    view_a = {"rows": indices, "labels": indices}
    view_b = {"reference_rows": indices.roll(1), "reference_labels": indices}
    special = {
        "InstanceLoss": view_a,
        "SelfSupervisedLoss": {"rows": torch.cat([indices, indices.roll(1)]), "labels": indices.repeat(2)},
        "VICRegLoss": {**view_a, **view_b},
        "EmbeddingsAlreadyPackagedAsTriplets": take_rows(torch.tensor([0, 1, 4, 4, 5, 8, 8, 9, 12, 12, 13, 0]), labels),
    }
    call = special.get(row.theirs, {"rows": indices, "labels": labels})
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
    call = call_rows(row, batch["labels"])
    rows, labels = embeddings[call["rows"]], torch.tensor(call["labels"])
    if row.theirs in ("SelfSupervisedLoss", "VICRegLoss"):
        value = loss(embeddings, ref_emb=embeddings.roll(1, 0))
    elif row.theirs == "ManifoldLoss":
        value = loss(rows, indices_tuple=labels)
    else:
        value = loss(rows, labels, None if miner is None else miner(rows, labels))
    return differentiate(value, embeddings, parameters)


def our_side(row: Counterpart, batch: dict[str, torch.Tensor]) -> Side:
    """Value and gradients of the same by Equimetric."""
    context = Context(classes=CLASSES, dim=DIM, images=len(batch["labels"]))
    objective = build_objective(row.ours, row.options, context).double()
    parameters = list(objective.parameters())
    set_vectors(parameters, batch["proxies"])
    embeddings = batch["embeddings"].clone().requires_grad_()
    call = call_rows(row, batch["labels"])
    inputs = [embeddings[call["rows"]], torch.tensor(call["labels"])]
    if "reference_rows" in call:
        inputs += [embeddings[call["reference_rows"]], torch.tensor(call["reference_labels"])]
    return differentiate(objective(*inputs), embeddings, parameters)


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


def differences(peer: Side, ours: Side) -> dict[str, float]:
    """The largest difference of the value, of the gradient by the embeddings, and of all gradients."""

    def largest(peer_tensors: list[torch.Tensor], our_tensors: list[torch.Tensor]) -> float:
        if [a.shape for a in peer_tensors] != [b.shape for b in our_tensors]:
            return inf
        return max(float((a - b).abs().max()) for a, b in zip(peer_tensors, our_tensors, strict=True))

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
    print(f"{'name':37}{'verdict':9}{'value':>10}{'gradient':>10}{'proxies':>10}  ours")
    for row in counterparts():
        if row.kind not in (*METHOD_KINDS, "samplers"):  # scores: see benchmarks/migration.py
            continue
        if not row.example:
            print(f"{row.theirs:37}{row.verdict:39}  {row.construction or row.reason}")
            continue
        peer, ours = their_side(row, batch), our_side(row, batch)
        errors = differences(peer, ours)
        failed += [] if is_within_tolerance(row, errors) else [row.theirs]
        values = "".join(f"{error:10.1e}" for error in errors.values())
        print(f"{row.theirs:37}{row.verdict:9}{values}  {row.construction}")
        if row.compared:
            stored = {"value": to_rounded(peer[0]), "gradients": [to_rounded(grad) for grad in peer[1]]}
            cases[row.example] = {**call_rows(row, batch["labels"]), **stored}
    if args.write:
        inputs = {name: tensor.tolist() for name, tensor in batch.items()}
        write_worked(args.write, {"version": version, "names": public_names(), "batch": inputs, "cases": cases})
    if failed:
        sys.exit(f"these rows do not hold: {', '.join(failed)}")


if __name__ == "__main__":
    main()
