"""Losses and miners of open-metric-learning, and the metrics of two libraries, beside what stands for them here.

Both sides of every compared row of `equimetric.objectives.counterparts` that `benchmarks/counterparts.py` does not
compute, on the same batches in float64, in every situation; those that a row names are where it must not agree.

    python benchmarks/migration.py                                               # print the table
    python benchmarks/migration.py --write tests/worked_values/migration.json    # store their side for the tests

Needs both libraries: pip install "equimetric[peers]" open-metric-learning.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path

import torch

import counterparts as peers
import equimetric as em
from equimetric.objectives import Context, build_objective
from equimetric.objectives.counterparts import SITUATIONS, Counterpart, counterparts

SCORES = ("metrics", "options")

MODULES = {
    "losses": ("[A-Z].*", ["losses"]),
    "miners": ("[A-Z].*", ["miners"]),
    "samplers": ("[A-Z].*", ["samplers"]),
    "functional": ("[a-zA-Z]*_.*|[A-Z][a-z].*", ["functional/metrics.py", "metrics"]),
    "datasets": ("[A-Z][a-zA-Z]*Dataset|Dataset.*", ["datasets"]),
    "transforms": ("get_.*", ["transforms"]),
    "models": (".*Extractor.*|.*Siamese|HFWrapper", ["models"]),
    "retrieval": ("[A-Z].*", ["retrieval"]),
    "inference": ("[a-z].*", ["inference"]),
    "lightning": ("[A-Z].*|.*_pipeline", ["lightning"]),
    "ddp": (".*", ["ddp"]),
    "registry": (".*_REGISTRY", ["registry"]),
}
"""Kind → a pattern of its names, and the files or folders of open-metric-learning that define them."""


def compared_rows() -> list[tuple[str, Counterpart]]:
    """Every row that is compared here, with its library."""
    scores = [row for row in counterparts() if row.kind in SCORES]
    libraries = {"open-metric-learning": counterparts("open-metric-learning"), "pytorch-metric-learning": scores}
    return [(library, row) for library, rows in libraries.items() for row in rows if row.compared]


def call_rows(row: Counterpart, batch: dict[str, torch.Tensor]) -> list[int]:
    """Which rows of the batch a loss is called with."""
    lists_triplets = row.options.get("selection") == "triplet_rows"
    return (peers.list_triples(batch["labels"]) if lists_triplets else batch["rows"]).tolist()


def their_loss(row: Counterpart, batch: dict[str, torch.Tensor]) -> peers.Side:
    """Value and gradients by open-metric-learning."""
    names = {kind: import_module(f"oml.{kind}") for kind in ("losses", "miners")}
    loss = eval(row.example, {**names, "classes": peers.CLASSES, "dim": peers.DIM})
    parameters = list(loss.double().parameters()) if isinstance(loss, torch.nn.Module) else []
    peers.set_vectors(parameters, batch["proxies"])
    embeddings = batch["embeddings"].clone().requires_grad_()
    chosen = call_rows(row, batch)
    return peers.differentiate(loss(embeddings[chosen], batch["labels"][chosen]), embeddings, parameters)


def our_loss(row: Counterpart, batch: dict[str, torch.Tensor]) -> peers.Side:
    """Value and gradients of the same by Equimetric."""
    objective = build_objective(row.ours, row.options, Context(peers.CLASSES, peers.DIM, 16)).double()
    peers.set_vectors(list(objective.parameters()), batch["proxies"])
    embeddings = batch["embeddings"].clone().requires_grad_()
    chosen = call_rows(row, batch)
    value = objective(embeddings[chosen], batch["labels"][chosen])
    return peers.differentiate(value, embeddings, list(objective.parameters()))


def their_metric(library: str, row: Counterpart, batch: dict[str, torch.Tensor]) -> float:
    """A score of the batch, each sample searched among the others by cosine."""
    unit, labels = torch.nn.functional.normalize(batch["embeddings"]), batch["labels"]
    if library == "pytorch-metric-learning":
        calculator = import_module("pytorch_metric_learning.utils.accuracy_calculator").AccuracyCalculator
        scores = eval(row.example, {"AccuracyCalculator": calculator}).get_accuracy(unit, labels)
        return float(scores.get(row.theirs, next(iter(scores.values()))))
    functions = import_module("oml.functional.metrics")
    order = (unit @ unit.T).fill_diagonal_(-2).argsort(1, descending=True)[:, :-1]
    tops = list(labels[order] == labels[:, None])
    counts = ((labels == labels[:, None]).sum(1) - 1).tolist()
    names = {name: getattr(functions, name) for name in ("calc_cmc", "calc_map", "calc_precision")}
    (scores,) = eval(row.example, {**names, "tops": tops, "counts": counts})
    return float(scores.double().mean())


def our_score(row: Counterpart, batch: dict[str, torch.Tensor]) -> float:
    """The score that the row's code gives."""
    variables = {"em": em, "embeddings": batch["embeddings"], "labels": batch["labels"]}
    (score,) = eval(row.construction, variables).values()
    return float(score)


def situations_of(row: Counterpart) -> list[str]:
    """The situations that a row can be in: a score needs relevant items and others, listed triplets a positive."""
    if row.kind in SCORES:
        return [situation for situation in SITUATIONS if situation not in ("each once", "one class")]
    lists_triplets = row.options.get("selection") == "triplet_rows"
    return [situation for situation in SITUATIONS if situation != "each once" or not lists_triplets]


def both_sides(library: str, row: Counterpart, batch: dict[str, torch.Tensor]) -> tuple[peers.Side | str, ...]:
    """Theirs and ours, a score as a value without gradients."""

    def as_side(score: float) -> peers.Side:
        return torch.tensor(score, dtype=torch.float64), []

    if row.kind not in SCORES:
        return peers.compute(their_loss, row, batch), peers.compute(our_loss, row, batch)
    return (
        peers.compute(lambda: as_side(their_metric(library, row, batch))),
        peers.compute(lambda: as_side(our_score(row, batch))),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, help="where to store the other side")
    args = parser.parse_args()
    try:
        import_module("oml"), import_module("pytorch_metric_learning")
    except ImportError as error:
        print(f'{error.name} is not installed: pip install "equimetric[peers]" open-metric-learning')
        return
    batch, cases, failed = peers.worked_batch(), {}, []
    for library, row in compared_rows():
        for situation in situations_of(row):
            given = peers.in_situation(batch, situation)
            peer, ours = both_sides(library, row, given)
            errors = peers.differences(peer, ours)
            holds = peers.is_within_tolerance(row, errors) != (situation in row.unlike)
            failed += [] if holds else [f"{row.theirs} ({situation})"]
            rows = given["rows"].tolist() if row.kind in SCORES else call_rows(row, given)
            case = {"rows": rows, "labels": given["labels"][rows].tolist(), **peers.store(peer)}
            cases.setdefault(f"{library}: {row.example}", {})[situation] = case
            values = "".join(f"{error:10.1e}" for error in errors.values())
            print(f"{row.theirs:30}{values}  {row.construction if situation == 'even' else situation}")
    if args.write:
        inputs = {name: tensor.tolist() for name, tensor in batch.items()}
        names = peers.defined_names("oml", MODULES)
        peers.write_worked(args.write, {"names": names, "batch": inputs, "cases": cases})
    if failed:
        sys.exit(f"these rows do not hold: {', '.join(failed)}")


if __name__ == "__main__":
    main()
