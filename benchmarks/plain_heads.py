"""One training of a head on features as a bare PyTorch loop, and as a loop of pytorch-metric-learning.

Both do what a run does and nothing else: the same classes, batch shape, steps, optimiser, validations and test, the
best weights kept in memory. The bare losses are plain tensor arithmetic, as one writes it for one loss. The peer's loop
is a DataLoader with its sampler, its loss and miner, and its AccuracyCalculator.
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


def relation(labels: Tensor) -> tuple[Tensor, Tensor]:
    same = labels[:, None] == labels
    return same.clone().fill_diagonal_(False), ~same


def distances(unit: Tensor) -> Tensor:
    return (2 - 2 * unit @ unit.T).clamp_min(1e-12).sqrt()


def mean_above_zero(terms: Tensor) -> Tensor:
    return terms.sum() / (terms > 0).sum().clamp_min(1)


class Contrastive(nn.Module):
    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        distance = distances(F.normalize(embeddings))
        positive, negative = relation(labels)
        return mean_above_zero(distance * positive) + mean_above_zero((1 - distance).relu() * negative)


class TripletSemihard(nn.Module):
    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        distance = distances(F.normalize(embeddings))
        positive, negative = relation(labels)
        violation = distance[:, :, None] - distance[:, None, :]
        semihard = positive[:, :, None] & negative[:, None, :] & (violation < 0) & (violation > -0.2)
        return mean_above_zero((violation + 0.2).relu() * semihard)


class MultiSimilarityMiner(nn.Module):
    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        unit = F.normalize(embeddings)
        similarity = unit @ unit.T
        positive, negative = relation(labels)
        with torch.no_grad():
            hardest = similarity.masked_fill(~negative, -2).amax(1, keepdim=True)
            easiest = similarity.masked_fill(~positive, 2).amin(1, keepdim=True)
            positive = positive & (similarity < hardest + 0.1)
            negative = negative & (similarity > easiest - 0.1)
        pull = ((-2 * (similarity - 0.5)).exp() * positive).sum(1).log1p() / 2
        push = ((50 * (similarity - 0.5)).exp() * negative).sum(1).log1p() / 50
        return (pull + push).mean()


class ArcFace(nn.Module):
    def __init__(self, classes: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, dim))

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        cosine = F.normalize(embeddings) @ F.normalize(self.weight).T
        own = cosine.gather(1, labels[:, None])
        widened = own * cos(0.5) - (1 - own.square()).clamp_min(1e-7).sqrt() * sin(0.5)
        widened = torch.where(own >= -cos(0.5), widened, own - 0.5 * sin(0.5))
        return F.cross_entropy(64 * cosine.scatter(1, labels[:, None], widened), labels)


class Margin(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.beta = nn.Parameter(torch.tensor(1.2))

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        distance, dim = distances(F.normalize(embeddings)), embeddings.shape[1]
        positive, negative = relation(labels)
        with torch.no_grad():
            allowed = negative & (distance < 1.4)
            bounded = torch.where(allowed, distance.clamp_min(0.5), 1.0)
            log_weight = (2 - dim) * bounded.log() - (dim - 3) / 2 * (1 - bounded.square() / 4).log()
            weight = log_weight.masked_fill(~allowed, -torch.inf).softmax(1).nan_to_num(0)
            anchor, match = positive.nonzero(as_tuple=True)
            drawn = torch.multinomial(weight[anchor] + 1e-30, 1)[:, 0]
            usable = weight.sum(1)[anchor] > 0
            anchor, match, drawn = anchor[usable], match[usable], drawn[usable]
        pull = (0.2 + distance[anchor, match] - self.beta).relu()
        push = (0.2 - distance[anchor, drawn] + self.beta).relu()
        return (pull.sum() + push.sum()) / ((pull > 0).sum() + (push > 0).sum()).clamp_min(1)


class FastAP(nn.Module):
    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        unit = F.normalize(embeddings)
        squared = 2 - 2 * unit @ unit.T
        positive, negative = relation(labels)
        nodes = torch.linspace(0, 4, 11)
        pulse = (1 - (squared[:, :, None] - nodes).abs() / 0.4).relu()
        right = (pulse * positive[:, :, None]).sum(1)
        wrong = (pulse * negative[:, :, None]).sum(1).cumsum(1)
        both = right.cumsum(1) + wrong
        missed = (right * wrong / both.clamp_min(1e-12)).sum(1)
        return (missed / positive.sum(1)).mean()


BARE: dict[str, Callable[[int, int], nn.Module]] = {
    "contrastive": lambda c, d: Contrastive(),
    "triplet_semihard": lambda c, d: TripletSemihard(),
    "multi_similarity_miner": lambda c, d: MultiSimilarityMiner(),
    "arcface": ArcFace,
    "margin": lambda c, d: Margin(),
    "fastap": lambda c, d: FastAP(),
}


def peers() -> dict[str, Callable[[int, int], tuple]]:
    """Method → the peer's loss and miner for C classes and D dimensions, with equal options; none without it."""
    try:
        from pytorch_metric_learning import losses, miners
    except ImportError:
        return {}
    return {
        "contrastive": lambda c, d: (losses.ContrastiveLoss(pos_margin=0, neg_margin=1), None),
        "triplet_semihard": lambda c, d: (
            losses.TripletMarginLoss(margin=0.2),
            miners.TripletMarginMiner(margin=0.2, type_of_triplets="semihard"),
        ),
        "multi_similarity_miner": lambda c, d: (
            losses.MultiSimilarityLoss(alpha=2, beta=50, base=0.5),
            miners.MultiSimilarityMiner(epsilon=0.1),
        ),
        "arcface": lambda c, d: (losses.ArcFaceLoss(c, d), None),
        "margin": lambda c, d: (losses.MarginLoss(), miners.DistanceWeightedMiner()),
        "fastap": lambda c, d: (losses.FastAPLoss(), None),
    }


# What the bare loop draws, steps and measures with.


def draw_batches(labels: Tensor, classes: int, samples: int) -> Iterator[Tensor]:
    members = [(labels == label).nonzero()[:, 0] for label in range(int(labels.max()) + 1)]
    while True:
        chosen = torch.randperm(len(members))[:classes].tolist()
        yield torch.cat([members[c][torch.randperm(len(members[c]))[:samples]] for c in chosen])


def build_optimizer(config: RunConfig, head: nn.Module, loss: nn.Module) -> torch.optim.Optimizer:
    own = config.optimizer
    groups = [{"params": list(head.parameters()), "lr": own.lr, "weight_decay": own.weight_decay}]
    if any(True for _ in loss.parameters()):
        learned = {"lr": own.objective_lr, "weight_decay": own.objective_weight_decay}
        groups.append({"params": list(loss.parameters()), **learned})
    if own.name == "rmsprop":
        return torch.optim.RMSprop(groups, momentum=0.9)
    return {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}[own.name](groups)


def bare_scores(embeddings: Tensor, labels: Tensor) -> Scores:
    similarity = (embeddings @ embeddings.T).fill_diagonal_(-2)
    same = labels[:, None] == labels
    numbers = same.sum(1) - 1
    most = int(numbers.max())
    hits = same.gather(1, similarity.topk(most).indices) & (torch.arange(most) < numbers[:, None])
    precision = hits.cumsum(1) / torch.arange(1, most + 1)
    return {"map@r": float(((precision * hits).sum(1) / numbers).mean()), "recall@1": float(hits[:, 0].float().mean())}


def peer_scores(calculator: object, embeddings: Tensor, labels: Tensor) -> Scores:
    found = calculator.get_accuracy(embeddings, labels)
    return {"map@r": found["mean_average_precision_at_r"], "recall@1": found["precision_at_1"]}


def train_plainly(
    config: RunConfig,
    parts: Parts,
    start: dict[str, Tensor],
    batches: Iterator[tuple[Tensor, Tensor]],
    loss: nn.Module,
    miner: Callable[[Tensor, Tensor], object] | None,
    score: Callable[[Tensor, Tensor], Scores],
    clock: Clock,
) -> Timing:
    """The loop that both have: steps, validations between them, the best weights, the test."""
    timing, began = Timing(), clock()
    head = nn.Linear(*start["weight"].T.shape)
    head.load_state_dict(start)
    optimizer = build_optimizer(config, head, loss)

    def measure(part: tuple[Tensor, Tensor]) -> Scores:
        with torch.no_grad():
            return score(F.normalize(head(part[0])), part[1])

    best, kept = measure(parts.validation)["map@r"], start
    since = time.perf_counter()
    for step in range(1, config.training.steps + 1):
        features, labels = next(batches)
        embeddings = head(features)
        value = loss(embeddings, labels) if miner is None else loss(embeddings, labels, miner(embeddings, labels))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        timing.steps.append(time.perf_counter() - since)
        if step % config.training.validate_every == 0:
            found = measure(parts.validation)["map@r"]
            if found > best:
                best, kept = found, {name: values.clone() for name, values in head.state_dict().items()}
        since = time.perf_counter()
    head.load_state_dict(kept)
    timing.scores = measure(parts.test)
    timing.whole = clock() - began
    return timing


def train_bare(config: RunConfig, parts: Parts, start: dict[str, Tensor], clock: Clock = time.perf_counter) -> Timing:
    features, labels = parts.train
    drawn = draw_batches(labels, config.batch.classes, config.batch.samples)
    batches = ((features.index_select(0, rows), labels[rows]) for rows in drawn)
    loss = BARE[config.method](parts.classes, config.model.dim)
    return train_plainly(config, parts, start, batches, loss, None, bare_scores, clock)


def train_peer(config: RunConfig, parts: Parts, start: dict[str, Tensor], clock: Clock = time.perf_counter) -> Timing:
    from functools import partial

    from pytorch_metric_learning.samplers import MPerClassSampler
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
    from torch.utils.data import DataLoader, TensorDataset

    features, labels = parts.train
    size = config.batch.classes * config.batch.samples
    rows = config.training.steps * size
    sampler = MPerClassSampler(labels, m=config.batch.samples, batch_size=size, length_before_new_iter=rows)
    batches = iter(DataLoader(TensorDataset(features, labels), batch_size=size, sampler=sampler))
    loss, miner = peers()[config.method](parts.classes, config.model.dim)
    calculator = AccuracyCalculator(include=("mean_average_precision_at_r", "precision_at_1"), k="max_bin_count")
    return train_plainly(config, parts, start, batches, loss, miner, partial(peer_scores, calculator), clock)
