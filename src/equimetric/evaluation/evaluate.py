"""`evaluate`: the metrics asked for, from one scan."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from equimetric.errors import EquimetricError, unknown_name
from equimetric.evaluation import clustering, consistency, retrieval, structure, verification
from equimetric.evaluation.comparison import Comparison
from equimetric.evaluation.families import Collector, Evidence, MetricFamily, class_means, named_metrics
from equimetric.evaluation.inputs import Geometry, GivenEmbeddings, GivenLabels, LabelledSets, labelled_sets
from equimetric.evaluation.result import Evaluation
from equimetric.evaluation.retrieval import NearestNeighbours
from equimetric.evaluation.scan import Prefilter, scan

__all__ = ["FAMILIES", "evaluate"]

FAMILIES: tuple[MetricFamily, ...] = (
    *retrieval.FAMILIES,
    *clustering.FAMILIES,
    *verification.FAMILIES,
    *consistency.FAMILIES,
    *structure.FAMILIES,
)
Chosen = Mapping[str, tuple[re.Match[str], MetricFamily]]


def evaluate(
    embeddings: GivenEmbeddings,
    labels: GivenLabels,
    gallery_embeddings: GivenEmbeddings | None = None,
    gallery_labels: GivenLabels | None = None,
    *,
    metrics: Iterable[str] | None = None,
    ks: Iterable[int] = (1, 2, 4, 8),
    geometry: Geometry = "cosine",
    lone: Literal["exclude", "zero"] = "exclude",
    query_ids: GivenLabels | None = None,
    gallery_ids: GivenLabels | None = None,
    neighbours: int = 0,
    block_rows: int | None = None,
    prefilter: Prefilter = "auto",
    progress: bool = False,
    **options: Any,
) -> Evaluation:
    """How good an embedding space is: every metric exact, all from one scan, in bounded memory.

    Every query is ranked against the whole gallery: by similarity, ties by lower gallery index. Without a gallery the
    embeddings are their own, and each query is left out of its own ranking by index, so that duplicates of it count.
    The result depends on neither block size nor number of threads.

    embeddings    (N, D) tensor or array; half precision is computed in float32, float64 in float64
    labels        N integers of any type and size, or N strings
    gallery_…     (G, D) and G labels, where queries and gallery are different sets
    metrics       names; default: precision@1, recall@K for `ks`, r_precision, map@r
                  retrieval: `recall@K`, `precision@K`, `map@K` for any K, `r_precision`, `map@r`, `map`, `mrr`
                  clustering: `nmi`, `ami`, `f1`; verification: `auc`, `eer`, `tar@far=1e-3`
                  consistency of a threshold: `opis`, `opis@10%`
                  structure: `pi_ratio`, `spectral_decay`, `alignment`, `uniformity`
    ks            the K of the default's `recall@K`
    geometry      compare by `cosine`, `euclidean` distance, `dot` product, or `hamming` distance of the signs
    lone          queries without a relevant gallery item: `exclude` them from the means, or count them as `zero`
    query_ids     N and G ids of images, integers or strings: a query and a gallery item of one id are the same image
    gallery_ids   and are not compared; without a gallery query_ids alone
    neighbours    keep the gallery indices of this many nearest items of each query (all, where there are fewer)
    block_rows    queries compared at a time; memory is block_rows × G; default: 64 MB
    prefilter     find candidates by `bfloat16` products and compare these again: the same result; `auto` where faster
    progress      show a progress bar on standard error
    options       what single metrics understand, such as the range of thresholds for `opis`
    """
    if metrics is None:
        metrics = ["precision@1", *(f"recall@{k}" for k in ks), "r_precision", "map@r"]
    chosen = named_metrics(metrics, FAMILIES)
    if lone not in ("exclude", "zero"):
        raise unknown_name("treatment of lone queries", lone, ["exclude", "zero"])
    if block_rows is not None and block_rows < 1:
        raise EquimetricError(f"block_rows is {block_rows}; give at least 1, or None to let memory decide")
    if neighbours < 0:
        raise EquimetricError(f"neighbours is {neighbours}; give how many nearest items to keep, or 0 for none")
    options = {**_all_options(options), "lone": lone, "neighbours": neighbours}

    sets = labelled_sets(
        embeddings,
        labels,
        gallery_embeddings,
        gallery_labels,
        geometry=geometry,
        query_ids=query_ids,
        gallery_ids=gallery_ids,
    )
    collectors = _collectors(chosen, sets, options)
    path = scan(Comparison.of(sets), collectors, block_rows=block_rows, prefilter=prefilter, progress=progress)
    evidence = Evidence(sets, options, collectors)
    scores = {name: family.score(match, evidence) for name, (match, family) in chosen.items()}

    per_query = {name: score.per_query for name, score in scores.items() if score.per_query is not None}
    query_classes, classes = sets.query_classes.cpu(), len(sets.class_labels)
    per_class = {name: class_means(score, query_classes, classes) for name, score in per_query.items()}
    per_class |= {name: score.per_class.cpu() for name, score in scores.items() if score.per_class is not None}
    return Evaluation(
        scores={name: score.value for name, score in scores.items()},
        score_per_query=per_query,
        score_per_class={name: per_class[name] for name in scores if name in per_class},
        labels=sets.labels,
        class_labels=sets.class_labels,
        query_classes=query_classes,
        queries=len(sets.queries),
        gallery=None if sets.gallery is None else len(sets.gallery),
        lone=int((sets.relevant == 0).sum()),
        geometry=geometry,
        path=path,
        percent=frozenset(name for name, (_, family) in chosen.items() if family.percent),
        details={key: value for score in scores.values() for key, value in score.details.items()},
        neighbours=evidence[NearestNeighbours].neighbours.cpu() if neighbours else None,
    )


def _all_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of all metrics: as given, else their defaults."""
    defaults = {name: default for family in FAMILIES for name, default in family.options.items()}
    for name in given:
        if name not in defaults:
            raise unknown_name("option of evaluate", name, defaults)
    return {**defaults, **given}


def _collectors(chosen: Chosen, sets: LabelledSets, options: Mapping[str, Any]) -> Sequence[Collector]:
    """One collector of each class that a metric reads."""
    readers: dict[type[Collector], list[re.Match[str]]] = {NearestNeighbours: []} if options["neighbours"] else {}
    for match, family in chosen.values():
        for kind in family.collectors:
            readers.setdefault(kind, []).append(match)
    return [kind(sets, options, metrics) for kind, metrics in readers.items()]
