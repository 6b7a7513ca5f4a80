"""The similarity matrix of a geometry that is no inner product: a Lp distance, or one of the user's own."""

from torch import Tensor

from equimetric.evaluation.engine.products import select_vectors
from equimetric.evaluation.engine.sets import LabelledSets
from equimetric.evaluation.engine.similarity import ALL, SimilarityMatrix
from equimetric.geometry import Geometry
from equimetric.ops.blocks import slices
from equimetric.threads import parallel_map

__all__ = ["CustomGeometryMatrix", "similarity_matrix"]

MEASURED_COLUMNS = 1024
"""Gallery items compared at a time, in case the measure holds more than the similarities themselves."""


def similarity_matrix(sets: LabelledSets) -> SimilarityMatrix:
    """The matrix of checked sets, in their geometry."""
    if sets.custom_geometry is None:
        return SimilarityMatrix.from_sets(sets)
    matrix = CustomGeometryMatrix.from_sets(sets)
    matrix.custom = sets.custom_geometry
    return matrix


class CustomGeometryMatrix(SimilarityMatrix):
    """Similarities as a geometry measures them, ranked by their values as computed; distances are −s."""

    custom: Geometry

    @property
    def symmetric(self) -> bool:
        """Every pair is measured from both ends."""
        return False

    @property
    def ranks_as_computed(self) -> bool:
        """There is no exact similarity to fall back on."""
        return True

    def similarity(self, rows: Tensor, out: Tensor | None = None, columns: slice = ALL) -> Tensor:
        """The similarity of some queries with the gallery, (rows, G), or with a range of it."""
        similarity = self._output_buffer(out, len(rows), columns, self.dtype)
        queries = self.queries.vectors[rows]

        def measure(block: slice) -> None:
            similarity[:, block] = self.custom.measure(queries, select_vectors(self.gallery.vectors, columns, block))

        for _ in parallel_map(measure, slices(similarity.shape[1], MEASURED_COLUMNS)):
            pass
        return self.mask_excluded(similarity, rows, columns)

    def float64_rows(self, rows: Tensor) -> Tensor:
        """As `similarity`, whose precision it has."""
        return self.similarity(rows).double()

    def exact_rows(self, rows: Tensor, columns: slice = ALL) -> Tensor:
        """As `similarity`, whose precision it has."""
        return self.similarity(rows, columns=columns).double()

    def tolerance(self, rows: Tensor, dtype: object) -> Tensor:  # noqa: ARG002
        """0: only equal similarities tie."""
        return self.queries.norms.new_zeros(len(rows), 1)

    def distance(self, similarity: Tensor, rows: Tensor) -> Tensor:  # noqa: ARG002
        """−s."""
        return -similarity
