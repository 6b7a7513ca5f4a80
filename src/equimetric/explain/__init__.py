"""The weights that a loss gives to pairs (Unified View of deep metric learning, theorem 3.1).

A loss that depends on a batch only through its similarities is, at each point, a weight for every pair: a derivative,
also for a user's own loss. May import `objectives` and `evaluation`; matplotlib is imported when a figure is drawn.
"""

from equimetric.explain.curves import WeightCurves, weight_curves
from equimetric.explain.drawing import draw_weights
from equimetric.explain.equivalence import BatchComparison, GradientEquivalence, example_batches, gradient_equivalent
from equimetric.explain.unified_view import unified_view_curves
from equimetric.explain.weights import pair_weights

__all__ = [
    "BatchComparison",
    "GradientEquivalence",
    "WeightCurves",
    "draw_weights",
    "example_batches",
    "gradient_equivalent",
    "pair_weights",
    "unified_view_curves",
    "weight_curves",
]
