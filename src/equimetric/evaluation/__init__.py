"""Evaluation: what an embedding space is worth, measured exactly and in bounded memory.

One scan over tiles of the similarity matrix feeds collectors; every metric is a pure function of what a collector
holds. This room knows embeddings and labels only: nothing here imports training, learners or studies.

* `inputs`          turns what the user gave into checked tensors
* `exact`           inner products free of rounding, so that ties are ties
* `scan`            the tiles, and what they are compared from
* `nearest`         the k nearest neighbours within a tile, ties by lower index
* `halves`          the same for one set from half of its matrix: every pair once
* `positive_ranks`  the ranks of all relevant items, by counting
* `families`        what a metric is: a pattern of names, collectors, a function of these
* `retrieval`       recall@K, precision@K, map@K, R-precision, MAP@R, MAP, MRR
* `clustering`      k-means, NMI, AMI, pairwise F1
* `distances`       the distances of all pairs, as far as metrics need them
* `verification`    ROC, AUC, EER, true accept rates at false accept rates
* `consistency`     OPIS: how differently classes behave under one threshold
* `structure`       distances within and between classes, spectral decay, alignment, uniformity
* `evaluate`        the metrics asked for, from one scan
* `result`          `Evaluation`, what `evaluate` returns
* `uncertainty`     intervals and paired comparisons, classes drawn as a whole
* `plots`           utility curves, ROC, histograms of distances
* `files`           embeddings made elsewhere, read from a file
"""

from equimetric.evaluation.consistency import Consistency, threshold_consistency
from equimetric.evaluation.evaluate import evaluate
from equimetric.evaluation.result import Evaluation

__all__ = ["Consistency", "Evaluation", "evaluate", "threshold_consistency"]
