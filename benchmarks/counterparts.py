"""Each public name of pytorch-metric-learning beside what stands for it here, in value and gradient.

Both sides of every example of `equimetric.objectives.counterparts` are computed on one batch in float64, with the same
proxies. Printed are the largest differences of value and gradient; a compared row must stay within 1e-6.

    python benchmarks/counterparts.py                                             # print the table
    python benchmarks/counterparts.py --write tests/worked_values/counterparts.json   # store their side for the tests

Without pytorch-metric-learning (pip install "equimetric[peers]") nothing is compared.
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch

from equimetric.errors import EquimetricError
from equimetric.objectives import Context, build_objective
from equimetric.objectives.counterparts import KINDS, Counterpart, counterparts

CLASSES, SAMPLES, DIM = 4, 3, 6
TOLERANCE = 1e-6


def worked_batch() -> dict[str, torch.Tensor]:
    """Embeddings that are neither far apart nor separated, so that hinges are active on both sides."""
    generator = torch.Generator().manual_seed(0)

    def draw(rows: int) -> torch.Tensor:
        return torch.randn(rows, DIM, generator=generator, dtype=torch.float64)

    labels = torch.arange(CLASSES).repeat_interleave(SAMPLES)
    embeddings = draw(CLASSES)[labels] + draw(len(labels))
    return {"embeddings": embeddings, "labels": labels, "proxies": draw(3 * CLASSES)}


def set_vectors(parameters: list[torch.nn.Parameter], proxies: torch.Tensor) -> None:
    """Make the first proxies the value of every learned matrix, as rows or as columns."""
    for parameter in parameters:
        if parameter.ndim == 2:
            rows = parameter.shape[1] == DIM
            vectors = proxies[: parameter.shape[0] if rows else parameter.shape[1]]
            parameter.data = (vectors if rows else vectors.T).clone()


def gradients(value: torch.Tensor, embeddings: torch.Tensor, parameters: list[torch.nn.Parameter]) -> list[torch.Tensor]:
    """By the embeddings and by every learned matrix, the latter with a proxy in each row."""
    matrices = [parameter for parameter in parameters if parameter.ndim == 2]
    found = torch.autograd.grad(value, [embeddings, *matrices], allow_unused=True, materialize_grads=True)
    return [found[0], *(one if one.shape[1] == DIM else one.T for one in found[1:])]


def their_side(example: str, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Value and gradients of the other library."""
    import pytorch_metric_learning as peer
    from pytorch_metric_learning import distances, losses, miners, reducers, regularizers  # noqa: F401

    modules = {kind: getattr(peer, kind) for kind in KINDS if kind != "samplers"}
    names = {**modules, "classes": CLASSES, "dim": DIM, "torch": torch, **batch}
    built = eval(example, names)
    loss, miner = built if isinstance(built, tuple) else (built, None)
    loss = loss.double()
    parameters = list(loss.parameters())
    set_vectors(parameters, batch["proxies"])
    embeddings = batch["embeddings"].clone().requires_grad_()
    if "SelfSupervised" in example or "VICReg" in example:
        value = loss(embeddings, ref_emb=embeddings.roll(1, 0))
    elif "Manifold" in example:
        value = loss(embeddings, indices_tuple=batch["labels"])
    elif "InstanceLoss" in example:
        value = loss(embeddings, torch.arange(len(embeddings)))
    else:
        value = loss(embeddings, batch["labels"], None if miner is None else miner(embeddings, batch["labels"]))
    return value.detach(), gradients(value, embeddings, parameters)


def our_side(row: Counterpart, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Value and gradients of the same by Equimetric."""
    context = Context(classes=CLASSES, dim=DIM, images=len(batch["labels"]))
    objective = build_objective(row.ours, row.options, context).double()
    parameters = list(objective.parameters())
    set_vectors(parameters, batch["proxies"])
    embeddings = batch["embeddings"].clone().requires_grad_()
    value = objective(*arguments(row, embeddings, batch["labels"]))
    return value.detach(), gradients(value, embeddings, parameters)


def arguments(row: Counterpart, embeddings: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """What our objective is called with: second views are the same rows one place on, each sample a class."""
    each = torch.arange(len(labels))
    if row.theirs == "SelfSupervisedLoss":
        return torch.cat([embeddings, embeddings.roll(1, 0)]), each.repeat(2)
    if row.theirs == "VICRegLoss":
        return embeddings, each, embeddings.roll(1, 0), each
    return embeddings, each if row.theirs == "InstanceLoss" else labels


def public_names() -> dict[str, list[str]]:
    """The classes that each module of the other library offers."""
    import pytorch_metric_learning as peer
    from pytorch_metric_learning import samplers  # noqa: F401

    return {kind: sorted(n for n, _ in inspect.getmembers(getattr(peer, kind), inspect.isclass)) for kind in KINDS}


def difference(theirs: list[torch.Tensor], ours: list[torch.Tensor]) -> float:
    if [one.shape for one in theirs] != [one.shape for one in ours]:
        return float("inf")
    return max(float((one - other).abs().max()) for one, other in zip(theirs, ours, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, help="where to store the other library's side")
    parser.add_argument("--only", nargs="+", help="names to compare")
    given = parser.parse_args()
    try:
        import pytorch_metric_learning
    except ImportError:
        print('pytorch-metric-learning is not installed: pip install "equimetric[peers]"')
        return
    warnings.simplefilter("ignore")
    batch = worked_batch()
    cases: dict[str, Any] = {}
    failed = []
    print(f"{'name':36}{'verdict':9}{'value':>10}{'gradient':>10}  ours")
    for row in counterparts():
        if not row.example or (given.only and row.theirs not in given.only):
            continue
        try:
            theirs, ours = their_side(row.example, batch), our_side(row, batch)
            value, gradient = difference([theirs[0]], [ours[0]]), difference(theirs[1], ours[1])
        except (EquimetricError, NotImplementedError, RuntimeError, IndexError, TypeError) as error:
            failed.append(row.theirs)
            print(f"{row.theirs:36}{type(error).__name__}: {error}")
            continue
        print(f"{row.theirs:36}{row.verdict:9}{value:10.1e}{gradient:10.1e}  {row.construction}")
        if row.compared:
            cases[row.example] = {"value": theirs[0].item(), "gradients": [one.tolist() for one in theirs[1]]}
            failed += [row.theirs] if max(value, gradient) > TOLERANCE else []
    if given.write:
        worked = {
            "version": pytorch_metric_learning.__version__,
            "names": public_names(),
            "batch": {name: tensor.tolist() for name, tensor in batch.items()},
            "cases": cases,
        }
        given.write.write_text(json.dumps(worked, indent=1) + "\n")
    if failed:
        sys.exit(f"these rows do not hold: {', '.join(failed)}")


if __name__ == "__main__":
    main()
