"""N-way K-shot accuracy: a query is named by the nearest of N class means, each of K random images of its class.

Snell, Swersky, Zemel: "Prototypical networks for few-shot learning" (2017). A draw takes K images of every class, and
all other images are queries. Where b of the C − 1 other means are nearer to a query than its own, the share of choices
of N − 1 other classes that name it rightly is (C − 1 − b choose N − 1) / (C − 1 choose N − 1): all choices of classes
count, and only the K images are drawn. Of equally near means the one with the lower class is nearer.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.evaluation.engine.arrays import Integers
from equimetric.evaluation.engine.collector import Collector
from equimetric.evaluation.engine.mapped_vectors import load_vectors
from equimetric.evaluation.engine.positive_ranks import count_others_before
from equimetric.evaluation.engine.sets import LabelledSets
from equimetric.evaluation.engine.similarity import SimilarityMatrix
from equimetric.evaluation.engine.tiles import Strip, Tile
from equimetric.evaluation.evidence import Evidence, Score
from equimetric.evaluation.families import Metric, metric
from equimetric.evaluation.identification.draws import GalleryDraw, rank_in_class
from equimetric.evaluation.identification.templates import MeanTemplates
from equimetric.seeding import derive_seed

__all__ = ["NearerMeans"]

OPTIONS: dict[str, Any] = {"few_shot_draws": 20, "few_shot_seed": 0}


class NearerMeans(Collector):
    """Number of means of other classes nearer to a query than its own, in every draw of K images per class."""

    # It compares queries with means, not with the tiles' items.
    accepts_coarse = True
    accepts_columns = True

    def __init__(self, sets: LabelledSets, options: Mapping[str, Any], metrics: Sequence[Metric]) -> None:
        super().__init__(sets, options, metrics)
        draws, seed = options["few_shot_draws"], options["few_shot_seed"]
        if not isinstance(draws, int) or draws < 1:
            raise EquimetricError(f"few_shot_draws is {draws!r}; give a whole number of at least 1")
        self.classes = {
            shots: self._count_classes(shots, metrics) for shots in {requested["shots"] for requested in metrics}
        }
        items = _order_by_content(sets)
        self.draws = {
            shots: [_draw(sets, items, shots, derive_seed(seed, "few-shot", i)) for i in range(draws)]
            for shots in sorted(self.classes)
        }
        self.templates = {shots: [MeanTemplates(sets, draw) for draw in drawn] for shots, drawn in self.draws.items()}
        for templates in self.templates.values():
            for template in templates:
                template.compute_statistics(without_probes=False)
        # Number of shots → (draws, N); −1 where an image is no query.
        self.nearer = {
            shots: torch.full((draws, len(sets.queries)), -1, device=sets.queries.device) for shots in self.draws
        }

    def _count_classes(self, shots: int, metrics: Sequence[Metric]) -> int:
        """The classes with enough images, which must be as many as the metrics compare."""
        enough = shots + (self.sets.gallery is None)
        classes = int((torch.bincount(self.sets.gallery_classes) >= enough).sum())
        for requested in metrics:
            if requested["shots"] == shots and classes < requested["ways"]:
                raise EquimetricError(
                    f"{requested.name!r} compares {requested['ways']} classes with at least {enough} images each, and "
                    f"there are {classes}; name fewer classes or fewer images"
                )
        return classes

    def accepts_strips(self) -> bool:
        """Strips have every query once, too."""
        return True

    def collect(self, tile: Tile) -> None:
        """Compare the tile's queries with the means of every draw, once."""
        if tile.is_first:
            self._compare(tile.rows)

    def collect_strip(self, strip: Strip) -> None:
        """The same for a strip's queries."""
        if strip.num_own_columns:
            self._compare(strip.queries)

    def partial(self, rows: Tensor) -> Any:
        """The counts of these queries."""
        return rows, {shots: nearer[:, rows] for shots, nearer in self.nearer.items()}

    def merge(self, partial: Any) -> None:
        """Take the counts of other queries."""
        rows, counts = partial
        for shots, nearer in counts.items():
            self.nearer[shots][:, rows] = nearer

    def _compare(self, rows: Tensor) -> None:
        for shots, templates in self.templates.items():
            for i, template in enumerate(templates):
                is_query = rows[self.draws[shots][i].mated[rows]]
                if len(is_query):
                    self.nearer[shots][i, is_query] = _count_nearer(self.sets, template, is_query)


def _count_nearer(sets: LabelledSets, template: MeanTemplates, rows: Tensor) -> Tensor:
    """(P,) number of means that rank before that of the query's class; exact, as all rankings are."""
    queries, means = sets.queries[rows].double(), template.means()
    mean_sets = LabelledSets(
        queries=queries,
        gallery=means,
        query_classes=sets.query_classes[rows],
        gallery_classes=template.identities,
        labels=(),
        class_labels=sets.class_labels,
        geometry=sets.geometry,
    )
    matrix = SimilarityMatrix(queries, means, geometry=sets.geometry)
    all_rows = torch.arange(len(rows), device=rows.device)
    return count_others_before(Tile(matrix, all_rows, matrix.similarity(all_rows)), mean_sets, first_only=True)[:, 0]


def _order_by_content(sets: LabelledSets) -> Integers:
    """(G,) the gallery items by class, those of a class by their vectors: the order of the rows does not count."""
    vectors = np.ascontiguousarray(load_vectors(sets.gallery_vectors, "few-shot accuracy").cpu().numpy() + 0.0)
    rows = vectors.view(np.dtype((np.void, vectors.dtype.itemsize * vectors.shape[1]))).ravel()
    index = np.unique(rows, return_inverse=True)[1]
    return np.lexsort((index, sets.gallery_classes.cpu().numpy()))


def _draw(sets: LabelledSets, items: Integers, shots: int, seed: int) -> GalleryDraw:
    """K random images of every class that has a query besides, and the queries of these classes."""
    classes = sets.gallery_classes.cpu().numpy()
    sizes = np.bincount(classes, minlength=len(sets.class_labels))
    is_eligible = sizes >= shots + (sets.gallery is None)
    chosen = rank_in_class(classes[items], np.random.default_rng(seed)) < shots
    support = np.sort(items[chosen & is_eligible[classes[items]]])
    is_query = is_eligible[sets.query_classes.cpu().numpy()]
    in_support = np.zeros(len(classes), bool)
    in_support[support] = True
    if sets.gallery is None:
        is_query &= ~in_support
    if sets.excluded is not None:
        query, item = sets.excluded.cpu().numpy().T
        is_query[query[in_support[item]]] = False
    device = sets.queries.device
    rows = torch.from_numpy(is_query).to(device)
    return GalleryDraw(torch.from_numpy(support).to(device), int(is_eligible.sum()), rows, torch.zeros_like(rows))


def _shares(classes: int, ways: int) -> Tensor:
    """(C,) the share of choices of N − 1 other classes that hold none of the b nearer ones, for b = 0 … C − 1."""
    choices = math.comb(classes - 1, ways - 1)
    return torch.tensor([math.comb(classes - 1 - b, ways - 1) / choices for b in range(classes)], dtype=torch.float64)


@metric(
    "fewshot@NxK",
    needs_negatives=True,
    pattern=r"fewshot@(?P<ways>[2-9]|[1-9][0-9]+)x(?P<shots>[1-9][0-9]*)",
    parameters={"ways": int, "shots": int},
    examples=("fewshot@5x1",),
    collectors=(NearerMeans,),
    options=OPTIONS,
    macro=True,
)
def _few_shot(metric: Metric, evidence: Evidence) -> Score:
    """Share of queries that the nearest of N class means, of K images each, names rightly."""
    collected = evidence[NearerMeans]
    nearer = collected.nearer[metric["shots"]].cpu()
    shares = _shares(collected.classes[metric["shots"]], metric["ways"])
    accuracy = shares[nearer.clamp(min=0)].masked_fill(nearer < 0, torch.nan)
    return Score.from_queries(accuracy.nanmean(dim=0))
