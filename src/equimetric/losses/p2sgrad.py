"""P2SGrad: classification whose gradient is the distance of the cosine from its target."""

import torch
from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.option_values import RowReduction
from equimetric.pairs import Pairs


@loss(
    "p2sgrad",
    title="P2SGrad",
    family="classification",
    separable=True,
    paper="Zhang, Zhao, Yan, Wang, Li: P2SGrad: refined gradients for optimizing deep face models (2019)",
    references="proxies",
    exempt={"monotone": "the target of other classes is a right angle: beyond it they are pulled closer"},
)
def p2sgrad(pairs: Pairs, *, reduction: RowReduction = "mean") -> Tensor:
    """Regress the cosine to the right class to 1 and to the others to 0; nothing to tune.

    L = mean_i ½ Σ_c (cos θ_ic − 1[c = y_i])², so that ∂L_i/∂cos θ_ic = cos θ_ic − 1[c = y_i] whatever the number of
    classes: the gradient of softmax with its probability replaced by the cosine, which is all that the paper defines.
    """
    miss = torch.where(pairs.positive, 1 - pairs.similarity, pairs.similarity)
    values = ops.row_sum(miss.square() / 2, pairs.mask, pairs.weight)
    return ops.special.reduce_rows(values, ops.has_any(pairs.positive), reduction)
