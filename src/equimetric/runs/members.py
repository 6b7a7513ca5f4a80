"""Cost of a learner, scores of its members, and their diversity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

import torch
from torch import Tensor

from equimetric.data.attributes import attribute_ids, find_attribute
from equimetric.evaluation import Evaluation
from equimetric.learners import Learner
from equimetric.runs.building import count_parameters
from equimetric.runs.configuration import EvaluationConfig
from equimetric.runs.data import RunData
from equimetric.runs.evaluation import LabelledEmbeddings, evaluate_defined
from equimetric.runs.result import Cost, Diversity, MemberResult

__all__ = ["evaluate_members", "linear_cka", "measure_cost"]


def measure_cost(learner: Learner, dim: int) -> Cost:
    """Parameters, those that only training needs, forward passes and dimensions of an embedding."""
    training_only = {
        id(parameter): parameter.numel() for module in learner.training_only() for parameter in module.parameters()
    }
    return Cost(
        parameters=count_parameters(learner),
        training_only=sum(training_only.values()),
        forward_passes=learner.forward_passes,
        dim=dim,
    )


def evaluate_members(
    learner: Learner,
    data: RunData,
    embedded: LabelledEmbeddings,
    config: EvaluationConfig,
    members: Mapping[str, Tensor],
    extra: Mapping[str, Tensor] | None = None,
) -> tuple[tuple[MemberResult, ...], Diversity | None]:
    """The scores of every member on the test images, by the classes or by its own attribute, and their diversity.

    `embedded` are the embeddings of the whole, `members` those of its members; `extra` ones are scored as well. Nothing
    is chosen by these scores.
    """
    scored = {**members, **(extra or {})}
    scores: dict[str, Evaluation] = {}
    for name, embeddings in scored.items():
        labels, attribute = embedded.labels, learner.member_labels.get(name)
        if attribute is not None:
            option = f"the member {name!r}"
            labels = find_attribute(attribute_ids(data.dataset), attribute, option)[embedded.rows]
        member = replace(embedded, embeddings=embeddings, labels=labels, cohort=None)
        scores[name], _ = evaluate_defined(member, config)
    results = tuple(
        MemberResult(
            name=name, dim=scored[name].shape[1], labels=learner.member_labels.get(name), metrics=dict(scores[name])
        )
        for name in scored
    )
    by_class = [name for name in members if name not in learner.member_labels]
    return results, diversity({name: members[name] for name in by_class}, scores)


def diversity(members: Mapping[str, Tensor], scores: Mapping[str, Evaluation]) -> Diversity | None:
    """Mean difference of members over all pairs; None for fewer than two.

    `disagreement` is the share of queries for which the nearest neighbour is right for exactly one of two members.
    `unlikeness` is 1 − CKA, the linear centred kernel alignment of their embeddings.
    """
    pairs = list(combinations(members, 2))
    if not pairs:
        return None
    metric = "recall@1"
    disagreement = None
    if all(metric in scores[name].per_query for name in members):
        is_right = {name: torch.as_tensor(scores[name].per_query[metric]) > 0.5 for name in members}
        disagreement = float(torch.stack([(is_right[a] != is_right[b]).double().mean() for a, b in pairs]).mean())
    alignment = sum(linear_cka(members[a], members[b]) for a, b in pairs) / len(pairs)
    return Diversity(disagreement=disagreement, unlikeness=1 - alignment)


def linear_cka(x: Tensor, y: Tensor) -> float:
    """‖Yᵀ X‖² / (‖Xᵀ X‖ ‖Yᵀ Y‖) of centred (N, d) embeddings, Frobenius norms: 1 for rotations, 0 where unrelated."""
    x_centred, y_centred = (rows.double() - rows.double().mean(0) for rows in (x, y))
    norms = torch.linalg.matrix_norm(x_centred.T @ x_centred) * torch.linalg.matrix_norm(y_centred.T @ y_centred)
    return float(torch.linalg.matrix_norm(y_centred.T @ x_centred).square() / norms.clamp_min(1e-300))
