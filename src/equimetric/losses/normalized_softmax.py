"""Classification by cosine to class weights; over the batch instead, neighbourhood component analysis."""

from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.option_values import PositiveFloat, RowReduction, Smoothing, UnitFraction
from equimetric.pairs import Pairs
from equimetric.search_space import LogUniform, Uniform


@loss(
    "normalized_softmax",
    title="N. Softmax",
    family="classification",
    separable=True,
    paper="Zhai, Wu: Classification is a strong baseline for deep metric learning (2019)",
    references=("proxies", "batch"),
    search={"temperature": LogUniform(0.01, 100.0), "label_smoothing": Uniform(0.0, 0.2)},
    known_as=("NormFace", "CosineSoftmax", "ProxySoftmax"),
)
def normalized_softmax(
    pairs: Pairs,
    *,
    temperature: PositiveFloat = 0.05,
    label_smoothing: UnitFraction = 0.0,
    smoothing: Smoothing = "others",
    reduction: RowReduction = "mean",
) -> Tensor:
    """Classify by cosine to the class proxies.

    L = mean_i −log softmax(s_i / temperature)_{y_i}
    """
    return ops.cross_entropy(pairs.similarity / temperature, pairs, label_smoothing, smoothing, reduction)
