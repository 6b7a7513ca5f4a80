"""Pairs beyond fixed distances."""

from equimetric.components import selection
from equimetric.pairs import Pairs
from equimetric.search_space import Uniform


@selection(
    "pair_margin",
    paper="Musgrave, Belongie, Lim: PyTorch metric learning (2020)",
    search={"pos_margin": Uniform(0.0, 1.0), "neg_margin": Uniform(0.2, 2.0)},
)
def pair_margin(pairs: Pairs, *, pos_margin: float = 0.2, neg_margin: float = 0.8) -> Pairs:
    """Keep positives farther apart than one distance, negatives closer together than another.

    Positives with d > pos_margin, negatives with d < neg_margin. The non-trivial pairs of the ranked-list loss are
    pos_margin = α − m, neg_margin = α.
    """
    distance = pairs.distance().detach()
    return pairs.keep(positive=distance > pos_margin, negative=distance < neg_margin)
