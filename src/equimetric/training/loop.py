"""The training loop: one function that reads top to bottom."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from equimetric.backbones import Backbone, EmbeddingNetwork, build_network, initial_head_by_pca
from equimetric.backbones.heads import build_head
from equimetric.batches import Batches, build_batches
from equimetric.configuration import DataConfig, RunConfig, load_config
from equimetric.data import (
    Dataset,
    Images,
    Loader,
    Split,
    Transform,
    load_dataset,
    shifted_split_of,
    split_by_classes,
    split_dataset,
    transform,
)
from equimetric.errors import EquimetricError
from equimetric.evaluation import Evaluation, evaluate
from equimetric.learners import Batch, Learner, SingleLearner
from equimetric.objectives import Context, build_objective
from equimetric.objectives.grammar import flatten_options
from equimetric.seeding import derive_seed
from equimetric.training.averaging import averaged_weights, start_average, update_average
from equimetric.training.checkpoint import (
    Checkpoint,
    copy_weights,
    load_checkpoint,
    load_weights,
    remove_checkpoints,
    save_checkpoint,
    save_weights,
)
from equimetric.training.embedding import embed_images
from equimetric.training.frozen import FeatureVectors, cached_features, with_features
from equimetric.training.gradients import add_gradients, require_no_batch_statistics
from equimetric.training.machine import Machine
from equimetric.training.optimizers import build_optimizer, clip_gradients, learning_rate_factor, set_learning_rates
from equimetric.training.processes import Processes, several_processes
from equimetric.training.run_folder import RunFolder, run_hash
from equimetric.training.sinks import Log, open_log

__all__ = [
    "Progress",
    "Trained",
    "build_learner",
    "build_run_batches",
    "context_of",
    "count_parameters",
    "data_transform",
    "holds_vectors",
    "judge",
    "load_split",
    "load_trained",
    "threads",
    "train",
]

METRICS = ("recall@1", "recall@2", "recall@4", "recall@8", "r_precision", "map@r")

SELECTED_BY = "map@r"
"""The validation metric by which the best weights are kept."""

Progress = Callable[[int, Mapping[str, float]], None]
"""Called after every step with the number of steps taken and the figures to show."""


@dataclass(frozen=True, eq=False)
class Trained:
    """A finished run: its learner with the best weights, its folder and its figures."""

    config: RunConfig
    learner: Learner
    folder: Path
    metrics: Mapping[str, float]
    validation: Mapping[str, float]
    best_step: int

    def embed(self, images: Images) -> Tensor:
        """(N, C, H, W) uint8, in memory or in files, → (N, D) unit-length embeddings."""
        return embed_images(self.learner, images)

    def __repr__(self) -> str:
        figures = ", ".join(f"{name} {value:.4f}" for name, value in self.metrics.items())
        return f"Trained({self.config.method!r}, seed {self.config.seed}, test: {figures}, {str(self.folder)!r})"


def train(
    config: RunConfig | Mapping[str, Any] | str | Path,
    *,
    folder: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Trained:
    """Train one model, keep its best weights by validation, and judge it once on the test classes.

    `config` is a TOML file, a mapping or a `RunConfig`. Run again with the same configuration and folder, a finished
    run is loaded and a killed one goes on at its last checkpoint, to the same result bit for bit. Started by torchrun
    in several processes, these train one model together.
    """
    config = load_config(config, RunConfig, overrides)
    with threads(config.training.threads), several_processes(config.training.device) as processes:
        dataset, split = load_split(config.data)
        path = Path(folder) if folder else default_folder(config, dataset)
        run = RunFolder(path, writes=processes.writes)
        with run.locked():
            result = run.result()
            finished = result is not None and same_run(run, config, dataset) and result["status"] == "done"
            if processes.told(finished):
                return load_trained(path)
            check_folder_is_ours(run, config, dataset)
            run.prepare(config, dataset.fingerprint)
            return run_training(config, dataset, split, run, processes, progress)


def load_split(config: DataConfig) -> tuple[Dataset, Split]:
    """The data set, and which of its images are for training, validation and test.

    Classes listed in a file are part of what identifies the data: with other lists it is another run.
    """
    dataset = load_dataset(config.name, **config.options)
    if config.split is None:
        return dataset, split_dataset(dataset, fold=config.fold, folds=config.folds, seed=config.split_seed)
    listed = shifted_split_of(config.split.file, config.split.number, dataset)
    split = split_by_classes(
        dataset, train=listed.train, test=listed.test, fold=config.fold, folds=config.folds, seed=config.split_seed
    )
    identity = hashlib.sha256(f"{dataset.fingerprint} {listed.train} {listed.test}".encode()).hexdigest()
    return replace(dataset, fingerprint=identity), split


def run_training(
    config: RunConfig,
    dataset: Dataset,
    split: Split,
    run: RunFolder,
    processes: Processes,
    progress: Progress | None,
) -> Trained:
    """The loop itself."""
    machine = Machine.of(config.training, processes.local_rank)
    seen = data_transform(config.data, dataset)
    judged = dataset if seen.test is None else dataset.viewed(seen.test)
    context = context_of(config, dataset, split)
    learner = build_learner(config, dataset.channels, context, vectors=holds_vectors(dataset), gather=processes.several)
    machine.place(learner, compiled=config.training.compile)
    backbone = learner.network.backbone
    if config.model.head_init == "pca":
        initial_head_by_pca(learner.network.head, cached_features(backbone, judged, processes)[split.train])
    learned_from = dataset
    if config.model.frozen:
        # From here on features stand for images and the head is the whole network; `finish` puts the backbone back.
        learned_from = judged = with_features(learner.network, judged, processes)
        seen = transform("none")
    training, validation = learned_from.subset(split.train), judged.subset(split.validation)
    looked_at = training if judged is learned_from else judged.subset(split.train)
    batches = build_run_batches(config, training.labels)
    optimizer = build_optimizer(learner, config.optimizer)
    steps, per_step, epoch = config.training.steps, config.batch.per_step, config.training.validate_every
    if config.batch.at_once is not None:
        require_no_batch_statistics(learner, steps - 1)

    state = load_checkpoint(run, learner, optimizer, batches)
    begins_anew = state is None
    state = state or Checkpoint(average=None if config.training.ema is None else start_average(learner))
    run.truncate_log(state.log_bytes)
    with open_log(run, config, state.step) as log:
        if begins_anew:
            validate(config, learner, validation, state, log, processes)
            save_checkpoint(run, state, learner, optimizer, batches)

        means = RunningMeans(config)
        began, first = time.perf_counter() - state.seconds, state.step
        for step in range(first, steps):
            if learner.begin_step(step) or step == first:
                # Other parameters learn from here on.
                learner.train()
                trainable = processes.joined(learner)
            if step % epoch == 0:
                if out_of_patience(config, state):
                    break
                machine.seed(derive_seed(config.seed, "epoch", step))
                view = cache(lambda: embed_images(learner, looked_at.images, processes=processes))
                learner.begin_epoch(view, training.labels)
                batches.take_clustering(learner.clustering())
                batches.refresh(view, training.labels)
                remaining = min(epoch, steps - step) * per_step
                loaded = load_ahead(config, training, seen, batches, processes, step * per_step, remaining)
            # Every step draws from a seed of its own, so that nothing random has to be saved.
            machine.seed(derive_seed(config.seed, "step", step))
            factor = learning_rate_factor(config.optimizer, step, steps, state.lowered)
            set_learning_rates(optimizer, factor)

            optimizer.zero_grad()
            for number in range(per_step):
                chosen, pixels = next(loaded)
                with processes.own_draws():
                    prepared = learner.prepare(pixels.to(machine.device))
                    images = machine.receive(seen.augment(prepared, torch.default_generator))
                labels, places = training.labels[chosen].to(machine.device), chosen.to(machine.device)
                terms = add_gradients(
                    trainable,
                    Batch(images, labels, places, batches.watch),
                    machine,
                    processes,
                    share=1 / per_step,
                    at_once=config.batch.at_once,
                    last=number == per_step - 1,
                )
                means.add(terms, step)
            clip_gradients(optimizer, config.optimizer)
            optimizer.step()
            if state.average is not None and config.training.ema is not None:
                update_average(state.average, learner, config.training.ema, step)

            state.step = step + 1
            state.seconds = time.perf_counter() - began
            validating = state.step % epoch == 0 or state.step == steps
            logging = validating or state.step % config.training.log_every == 0
            if logging or machine.device.type == "cpu":
                # Reading numbers makes a graphics card wait, so there only where they are needed.
                means.read()
            if logging:
                log.write(means.take(state))
            if validating:
                validate(config, learner, validation, state, log, processes)
                save_checkpoint(run, state, learner, optimizer, batches)
            if progress:
                speed = state.step * per_step * len(chosen) * processes.world / state.seconds
                progress(state.step, {**means.latest, f"best {SELECTED_BY}": state.best_value, "images/s": speed})
    return finish(config, dataset, judged, split, learner, backbone, context, state, run, processes)


def load_ahead(
    config: RunConfig,
    training: Dataset,
    seen: Transform,
    batches: Batches,
    processes: Processes,
    first: int,
    number: int,
) -> Iterator[tuple[Tensor, Tensor]]:
    """So many batches as (indices, stored images), from batch number `first` on.

    Batches are drawn ahead of their use, but never beyond this stretch, which ends where a checkpoint is saved; those
    that adapt to what they see are drawn one by one.
    """
    return iter(
        Loader(
            training.images,
            islice(processes.stream(batches), number),
            view=seen.train,
            seed=derive_seed(config.seed, "view", processes.rank),
            first=first,
            workers=config.data.workers,
            ahead=0 if adapts(batches) else 2,
        )
    )


def adapts(batches: Batches) -> bool:
    """Whether batches depend on the embeddings of those before."""
    return type(batches).watch is not Batches.watch


def out_of_patience(config: RunConfig, state: Checkpoint) -> bool:
    """Whether the best validation lies too far back."""
    patience = config.training.patience
    return patience is not None and state.step - state.best_step > patience


def validate(
    config: RunConfig, learner: Learner, validation: Dataset, state: Checkpoint, log: Log, processes: Processes
) -> None:
    """Judge the learner on the validation classes and keep a copy of its weights if they are the best so far."""
    processes.agree(learner)
    with averaged_weights(learner, state.average):
        embeddings = embed_images(learner, validation.images, processes=processes)
        own = dict(evaluate(embeddings, validation.labels, metrics=METRICS)) if processes.writes else {}
        scores = processes.told(own)
        log.write({"kind": "validation", "step": state.step, **scores})
        state.log_bytes = log.run.log_size()
        if scores[SELECTED_BY] > state.best_value:
            state.best_value, state.best_step, state.best_scores = scores[SELECTED_BY], state.step, scores
            state.best_weights = copy_weights(learner)
    plateau = config.optimizer.plateau_steps
    if plateau is not None and state.step - max(state.best_step, state.lowered_at) >= plateau:
        state.lowered, state.lowered_at = state.lowered + 1, state.step


def finish(
    config: RunConfig,
    dataset: Dataset,
    judged: Dataset,
    split: Split,
    learner: SingleLearner,
    backbone: Backbone,
    context: Context,
    state: Checkpoint,
    run: RunFolder,
    processes: Processes,
) -> Trained:
    """Load the best weights, judge them on the test classes, put the backbone back, and write the result."""
    assert state.best_weights is not None
    learner.load_state_dict(state.best_weights)
    embeddings = embed_images(learner, judged.subset(split.test).images, processes=processes)
    scores, per_query = judge(embeddings, judged, split)
    learner.network.backbone = backbone
    run.write_per_query(per_query)
    save_weights(run, "model.safetensors", copy_weights(learner))
    run.write_result(
        {
            "status": "done",
            "kind": "trained",
            "method": config.method,
            "seed": config.seed,
            "metrics": dict(scores),
            "validation": state.best_scores,
            "best_step": state.best_step,
            "steps": state.step,
            "seconds": state.seconds,
            "parameters": count_parameters(learner),
            "channels": dataset.channels,
            "vectors": holds_vectors(dataset),
            "context": asdict(context),
        }
    )
    remove_checkpoints(run)
    processes.wait()
    return Trained(config, learner, run.path, dict(scores), state.best_scores, state.best_step)


def judge(embeddings: Tensor, dataset: Dataset, split: Split) -> tuple[Evaluation, dict[str, Any]]:
    """The metrics of test embeddings, and per query its scores and its ten nearest neighbours as data-set indices.

    Every test image is looked for among all others; where the split has queries and a gallery, each query in it.
    """
    queries, gallery = (split.test, split.test) if split.query is None else (split.query, split.gallery)
    assert gallery is not None
    found, labels = embeddings[torch.searchsorted(split.test, queries)], dataset.labels[queries]
    if split.query is None:
        scores = evaluate(found, labels, metrics=METRICS, neighbours=10)
    else:
        searched = embeddings[torch.searchsorted(split.test, gallery)]
        scores = evaluate(found, labels, searched, dataset.labels[gallery], metrics=METRICS, neighbours=10)
    assert scores.neighbours is not None
    arrays = {name: values.numpy() for name, values in scores.per_query.items()}
    return scores, {
        "index": queries.numpy(),
        "labels": labels.numpy(),
        "neighbours": gallery[scores.neighbours].numpy(),
        **arrays,
    }


def count_parameters(module: nn.Module) -> int:
    """How many numbers are learned."""
    return sum(parameter.numel() for parameter in module.parameters())


def data_transform(config: DataConfig, dataset: Dataset) -> Transform:
    """How images are seen in training and test; feature vectors as they are."""
    return transform("none" if holds_vectors(dataset) else config.transform)


def holds_vectors(dataset: Dataset) -> bool:
    """Whether the data set has feature vectors in place of images."""
    return len(dataset.images.shape) == 2


def context_of(config: RunConfig, dataset: Dataset, split: Split) -> Context:
    """What an objective is told of the training data."""
    classes = len(torch.unique(dataset.labels[split.train]))
    return Context(classes=classes, dim=config.model.dim, images=len(split.train))


def build_learner(
    config: RunConfig,
    channels: int,
    context: Context,
    *,
    vectors: bool = False,
    pretrained: bool = True,
    gather: bool = False,
) -> SingleLearner:
    """The learner as it is before its first step; a function of configuration and seed.

    With `vectors` it takes feature vectors of so many channels in place of images. With `pretrained=False` no weight
    file is read, for a learner whose weights are loaded afterwards. With `gather` the batches of all processes are one.
    """
    # The network's seed does not depend on the method: all methods of a study start from the same weights.
    torch.manual_seed(derive_seed(config.seed, "network"))
    model = config.model
    if vectors:
        if model.frozen:
            raise EquimetricError("model.frozen computes features of images, and these data are features already")
        network = EmbeddingNetwork(FeatureVectors(channels), build_head(model.head, channels, model.dim, model.dropout))
    else:
        network = build_network(
            model.backbone,
            channels=channels,
            dim=model.dim,
            head=model.head,
            dropout=model.dropout,
            pooling=model.pooling,
            pretrained=model.pretrained if pretrained else None,
            frozen_batch_norm=model.frozen_batch_norm,
            freeze=model.freeze,
        )
    torch.manual_seed(derive_seed(config.seed, "objective"))
    if any(value and name.rpartition(".")[2] == "sharded" for name, value in flatten_options(config.options).items()):
        raise EquimetricError("a training run keeps all class weights in every process; leave out options.sharded")
    objective = build_objective(config.method, config.options, context)
    if gather:
        for _, part in objective.parts():
            part.gather = True
    return SingleLearner(network, objective)


def build_run_batches(config: RunConfig, labels: Tensor) -> Batches:
    """The batches of a run, as they are before its first step."""
    batch = config.batch
    return build_batches(
        batch.kind,
        labels,
        classes=batch.classes,
        samples=batch.samples,
        batches=config.training.steps * batch.per_step,
        seed=config.seed,
        options=batch.options,
    )


def load_trained(folder: str | Path) -> Trained:
    """A finished run from its folder; needs the weights, not the data it was trained on."""
    run = RunFolder(Path(folder))
    result = run.result()
    if result is None or result["status"] != "done" or result["kind"] != "trained":
        raise EquimetricError(f"{str(folder)!r} holds no finished training run; run it to its end first")
    config = load_config(run.path / "config.toml", RunConfig)
    learner = build_learner(
        config, result["channels"], Context(**result["context"]), vectors=result["vectors"], pretrained=False
    )
    weights = load_weights(run.path / "model.safetensors")
    learner.to(next((tensor.dtype for tensor in weights.values() if tensor.is_floating_point()), None))
    learner.load_state_dict(weights)
    learner.eval()
    return Trained(config, learner, run.path, result["metrics"], result["validation"], result["best_step"])


def default_folder(config: RunConfig, dataset: Dataset) -> Path:
    """runs/single/<method>/<seed>-<hash>."""
    name = config.method.replace(" ", "").replace("*", "x")
    return Path("runs") / "single" / name / f"{config.seed}-{run_hash(config, dataset.fingerprint)}"


def same_run(run: RunFolder, config: RunConfig, dataset: Dataset) -> bool:
    """Whether the folder belongs to this very configuration and data."""
    stored = load_config(run.path / "config.toml", RunConfig)
    return run_hash(stored, run.data_fingerprint()) == run_hash(config, dataset.fingerprint)


def check_folder_is_ours(run: RunFolder, config: RunConfig, dataset: Dataset) -> None:
    """Refuse to write over a run with another configuration or on other data, or to go on with it."""
    if not (run.path / "environment.json").exists() or same_run(run, config, dataset):
        return
    other = "another configuration" if run.data_fingerprint() == dataset.fingerprint else "other data"
    raise EquimetricError(f"{str(run.path)!r} holds a run with {other}; choose another folder or remove it")


class RunningMeans:
    """Means of the losses since the last line of the log, and a stop where one of them is not finite."""

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self.unread: list[tuple[int, Tensor]] = []
        self.latest: dict[str, float] = {}
        self.sums: dict[str, float] = {}
        self.count = 0

    def add(self, terms: Mapping[str, Tensor], step: int) -> None:
        """Take in the terms of a batch, without reading their values yet."""
        if not self.latest:
            self.latest = dict.fromkeys(terms, math.nan)
        self.unread.append((step, torch.stack(list(terms.values()))))

    def read(self) -> None:
        """Read the values taken in; a message instead of training on with NaN."""
        rows = torch.stack([values for _, values in self.unread]).tolist()
        for (step, _), row in zip(self.unread, rows, strict=True):
            self.latest = dict(zip(self.latest, row, strict=True))
            for name, value in self.latest.items():
                self.sums[name] = self.sums.get(name, 0.0) + value
            self.count += 1
            if not math.isfinite(sum(row)):
                self.refuse(step)
        self.unread = []

    def refuse(self, step: int) -> None:
        """Say which term is not finite."""
        terms = {**{name: value for name, value in self.latest.items() if name != "loss"}, **self.latest}
        name, value = next((name, value) for name, value in terms.items() if not math.isfinite(value))
        optimizer = self.config.optimizer
        raise EquimetricError(
            f"the term {name!r} of {self.config.method!r} became {value} at step {step + 1}; "
            f"lower optimizer.lr (now {optimizer.lr:g}) or optimizer.objective_lr (now {optimizer.objective_lr:g}), "
            "or soften the method's scale or temperature"
        )

    def take(self, state: Checkpoint) -> dict[str, Any]:
        """The log line for the steps since the last one."""
        means = {name: value / self.count for name, value in self.sums.items()}
        self.sums, self.count = {}, 0
        loss = means.pop("loss")
        return {"kind": "train", "step": state.step, "loss": loss, "terms": means, "seconds": round(state.seconds, 2)}


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Compute with this many threads inside the block: the number changes the last digits of sums."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
