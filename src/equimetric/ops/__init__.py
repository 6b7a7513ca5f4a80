"""Everything a loss or a selection computes with: `from equimetric import ops`.

Names work on (Q, R) matrices with boolean masks and optional multiplicities. They are finite with finite gradients
also where a mask is empty, and choose the fastest kernel themselves; a loss never sees which.

    has_any, row_sum, row_mean, positives   per row of a mask
    mean, divide                            to a scalar, at the end of every loss
    log_sum_exp, log1p_sum_exp              per row, over a mask
    Hinge, distance, sum_hinges             [d − m]₊ over positives and [m − d]₊ over negatives
    triplet_sum, cross_entropy              over triplets, over references
    unit                                    vectors at unit length
    require                                 checks of what a loss needs of its pairs
    special                                 operations of a few methods each
"""

from equimetric.ops import require, special
from equimetric.ops.classification import cross_entropy
from equimetric.ops.exponentials import log1p_sum_exp, log_sum_exp
from equimetric.ops.hinges import Hinge, distance, sum_hinges
from equimetric.ops.masks import has_any
from equimetric.ops.positive_pairs import positives
from equimetric.ops.products import unit
from equimetric.ops.ratios import divide
from equimetric.ops.reductions import mean, row_mean, row_sum
from equimetric.ops.triplets import triplet_sum

__all__ = [
    "Hinge",
    "cross_entropy",
    "distance",
    "divide",
    "has_any",
    "log1p_sum_exp",
    "log_sum_exp",
    "mean",
    "positives",
    "require",
    "row_mean",
    "row_sum",
    "special",
    "sum_hinges",
    "triplet_sum",
    "unit",
]
