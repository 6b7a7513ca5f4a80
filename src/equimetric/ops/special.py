"""Operations that a few methods need: look here before writing a kernel of your own.

Vectors:      inner_products, squared_distance, pairwise, hyperbolic_distance, squared_chord, safe_sqrt
Layers:       linear, layer_norm, BatchNorm
Masks:        masked_sum, count, row_max, row_min, row_argmax, row_argmin, list_positives, first_pairs, draw_columns,
              hardest_entries
Ratios:       ratio, reduce_rows, sum_rows, weigh_references
Terms:        similarity (of a hinge), pair_cross_entropy, replace_positives, cosine_and_norm, row_violation,
              quadruplet_mean, soft_histograms, ancestor_hinges
Gradients:    scale_gradient, keep_signs, compute_separable
Clusters:     cluster_within_classes, group_rows, MedoidSearch, single_linkage_distance
"""

from equimetric.ops.ancestors import ancestor_hinges
from equimetric.ops.chunks import compute_chunked as compute_separable
from equimetric.ops.class_pairs import first_pairs
from equimetric.ops.classification import cosine_and_norm, pair_cross_entropy, replace_positives
from equimetric.ops.exponentials import row_violation
from equimetric.ops.gradients import keep_signs, scale_gradient
from equimetric.ops.groups import group_rows
from equimetric.ops.hinges import similarity
from equimetric.ops.histograms import soft_histograms
from equimetric.ops.hyperbolic import hyperbolic_distance
from equimetric.ops.kmeans import cluster_within_classes
from equimetric.ops.layers import BatchNorm, layer_norm, linear
from equimetric.ops.medoids import MedoidSearch
from equimetric.ops.positive_pairs import list_positives
from equimetric.ops.products import (
    inner_products,
    pairwise,
    safe_sqrt,
    squared_chord,
    squared_distance,
)
from equimetric.ops.quadruplets import quadruplet_mean
from equimetric.ops.ratios import ratio
from equimetric.ops.reductions import count, masked_sum, reduce_rows, row_max, row_min
from equimetric.ops.rows import sum_rows, weigh_references
from equimetric.ops.sampling import draw_columns, hardest_entries, row_argmax, row_argmin
from equimetric.ops.single_linkage import single_linkage_distance

__all__ = [
    "BatchNorm",
    "MedoidSearch",
    "ancestor_hinges",
    "cluster_within_classes",
    "compute_separable",
    "cosine_and_norm",
    "count",
    "draw_columns",
    "first_pairs",
    "group_rows",
    "hardest_entries",
    "hyperbolic_distance",
    "inner_products",
    "keep_signs",
    "layer_norm",
    "linear",
    "list_positives",
    "masked_sum",
    "pair_cross_entropy",
    "pairwise",
    "quadruplet_mean",
    "ratio",
    "reduce_rows",
    "replace_positives",
    "row_argmax",
    "row_argmin",
    "row_max",
    "row_min",
    "row_violation",
    "safe_sqrt",
    "scale_gradient",
    "similarity",
    "single_linkage_distance",
    "soft_histograms",
    "squared_chord",
    "squared_distance",
    "sum_rows",
    "weigh_references",
]
