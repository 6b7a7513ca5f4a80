"""Quadruplet loss: a positive pair must also be closer than pairs of two other classes."""

from functools import partial

from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform


@loss(
    "quadruplet",
    title="Quadruplet",
    family="ranking",
    paper="Chen, Chen, Zhang, Huang: Beyond triplet loss, a deep quadruplet network for re-identification (2017)",
    geometry="euclidean",
    search={"margin1": Uniform(0.1, 1.0), "margin2": Uniform(0.05, 0.5)},
    exempt={"static shapes": "the quadruples above the margin are listed"},
)
def quadruplet(pairs: Pairs, *, margin1: float = 0.2, margin2: float = 0.1, squared: bool = False) -> Tensor:
    """A positive must be closer than the anchor's negatives, and than any two samples of two other classes.

    L = mean_{(a,p,n)} [d_ap − d_an + margin1]₊ + mean_{(a,p,k,l)} [d_ap − d_kl + margin2]₊, the classes of a, k and l
    all different; the second part is 0 where a batch has fewer than three. `squared` takes d² for d; the margins of
    the paper are then 1 and 0.5.
    """
    distance = pairs.distance()
    pairs = pairs.replace(similarity=-(distance.square() if squared else distance))
    triplets = ops.special.compute_separable(partial(ops.triplet_sum, margin=margin1, reduction="mean"), pairs)
    return triplets + ops.special.quadruplet_mean(pairs, margin2)
