"""Everything a loss or a selection computes with: `from equimetric import ops`.

Names work on (Q, R) matrices with boolean masks and optional multiplicities. They are finite with finite gradients
also where a mask is empty, and choose the fastest kernel themselves; a loss never sees which.

What most losses need:
    has_any, row_sum, row_mean, row_max, row_min          per row of a mask
    mean, reduce_rows, divide, ratio                      to a scalar, at the end of every loss
    log_sum_exp, log1p_sum_exp                            per row, over a mask
    Hinge, distance, similarity, sum_hinges               [d − m]₊ over positives and [m − d]₊ over negatives
    triplet_sum, cross_entropy                            over triples, over references
    positives, list_positives                             the few positives of each row
    unit, inner_products, squared_distance                of vectors
    require                                               checks what a loss needs of its pairs
What single methods need:
    pair_cross_entropy, replace_positives, quadruplet_mean, row_violation, soft_histograms, first_pairs, row_argmax,
    row_argmin, draw_columns, hardest_entries, group_rows, cluster_classes, widest_gaps, MedoidSearch, pairwise,
    negative_distance, squared_chord, safe_sqrt, scale_gradient, sum_in_parts, separable, masked_sum, count
"""

from equimetric.ops import require
from equimetric.ops.chunks import separable
from equimetric.ops.class_pairs import first_pairs
from equimetric.ops.classification import cross_entropy, pair_cross_entropy, replace_positives
from equimetric.ops.draws import draw_columns, hardest_entries, row_argmax, row_argmin
from equimetric.ops.exponentials import log1p_sum_exp, log_sum_exp, row_violation
from equimetric.ops.gradients import scale_gradient, sum_in_parts
from equimetric.ops.hinges import Hinge, distance, similarity, sum_hinges
from equimetric.ops.histograms import soft_histograms
from equimetric.ops.kmeans import cluster_classes, group_rows
from equimetric.ops.masks import has_any
from equimetric.ops.medoids import MedoidSearch
from equimetric.ops.positive_pairs import list_positives, positives
from equimetric.ops.products import (
    inner_products,
    negative_distance,
    pairwise,
    safe_sqrt,
    squared_chord,
    squared_distance,
    unit,
)
from equimetric.ops.quadruplets import quadruplet_mean
from equimetric.ops.ratios import divide, ratio
from equimetric.ops.reductions import (
    count,
    masked_sum,
    mean,
    reduce_rows,
    row_max,
    row_mean,
    row_min,
    row_sum,
)
from equimetric.ops.trees import widest_gaps
from equimetric.ops.triplets import triplet_sum

__all__ = [
    "Hinge",
    "MedoidSearch",
    "cluster_classes",
    "count",
    "cross_entropy",
    "distance",
    "divide",
    "draw_columns",
    "first_pairs",
    "group_rows",
    "hardest_entries",
    "has_any",
    "inner_products",
    "list_positives",
    "log1p_sum_exp",
    "log_sum_exp",
    "masked_sum",
    "mean",
    "negative_distance",
    "pair_cross_entropy",
    "pairwise",
    "positives",
    "quadruplet_mean",
    "ratio",
    "reduce_rows",
    "replace_positives",
    "require",
    "row_argmax",
    "row_argmin",
    "row_max",
    "row_mean",
    "row_min",
    "row_sum",
    "row_violation",
    "safe_sqrt",
    "scale_gradient",
    "separable",
    "similarity",
    "soft_histograms",
    "squared_chord",
    "squared_distance",
    "sum_hinges",
    "sum_in_parts",
    "triplet_sum",
    "unit",
    "widest_gaps",
]
