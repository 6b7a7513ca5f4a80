"""How the error rates grow with the gallery: measured with parts of it, beside what independence predicts.

Were the identities of a gallery independent, a stranger would be accepted with probability 1 − (1 − FAR)^N, where FAR
is the share of single identities that accept a stranger. Real spaces have crowded and empty regions, so the rate is
often far from it: it is measured with N of the identities, in the same draws for every N.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from equimetric.errors import EquimetricError
from equimetric.evaluation.cohort import Cohort
from equimetric.evaluation.engine.arrays import RateInterval
from equimetric.evaluation.engine.collector import Collector
from equimetric.evaluation.engine.custom_geometry import similarity_matrix
from equimetric.evaluation.engine.inputs import EmbeddingsLike, GeometryLike, LabelsLike, prepare_sets
from equimetric.evaluation.engine.label_sets import require_one_class
from equimetric.evaluation.engine.scan import scan
from equimetric.evaluation.engine.sets import LabelledSets
from equimetric.evaluation.engine.tiles import Tile
from equimetric.evaluation.identification.draws import GalleryDraw, count_identities, draw_galleries
from equimetric.evaluation.identification.points import rates_at_threshold
from equimetric.evaluation.identification.protocol import IdentificationProtocol, NamingRule, describe_threshold
from equimetric.evaluation.identification.rates import threshold_at_fpir
from equimetric.evaluation.identification.scores import join_scores
from equimetric.evaluation.identification.search import search_galleries
from equimetric.evaluation.identification.templates import MeanTemplates

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["GallerySize", "GallerySizeCurve", "gallery_size_curve"]

DEFAULT_SIZES = 8
MIN_FITTED_SIZES = 3
"""Measured sizes that an extrapolation needs."""


@dataclass(frozen=True)
class GallerySize:
    """The rates with a number of identities in the gallery.

    predicted     FPIR if identities were independent, 1 − (1 − FAR)^N
    extrapolated  whether FPIR continues the measured sizes rather than being measured; then FNIR is unknown
    """

    identities: int
    fpir: float
    fnir: float | None
    predicted: float
    fpir_interval: RateInterval | None = None
    fnir_interval: RateInterval | None = None
    extrapolated: bool = False


@dataclass(frozen=True, repr=False, eq=False)
class GallerySizeCurve:
    """FPIR and FNIR over the number of identities, at one threshold.

    far         share of (stranger, identity) that are accepted, one identity at a time
    sizes       ascending; the extrapolated ones last
    growth      exponent b of the extrapolation 1 − exp(−a N^b), 1 for independent identities; None without one
    """

    threshold: float
    far: float
    sizes: tuple[GallerySize, ...]
    protocol: IdentificationProtocol
    geometry: str
    growth: float | None = None

    def plot(self) -> "Figure":
        """Both rates against the number of identities: see `identification.plots`."""
        from equimetric.evaluation.identification.plots import plot_gallery_sizes

        return plot_gallery_sizes(self)

    def to_dict(self) -> dict[str, Any]:
        """The curve in plain types, ready for JSON."""
        return {
            "threshold": self.threshold,
            "far": self.far,
            "growth": self.growth,
            "geometry": self.geometry,
            "protocol": self.protocol.to_dict(),
            "sizes": [asdict(size) for size in self.sizes],
        }

    def __repr__(self) -> str:
        lines = [
            f"Gallery sizes where {describe_threshold(self.threshold, self.geometry)} are accepted "
            f"({self.protocol.description}, {self.geometry}); "
            f"one identity accepts {self.far:.3g} of the strangers",
            "  identities      FPIR   if independent      FNIR",
        ]
        for size in self.sizes:
            fnir_text = "extrapolated" if size.fnir is None else f"{size.fnir:8.2%}"
            lines.append(f"  {size.identities:10d}  {size.fpir:8.2%}  {size.predicted:15.2%}  {fnir_text}")
        return "\n".join(lines)


def gallery_size_curve(
    embeddings: EmbeddingsLike,
    labels: LabelsLike,
    gallery_embeddings: EmbeddingsLike | None = None,
    gallery_labels: LabelsLike | None = None,
    *,
    sizes: Iterable[int] | None = None,
    fpir: float = 1e-2,
    threshold: float | None = None,
    extrapolate: Iterable[int] = (),
    by: NamingRule = "item",
    k: int = 5,
    enrolled: int | None = None,
    strangers: float | None = None,
    repeats: int = 10,
    geometry: GeometryLike = "cosine",
    cohort: Cohort | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    block_rows: int | None = None,
    progress: bool = False,
) -> GallerySizeCurve:
    """Measure FPIR and FNIR at one threshold with ever larger parts of the gallery.

    sizes        numbers of identities; default: eight from 1 to all
    threshold    distance, with a cohort negated score, below which entries are accepted; default: that of `fpir` with
                 all identities
    extrapolate  numbers of identities beyond the data: FPIR continues as 1 − exp(−a N^b), fitted to the larger half of
                 the measured sizes, and is marked as extrapolated

    The rest is as in `evaluate_identification`.
    """
    protocol = IdentificationProtocol(by, k, enrolled, strangers, repeats, seed)
    sets = prepare_sets(
        embeddings, labels, gallery_embeddings, gallery_labels, geometry=geometry, multi_label=True, cohort=cohort
    )
    require_one_class(sets, "identification")
    max_identities = count_identities(sets, protocol)
    counts = _check_sizes(sizes, max_identities)
    beyond = _check_beyond(extrapolate, max_identities)
    scan_options: dict[str, Any] = {"block_rows": block_rows, "progress": progress}
    # All identities always take part: the default threshold is theirs.
    draws = {count: draw_galleries(sets, protocol, count) for count in sorted({*counts, max_identities})}
    searches = iter(
        search_galleries(sets, protocol, [draw for size_draws in draws.values() for draw in size_draws], **scan_options)
    )
    scores = {count: join_scores([next(searches) for _ in size_draws]) for count, size_draws in draws.items()}
    threshold = threshold_at_fpir(scores[max_identities], fpir) if threshold is None else float(threshold)
    far = _single_identity_rate(sets, protocol, draws[max_identities], threshold, **scan_options)
    measured = []
    for count in counts:
        rates = rates_at_threshold(scores[count], len(sets.class_labels), threshold, confidence)
        predicted = 1 - (1 - far) ** count
        intervals = rates.fpir_interval, rates.fnir_interval
        measured.append(GallerySize(count, rates.fpir, rates.fnir, predicted, *intervals))
    growth, continued = _extrapolate(measured, far, beyond) if beyond else (None, [])
    return GallerySizeCurve(threshold, far, (*measured, *continued), protocol, sets.compared_by, growth)


def _check_sizes(sizes: Iterable[int] | None, limit: int) -> list[int]:
    if sizes is None:
        return sorted({round(size) for size in np.geomspace(1, limit, DEFAULT_SIZES)})
    counts = sorted({int(size) for size in sizes})
    if not counts or counts[0] < 1 or counts[-1] > limit:
        raise EquimetricError(
            f"sizes are {counts}; measure galleries of 1 to {limit} identities, as many as there are without the "
            "strangers, and extrapolate beyond"
        )
    return counts


def _check_beyond(sizes: Iterable[int], limit: int) -> list[int]:
    counts = sorted({int(size) for size in sizes})
    if counts and counts[0] <= limit:
        raise EquimetricError(
            f"extrapolate has {counts[0]}; up to {limit} identities are measured, name larger numbers"
        )
    return counts


def _extrapolate(measured: Sequence[GallerySize], far: float, beyond: Sequence[int]) -> tuple[float, list[GallerySize]]:
    """Continue log(−log(1 − FPIR)) = log a + b log N along a line through the larger half of the sizes."""
    usable = [size for size in measured if 0 < size.fpir < 1]
    fitted = usable[-max(MIN_FITTED_SIZES, math.ceil(len(usable) / 2)) :]
    if len(fitted) < MIN_FITTED_SIZES:
        raise EquimetricError(
            f"only {len(fitted)} measured sizes have an FPIR between 0 and 1, too few to extrapolate; measure more "
            "sizes, or at another threshold"
        )
    identities, rate = (np.array([getattr(size, name) for size in fitted], float) for name in ("identities", "fpir"))
    growth, intercept = np.polyfit(np.log(identities), np.log(-np.log1p(-rate)), 1)
    extrapolated = [
        GallerySize(
            size,
            float(-np.expm1(-np.exp(intercept + growth * math.log(size)))),
            None,
            1 - (1 - far) ** size,
            extrapolated=True,
        )
        for size in beyond
    ]
    return float(growth), extrapolated


def _single_identity_rate(
    sets: LabelledSets,
    protocol: IdentificationProtocol,
    draws: Sequence[GalleryDraw],
    threshold: float,
    **scan_options: Any,
) -> float:
    """FAR: the share of all pairs of a stranger and an identity in whose entries the stranger is accepted."""
    if protocol.by == "mean":
        counts = [
            MeanTemplates(sets, draw).count_accepted(draw.stranger.nonzero().flatten(), threshold) for draw in draws
        ]
        accepted = sum(counts)
    else:
        collector = AcceptedIdentities(sets, draws, threshold)
        scan(similarity_matrix(sets), [collector], **scan_options)
        accepted = collector.accepted
    return accepted / sum(int(draw.stranger.sum()) * draw.identities for draw in draws)


class AcceptedIdentities(Collector):
    """Number of pairs of a stranger and an identity that have an accepted item."""

    def __init__(self, sets: LabelledSets, draws: Sequence[GalleryDraw], threshold: float) -> None:
        super().__init__(sets, {}, ())
        self.draws, self.threshold, self.accepted = draws, threshold, 0

    def collect(self, tile: Tile) -> None:
        """Count the tile's strangers."""
        distance = tile.distance()
        for draw in self.draws:
            which = draw.stranger[tile.rows].nonzero().flatten()
            accepts = (distance[which][:, draw.items] < self.threshold).to(torch.float32)
            by_class = accepts.new_zeros(len(which), len(self.sets.class_labels))
            by_class.index_add_(1, self.sets.gallery_classes[draw.items], accepts)
            self.accepted += int((by_class > 0).sum())
