"""Few-shot adaptation: the head of a finished run learns from a few labelled images of its test classes.

Milbich, Roth, Sinha, Schmidt, Ghassemi, Ommer: "Characterizing Generalization under Out-Of-Distribution Shifts in Deep
Metric Learning" (2021). Test labels are used by design: the figures are those of an adapted model, never of the run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor, nn

from equimetric.backbones import EmbeddingNetwork
from equimetric.batches import build_batches
from equimetric.data import Images, take_images
from equimetric.data.episodes import draw_support, episode_seed
from equimetric.errors import EquimetricError
from equimetric.file_hashes import hash_file
from equimetric.files import append_line, read_appended
from equimetric.learners import Learner
from equimetric.objectives import Context, build_objective
from equimetric.runs.embedding import apply_in_blocks, embed_images
from equimetric.runs.evaluation import CohortOverride, LabelledEmbeddings, OpenRun, evaluate_part, open_run
from equimetric.runs.few_shot_result import Adaptation, FewShotResult, ShotResult
from equimetric.runs.folder import FROZEN_WEIGHTS, WEIGHTS
from equimetric.seeding import derive_seed
from equimetric.threads import use_threads

__all__ = ["adapt"]

EPISODE_LOG = "few_shot.jsonl"
VERSION = 1
"""Raised whenever the same run and adaptation give other values."""
STEPS_BETWEEN_REPORTS = 50

Scores: TypeAlias = tuple[dict[str, float], dict[str, float]]
"""Metrics before and after the head has learned."""


def adapt(
    folder: str | Path,
    *,
    shots: Sequence[int] = (2, 5, 10),
    episodes: int = 10,
    adaptation: Adaptation | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> FewShotResult:
    """Adapt the head of a finished run to a few images of each of its test classes, and test it on the others.

    Every episode shows `shots` images of every class, drawn by the classes of the data alone, so that all methods see
    the same; a class keeps two images to be found. Each starts from the weights of the run, and the backbone stays as
    it is: its features are computed once. Metrics and geometry are those of the run, without a cohort.
    Every finished episode is kept in the folder, and not computed again for the same run and adaptation.
    `progress` is called with the updates that are done, and their number in all.
    """
    if episodes < 1 or not shots:
        raise EquimetricError(f"{episodes} episodes of {len(shots)} numbers of shots; give at least one of both")
    run = open_run(folder)
    adaptation = adaptation or Adaptation()
    with use_threads(run.config.training.threads), torch.random.fork_rng(devices=[]):
        adapter = HeadAdapter(run, adaptation)
        log = EpisodeLog(run, adaptation)
        total, begun, results = len(shots) * episodes * adaptation.steps, 0, []

        def report(steps: int) -> None:
            if progress is not None:
                progress(begun + steps, total)

        for n_shots in shots:
            scores = []
            for episode in range(episodes):
                report(0)
                scores.append(log.find(n_shots, episode) or adapter.run_episode(n_shots, episode, report))
                log.keep(n_shots, episode, scores[-1])
                begun += adaptation.steps
            before, after = (
                {metric: tuple(pair[side][metric] for pair in scores) for metric in scores[0][side]} for side in (0, 1)
            )
            results.append(ShotResult(n_shots, len(adapter.support(n_shots, 0)), before, after))
    return FewShotResult(adaptation, episodes, tuple(results))


class EpisodeLog:
    """The finished episodes of an adaptation, a line each, in the folder of the run."""

    def __init__(self, run: OpenRun, adaptation: Adaptation) -> None:
        folder = Path(run.model.folder)
        self.file = folder / EPISODE_LOG
        weights = [hash_file(folder / name) for name in (WEIGHTS, FROZEN_WEIGHTS) if (folder / name).exists()]
        inputs = [VERSION, run.data.fingerprint, run.config.model_dump(mode="json"), weights, asdict(adaptation)]
        self.key = hashlib.sha256(json.dumps(inputs, sort_keys=True, default=str).encode()).hexdigest()[:16]
        self.found: dict[tuple[int, int], Scores] = {}
        for line in read_appended(self.file):
            with suppress(KeyError, TypeError):
                if line["key"] == self.key:
                    self.found[line["shots"], line["episode"]] = dict(line["before"]), dict(line["after"])

    def find(self, shots: int, episode: int) -> Scores | None:
        """The metrics before and after an episode; None where it has not ended."""
        return self.found.get((shots, episode))

    def keep(self, shots: int, episode: int, scores: Scores) -> None:
        """Add an episode; a folder that cannot be written is left as it is."""
        if (shots, episode) in self.found:
            return
        self.found[shots, episode] = scores
        before, after = scores
        with suppress(OSError):
            append_line(
                self.file,
                {"key": self.key, "shots": shots, "episode": episode, "before": before, "after": after},
            )


class HeadAdapter:
    """The learner of a run, whose head is trained for an episode and restored after it."""

    def __init__(self, run: OpenRun, adaptation: Adaptation) -> None:
        self.run, self.adaptation, self.learner = run, adaptation, run.model.learner
        self.head = require_head(self.learner, str(run.model.folder))
        self.embedded = run.embed("test", cohort=CohortOverride("none"))
        self.inputs = head_inputs(self.learner, run.eval_data.images("test"))
        self.initial = [parameter.detach().clone() for parameter in self.head]

    def support(self, shots: int, episode: int) -> Tensor:
        """Positions of the support images: among all test images, or in the gallery where there is one."""
        seed = episode_seed(self.run.data.dataset, self.embedded.rows, episode)
        if self.embedded.gallery is None:
            return draw_support(self.embedded.labels, shots, seed)
        return self.embedded.gallery[draw_support(self.embedded.labels[self.embedded.gallery], shots, seed, spare=1)]

    def run_episode(self, shots: int, episode: int, report: Callable[[int], None] = lambda _: None) -> Scores:
        """Metrics of the other test images, before and after the head has learned from the support images."""
        support = self.support(shots, episode)
        is_query = torch.ones(len(self.embedded.labels), dtype=torch.bool)
        is_query[support] = False
        queries = self.embedded.select(is_query.nonzero().flatten())
        # Nothing has changed yet: these are the embeddings of the run.
        before = dict(evaluate_part(queries, self.run.config.evaluation))
        try:
            self.train_head(support, derive_seed(self.run.config.seed, "few-shot", shots, episode), report)
            return before, self.measure(queries, take_images(self.inputs, is_query.nonzero().flatten()))
        finally:
            with torch.no_grad():
                for parameter, initial in zip(self.head, self.initial, strict=True):
                    parameter.copy_(initial)

    def measure(self, queries: LabelledEmbeddings, images: Images) -> dict[str, float]:
        """The metrics of the run for some of its test images."""
        embedded = replace(queries, embeddings=embed_images(self.learner, images))
        return dict(evaluate_part(embedded, self.run.config.evaluation))

    def train_head(self, support: Tensor, seed: int, report: Callable[[int], None] = lambda _: None) -> None:
        """Minimise the objective on the support images; only the head changes."""
        adaptation, device = self.adaptation, self.head[0].device
        _, labels = torch.unique(self.embedded.labels[support], return_inverse=True)
        classes = int(labels.max()) + 1
        torch.manual_seed(seed)
        sizes = Context(classes=classes, dim=self.embedded.embeddings.shape[1], images=len(support))
        objective = build_objective(adaptation.objective, adaptation.options or {}, sizes).to(
            device, self.head[0].dtype
        )
        groups = [{"params": self.head, "lr": adaptation.lr}]
        if objective_parameters := list(objective.parameters()):
            groups.append({"params": objective_parameters, "lr": self.run.config.optimizer.objective_lr})
        optimizer = torch.optim.Adam(groups)
        support_images = self.learner.prepare(take_images(self.inputs, support)[:].to(device)).to(self.head[0].dtype)
        batches = build_batches(
            "class_balanced",
            labels,
            classes=min(adaptation.classes, classes),
            samples=adaptation.samples,
            batches=adaptation.steps,
            seed=seed,
        )
        for step, indices in enumerate(batches, start=1):
            rows = torch.as_tensor(indices)
            loss = objective(self.learner.embed(support_images[rows]), labels[rows].to(device), index=rows.to(device))
            if not loss.isfinite():
                raise EquimetricError(
                    f"adaptation by {adaptation.objective!r} diverged with lr = {adaptation.lr:g}; lower it"
                )
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if step % STEPS_BETWEEN_REPORTS == 0:
                report(step)


def require_head(learner: Learner, folder: str) -> list[nn.Parameter]:
    """The parameters of the head; from here on only these require gradients."""
    networks = (module for module in learner.modules() if isinstance(module, EmbeddingNetwork))
    # Baselines have a head, too, but no trained parameters.
    head = list(learner.parameter_groups().get("head", ())) or [
        parameter for network in networks for parameter in network.head.parameters()
    ]
    if not head:
        raise EquimetricError(f"the model in {folder!r} has no head to adapt; choose a run with a linear layer")
    learner.requires_grad_(False)
    for parameter in head:
        parameter.requires_grad_(True)
    return head


def head_inputs(learner: Learner, images: Images) -> Images:
    """Inputs that the head is trained on: (M, F) features where the learner takes them in place of images."""
    backbone = learner.frozen_backbone()
    if len(images.shape) == 2 or backbone is None:
        return images
    return apply_in_blocks(learner, lambda part: {"features": backbone(part)}, images)["features"]
