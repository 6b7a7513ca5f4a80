"""The batch itself, or an explicit reference set, as references."""

from torch import Tensor

from equimetric.components import references
from equimetric.errors import EquimetricError
from equimetric.geometry import Geometry, unit
from equimetric.pairs import Pairs, Queries
from equimetric.references.base import ObjectiveInputs, PairTerms, References
from equimetric.references.relation import Labels, check_embeddings, check_labels, class_ids, label_masks

__all__ = ["BatchReferences", "make_pairs"]


def make_pairs(
    geometry: Geometry,
    queries: Queries,
    labels: Labels,
    reference_embeddings: Tensor,
    reference_labels: Labels | None,
    self_mask: Tensor | None = None,
    *,
    same_set: bool = False,
    reference_weight: Tensor | None = None,
) -> Pairs:
    """Pair every query with every reference, (R,) by multiplicity; with `same_set` the references are the queries."""
    shape = (queries.embeddings.shape[0], reference_embeddings.shape[0])
    positive, negative = label_masks(labels, reference_labels, shape, self_mask, same_set=same_set)
    similarity = geometry.measure(queries.embeddings, reference_embeddings)
    weight = queries.weight if same_set else reference_weight
    weight = None if weight is None else weight.expand_as(similarity)
    return Pairs(similarity, positive, negative, weight, geometry=geometry, queries=queries)


@references("batch")
class BatchReferences(References):
    """Every sample of the batch is compared with every other, or with an explicit reference set where one is given.

    A sample is never its own positive: by its position in the batch, not by value, so exact duplicates are legal
    pairs. With an explicit reference set, `self_mask` marks the same samples. Labels are class ids, a multi-hot
    matrix (positive = at least one label in common) or the two masks (positive, negative) of the pairs themselves.
    """

    def forward(self, geometry: Geometry, normalize: bool, inputs: ObjectiveInputs) -> PairTerms:
        """Make the (Q, R) pairs."""
        embeddings = check_embeddings(inputs.embeddings)
        labels = check_labels(inputs.labels, embeddings)
        if normalize:
            embeddings = unit(embeddings)
        if inputs.reference_embeddings is None:
            if inputs.reference_labels is not None or inputs.self_mask is not None:
                raise EquimetricError("reference_labels and self_mask need reference_embeddings beside them")
            if inputs.reference_weight is not None:
                raise EquimetricError("reference_weight needs reference_embeddings beside it; give sample_weight")
            queries = Queries(embeddings, class_ids(labels), inputs.index, weight=inputs.sample_weight)
            return PairTerms([(1.0, make_pairs(geometry, queries, labels, embeddings, labels, same_set=True))])
        references, reference_labels = check_reference_set(inputs, embeddings, labels)
        if normalize:
            references = unit(references)
        weight = inputs.reference_weight
        queries = Queries(
            embeddings, class_ids(labels), inputs.index, references=references, weight=inputs.sample_weight
        )
        pairs = make_pairs(
            geometry, queries, labels, references, reference_labels, inputs.self_mask, reference_weight=weight
        )
        return PairTerms([(1.0, pairs)])


def check_reference_set(inputs: ObjectiveInputs, embeddings: Tensor, labels: Labels) -> tuple[Tensor, Labels | None]:
    """The explicit reference set and its labels, which must fit the queries."""
    assert inputs.reference_embeddings is not None
    references = check_embeddings(inputs.reference_embeddings, "reference_embeddings").to(embeddings)
    reference_labels = inputs.reference_labels
    if isinstance(labels, tuple):
        if reference_labels is not None:
            raise EquimetricError("labels given as masks hold the whole relation; leave reference_labels out")
    elif reference_labels is None:
        raise EquimetricError("reference_embeddings need reference_labels beside them")
    else:
        reference_labels = check_labels(reference_labels, references, "reference_labels")
    if references.shape[1] != embeddings.shape[1]:
        raise EquimetricError(
            f"reference_embeddings have dimension {references.shape[1]}, "
            f"embeddings {embeddings.shape[1]}; they must be equal"
        )
    return references, reference_labels
