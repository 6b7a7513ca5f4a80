"""PADS: a policy learns, from rewards on held-out training classes, at which distances negatives are drawn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from equimetric.backbones import EmbeddingNetwork
from equimetric.errors import EquimetricError, did_you_mean
from equimetric.learners.epoch_view import EpochView
from equimetric.learners.learner import DelayedStart, LearnerFactory, learner
from equimetric.learners.modules.policy import BinPolicy, PolicyGradient, Update
from equimetric.learners.single import SingleObjectiveLearner, refuse_epoch_hooks
from equimetric.objectives import Objective, ObjectiveSum
from equimetric.option_values import PositiveFloat, PositiveInt, UnitFraction
from equimetric.seeding import derive_seed
from equimetric.selection.pads import Pads

__all__ = ["PolicyAdaptedSampling"]

METRICS = ("recall@1", "recall@2", "recall@4", "recall@8", "nmi", "pi_intra", "pi_inter")
"""Metrics of the held-out classes; the last two are mean cosine distances within and between classes."""
RECENT, WINDOWS = 20, (2, 8, 16, 32)
"""Number of measurements in the state, and window lengths of the means over them."""
FACTORS = (0.8, 1.0, 1.25)
"""Factor on a bin for each action."""
MIN_CLASSES = 2
"""Smallest number of held-out classes, and of classes to train on."""


@learner("pads", paper="Roth, Milbich, Ommer: PADS: Policy-adapted sampling for visual similarity learning (2020)")
class PolicyAdaptedSampling(SingleObjectiveLearner):
    """One network, whose negatives are drawn by the selection `pads` from a distribution that a policy adapts.

    Some training classes are held out: no batch has them. Every `period` steps they are evaluated, and the policy is
    rewarded by the sign of the change of their score since the last time. It then sees the state: the latest
    measurements, their means over several windows, the distribution, and the progress of the run. It multiplies every
    bin of the distribution by 0.8, 1 or 1.25, and the bins are normalised.
    """

    held_out: Tensor
    measured: Tensor
    count: Tensor
    state: Tensor
    actions: Tensor
    reward: Tensor

    def __init__(
        self,
        network: EmbeddingNetwork,
        objective: Objective | ObjectiveSum,
        *,
        held_out: Tensor,
        period: int,
        rewarded: Sequence[str],
        update: Update,
        lr: float,
        steps: int,
        seed: int,
    ) -> None:
        super().__init__(network, objective)
        refuse_epoch_hooks(objective, "pads")
        self.period: int = period
        self.steps, self.seed = steps, seed
        self.rewarded = [METRICS.index(name) for name in rewarded]
        bins = len(find_sampling(objective).distribution)
        size = (RECENT + len(WINDOWS)) * len(METRICS) + bins + 1
        self.learning = PolicyGradient(BinPolicy(size, bins, len(FACTORS)), lr=lr, update=update)
        self.register_buffer("held_out", held_out)
        self.register_buffer("measured", torch.zeros(max(RECENT, *WINDOWS), len(METRICS)))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("state", torch.zeros(size))
        self.register_buffer("actions", torch.zeros(bins, dtype=torch.int64))
        self.register_buffer("reward", torch.zeros(()))

    @classmethod
    def build(
        cls,
        factory: LearnerFactory,
        *,
        period: PositiveInt = 30,
        share: UnitFraction = 0.15,
        rewarded: Sequence[str] = ("recall@1", "nmi"),
        update: Update = "ppo",
        lr: PositiveFloat = 0.01,
    ) -> PolicyAdaptedSampling:
        """The configured network and objective, which selects by `pads`.

        period    steps between two changes of the distribution; the paper's: 30, and 60 for SOP
        share     of the training classes that are held out, two at least
        rewarded  metrics of the held-out classes whose mean is the score; the paper's: recall@1 alone for CUB
        update    how the policy learns: "ppo" or "reinforce"
        lr        learning rate of the policy
        """
        if not rewarded or isinstance(rewarded, str):
            raise EquimetricError("learner.options.rewarded lists one metric or more, such as ['recall@1', 'nmi']")
        for name in rewarded:
            if name not in METRICS:
                raise EquimetricError(
                    f"learner 'pads' does not measure {name!r}, which learner.options.rewarded names; "
                    f"{did_you_mean(name, METRICS)}"
                )
        if update not in ("ppo", "reinforce"):
            raise EquimetricError(f"learner.options.update must be 'ppo' or 'reinforce', got {update!r}")
        return cls(
            factory.network(),
            factory.objective(),
            held_out=draw_holdout_classes(factory.classes, share, factory.seed),
            period=period,
            rewarded=rewarded,
            update=update,
            lr=lr,
            steps=factory.steps,
            seed=factory.seed,
        )

    @property
    def sampling(self) -> Pads:
        """The selection whose distribution is adapted."""
        return find_sampling(self.objective)

    def holdout(self, labels: Tensor) -> Tensor:
        """The rows of the held-out classes."""
        rows = self.held_out.cpu()[labels.cpu()].nonzero()[:, 0]
        held, remaining = int(self.held_out.sum()), int((~self.held_out).sum())
        if remaining < MIN_CLASSES:
            remedy = "lower learner.options.share" if held > MIN_CLASSES else f"take data of {2 * MIN_CLASSES} or more"
            raise EquimetricError(
                f"learner 'pads' holds {held} of {held + remaining} training classes out to reward its policy, and "
                f"{remaining} to train on is too few; {remedy}"
            )
        if not (labels[rows].bincount() > 1).any():
            raise EquimetricError(
                f"none of the {held} training classes that learner 'pads' holds out has a second image, so nothing "
                "can be measured; raise learner.options.share"
            )
        return rows

    def on_epoch(self, view: EpochView) -> None:
        """Measure the held-out classes, learn from the change of their score, and adapt the distribution."""
        metrics = view.evaluate(self.holdout(view.labels), METRICS)
        previous_score = self.score()
        newest = self.measured.new_tensor([[metrics[name] for name in METRICS]])
        self.measured.copy_(torch.cat([newest, self.measured[:-1]]))
        self.count += 1
        state = self.observe()
        if self.count > 1:
            self.reward.copy_((self.score() - previous_score).sign())
            self.learning.update(
                self.state, self.actions, reward=float(self.reward), score=float(self.score()), next_state=state
            )
        self.state.copy_(state)
        self.actions.copy_(self.learning.draw(state, seed=derive_seed(self.seed, "actions", self.step)))
        self.sampling.adapt(self.measured.new_tensor(FACTORS)[self.actions])

    def score(self) -> Tensor:
        """The mean of the rewarded metrics at the last measurement."""
        return self.measured[0, self.rewarded].mean()

    def observe(self) -> Tensor:
        """(S,) state of the policy: measurements, newest first, their means, the distribution, the progress.

        Measurements before the first are 0, and a window that is longer than the run so far has those that exist.
        """
        measurements = self.measured[: int(self.count)]
        means = [measurements[:window].mean(0) for window in WINDOWS]
        progress = self.measured.new_tensor([self.step / self.steps])
        return torch.cat([self.measured[:RECENT].flatten(), *means, self.sampling.distribution, progress])

    def scalars(self) -> Mapping[str, float]:
        """The score of the held-out classes, the last reward, and the probability of every bin."""
        edges = self.sampling.inner_edges.tolist()
        names = [*(f"negatives up to {edge:.3f}" for edge in edges), f"negatives above {edges[-1]:.3f}"]
        return {
            "held-out score": float(self.score()),
            "reward": float(self.reward),
            **dict(zip(names, self.sampling.distribution.tolist(), strict=True)),
        }

    def training_only(self) -> Iterable[nn.Module]:
        """The objective and the policies."""
        return [*super().training_only(), self.learning]

    def delayed_starts(self) -> list[DelayedStart]:
        """The first reward comes after a period."""
        return [*super().delayed_starts(), DelayedStart("The policy", self.period, "steps", "learner.options.period")]


def find_sampling(objective: Objective | ObjectiveSum) -> Pads:
    """The selection of an objective whose distribution can be adapted."""
    selections = [module for module in objective.modules() if isinstance(module, Pads)]
    if len(selections) != 1:
        raise EquimetricError(
            f"learner 'pads' adapts one selection 'pads', and the objective has {len(selections)}; "
            "set method = 'pads', or options.selection = 'pads' of a method of pairs or triples"
        )
    return selections[0]


def draw_holdout_classes(classes: int, share: float, seed: int) -> Tensor:
    """(classes,) mask of the held-out ones: about `share` of them, drawn by the seed."""
    generator = torch.Generator().manual_seed(derive_seed(seed, "held-out classes"))
    n = min(classes, max(MIN_CLASSES, round(share * classes)))
    held_out = torch.zeros(classes, dtype=torch.bool)
    held_out[torch.randperm(classes, generator=generator)[:n]] = True
    return held_out
