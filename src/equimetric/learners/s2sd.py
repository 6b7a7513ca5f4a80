"""S2SD: a small embedding learns from larger ones, which are trained with it and dropped in the end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from equimetric.backbones import EmbeddingNetwork
from equimetric.geometry import unit
from equimetric.learners.batch import Batch
from equimetric.learners.learner import DelayedStart, LearnerFactory, Outputs, learner
from equimetric.learners.modules.networks import feature_dim, merge_parameter_groups, objective_terms
from equimetric.learners.modules.slices import require_sizes
from equimetric.learners.single import SingleObjectiveLearner, refuse_epoch_hooks
from equimetric.objectives import Objective, ObjectiveSum
from equimetric.ops.products import full_precision
from equimetric.option_values import NonNegativeFloat, NonNegativeInt, PositiveFloat

__all__ = ["S2SD", "similarity_kl"]


def similarity_kl(student: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
    """T²/B Σ_rows KL(softmax(S_teacher / T) ‖ softmax(S_student / T)), S the (B, B) cosines, the diagonal included.

    (B, d), (B, d′) → one number. The teacher gets no gradient.
    """
    with full_precision(student.device.type):
        vectors = [
            unit(rows.to(torch.promote_types(rows.dtype, torch.float32))) for rows in (student, teacher.detach())
        ]
        log_student, log_teacher = ((rows @ rows.T / temperature).log_softmax(1) for rows in vectors)
        return temperature**2 * nn.functional.kl_div(log_student, log_teacher, reduction="batchmean", log_target=True)


@learner(
    "s2sd",
    paper="Roth, Milbich, Ommer, Cohen, Ghassemi: Simultaneous similarity-based self-distillation for deep metric "
    "learning (2021)",
)
class S2SD(SingleObjectiveLearner):
    """A student head and K teachers, two-layer networks of more dimensions on the same features.

    L = ½ (L(student) + mean_k L(teacher k)) + γ mean_k KL_k + γ_f KL_features, each L an objective of its own, KL_k the
    divergence of the student's similarities within the batch from those of teacher k (`similarity_kl`), and
    KL_features that from the similarities of the backbone's features, which begins after `features_after` steps.
    Only the student is evaluated.
    """

    weighs_samples = False

    def __init__(
        self,
        network: EmbeddingNetwork,
        objective: Objective | ObjectiveSum,
        teachers: Iterable[nn.Module],
        objectives: Iterable[Objective | ObjectiveSum],
        *,
        temperature: float = 1.0,
        gamma: float = 50.0,
        gamma_features: float = 50.0,
        features_after: int = 1000,
    ) -> None:
        super().__init__(network, objective)
        self.teachers = nn.ModuleList(teachers)
        self.objectives = nn.ModuleList(objectives)
        self.temperature = temperature
        self.gamma, self.gamma_features = gamma, gamma_features
        self.features_after = features_after
        self.step = 0
        for teacher_objective in self.objective_list:
            refuse_epoch_hooks(teacher_objective, "s2sd")

    @classmethod
    def build(
        cls,
        factory: LearnerFactory,
        *,
        dims: Sequence[int] = (512, 1024, 1536, 2048),
        temperature: PositiveFloat = 1.0,
        gamma: NonNegativeFloat = 50.0,
        gamma_features: NonNegativeFloat = 50.0,
        features_after: NonNegativeInt = 1000,
    ) -> S2SD:
        """A student of the configured dimension and a teacher of each of `dims`; one teacher is the dual variant."""
        require_sizes("learner 's2sd': dims", dims)
        network = factory.network()
        features = feature_dim(network)
        teachers = [nn.Sequential(nn.Linear(features, dim), nn.ReLU(), nn.Linear(dim, dim)) for dim in dims]
        return cls(
            network,
            factory.objective(),
            teachers,
            map(factory.objective, dims),
            temperature=temperature,
            gamma=gamma,
            gamma_features=gamma_features,
            features_after=features_after,
        )

    @property
    def objective_list(self) -> Sequence[Objective | ObjectiveSum]:
        """The objectives of the teachers."""
        return list(self.objectives)  # type: ignore[arg-type]

    def outputs(self, batch: Batch) -> dict[str, Tensor]:
        """The student's embeddings; in training the teachers' and the detached features, too."""
        features = self.network.features(batch.images)
        outputs = {"embedding": self.network.head(features)}
        if self.training:
            outputs |= {f"teacher{index}": teacher(features) for index, teacher in enumerate(self.teachers, start=1)}
            outputs["features"] = features.detach()
        return outputs

    def losses(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """Half the objectives of student and teachers, and the distillation terms."""
        student, count = outputs["embedding"], len(self.teachers)
        terms = {name: value / 2 for name, value in objective_terms(self.objective, student, batch).items()}
        divergences = []
        for index, objective in enumerate(self.objective_list, start=1):
            teacher = outputs[f"teacher{index}"]
            for name, value in objective_terms(objective, teacher, batch).items():
                terms[f"teacher{index} {name}"] = value / (2 * count)
            divergences.append(similarity_kl(student, teacher, self.temperature))
        terms["distillation"] = self.gamma * torch.stack(divergences).mean()
        if self.gamma_features and self.step >= self.features_after:
            divergence = similarity_kl(student, outputs["features"], self.temperature)
            terms["feature distillation"] = self.gamma_features * divergence
        return terms

    def training_only(self) -> Iterable[nn.Module]:
        """The objectives and the teachers."""
        return [*super().training_only(), self.teachers]

    def parameter_groups(self) -> dict[str, Iterable[nn.Parameter]]:
        """Trunk and head of the network, the teachers in the group of the head, and the objectives."""
        teacher_groups = {"head": list(self.teachers.parameters()), "objective": list(self.objectives.parameters())}
        return merge_parameter_groups([super().parameter_groups(), teacher_groups])

    def delayed_starts(self) -> list[DelayedStart]:
        """Feature distillation begins late."""
        distillation = DelayedStart(
            "Feature distillation", self.features_after, "steps", "learner.options.features_after"
        )
        return [*super().delayed_starts(), *([distillation] if self.gamma_features else [])]

    def before_step(self, step: int) -> bool:
        """Count steps, for feature distillation, and follow the network's freeze plan."""
        self.step = step
        return super().before_step(step)
