"""SphereFace, also known as A-Softmax: the large margin on class weights of unit length."""

from typing import Annotated

from torch import Tensor

from equimetric.components import loss
from equimetric.losses.large_margin import SEARCH, LargeMarginSoftmax, divide_by_norm, target_product
from equimetric.option_values import NonNegativeFloat, PositiveFloat, Range, RowReduction
from equimetric.pairs import Pairs


@loss(
    "sphereface",
    title="SphereFace",
    family="classification",
    per_query=True,
    paper="Liu, Wen, Yu, Li, Raj, Song: SphereFace: deep hypersphere embedding for face recognition (2017)",
    geometry="dot",
    references="proxies",
    search=SEARCH,
    known_as=("ASoftmax", "AngularSoftmax"),
)
class SphereFace(LargeMarginSoftmax):
    """Classify by angle alone, scaled by the embedding's length, after multiplying the angle to the right class.

    L = mean_i −log softmax(z_i)_{y_i}, z_c = ‖x‖ cos θ_c, z_y = ‖x‖ (λ_t cos θ_y + ψ(θ_y)) / (1 + λ_t), λ_t and ψ as
    for large_margin_softmax. The class weights are of unit length (`normalize_proxies=True`), the embeddings are not;
    with `scale` = s they are too, and s takes the place of ‖x‖.
    """

    def __init__(
        self,
        *,
        m: Annotated[int, Range(1, 64)] = 4,
        scale: PositiveFloat | None = None,
        lambda_base: NonNegativeFloat = 1000.0,
        lambda_gamma: NonNegativeFloat = 0.12,
        lambda_power: NonNegativeFloat = 1.0,
        lambda_min: NonNegativeFloat = 5.0,
        reduction: RowReduction = "mean",
    ) -> None:
        super().__init__(
            m=m,
            lambda_base=lambda_base,
            lambda_gamma=lambda_gamma,
            lambda_power=lambda_power,
            lambda_min=lambda_min,
            reduction=reduction,
        )
        self.scale = scale

    def forward(self, pairs: Pairs) -> Tensor:
        """The loss of pairs of raw queries and unit class weights."""
        if self.scale is None:
            return super().forward(pairs)
        return self.classify(pairs, self.scale * divide_by_norm(pairs.similarity, target_product(pairs)), self.scale)
