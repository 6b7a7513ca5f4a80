"""Any loss shown as the weights it gives to pairs (Unified View of deep metric learning, theorem 3.1).

A loss that depends on a batch only through its similarities is, at each point, a weight for every pair; those weights
are one derivative away, for a loss of one's own too. Knows objectives; draws with matplotlib only when asked to.
"""

from equimetric.explain.curves import WeightCurves, weight_curves
from equimetric.explain.drawing import draw_weights
from equimetric.explain.weights import pair_weights

__all__ = ["WeightCurves", "draw_weights", "pair_weights", "weight_curves"]
