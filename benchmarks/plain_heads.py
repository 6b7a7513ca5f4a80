"""One training of a head on features as a bare PyTorch loop, and as a loop of pytorch-metric-learning.

Both do what a run does and nothing else: the same classes, batch shape, steps, optimiser, validations and test, the
best weights kept in memory. The bare losses are plain tensor arithmetic, as one writes it for one loss. The peer's loop
has its sampler, its loss and miner, and its AccuracyCalculator; batches are gathered at once, not collated row by row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import cos, sin

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from equimetric.runs.configuration import RunConfig
from objectives import peers

Clock = Callable[[], float]
Scores = dict[str, float]


@dataclass
class Parts:
    """Features and labels of the three parts, labels of the training classes 0, 1, …"""

    train: tuple[Tensor, Tensor]
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]

    @property
    def classes(self) -> int:
        return int(self.train[1].max()) + 1


@dataclass
class Timing:
    """Seconds of a training and of its single steps, and the scores of its test classes."""

    whole: float = 0.0
    steps: list[float] = field(default_factory=list)
    scores: Scores = field(default_factory=dict)


# The bare losses.


def pair_masks(labels: Tensor) -> tuple[Tensor, Tensor]:
    same = labels[:, None] == labels
    return same.clone().fill_diagonal_(False), ~same


def distances(unit: Tensor) -> Tensor:
    return (2 - 2 * unit @ unit.T).clamp_min(1e-12).sqrt()


def mean_nonzero(terms: Tensor) -> Tensor:
    return terms.sum() / (terms > 0).sum().clamp_min(1)


class PlainContrastive(nn.Module):
    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        distance = distances(F.normalize(embeddings))
        positive, negative = pair_masks(labels)
        return mean_nonzero(distance * positive) + mean_nonzero((1 - distance).relu() * negative)


class PlainTripletSemihard(nn.Module):
    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        distance = distances(F.normalize(embeddings))
        positive, negative = pair_masks(labels)
        violation = distance[:, :, None] - distance[:, None, :]
        semihard = positive[:, :, None] & negative[:, None, :] & (violation < 0) & (violation > -0.2)
        return mean_nonzero((violation + 0.2).relu() * semihard)


class PlainMultiSimilarityMiner(nn.Module):
    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        unit = F.normalize(embeddings)
        similarity = unit @ unit.T
        positive, negative = pair_masks(labels)
        with torch.no_grad():
            hardest = similarity.masked_fill(~negative, -2).amax(1, keepdim=True)
            easiest = similarity.masked_fill(~positive, 2).amin(1, keepdim=True)
            positive = positive & (similarity < hardest + 0.1)
            negative = negative & (similarity > easiest - 0.1)
        pull = ((-2 * (similarity - 0.5)).exp() * positive).sum(1).log1p() / 2
        push = ((50 * (similarity - 0.5)).exp() * negative).sum(1).log1p() / 50
        return (pull + push).mean()


class PlainArcFace(nn.Module):
    def __init__(self, classes: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, dim))

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        cosine = F.normalize(embeddings) @ F.normalize(self.weight).T
        target_cosine = cosine.gather(1, labels[:, None])
        widened = target_cosine * cos(0.5) - (1 - target_cosine.square()).clamp_min(1e-7).sqrt() * sin(0.5)
        widened = torch.where(target_cosine >= -cos(0.5), widened, target_cosine - 0.5 * sin(0.5))
        return F.cross_entropy(64 * cosine.scatter(1, labels[:, None], widened), labels)


class PlainMargin(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.beta = nn.Parameter(torch.tensor(1.2))

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        distance, dim = distances(F.normalize(embeddings)), embeddings.shape[1]
        positive, negative = pair_masks(labels)
        with torch.no_grad():
            allowed = negative & (distance < 1.4)
            bounded = torch.where(allowed, distance.clamp_min(0.5), 1.0)
            log_weight = (2 - dim) * bounded.log() - (dim - 3) / 2 * (1 - bounded.square() / 4).log()
            weight = log_weight.masked_fill(~allowed, -torch.inf).softmax(1).nan_to_num(0)
            anchor, match = positive.nonzero(as_tuple=True)
            negative_index = torch.multinomial(weight[anchor] + 1e-30, 1)[:, 0]
            usable = weight.sum(1)[anchor] > 0
            anchor, match, negative_index = anchor[usable], match[usable], negative_index[usable]
        pull = (0.2 + distance[anchor, match] - self.beta).relu()
        push = (0.2 - distance[anchor, negative_index] + self.beta).relu()
        return (pull.sum() + push.sum()) / ((pull > 0).sum() + (push > 0).sum()).clamp_min(1)


class PlainFastAP(nn.Module):
    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        unit = F.normalize(embeddings)
        squared = 2 - 2 * unit @ unit.T
        positive, negative = pair_masks(labels)
        nodes = torch.linspace(0, 4, 11)
        pulse = (1 - (squared[:, :, None] - nodes).abs() / 0.4).relu()
        num_positive = (pulse * positive[:, :, None]).sum(1)
        num_negative = (pulse * negative[:, :, None]).sum(1).cumsum(1)
        total = num_positive.cumsum(1) + num_negative
        missed = (num_positive * num_negative / total.clamp_min(1e-12)).sum(1)
        return (missed / positive.sum(1)).mean()


BARE: dict[str, Callable[[int, int], nn.Module]] = {
    "contrastive": lambda c, d: PlainContrastive(),
    "triplet_semihard": lambda c, d: PlainTripletSemihard(),
    "multi_similarity_miner": lambda c, d: PlainMultiSimilarityMiner(),
    "arcface": PlainArcFace,
    "margin": lambda c, d: PlainMargin(),
    "fastap": lambda c, d: PlainFastAP(),
}


# Batches, optimiser and scores of the bare loop.


def draw_batches(labels: Tensor, classes: int, samples: int) -> Iterator[Tensor]:
    members = [(labels == label).nonzero()[:, 0] for label in range(int(labels.max()) + 1)]
    while True:
        chosen = torch.randperm(len(members))[:classes].tolist()
        yield torch.cat([members[c][torch.randperm(len(members[c]))[:samples]] for c in chosen])


def build_optimizer(config: RunConfig, head: nn.Module, loss: nn.Module) -> torch.optim.Optimizer:
    settings = config.optimizer
    groups = [{"params": list(head.parameters()), "lr": settings.lr, "weight_decay": settings.weight_decay}]
    if any(True for _ in loss.parameters()):
        loss_settings = {"lr": settings.objective_lr, "weight_decay": settings.objective_weight_decay}
        groups.append({"params": list(loss.parameters()), **loss_settings})
    if settings.name == "rmsprop":
        return torch.optim.RMSprop(groups, momentum=0.9)
    return {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}[settings.name](groups)


def bare_scores(embeddings: Tensor, labels: Tensor) -> Scores:
    similarity = (embeddings @ embeddings.T).fill_diagonal_(-2)
    same = labels[:, None] == labels
    num_relevant = same.sum(1) - 1
    max_relevant = int(num_relevant.max())
    hits = same.gather(1, similarity.topk(max_relevant).indices) & (torch.arange(max_relevant) < num_relevant[:, None])
    precision = hits.cumsum(1) / torch.arange(1, max_relevant + 1)
    return {
        "map@r": float(((precision * hits).sum(1) / num_relevant).mean()),
        "recall@1": float(hits[:, 0].float().mean()),
    }


def peer_scores(calculator: object, embeddings: Tensor, labels: Tensor) -> Scores:
    scores = calculator.get_accuracy(embeddings, labels)
    return {"map@r": scores["mean_average_precision_at_r"], "recall@1": scores["precision_at_1"]}


def train_head(
    config: RunConfig,
    parts: Parts,
    start: dict[str, Tensor],
    batches: Iterator[tuple[Tensor, Tensor]],
    loss: nn.Module,
    miner: Callable[[Tensor, Tensor], object] | None,
    score: Callable[[Tensor, Tensor], Scores],
    clock: Clock,
) -> Timing:
    """The loop of both sides: steps, validations between them, the best weights, the test."""
    timing, run_start = Timing(), clock()
    head = nn.Linear(*start["weight"].T.shape)
    head.load_state_dict(start)
    optimizer = build_optimizer(config, head, loss)

    def measure(part: tuple[Tensor, Tensor]) -> Scores:
        with torch.no_grad():
            return score(F.normalize(head(part[0])), part[1])

    best, best_weights = measure(parts.validation)["map@r"], start
    step_start = time.perf_counter()
    for step in range(1, config.training.steps + 1):
        features, labels = next(batches)
        embeddings = head(features)
        value = loss(embeddings, labels) if miner is None else loss(embeddings, labels, miner(embeddings, labels))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        timing.steps.append(time.perf_counter() - step_start)
        if step % config.training.validate_every == 0:
            map_at_r = measure(parts.validation)["map@r"]
            if map_at_r > best:
                best, best_weights = map_at_r, {name: values.clone() for name, values in head.state_dict().items()}
        step_start = time.perf_counter()
    head.load_state_dict(best_weights)
    timing.scores = measure(parts.test)
    timing.whole = clock() - run_start
    return timing


def train_bare(config: RunConfig, parts: Parts, start: dict[str, Tensor], clock: Clock = time.perf_counter) -> Timing:
    features, labels = parts.train
    row_batches = draw_batches(labels, config.batch.classes, config.batch.samples)
    batches = ((features.index_select(0, rows), labels[rows]) for rows in row_batches)
    loss = BARE[config.method](parts.classes, config.model.dim)
    return train_head(config, parts, start, batches, loss, None, bare_scores, clock)


def train_peer(config: RunConfig, parts: Parts, start: dict[str, Tensor], clock: Clock = time.perf_counter) -> Timing:
    from functools import partial

    from pytorch_metric_learning.samplers import MPerClassSampler
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    features, labels = parts.train
    size = config.batch.classes * config.batch.samples
    rows = config.training.steps * size
    sampler = MPerClassSampler(labels, m=config.batch.samples, batch_size=size, length_before_new_iter=rows)
    drawn = torch.tensor(list(sampler)).split(size)
    batches = ((features.index_select(0, rows), labels[rows]) for rows in drawn)
    loss, miner = peers()[config.method](parts.classes, config.model.dim)
    calculator = AccuracyCalculator(include=("mean_average_precision_at_r", "precision_at_1"), k="max_bin_count")
    return train_head(config, parts, start, batches, loss, miner, partial(peer_scores, calculator), clock)
