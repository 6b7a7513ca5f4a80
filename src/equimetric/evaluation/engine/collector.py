"""A collector takes from every tile of a scan what its metrics need."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

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

    def finish(self) -> None:
        """Called after the last tile."""
