"""The batch itself, or an explicit set of references, as references."""

from dataclasses import replace

from torch import Tensor

from equimetric.components import references
from equimetric.errors import EquimetricError
from equimetric.geometry import Geometry, unit
from equimetric.pairs import Pairs, Queries
from equimetric.references.kind import Given, References
from equimetric.references.relation import Labels, check_embeddings, check_labels, class_ids, relation

__all__ = ["BatchReferences", "compare"]


def compare(
    geometry: Geometry,
    queries: Queries,
    labels: Labels,
    reference_embeddings: Tensor,
    reference_labels: Labels | None,
    self_mask: Tensor | None = None,
    *,
    itself: bool = False,
) -> Pairs:
    """Every query against every reference; with `itself` the references are the queries."""
    shape = (len(queries.embeddings), len(reference_embeddings))
    positive, negative = relation(labels, reference_labels, shape, self_mask, itself=itself)
    similarity = geometry.measure(queries.embeddings, reference_embeddings)
    return Pairs(similarity, positive, negative, geometry=geometry, queries=queries)


@references("batch")
class BatchReferences(References):
    """Every sample of the batch is compared with every other, or with an explicit reference set where one is given.

    A sample is never its own positive: by its place in the batch, not by value, so exact duplicates stay legal pairs.
    For an explicit reference set the caller marks the same samples in `self_mask`. Labels are class ids, a multi-hot
    matrix (positive = at least one label in common) or the two masks (positive, negative) of the pairs themselves.
    """

    def forward(self, geometry: Geometry, normalize: bool, given: Given) -> Pairs:
        """Make the (Q, R) pairs."""
        embeddings = check_embeddings(given.embeddings)
        labels = check_labels(given.labels, embeddings)
        reference_embeddings, reference_labels, self_mask = (
            given.reference_embeddings,
            given.reference_labels,
            given.self_mask,
        )
        if normalize:
            embeddings = unit(embeddings)
        queries = Queries(embeddings, class_ids(labels), given.index)
        if reference_embeddings is None:
            if reference_labels is not None or self_mask is not None:
                raise EquimetricError("reference_labels and self_mask need reference_embeddings beside them")
            return compare(geometry, queries, labels, embeddings, labels, itself=True)
        reference_embeddings = check_embeddings(reference_embeddings, "reference_embeddings").to(embeddings)
        if isinstance(labels, tuple):
            if reference_labels is not None:
                raise EquimetricError("labels given as masks hold the whole relation; leave reference_labels out")
        elif reference_labels is None:
            raise EquimetricError("reference_embeddings need reference_labels beside them")
        else:
            reference_labels = check_labels(reference_labels, reference_embeddings, "reference_labels")
        if reference_embeddings.shape[1] != embeddings.shape[1]:
            raise EquimetricError(
                f"reference_embeddings have dimension {reference_embeddings.shape[1]}, "
                f"embeddings {embeddings.shape[1]}; they must be equal"
            )
        if normalize:
            reference_embeddings = unit(reference_embeddings)
        queries = replace(queries, references=reference_embeddings)
        return compare(geometry, queries, labels, reference_embeddings, reference_labels, self_mask)
