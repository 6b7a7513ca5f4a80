"""All triplets, or those in a band of violations: violating, hard, semi-hard."""

from equimetric.components import selection
from equimetric.option_values import NonNegativeFloat
from equimetric.pairs import Pairs, TripletBand
from equimetric.search_space import Uniform


@selection("all", paper="")
def all_pairs(pairs: Pairs) -> Pairs:
    """Every pair, and so every triplet."""
    return pairs


@selection("all_triplets", paper="")
def all_triplets(pairs: Pairs) -> TripletBand:
    """Every triplet; a loss of pairs then counts a pair as often as it occurs in one."""
    return TripletBand(pairs)


@selection(
    "violating",
    paper="Weinberger, Saul: Distance metric learning for large margin nearest neighbour (2006)",
    known_as=("TripletMarginMiner",),
)
def violating(pairs: Pairs, *, margin: float | None = None) -> TripletBand:
    """Triplets that violate the margin, by default 0.05, or 0.2 of squared distances: s_an − s_ap > −margin."""
    return TripletBand(pairs, above=-(pairs.default_margin() if margin is None else margin))


@selection(
    "hard",
    paper="Schroff, Kalenichenko, Philbin: FaceNet (2015)",
    known_as=("TripletMarginMiner",),
)
def hard(pairs: Pairs) -> TripletBand:
    """Triplets whose negative is at least as close as the positive: s_an ≥ s_ap."""
    return TripletBand(pairs, at_least=0.0)


@selection(
    "semihard",
    paper="Schroff, Kalenichenko, Philbin: FaceNet (2015)",
    search={"margin": Uniform(0.0, 0.5)},
    known_as=("TripletMarginMiner",),
)
def semihard(pairs: Pairs, *, margin: NonNegativeFloat | None = None) -> TripletBand:
    """Triplets whose negative is farther than the positive but inside the margin: −margin < s_an − s_ap < 0.

    The margin is by default 0.05, or 0.2 of squared distances.
    """
    return TripletBand(pairs, above=-(pairs.default_margin() if margin is None else margin), below=0.0)
