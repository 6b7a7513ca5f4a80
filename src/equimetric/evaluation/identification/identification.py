"""`evaluate_identification`: error rates of 1:N search with strangers."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from equimetric.evaluation.cohort import Cohort
from equimetric.evaluation.engine.inputs import EmbeddingsLike, GeometryLike, LabelsLike, prepare_sets
from equimetric.evaluation.engine.label_sets import require_one_class
from equimetric.evaluation.identification.draws import draw_galleries
from equimetric.evaluation.identification.points import IdentificationRates, rates_at_fpir, rates_at_threshold
from equimetric.evaluation.identification.protocol import IdentificationProtocol, NamingRule, describe_threshold
from equimetric.evaluation.identification.rates import check_fpir, fnir_at, fpir_at
from equimetric.evaluation.identification.scores import IdentificationScores, join_scores
from equimetric.evaluation.identification.search import search_galleries
from equimetric.evaluation.metrics.roc import MIN_ERRORS
from equimetric.intervals import check_confidence

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Identification", "evaluate_identification"]

FPIR = (1e-3, 1e-2, 1e-1)


@dataclass(frozen=True, repr=False, eq=False)
class Identification:
    """The scores of all searches, and their rates at any threshold or FPIR.

    protocol    enrolment, strangers and rule
    identities  in the gallery; FPIR grows with their number
    items       mean number of enrolled images
    repeats     galleries that were drawn
    scores      of every search
    points      the rates at the FPIR that were asked for
    """

    protocol: IdentificationProtocol
    geometry: str
    class_labels: tuple[int, ...] | tuple[str, ...]
    identities: int
    items: float
    repeats: int
    scores: IdentificationScores
    points: tuple[IdentificationRates, ...]
    confidence: float

    def at_fpir(self, fpir: float) -> IdentificationRates:
        """The rates at the largest threshold whose FPIR is at most this."""
        return rates_at_fpir(self.scores, len(self.class_labels), fpir, self.confidence)

    def at_threshold(self, threshold: float) -> IdentificationRates:
        """The rates where entries at a distance, with a cohort a negated score, below this are accepted."""
        return rates_at_threshold(self.scores, len(self.class_labels), float(threshold), self.confidence)

    def curve(self, points: int = 512) -> dict[str, np.ndarray[Any, Any]]:
        """`threshold`, `fpir` and `fnir` (T,), dense where FPIR is small."""
        nearest = np.sort(self.scores.distance[self.scores.stranger, 0])
        shares = np.append(0.0, np.geomspace(1 / len(nearest), 1, points - 1))
        thresholds = np.unique(nearest[(shares * (len(nearest) - 1)).astype(np.int64)])
        thresholds = np.append(thresholds, np.nextafter(thresholds[-1], math.inf))
        return {
            "threshold": thresholds,
            "fpir": fpir_at(self.scores, thresholds),
            "fnir": fnir_at(self.scores, thresholds),
        }

    def plot(self) -> "Figure":
        """FNIR against FPIR: see `identification.plots`."""
        from equimetric.evaluation.identification.plots import plot_identification

        return plot_identification(self)

    def to_dict(self) -> dict[str, Any]:
        """The summary in plain types, ready for JSON."""
        return {
            "identities": self.identities,
            "enrolled_items": self.items,
            "galleries": self.repeats,
            "mated_searches": self.scores.mated,
            "stranger_searches": self.scores.strangers,
            "geometry": self.geometry,
            "protocol": self.protocol.to_dict(),
            "confidence": self.confidence,
            "rates": [{**asdict(point), "rank1": point.rank1} for point in self.points],
        }

    def __repr__(self) -> str:
        galleries = "the given gallery" if self.repeats == 1 else f"{self.repeats} random galleries"
        lines = [
            f"Identification: {self.identities} identities in {galleries} "
            f"({self.protocol.description}, {self.geometry})",
            f"  {self.scores.mated} searches with a mate, {self.scores.strangers} of strangers; "
            f"{self.confidence:.0%} intervals over classes",
            f"  target FPIR  {'accepted':<24}  {'FPIR':<25}  FNIR",
        ]
        strangers = self.scores.different_strangers
        for point in self.points:
            target = point.target_fpir or 0.0
            note = "" if target * strangers >= MIN_ERRORS else f"  uncertain: {strangers} strangers"
            lines.append(
                f"  {target:<11g}  {describe_threshold(point.threshold, self.geometry):<24}  "
                f"{_format_rate(point.fpir, point.fpir_interval):<25}  "
                f"{_format_rate(point.fnir, point.fnir_interval)}{note}"
            )
        return "\n".join(lines)


def evaluate_identification(
    embeddings: EmbeddingsLike,
    labels: LabelsLike,
    gallery_embeddings: EmbeddingsLike | None = None,
    gallery_labels: LabelsLike | None = None,
    *,
    by: NamingRule = "item",
    k: int = 5,
    enrolled: int | None = None,
    strangers: float | None = None,
    repeats: int = 10,
    fpir: float | Iterable[float] = FPIR,
    geometry: GeometryLike = "cosine",
    cohort: Cohort | None = None,
    query_ids: LabelsLike | None = None,
    gallery_ids: LabelsLike | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    block_rows: int | None = None,
    progress: bool = False,
) -> Identification:
    """Search every probe in a gallery of known identities; strangers should match no entry.

    FPIR(t) is the share of strangers for whom anything in the gallery is accepted at a distance below t, FNIR(t) the
    share of mated probes whose own identity is not the accepted best; 1 − FNIR is the open-set rank-1 rate.

    embeddings   (N, D) probes; without a gallery they are their own, each probe left out of the gallery it searches
    gallery_…    (G, D) enrolled items and their labels; probes with other labels are strangers
    by, k        name a probe by the nearest `item`, the nearest class `mean` or the majority of the k `nearest`
    enrolled     images of each identity in the gallery; default: all
    strangers    share of the classes left out of the gallery; default: half, or none where a gallery lacks classes
    repeats      random choices of strangers and enrolled images, counted together
    fpir         false positive identification rates to report
    cohort       other classes by which cosines are normalised: distances are then negated scores
    query_ids    N and G image ids: a probe and an item with the same id are one image and not compared
    confidence   of the intervals, from deleting one class at a time
    seed         of the choices

    See `IdentificationProtocol`. Exact, with one scan in bounded memory.
    """
    protocol = IdentificationProtocol(by, k, enrolled, strangers, repeats, seed)
    targets = tuple(check_fpir(rate) for rate in ([fpir] if isinstance(fpir, float | int) else fpir))
    check_confidence(confidence)
    sets = prepare_sets(
        embeddings,
        labels,
        gallery_embeddings,
        gallery_labels,
        geometry=geometry,
        query_ids=query_ids,
        gallery_ids=gallery_ids,
        multi_label=True,
        cohort=cohort,
    )
    require_one_class(sets, "identification")
    draws = draw_galleries(sets, protocol)
    scores = join_scores(search_galleries(sets, protocol, draws, block_rows=block_rows, progress=progress))
    classes = len(sets.class_labels)
    return Identification(
        protocol=protocol,
        geometry=sets.compared_by,
        class_labels=sets.class_labels,
        identities=draws[0].identities,
        items=float(np.mean([len(draw.items) for draw in draws])),
        repeats=len(draws),
        scores=scores,
        points=tuple(rates_at_fpir(scores, classes, target, confidence) for target in targets),
        confidence=confidence,
    )


def _format_rate(rate: float, interval: tuple[float, float] | None) -> str:
    return f"{rate:7.2%}" + ("" if interval is None else f" ({interval[0]:.2%} … {interval[1]:.2%})")
