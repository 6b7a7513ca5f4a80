"""A collector takes from every tile of a scan what its metrics need.

Several processes may read the tiles, each with a copy of the collector as it was before the first tile. The `partial`
result of each is merged into the original, in any order and however the tiles were distributed: so counts are integers,
sums are exact, each worker writes the rows of its own queries, and lists carry the numbers of their tiles.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor

from equimetric.evaluation.engine.sets import LabelledSets
from equimetric.evaluation.engine.similarity import SimilarityMatrix
from equimetric.evaluation.engine.tiles import Strip, Tile
from equimetric.evaluation.families import Metric

__all__ = ["Collector"]


class Collector:
    """Built once for all metrics that read it.

    sets     the checked embeddings and classes
    options  the metric options of `evaluate`, defaults filled in
    metrics  the requested metrics that read this collector
    """

    reads_tiles: ClassVar[bool] = True
    """False for a collector that computes from embeddings and labels alone, in `finish`: it needs no scan."""

    accepts_coarse: ClassVar[bool] = False
    """True where tiles of bfloat16 products are enough, within `SimilarityMatrix.coarse_tolerance`."""

    accepts_columns: ClassVar[bool] = False
    """True where tiles may have some columns of the gallery each: see `tiles.Tile`."""

    def __init__(self, sets: LabelledSets, options: Mapping[str, Any], metrics: Sequence[Metric]) -> None:
        self.sets, self.options, self.metrics = sets, options, metrics

    def prepare(self, matrix: SimilarityMatrix) -> None:
        """Called before the first tile."""

    def collect(self, tile: Tile) -> None:
        """Read one tile. Other collectors share its similarities: do not change them, copy what is kept."""

    def accepts_strips(self) -> bool:
        """Whether `collect_strip` can replace `collect` where one set is compared with itself."""
        return False

    def collect_strip(self, strip: Strip) -> None:
        """Read one strip: see `tiles.Strip`."""
        raise NotImplementedError

    def partial(self, rows: Tensor) -> Any:
        """The result so far, in a form that can be pickled; per-query results for these queries alone."""
        raise NotImplementedError

    def merge(self, partial: Any) -> None:
        """Merge the partial result of a copy of this collector that read other tiles or strips."""
        raise NotImplementedError

    @classmethod
    def can_merge(cls) -> bool:
        """Whether several processes may read the tiles."""
        return cls.merge is not Collector.merge

    def finish(self) -> None:
        """Called after the last tile, and after all that is to be merged."""
