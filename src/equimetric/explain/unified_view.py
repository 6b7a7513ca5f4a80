"""Figure 1 of the Unified View: the weights of four losses against similarity, and of RAW, which it proposes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from equimetric.explain.curves import WeightCurves, weight_curves
from equimetric.objectives import build_objective

__all__ = ["FIGURE_PANELS", "PANELS", "WeightPanel", "panel_curves", "unified_view_curves"]

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

FIGURE_PANELS = PANELS[:4]
"""Those of the paper's Figure 1."""


def unified_view_curves(
    panels: Sequence[WeightPanel] = PANELS, options: Mapping[str, Mapping[str, Any]] | None = None
) -> list[WeightCurves]:
    """The curves of panels; `options` of a method stand in place of those that its panel has."""
    return [panel_curves(panel, (options or {}).get(panel.method, {})) for panel in panels]


def panel_curves(panel: WeightPanel, options: Mapping[str, Any]) -> WeightCurves:
    """The curves of a panel with some options changed, which its title then names."""
    curves = weight_curves(build_objective(panel.method, {**panel.options, **options}), same_side=panel.same_side)
    changed = [f"{name} = {value}" for name, value in options.items()]
    return replace(curves, name=", ".join([panel.method, *changed]) if changed else panel.title)
