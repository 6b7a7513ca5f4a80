"""Global loss: equal distances of all positive pairs, equal ones of all negative pairs, and the two apart."""

from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform


@loss(
    "global_loss",
    title="Global",
    family="regulariser",
    paper="Kumar, Carneiro, Reid: Learning local image descriptors by minimising global loss functions (2016)",
    geometry="sqeuclidean",
    search={"margin": Uniform(0.0, 1.0)},
    exempt={"monotone": "a pair nearer or farther than the mean of its kind is drawn to it in either direction"},
)
def global_loss(pairs: Pairs, *, margin: float = 0.4, lam: float = 1.0) -> Tensor:
    """Shrink the variance of positive and of negative distances, push their means a margin apart; goes with triplets.

    L = var⁺(δ) + var⁻(δ) + λ [mean⁺(δ) − mean⁻(δ) + margin]₊, δ = d²/4 in [0, 1] for unit vectors, λ = `lam`; without
    positives or without negatives the last part is 0.
    """
    distance = pairs.distance() / 4
    means, spread = [], distance.new_zeros(())
    for mask in (pairs.positive, pairs.negative):
        means.append(ops.mean(distance, mask, pairs.weight))
        # The mean is where the spread is least, so it has no part in the spread's gradient.
        spread = spread + ops.mean((distance - means[-1].detach()).square(), mask, pairs.weight)
    compared = pairs.positive.any() & pairs.negative.any()
    return spread + lam * compared * (means[0] - means[1] + margin).relu()
