"""CosFace, also known as additive-margin softmax."""

from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.option_values import PositiveFloat, RowReduction, Smoothing, UnitFraction
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform


@loss(
    "cosface",
    title="CosFace",
    family="classification",
    separable=True,
    paper="Wang, Wang, Zhou, Ji, Gong, Zhou, Li, Liu: CosFace: large margin cosine loss (2018)",
    references=("proxies", "batch"),
    search={"margin": Uniform(0.0, 1.0), "scale": Uniform(0.01, 200.0), "label_smoothing": Uniform(0.0, 0.2)},
    known_as=("AMSoftmax", "AdditiveMarginSoftmax", "AddMarginProduct", "LMCL"),
)
def cosface(
    pairs: Pairs,
    *,
    margin: float = 0.35,
    scale: PositiveFloat = 64.0,
    label_smoothing: UnitFraction = 0.0,
    smoothing: Smoothing = "others",
    reduction: RowReduction = "mean",
) -> Tensor:
    """Classify by cosine after taking a margin off the right class.

    L = mean_i −log softmax(z_i)_{y_i}, z_c = scale · cos θ_c, z_y = scale · (cos θ_y − margin)
    """
    logits = scale * ops.special.replace_positives(pairs.similarity, pairs, lambda cosine: cosine - margin)
    return ops.cross_entropy(logits, pairs, label_smoothing, smoothing, reduction)
