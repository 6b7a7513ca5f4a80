"""Result of few-shot adaptation of a run: metrics before and after it, over episodes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from equimetric.errors import EquimetricError
from equimetric.evaluation import format_score
from equimetric.intervals import Interval, t_interval

__all__ = ["Adaptation", "FewShotResult", "ShotResult"]

STATEMENT = "Adapted with labels of test images: no zero-shot result, and not comparable with one."


@dataclass(frozen=True)
class Adaptation:
    """Options by which the head learns from the support images.

    Attributes:
        objective, options: the objective to minimise, one of `equimetric methods`.
        lr: learning rate of Adam. The paper trains with 1e-5; the defaults of `lr` and `steps` were chosen on
            validation classes, where 1e-4 in 1000 steps gained as much in three times the time.
        steps: updates of the head.
        classes, samples: size of a batch; all classes where there are fewer.
    """

    objective: str = "margin"
    options: Mapping[str, Any] | None = None
    lr: float = 3e-4
    steps: int = 300
    classes: int = 56
    samples: int = 2

    def __post_init__(self) -> None:
        for name, value in (("steps", self.steps), ("classes", self.classes), ("samples", self.samples)):
            if value < 1:
                raise EquimetricError(f"{name} is {value}; adaptation needs at least 1")
        if not 0 < self.lr <= 1:
            raise EquimetricError(f"lr is {self.lr}; give a learning rate above 0, at most 1")


@dataclass(frozen=True, eq=False)
class ShotResult:
    """Metrics of every episode on the images that are no support.

    Attributes:
        shots: support images of every class.
        shown: number of support images of all classes in an episode.
        zero_shot: metric → its value in each episode before adaptation.
        few_shot: the same after it.
    """

    shots: int
    shown: int
    zero_shot: Mapping[str, tuple[float, ...]]
    few_shot: Mapping[str, tuple[float, ...]]

    def before(self, metric: str) -> Interval:
        """Mean over episodes without adaptation, with its 95 % t-interval."""
        return t_interval(self.zero_shot[metric])

    def after(self, metric: str) -> Interval:
        """The same with adaptation."""
        return t_interval(self.few_shot[metric])

    def gain(self, metric: str) -> Interval:
        """Mean difference over episodes, paired."""
        pairs = zip(self.few_shot[metric], self.zero_shot[metric], strict=True)
        return t_interval([after - before for after, before in pairs])


@dataclass(frozen=True, eq=False)
class FewShotResult:
    """Result of adapting a run, for every number of shots; test labels were used for it.

    Attributes:
        adaptation: how the head was trained.
        episodes: number of draws of support images, the same for every run on these test classes.
        by_shots: results in the order of the shots.
    """

    adaptation: Adaptation
    episodes: int
    by_shots: tuple[ShotResult, ...]

    kind = "adaptation"
    uses_test_labels = True

    def __getitem__(self, shots: int) -> ShotResult:
        return next(result for result in self.by_shots if result.shots == shots)

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON, the values of all episodes included."""

        def describe(interval: Interval) -> dict[str, float | None]:
            spread = None if math.isnan(interval.half_width) else interval.half_width
            return {"mean": interval.mean, "half_width": spread}

        return {
            "kind": self.kind,
            "uses_test_labels": self.uses_test_labels,
            "statement": STATEMENT,
            "objective": self.adaptation.objective,
            "options": dict(self.adaptation.options or {}),
            "lr": self.adaptation.lr,
            "steps": self.adaptation.steps,
            "episodes": self.episodes,
            "shots": {
                str(result.shots): {
                    "shown": result.shown,
                    "metrics": {
                        metric: {
                            "zero_shot": {**describe(result.before(metric)), "values": list(result.zero_shot[metric])},
                            "few_shot": {**describe(result.after(metric)), "values": list(result.few_shot[metric])},
                            "gain": describe(result.gain(metric)),
                        }
                        for metric in result.few_shot
                    },
                }
                for result in self.by_shots
            },
        }

    def __str__(self) -> str:
        adaptation = self.adaptation
        lines = [
            f"Few-shot adaptation: {adaptation.objective}, Adam {adaptation.lr:g}, {adaptation.steps} steps on the "
            f"head; mean ± half of the 95 % t-interval over {self.episodes} episodes",
            STATEMENT,
        ]
        for result in self.by_shots:
            lines.append(f"At most {result.shots} images of every class shown ({result.shown} together):")
            width = max(map(len, result.few_shot))
            for metric in result.few_shot:
                before, after = (describe_mean(metric, mean) for mean in (result.before(metric), result.after(metric)))
                lines.append(f"  {metric:<{width}}  zero-shot {before}  few-shot {after}")
        return "\n".join(lines)


def describe_mean(metric: str, interval: Interval) -> str:
    """'71.30% ± 0.41%'."""
    spread = "" if math.isnan(interval.half_width) else f" ± {format_score(metric, interval.half_width).strip()}"
    return format_score(metric, interval.mean).strip() + spread
