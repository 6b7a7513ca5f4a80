"""Triplets by the angle at their negative, as the angular loss sees it."""

from math import radians, tan

from torch import Tensor

from equimetric import ops
from equimetric.components import selection
from equimetric.errors import EquimetricError
from equimetric.option_values import Acute
from equimetric.pairs import Pairs, Triplets
from equimetric.search_space import Uniform


@selection(
    "angular",
    paper="Wang, Zhou, Wen, Liu, Lin: Deep metric learning with angular loss (2017)",
    search={"angle_deg": Uniform(10.0, 55.0)},
    separable=False,
    exempt={"static shapes": "the triplets are listed"},
)
def wide_angles(pairs: Pairs, *, angle_deg: Acute = 20.0) -> Triplets:
    """Triplets whose angle at the negative is wider than a bound.

    tan α = ‖x_a − x_p‖ / (2 ‖x_n − c‖) > tan(angle_deg), c = (x_a + x_p) / 2 of the unit vectors;
    4 ‖x_n − c‖² = 2 d²_an + 2 d²_pn − d²_ap, so that distances are enough.
    """
    among_references = squared_among_references(pairs)
    squared = squared_chords(pairs, pairs.similarity)
    anchor, positive = (pairs.positive & pairs.negative.any(1, keepdim=True)).nonzero(as_tuple=True)
    squared_positive = squared[anchor, positive, None]
    to_midpoint = 2 * squared[anchor] + 2 * among_references[positive] - squared_positive
    wide = squared_positive > tan(radians(angle_deg)) ** 2 * to_midpoint
    row, negative = (pairs.negative[anchor] & wide).nonzero(as_tuple=True)
    return Triplets.from_indices(pairs, anchor[row], positive[row], negative)


def squared_chords(pairs: Pairs, similarity: Tensor) -> Tensor:
    """Squared Euclidean distances of the unit vectors behind similarities."""
    if pairs.geometry is None:
        raise EquimetricError("the angular selection needs pairs that know their geometry; make them with an objective")
    return pairs.geometry.chord(similarity.detach()).square()


def squared_among_references(pairs: Pairs) -> Tensor:
    """(R, R) squared distances of the references among themselves: of the batch, or of an explicit set."""
    references = None if pairs.queries is None else pairs.queries.references
    if references is not None and pairs.geometry is not None:
        return squared_chords(pairs, pairs.geometry.measure(references, references))
    if not ops.require.is_square_batch(pairs):
        raise EquimetricError("the angular selection compares references with one another; use references='batch'")
    return squared_chords(pairs, pairs.similarity)
