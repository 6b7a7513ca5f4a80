"""Softmax cross-entropy of a linear classifier on the embedding."""

from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.option_values import RowReduction, Smoothing, UnitFraction
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform


@loss(
    "softmax",
    title="Softmax",
    family="classification",
    separable=True,
    paper="Bridle: Probabilistic interpretation of feedforward classification network outputs (1990)",
    geometry="dot",
    references=("proxies", "batch"),
    search={"label_smoothing": Uniform(0.0, 0.2)},
    known_as=("CrossEntropyLoss",),
)
def softmax(
    pairs: Pairs,
    *,
    label_smoothing: UnitFraction = 0.0,
    smoothing: Smoothing = "others",
    reduction: RowReduction = "mean",
) -> Tensor:
    """Classify by the raw dot product with the class weights.

    L = mean_i −log softmax(W x_i + b)_{y_i}; the references hold W and, with `bias=True`, b. Neither x nor W is of
    unit length here, but retrieval compares unit vectors: `normalized_softmax` trains what is then used.
    """
    return ops.cross_entropy(pairs.similarity, pairs, label_smoothing, smoothing, reduction)
