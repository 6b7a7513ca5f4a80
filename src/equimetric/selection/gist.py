"""False negatives masked: those that a guide finds closer to the anchor than its positives."""

from typing import Literal

import torch
from torch import Tensor, nn

from equimetric import ops
from equimetric.components import selection
from equimetric.errors import EquimetricError
from equimetric.option_values import NonNegativeFloat
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform


@selection(
    "gist",
    paper="Solatorio: GISTEmbed: guided in-sample selection of training negatives for text embeddings (2024)",
    search={"margin": Uniform(0.0, 0.2)},
    separable={"guide": None},
    known_as=("GISTEmbed", "GISTEmbedLoss", "FalseNegativeMasking"),
)
class GuidedNegatives(nn.Module):
    """Keep all positives, and negatives that a guide does not find closer to the anchor than its closest positive.

    A negative n of anchor a is left out where g_an > max_p g_ap − margin, or with margin_kind='relative' where
    g_an > (1 − margin) max_p g_ap: it is likely a positive without the label. The guide's similarities g are those of
    the embedding itself or, with `guide`, (N, G) vectors of the images of the training set from another model, their
    cosines; then the objective needs index=… with every sample's place among them. Made for losses that
    compare each positive with all negatives of the batch: ntxent, supcon, dcl, nca.
    """

    guide: Tensor | None

    def __init__(
        self,
        *,
        guide: Tensor | None = None,
        margin: NonNegativeFloat = 0.0,
        margin_kind: Literal["absolute", "relative"] = "absolute",
    ) -> None:
        super().__init__()
        if guide is not None and not (isinstance(guide, Tensor) and guide.ndim == 2 and guide.is_floating_point()):
            raise EquimetricError("guide must be a matrix of floating-point vectors, one for each training image")
        self.margin, self.margin_kind = margin, margin_kind
        # Not part of the state: it is an argument, not learned.
        self.register_buffer("guide", None if guide is None else ops.unit(guide.detach()), persistent=False)

    def forward(self, pairs: Pairs) -> Pairs:
        """The pairs without false negatives."""
        similarity = pairs.similarity.detach()
        if self.guide is not None:
            ops.require.square_batch(pairs, "gist", "guide=…")
            vectors = self.guide[ops.require.rows_of_training_set(pairs, "gist", len(self.guide), "the guide")]
            similarity = vectors @ vectors.T
        closest = ops.special.row_max(similarity, pairs.positive)
        bound = closest - self.margin if self.margin_kind == "absolute" else closest * (1 - self.margin)
        # An anchor without positives keeps its negatives.
        bound = torch.where(ops.has_any(pairs.positive)[:, None], bound, torch.inf)
        return pairs.keep(positive=pairs.positive, negative=similarity <= bound)
