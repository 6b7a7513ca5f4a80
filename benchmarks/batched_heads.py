"""Heads of several runs trained together, by batched products, beside heads trained alone.

Together, the losses are computed one by one, or by losses written for a batch of runs. All take turns in one process;
printed are medians of the processor time of a step, in microseconds of one run.

    python benchmarks/batched_heads.py
    python benchmarks/batched_heads.py --together 2 16
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from math import cos, sin

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import equimetric as em
from equimetric.threads import use_threads
from equimetric.training.updates import apply_updates

IMAGES, FEATURES, DIM, CLASSES, PER_CLASS = 2220, 1280, 128, 37, 60
ROUNDS, STEPS = 13, 40

Step = Callable[[int], None]


def pair_masks(labels: Tensor) -> tuple[Tensor, Tensor]:
    """(K, B, B) positives and negatives of K batches."""
    same = labels[:, :, None] == labels[:, None, :]
    positive = same.clone()
    positive.diagonal(dim1=1, dim2=2).fill_(False)
    return positive, ~same


def distances(embeddings: Tensor) -> Tensor:
    unit = F.normalize(embeddings, dim=-1)
    return (2 - 2 * unit @ unit.mT).clamp_min(1e-12).sqrt()


def mean_nonzero(terms: Tensor) -> Tensor:
    terms = terms.flatten(1)
    return (terms.sum(1) / (terms > 0).sum(1).clamp_min(1)).sum()


class BatchedContrastive(nn.Module):
    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        distance, (positive, negative) = distances(embeddings), pair_masks(labels)
        return mean_nonzero(distance * positive) + mean_nonzero((1 - distance).relu() * negative)


class BatchedTripletSemihard(nn.Module):
    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        distance, (positive, negative) = distances(embeddings), pair_masks(labels)
        violation = distance[..., None] - distance[:, :, None, :]
        semihard = positive[..., None] & negative[:, :, None, :] & (violation < 0) & (violation > -0.2)
        return mean_nonzero((violation + 0.2).relu() * semihard)


class BatchedMultiSimilarityMiner(nn.Module):
    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        unit, (positive, negative) = F.normalize(embeddings, dim=-1), pair_masks(labels)
        similarity = unit @ unit.mT
        with torch.no_grad():
            hardest = similarity.masked_fill(~negative, -2).amax(2, keepdim=True)
            easiest = similarity.masked_fill(~positive, 2).amin(2, keepdim=True)
            positive, negative = positive & (similarity < hardest + 0.1), negative & (similarity > easiest - 0.1)
        pull = ((-2 * (similarity - 0.5)).exp() * positive).sum(2).log1p() / 2
        push = ((50 * (similarity - 0.5)).exp() * negative).sum(2).log1p() / 50
        return (pull + push).mean(1).sum()


class BatchedArcFace(nn.Module):
    def __init__(self, runs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(runs, CLASSES, DIM))

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        cosine = F.normalize(embeddings, dim=-1) @ F.normalize(self.weight, dim=-1).mT
        target_cosine = cosine.gather(2, labels[..., None])
        widened = target_cosine * cos(0.5) - (1 - target_cosine.square()).clamp_min(1e-7).sqrt() * sin(0.5)
        widened = torch.where(target_cosine >= -cos(0.5), widened, target_cosine - 0.5 * sin(0.5))
        logits = 64 * cosine.scatter(2, labels[..., None], widened)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum") / labels.shape[1]


BATCHED: dict[str, Callable[[int], nn.Module]] = {
    "contrastive": lambda _: BatchedContrastive(),
    "triplet_semihard": lambda _: BatchedTripletSemihard(),
    "multi_similarity_miner": lambda _: BatchedMultiSimilarityMiner(),
    "arcface": BatchedArcFace,
}


class Heads(nn.Module):
    """The linear heads of K runs."""

    def __init__(self, runs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(runs, FEATURES, DIM) / FEATURES**0.5)
        self.bias = nn.Parameter(torch.zeros(runs, 1, DIM))

    def forward(self, features: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, features.view(len(self.weight), -1, FEATURES), self.weight)


class Trainer:
    """K heads on the same features, their losses one by one or, with `batched`, at once."""

    def __init__(self, method: str, runs: int, *, batched: bool = False) -> None:
        self.runs = runs
        self.features = torch.randn(IMAGES, FEATURES)
        self.labels = torch.arange(IMAGES) // PER_CLASS
        loss_options = {"classes": CLASSES, "dim": DIM} if method == "arcface" else {}
        self.batched = BATCHED[method](runs) if batched else None
        self.losses = nn.ModuleList([] if batched else [em.objective(method, **loss_options) for _ in range(runs)])
        self.head = nn.Linear(FEATURES, DIM) if runs == 1 else Heads(runs)
        loss_parameters = [*self.losses.parameters(), *(self.batched.parameters() if self.batched else ())]
        self.optimizer = torch.optim.AdamW([*self.head.parameters(), *loss_parameters], lr=1e-3)
        self.rows = torch.stack([self.draw() for _ in range(64 * runs)]).view(64, runs, 32)

    @staticmethod
    def draw() -> Tensor:
        return torch.cat([PER_CLASS * c + torch.randperm(PER_CLASS)[:4] for c in torch.randperm(CLASSES)[:8].tolist()])

    def step(self, index: int) -> None:
        rows = self.rows[index % len(self.rows)]
        for parameter in self.optimizer.param_groups[0]["params"]:
            parameter.grad = None
        features = self.features.index_select(0, rows.view(-1))
        embeddings, labels = self.head(features).view(self.runs, -1, DIM), self.labels[rows]
        if self.batched is not None:
            loss = self.batched(embeddings, labels)
        else:
            loss = sum(loss_function(embeddings[run], labels[run]) for run, loss_function in enumerate(self.losses))
        loss.backward()
        apply_updates(self.optimizer)

    def measure(self) -> float:
        start = time.process_time()
        for index in range(STEPS):
            self.step(index)
        return (time.process_time() - start) / STEPS / self.runs * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=list(BATCHED))
    parser.add_argument("--together", nargs="+", type=int, default=[4, 8])
    args = parser.parse_args()
    torch.manual_seed(0)
    names = [f"{kind}, {runs}" for kind in ("one by one", "batched") for runs in args.together]
    print(f"{'µs a step and run':<24}{'alone':>10}" + "".join(f"{name:>16}" for name in names))
    with use_threads(1):
        for method in args.methods:
            trainers = [Trainer(method, 1)]
            trainers += [Trainer(method, runs, batched=batched) for batched in (False, True) for runs in args.together]
            rounds = [[trainer.measure() for trainer in trainers] for _ in range(ROUNDS)]
            single, *together = (statistics.median(times[1:]) for times in zip(*rounds, strict=True))
            print(
                f"{method:<24}{single:>10.0f}" + "".join(f"{microseconds:>16.0f}" for microseconds in together),
                flush=True,
            )


if __name__ == "__main__":
    main()
