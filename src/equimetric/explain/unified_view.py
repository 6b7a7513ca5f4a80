"""Figure 1 of the Unified View: the weights of four losses against similarity, and of RAW, which it proposes."""

from dataclasses import dataclass, field, replace
from typing import Any

from equimetric.explain.curves import WeightCurves, weight_curves
from equimetric.objectives import build_objective

__all__ = ["PANELS", "WeightPanel", "unified_view_curves"]

COMPANIONS = (0.2, 0.5, 0.8)


@dataclass(frozen=True)
class WeightPanel:
    """One panel: a method with options, and the cosines of the anchor's further pairs of the moving pair's kind."""

    title: str
    method: str
    options: dict[str, Any] = field(default_factory=dict)
    same_side: tuple[float, ...] = ()


PANELS = (
    WeightPanel("contrastive, λ = 0.5", "contrastive_cosine", {"lam": 0.5}),
    WeightPanel("triplet, margin 0.1", "triplet", {"margin": 0.1, "geometry": "cosine", "reduction": "mean"}),
    WeightPanel("lifted structure", "lifted_generalized", {"geometry": "cosine"}, COMPANIONS),
    WeightPanel("binomial deviance", "binomial", {"alpha": 2.0, "beta": 50.0, "gamma": 0.5}),
    WeightPanel("RAW, γ = 0.5", "raw", {"alpha": 2.0, "beta": 50.0, "base": 0.5}, COMPANIONS),
)
"""The pair moves against one fixed pair of the other kind, at a cosine of 0.5."""


def unified_view_curves() -> list[WeightCurves]:
    """The curves of all panels."""
    return [
        replace(
            weight_curves(build_objective(panel.method, panel.options), same_side=panel.same_side), name=panel.title
        )
        for panel in PANELS
    ]
