"""KoLeo: every embedding away from its nearest neighbour, which spreads all of them evenly."""

from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.option_values import PositiveFloat
from equimetric.pairs import Pairs


@loss(
    "koleo",
    title="KoLeo",
    family="regulariser",
    separable=True,
    paper="Sablayrolles, Douze, Schmid, Jégou: Spreading vectors for similarity search (2019)",
    geometry=("euclidean", "cosine"),
    references=("batch", "proxy_set"),
    exempt={"monotone": "the nearest neighbour is pushed away whatever its label"},
    known_as=("KoLeoLoss", "KozachenkoLeonenko"),
)
def koleo(pairs: Pairs, *, epsilon: PositiveFloat = 1e-8) -> Tensor:
    """Maximize the estimated entropy of the embeddings; add it to any objective with a small weight.

    L = −mean_i log(min_{j≠i} d_ij + ε), over all other samples of the batch, of any label.
    """
    nearest = ops.special.row_min(pairs.distance(), pairs.mask)[:, 0]
    has_no_pair = ~ops.has_any(pairs.mask)
    return ops.mean(-(nearest.masked_fill(has_no_pair, 1.0) + epsilon).log(), ~has_no_pair)
