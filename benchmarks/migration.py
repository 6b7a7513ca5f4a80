"""Losses and miners of open-metric-learning, and the metrics of two libraries, beside what stands for them here.

Both sides of every compared row of `equimetric.objectives.counterparts` that `benchmarks/counterparts.py` does not
compute, on the same batch in float64. Printed are the largest differences; a compared row must stay within 1e-6.

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
from equimetric.objectives.counterparts import METHOD_KINDS, Counterpart, counterparts

TRIPLES = torch.tensor([0, 1, 4, 4, 5, 8, 8, 9, 12, 12, 13, 0])
"""Rows of anchors, positives and negatives, for losses of listed triples."""

UNEVEN = [0, 1, 2, 3, 4, 5, 8, 9, 10, 12, 13, 14, 15]
"""Rows of classes of different sizes, where the mean of a mean over classes differs from that over samples."""

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
    scores = [row for row in counterparts() if row.kind not in METHOD_KINDS]
    libraries = {"open-metric-learning": counterparts("open-metric-learning"), "pytorch-metric-learning": scores}
    return [(library, row) for library, rows in libraries.items() for row in rows if row.compared]


def call_rows(row: Counterpart) -> list[int]:
    """Which rows of the batch a loss is called with."""
    return TRIPLES.tolist() if row.options.get("selection") == "triplet_rows" else list(range(16))


def their_loss(row: Counterpart, batch: dict[str, torch.Tensor]) -> peers.Side:
    """Value and gradients by open-metric-learning."""
    names = {kind: import_module(f"oml.{kind}") for kind in ("losses", "miners")}
    loss = eval(row.example, {**names, "classes": peers.CLASSES, "dim": peers.DIM})
    parameters = list(loss.double().parameters()) if isinstance(loss, torch.nn.Module) else []
    peers.set_vectors(parameters, batch["proxies"])
    embeddings = batch["embeddings"].clone().requires_grad_()
    chosen = call_rows(row)
    return peers.differentiate(loss(embeddings[chosen], batch["labels"][chosen]), embeddings, parameters)


def our_loss(row: Counterpart, batch: dict[str, torch.Tensor]) -> peers.Side:
    """Value and gradients of the same by Equimetric."""
    objective = build_objective(row.ours, row.options, Context(peers.CLASSES, peers.DIM, 16)).double()
    peers.set_vectors(list(objective.parameters()), batch["proxies"])
    embeddings = batch["embeddings"].clone().requires_grad_()
    chosen = call_rows(row)
    value = objective(embeddings[chosen], batch["labels"][chosen])
    return peers.differentiate(value, embeddings, list(objective.parameters()))


def their_metric(library: str, row: Counterpart, batch: dict[str, torch.Tensor]) -> float:
    """A score of the batch, each sample searched among the others by cosine."""
    unit, labels = torch.nn.functional.normalize(batch["embeddings"]), batch["labels"]
    if library == "pytorch-metric-learning":
        calculator = import_module("pytorch_metric_learning.utils.accuracy_calculator").AccuracyCalculator
        rows = score_rows(row)
        scores = eval(row.example, {"AccuracyCalculator": calculator}).get_accuracy(unit[rows], labels[rows])
        return float(scores.get(row.theirs, next(iter(scores.values()))))
    functions = import_module("oml.functional.metrics")
    order = (unit @ unit.T).fill_diagonal_(-2).argsort(1, descending=True)[:, :-1]
    tops = list(labels[order] == labels[:, None])
    counts = [peers.SAMPLES - 1] * len(labels)
    names = {name: getattr(functions, name) for name in ("calc_cmc", "calc_map", "calc_precision")}
    (scores,) = eval(row.example, {**names, "tops": tops, "counts": counts})
    return float(scores.double().mean())


def score_rows(row: Counterpart) -> list[int]:
    """Which rows of the batch a score is computed of."""
    return UNEVEN if row.kind == "options" else list(range(16))


def our_score(row: Counterpart, batch: dict[str, torch.Tensor]) -> float:
    """The score that the row's code gives."""
    rows = score_rows(row)
    variables = {"em": em, "embeddings": batch["embeddings"][rows], "labels": batch["labels"][rows]}
    (score,) = eval(row.construction, variables).values()
    return float(score)


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
        if row.kind in ("metrics", "options"):
            score = their_metric(library, row, batch)
            errors = {"value": abs(score - our_score(row, batch))}
            case = {"rows": score_rows(row), "value": score}
        else:
            peer = their_loss(row, batch)
            errors = peers.differences(peer, our_loss(row, batch))
            stored = {"value": peers.to_rounded(peer[0]), "gradients": [peers.to_rounded(grad) for grad in peer[1]]}
            case = {"rows": call_rows(row), **stored}
        failed += [] if peers.is_within_tolerance(row, errors) else [row.theirs]
        cases[f"{library}: {row.example}"] = case
        print(f"{row.theirs:30}{''.join(f'{error:10.1e}' for error in errors.values()):30}  {row.construction}")
    if args.write:
        inputs = {name: tensor.tolist() for name, tensor in batch.items()}
        names = peers.defined_names("oml", MODULES)
        peers.write_worked(args.write, {"names": names, "batch": inputs, "cases": cases})
    if failed:
        sys.exit(f"these rows do not hold: {', '.join(failed)}")


if __name__ == "__main__":
    main()
