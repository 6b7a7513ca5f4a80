"""ProxyNCA in its original form and in that of ProxyNCA++."""

from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.option_values import PositiveFloat, RowReduction, Smoothing, UnitFraction
from equimetric.pairs import Pairs
from equimetric.search_space import LogUniform, Uniform


@loss(
    "proxy_nca",
    title="ProxyNCA",
    family="proxy",
    separable=True,
    paper="Movshovitz-Attias, Toshev, Leung, Ioffe, Singh: No fuss distance metric learning using proxies (2017)",
    references=("proxies", "batch"),
    search={"embedding_multiplier": LogUniform(1.0, 6.0), "label_smoothing": Uniform(0.0, 0.2)},
)
def proxy_nca(
    pairs: Pairs,
    *,
    embedding_multiplier: PositiveFloat = 3.0,
    proxy_multiplier: PositiveFloat | None = None,
    temperature: PositiveFloat = 1.0,
    positive_in_denominator: bool = False,
    label_smoothing: UnitFraction = 0.0,
    smoothing: Smoothing = "others",
    reduction: RowReduction = "mean",
) -> Tensor:
    """Neighbourhood component analysis against class proxies.

    L = mean_i { d_{i,y_i} + log Σ_{c≠y_i} e^{−d_ic} }, d = ‖m x̂ − m' p̂‖² / temperature, m = embedding_multiplier,
    m' = proxy_multiplier, equal to m unless given. The positive is not in the denominator, so the value may be
    negative; `positive_in_denominator=True` is the form of ProxyNCA++.
    """
    m = embedding_multiplier
    n = embedding_multiplier if proxy_multiplier is None else proxy_multiplier
    distance = (m * m + n * n - 2 * m * n * pairs.similarity) / temperature
    return ops.cross_entropy(
        -distance, pairs, label_smoothing, smoothing, reduction, positive_in_denominator=positive_in_denominator
    )
