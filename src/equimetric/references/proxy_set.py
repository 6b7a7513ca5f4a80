"""The proxies of the other terms of a sum, compared among themselves."""

from typing import ClassVar

from equimetric.components import references
from equimetric.errors import EquimetricError
from equimetric.geometry import Geometry, unit
from equimetric.pairs import Pairs, Queries
from equimetric.references.base import ObjectiveInputs, PairTerms, ProxySet, References
from equimetric.references.batch import make_pairs
from equimetric.references.relation import check_embeddings

__all__ = ["NO_PROXIES", "ProxySetReferences"]

NO_PROXIES = (
    "this term regularises proxies, but no other term learns any; add it to an objective that does, as in "
    "'arcface+0.1*regular_face'"
)


@references("proxy_set", exempt={"alone": "another term learns the proxies"})
class ProxySetReferences(References):
    """Every proxy of the sum's other terms is compared with the others of its term, as the samples of a batch are.

    The label of a proxy is its class. This way a regulariser of class weights is a loss like any other: in
    "arcface+0.1*regular_face" its queries are the proxies of ArcFace, which get its gradient; the batch gets none.
    """

    needs_proxies: ClassVar[bool] = True

    def forward(self, geometry: Geometry, normalize: bool, inputs: ObjectiveInputs) -> PairTerms:
        """Make one (rows, rows) set of pairs for each term with proxies."""
        if not inputs.proxies:
            raise EquimetricError(NO_PROXIES)
        return PairTerms([(1.0, compare_proxies(geometry, normalize, proxies)) for proxies in inputs.proxies])


def compare_proxies(geometry: Geometry, normalize: bool, proxies: ProxySet) -> Pairs:
    """Compare all proxies of one term with one another."""
    vectors = check_embeddings(proxies.vectors, "proxies")
    if normalize:
        vectors = unit(vectors)
    return make_pairs(
        geometry, Queries(vectors, proxies.labels), proxies.labels, vectors, proxies.labels, same_set=True
    )
