"""Evaluation: what an embedding space is worth, measured exactly and in bounded memory.

One scan over tiles of the similarity matrix feeds collectors; every metric is a pure function of what a collector
holds. This room knows embeddings and labels only: nothing here imports training, learners or studies.

* `inputs`     turns what the user gave into checked tensors
* `exact`      inner products free of rounding, so that ties are ties
* `scan`       the tiles, and what they are compared from
* `nearest`    the k nearest neighbours within a tile, ties by lower index
* `retrieval`  recall@K, precision@1, R-precision, MAP@R, and `evaluate`
* `result`     `Evaluation`, what `evaluate` returns
* `files`      embeddings made elsewhere, read from a file
"""

from equimetric.evaluation.result import Evaluation
from equimetric.evaluation.retrieval import evaluate

__all__ = ["Evaluation", "evaluate"]
