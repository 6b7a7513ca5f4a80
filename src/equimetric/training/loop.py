"""The training loop: one function that reads top to bottom."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from equimetric.backbones import build_network
from equimetric.batches import Batches, build_batches
from equimetric.catalogue import Context, build_objective
from equimetric.configuration import DataConfig, RunConfig, load_config
from equimetric.data import Dataset, Split, augmentation, class_disjoint_split, load_dataset, prepare
from equimetric.errors import EquimetricError
from equimetric.evaluation import Evaluation, evaluate
from equimetric.learners import Batch, Learner, SingleLearner
from equimetric.seeding import derive_seed
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
from equimetric.training.optimizers import build_optimizer, set_learning_rates
from equimetric.training.run_folder import RunFolder, run_hash

__all__ = [
    "Progress",
    "Trained",
    "build_learner",
    "build_run_batches",
    "count_parameters",
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

    def embed(self, images: Tensor) -> Tensor:
        """(N, C, H, W) uint8 → (N, D) unit-length embeddings."""
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
    run is loaded and a killed one goes on at its last checkpoint, to the same result bit for bit.
    """
    config = load_config(config, RunConfig, overrides)
    with threads(config.training.threads):
        dataset, split = load_split(config.data)
        path = Path(folder) if folder else default_folder(config, dataset)
        run = RunFolder(path)
        with run.locked():
            result = run.result()
            if result is not None and same_run(run, config, dataset) and result["status"] == "done":
                return load_trained(path)
            check_folder_is_ours(run, config)
            run.prepare(config, dataset.fingerprint)
            return run_training(config, dataset, split, run, progress)


def load_split(config: DataConfig) -> tuple[Dataset, Split]:
    """The data set, and which of its images are for training, validation and test."""
    dataset = load_dataset(config.name, **config.options)
    return dataset, class_disjoint_split(dataset.labels, fold=config.fold, folds=config.folds)


def run_training(
    config: RunConfig, dataset: Dataset, split: Split, run: RunFolder, progress: Progress | None
) -> Trained:
    """The loop itself."""
    training = dataset.subset(split.train)
    validation = dataset.subset(split.validation)
    augment = augmentation(config.data.augmentation)
    batches = build_run_batches(config, training.labels)
    context = Context(classes=training.classes, dim=config.model.dim, images=len(training))
    learner = build_learner(config, training.channels, context)
    optimizer = build_optimizer(learner, config.optimizer)
    steps = config.training.steps

    state = load_checkpoint(run.path, learner, optimizer, batches)
    if state is None:
        state = Checkpoint()
        run.truncate_log(0)
        validate(learner, validation, state, run)
        save_checkpoint(run.path, state, learner, optimizer, batches)
    else:
        run.truncate_log(state.log_bytes)

    sums = RunningMeans()
    began = time.perf_counter() - state.seconds
    learner.train()
    stream = batches.stream()
    for step in range(state.step, steps):
        if step % config.training.validate_every == 0:
            torch.manual_seed(derive_seed(config.seed, "epoch", step))
            view = cache(lambda: embed_images(learner, training.images))
            learner.begin_epoch(view, training.labels)
            batches.refresh(view, training.labels)
        # Every step draws from a seed of its own, so that nothing random has to be saved.
        torch.manual_seed(derive_seed(config.seed, "step", step))
        chosen = next(stream)
        images = augment(prepare(training.images[chosen]), torch.default_generator)
        set_learning_rates(optimizer, config.optimizer.schedule, step / steps)

        losses = learner.losses(Batch(images, training.labels[chosen], chosen, batches.watch))
        loss = torch.stack(list(losses.values())).sum()
        require_finite(losses, step, config)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

        state.step = step + 1
        state.seconds = time.perf_counter() - began
        values = {"loss": loss.item(), **{name: value.item() for name, value in losses.items()}}
        sums.add(values)
        validating = state.step % config.training.validate_every == 0 or state.step == steps
        if validating or state.step % config.training.log_every == 0:
            run.log(sums.take(state))
        if validating:
            validate(learner, validation, state, run)
            save_checkpoint(run.path, state, learner, optimizer, batches)
        if progress:
            speed = state.step * len(chosen) / state.seconds
            progress(state.step, {**values, f"best {SELECTED_BY}": state.best_value, "images/s": speed})
    return finish(config, dataset, split, learner, context, state, run)


def validate(learner: Learner, validation: Dataset, state: Checkpoint, run: RunFolder) -> None:
    """Judge the learner on the validation classes and keep a copy of its weights if they are the best so far."""
    scores = evaluate(embed_images(learner, validation.images), validation.labels, metrics=METRICS)
    run.log({"kind": "validation", "step": state.step, **scores})
    state.log_bytes = run.log_size()
    if scores[SELECTED_BY] > state.best_value:
        state.best_value, state.best_step = scores[SELECTED_BY], state.step
        state.best_weights = copy_weights(learner)


def finish(
    config: RunConfig,
    dataset: Dataset,
    split: Split,
    learner: Learner,
    context: Context,
    state: Checkpoint,
    run: RunFolder,
) -> Trained:
    """Load the best weights, judge them on the test classes, and write the result."""
    assert state.best_weights is not None
    learner.load_state_dict(state.best_weights)
    scores, per_query = judge(embed_images(learner, dataset.images[split.test]), dataset, split)
    validation = next(
        {name: value for name, value in line.items() if name not in ("kind", "step")}
        for line in run.history()
        if line["kind"] == "validation" and line["step"] == state.best_step
    )
    run.write_per_query(per_query)
    save_weights(run.path / "model.safetensors", state.best_weights)
    run.write_result(
        {
            "status": "done",
            "kind": "trained",
            "method": config.method,
            "seed": config.seed,
            "metrics": dict(scores),
            "validation": validation,
            "best_step": state.best_step,
            "steps": state.step,
            "seconds": state.seconds,
            "parameters": count_parameters(learner),
            "channels": dataset.channels,
            "context": asdict(context),
        }
    )
    remove_checkpoints(run.path)
    return Trained(config, learner, run.path, dict(scores), validation, state.best_step)


def judge(embeddings: Tensor, dataset: Dataset, split: Split) -> tuple[Evaluation, dict[str, Any]]:
    """The metrics of test embeddings, and per query its scores and its ten nearest neighbours as data-set indices."""
    scores = evaluate(embeddings, dataset.labels[split.test], metrics=METRICS, neighbours=10)
    assert scores.neighbours is not None
    arrays = {name: values.numpy() for name, values in scores.per_query.items()}
    return scores, {
        "index": split.test.numpy(),
        "labels": dataset.labels[split.test].numpy(),
        "neighbours": split.test[scores.neighbours].numpy(),
        **arrays,
    }


def count_parameters(module: nn.Module) -> int:
    """How many numbers are learned."""
    return sum(parameter.numel() for parameter in module.parameters())


def build_learner(config: RunConfig, channels: int, context: Context) -> Learner:
    """The learner as it is before its first step; a function of configuration and seed."""
    # The network's seed does not depend on the method: all methods of a study start from the same weights.
    torch.manual_seed(derive_seed(config.seed, "network"))
    model = config.model
    network = build_network(model.backbone, channels=channels, dim=model.dim, head=model.head, dropout=model.dropout)
    torch.manual_seed(derive_seed(config.seed, "objective"))
    return SingleLearner(network, build_objective(config.method, config.options, context))


def build_run_batches(config: RunConfig, labels: Tensor) -> Batches:
    """The batches of a run, as they are before its first step."""
    batch = config.batch
    return build_batches(
        batch.kind,
        labels,
        classes=batch.classes,
        samples=batch.samples,
        batches=config.training.steps,
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
    learner = build_learner(config, result["channels"], Context(**result["context"]))
    learner.load_state_dict(load_weights(run.path / "model.safetensors"))
    learner.eval()
    return Trained(config, learner, run.path, result["metrics"], result["validation"], result["best_step"])


def default_folder(config: RunConfig, dataset: Dataset) -> Path:
    """runs/single/<method>/<seed>-<hash>."""
    name = config.method.replace(" ", "").replace("*", "x")
    return Path("runs") / "single" / name / f"{config.seed}-{run_hash(config, dataset.fingerprint)}"


def same_run(run: RunFolder, config: RunConfig, dataset: Dataset) -> bool:
    """Whether the folder belongs to this very configuration and data."""
    stored = load_config(run.path / "config.toml", RunConfig)
    return run_hash(stored, dataset.fingerprint) == run_hash(config, dataset.fingerprint)


def check_folder_is_ours(run: RunFolder, config: RunConfig) -> None:
    """Refuse to write over a run with another configuration."""
    file = run.path / "config.toml"
    if file.exists() and load_config(file, RunConfig) != config:
        raise EquimetricError(
            f"{str(run.path)!r} holds a run with another configuration; choose another folder or remove it"
        )


def require_finite(losses: Mapping[str, Tensor], step: int, config: RunConfig) -> None:
    """Stop with a message instead of training on with NaN."""
    for name, value in losses.items():
        if not torch.isfinite(value):
            raise EquimetricError(
                f"the term {name!r} of {config.method!r} became {value.item()} at step {step + 1}; "
                f"lower optimizer.lr (now {config.optimizer.lr:g}) or optimizer.objective_lr "
                f"(now {config.optimizer.objective_lr:g}), or soften the method's scale or temperature"
            )


class RunningMeans:
    """Means of the losses since the last line of the log."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = {}
        self.count = 0

    def add(self, values: Mapping[str, float]) -> None:
        """Take in the values of one step."""
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
        self.count += 1

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
