"""The search of every probe in every draw of the gallery, from the tiles of one scan."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from equimetric.evaluation.engine.collector import Collector
from equimetric.evaluation.engine.custom_geometry import similarity_matrix
from equimetric.evaluation.engine.nearest import find_nearest
from equimetric.evaluation.engine.scan import scan
from equimetric.evaluation.engine.sets import LabelledSets
from equimetric.evaluation.engine.similarity import ALL, SimilarityMatrix
from equimetric.evaluation.engine.tiles import Tile
from equimetric.evaluation.families import Metric
from equimetric.evaluation.identification.draws import GalleryDraw, draw_galleries
from equimetric.evaluation.identification.protocol import IdentificationProtocol, read_protocol
from equimetric.evaluation.identification.scores import IdentificationScores, empty_scores, join_scores, names_own
from equimetric.evaluation.identification.templates import MeanTemplates

__all__ = ["GallerySearch", "search_galleries"]


class GallerySearch(Collector):
    """`IdentificationScores` of every draw; the option `identification` is its `IdentificationProtocol`.

    Nearest items are exact, near-ties included: see `engine.nearest`.
    """

    def __init__(
        self,
        sets: LabelledSets,
        options: Mapping[str, Any],
        metrics: Sequence[Metric] = (),
        draws: Sequence[GalleryDraw] | None = None,
    ) -> None:
        super().__init__(sets, options, metrics)
        self.protocol = read_protocol(options["identification"])
        self.draws = draw_galleries(sets, self.protocol) if draws is None else list(draws)
        # Small arrays allocated between the large temporaries of tiles would keep their memory from being freed.
        self.scores = [empty_scores(int(draw.probes.sum()), self.protocol.depth) for draw in self.draws]

    def prepare(self, matrix: SimilarityMatrix) -> None:
        """Index what each draw compares probes with, and number its probes in scan order."""
        if self.protocol.by == "mean":
            self._templates = [MeanTemplates(self.sets, draw) for draw in self.draws]
            for templates in self._templates:
                templates.compute_statistics(without_probes=True)
        else:
            self._columns = [EnrolledColumns(matrix, draw.items) for draw in self.draws]
        self._search_rows = [draw.probes[matrix.order].cumsum(0)[matrix.inverse_order] - 1 for draw in self.draws]

    def collect(self, tile: Tile) -> None:
        """Search the tile's probes in every draw."""
        for index, draw in enumerate(self.draws):
            which = draw.probes[tile.rows].nonzero().flatten()
            if len(which):
                rows = tile.rows[which]
                if self.protocol.by == "mean":
                    nearest, distance, rival = self._templates[index].search(rows, draw.mated[rows])
                else:
                    nearest, distance, rival = self._columns[index].search(tile, which, self.protocol.depth, self.sets)
                self._write(index, rows, nearest, distance, *rival)

    @property
    def all_scores(self) -> IdentificationScores:
        """The searches of all draws together."""
        return join_scores(self.scores)

    def _write(
        self, index: int, rows: Tensor, nearest: Tensor, distance: Tensor, rival: Tensor, rival_distance: Tensor
    ) -> None:
        """Write the results of a draw's search of some rows."""
        scores, indices = self.scores[index], self._search_rows[index][rows].cpu().numpy()
        probe_classes, identities = self.sets.query_classes[rows].cpu().numpy(), nearest.cpu().numpy()
        entries = identities.shape[1]
        scores.distance[indices, :entries] = distance.cpu().numpy()
        scores.named[indices, :entries] = names_own(identities, probe_classes)
        scores.probe[indices] = rows.cpu().numpy()
        scores.probe_class[indices] = probe_classes
        scores.stranger[indices] = self.draws[index].stranger[rows].cpu().numpy()
        scores.nearest_class[indices] = identities[:, 0]
        scores.rival_distance[indices] = rival_distance.cpu().numpy()
        scores.rival_named[indices] = rival.cpu().numpy() == probe_classes

    def partial(self, rows: Tensor) -> Any:
        """The searches of these queries in every draw: their indices and results."""
        indices = [
            index[rows[draw.probes[rows]]].cpu().numpy()
            for draw, index in zip(self.draws, self._search_rows, strict=True)
        ]
        return [(draw_rows, scores.select(draw_rows)) for draw_rows, scores in zip(indices, self.scores, strict=True)]

    def merge(self, partial: Any) -> None:
        """Take the searches of other queries."""
        for scores, (indices, found_scores) in zip(self.scores, partial, strict=True):
            scores.write(indices, found_scores)


class EnrolledColumns(SimilarityMatrix):
    """The columns of some gallery items of a similarity matrix, without a copy of their vectors."""

    def __init__(self, matrix: SimilarityMatrix, items: Tensor) -> None:
        self.whole, self.enrolled = matrix, items
        self.queries, self.gallery = matrix.queries, matrix.gallery

    @property
    def item_count(self) -> int:
        """Number of enrolled items E."""
        return len(self.enrolled)

    @property
    def ranks_as_computed(self) -> bool:
        """As the whole matrix."""
        return self.whole.ranks_as_computed

    def tolerance(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """As the whole matrix."""
        return self.whole.tolerance(rows, dtype)

    def exact_rows(self, rows: Tensor, columns: slice = ALL) -> Tensor:
        """Similarities without rounding, (rows, E), or of a range of the enrolled items."""
        return self.whole.exact_rows(rows)[:, self.enrolled[columns]]

    def float64_products(self, rows: Tensor, columns: Tensor) -> Tensor:
        """The similarity of pairs (query, enrolled item): (P,) float64."""
        return self.whole.float64_products(rows, self.enrolled[columns])

    def exact_products(self, rows: Tensor, columns: Tensor) -> Tensor:
        """The similarity, without rounding, of pairs (query, enrolled item): (P,) float64."""
        return self.whole.exact_products(rows, self.enrolled[columns])

    def search(
        self, tile: Tile, which: Tensor, depth: int, sets: LabelledSets
    ) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
        """Classes and distances (P, k) of the nearest items of some rows of the tile, and the next identity's (P,)."""
        rows = tile.rows[which]
        similarity = tile.similarity.index_select(1, self.enrolled)
        similarity = similarity if len(which) == len(tile.rows) else similarity[which]
        classes = sets.gallery_classes[self.enrolled]
        columns = find_nearest(Tile(self, rows, similarity), min(depth, self.item_count))
        distance = self._distances(rows, similarity, columns)
        nearest = classes[columns].masked_fill(columns < 0, -1)
        others = similarity.masked_fill_(classes == nearest[:, :1], -torch.inf)
        value, index = others.max(dim=1, keepdim=True)
        rival = classes[index[:, 0]].masked_fill(value[:, 0] == -torch.inf, -1)
        return nearest, distance, (rival, self.whole.distance(value.double(), rows)[:, 0])

    def _distances(self, rows: Tensor, similarity: Tensor, columns: Tensor) -> Tensor:
        """(P, k) float64, without rounding of the products; +∞ for missing items."""
        if self.ranks_as_computed:
            similarities = similarity.gather(1, columns.clamp(min=0)).double()
        else:
            products = self.exact_products(rows.repeat_interleave(columns.shape[1]), columns.clamp(min=0).flatten())
            similarities = products.view(columns.shape)
        return self.whole.distance(similarities, rows).masked_fill_(columns < 0, torch.inf)


def search_galleries(
    sets: LabelledSets,
    protocol: IdentificationProtocol,
    draws: Sequence[GalleryDraw],
    *,
    block_rows: int | None = None,
    progress: bool = False,
) -> list[IdentificationScores]:
    """The scores of each draw, by a scan of their own."""
    search = GallerySearch(sets, {"identification": protocol}, draws=draws)
    scan(similarity_matrix(sets), [search], block_rows=block_rows, progress=progress)
    return search.scores
