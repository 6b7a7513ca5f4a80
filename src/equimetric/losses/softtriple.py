"""SoftTriple: soft assignment to several centres per class."""

from torch import Tensor

from equimetric.components import loss
from equimetric.losses.cosface import cosface
from equimetric.option_values import PositiveFloat, RowReduction
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform


@loss(
    "softtriple",
    title="SoftTriple",
    family="proxy",
    separable=True,
    paper="Qian, Shang, Sun, Hu, Li, Jin: SoftTriple loss: deep metric learning without triplet sampling (2019)",
    references="proxies",
    search={"la": Uniform(0.01, 100.0), "delta": Uniform(0.0, 1.0)},
)
def softtriple(
    pairs: Pairs, *, la: PositiveFloat = 20.0, delta: float = 0.01, reduction: RowReduction = "mean"
) -> Tensor:
    """A smoothed triplet loss over class centres, without sampling triplets.

    L = mean_i −log softmax(la · (S_i − delta · onehot(y_i)))_{y_i} + τ R, with S_ic = Σ_k q_k x_i·w_ck and
    q = softmax_k(x_i·w_ck / γ). S and the regulariser R, which draws the centres of a class together, come from the
    references: `per_class` centres with pool='soft', γ = `gamma` and τ = `tau`. With one centre it is CosFace.
    """
    return cosface(pairs, margin=delta, scale=la, reduction=reduction)
