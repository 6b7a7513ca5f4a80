"""NT-Xent: classify every positive pair against its anchor's negatives."""

from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.option_values import PositiveFloat
from equimetric.pairs import Pairs
from equimetric.search_space import LogUniform


@loss(
    "ntxent",
    title="NT-Xent",
    family="ranking",
    separable=True,
    paper="Sohn: Multi-class N-pair loss (2016); Chen, Kornblith, Norouzi, Hinton: SimCLR (2020)",
    geometry=("cosine", "euclidean", "sqeuclidean", "dot"),
    search={"temperature": LogUniform(1e-4, 100.0)},
    known_as=("InfoNCE", "SimCLR", "MultipleNegativesRankingLoss"),
)
def ntxent(pairs: Pairs, *, temperature: PositiveFloat = 0.07) -> Tensor:
    """Normalised, temperature-scaled cross-entropy of each positive pair against the anchor's negatives.

    L = mean_{(a,p)} −log( e^{s_ap/τ} / (e^{s_ap/τ} + Σ_{n∈N_a} e^{s_an/τ}) ), τ = `temperature`; the anchor's other
    positives are not in the denominator.
    """
    return ops.special.pair_cross_entropy(pairs.similarity / temperature, pairs)
