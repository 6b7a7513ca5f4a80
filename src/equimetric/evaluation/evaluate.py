"""`evaluate`: the requested metrics from one scan."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from equimetric.errors import EquimetricError, unknown_name
from equimetric.evaluation.cohort import Cohort, check_cohort_metrics
from equimetric.evaluation.engine.collector import Collector
from equimetric.evaluation.engine.custom_geometry import similarity_matrix
from equimetric.evaluation.engine.inputs import EmbeddingsLike, GeometryLike, LabelsLike, prepare_sets
from equimetric.evaluation.engine.label_sets import MultiLabelSets
from equimetric.evaluation.engine.scan import Prefilter, scan
from equimetric.evaluation.engine.sets import LabelledSets
from equimetric.evaluation.evidence import Evidence, Score, class_averages
from equimetric.evaluation.families import (
    METRICS,
    Metric,
    check_metric_options,
    check_multi_label_metrics,
    check_one_class_metrics,
    parse_metrics,
)
from equimetric.evaluation.metrics.rankings import NearestNeighbours
from equimetric.evaluation.parallel.runners import EngineName, choose_runner
from equimetric.evaluation.parents import check_parent_metrics, number_parents
from equimetric.evaluation.result import Evaluation

__all__ = ["default_metrics", "evaluate"]


def evaluate(
    embeddings: EmbeddingsLike,
    labels: LabelsLike,
    gallery_embeddings: EmbeddingsLike | None = None,
    gallery_labels: LabelsLike | None = None,
    *,
    metrics: str | Iterable[str] | None = None,
    ks: Iterable[int] = (1, 2, 4, 8),
    geometry: GeometryLike = "cosine",
    lone: Literal["exclude", "zero"] = "exclude",
    query_ids: LabelsLike | None = None,
    gallery_ids: LabelsLike | None = None,
    parents: LabelsLike | None = None,
    gallery_parents: LabelsLike | None = None,
    cohort: Cohort | None = None,
    neighbours: int = 0,
    block_rows: int | None = None,
    prefilter: Prefilter = "auto",
    jobs: int | None = None,
    engine: EngineName = "local",
    progress: bool = False,
    **options: Any,
) -> Evaluation:
    """Evaluate an embedding space: every metric exact, all from one scan, in bounded memory.

    Every query is ranked against the whole gallery by similarity, ties by lower gallery index. Without a gallery the
    embeddings are their own, and each query is excluded from its own ranking by index, so duplicates of it count.
    The result depends on neither block size nor number of threads, and every bit of it is the same in one process, in
    several and on a cluster.

    embeddings    (N, D) tensor or array; half precision is computed in float32, float64 in float64; an array that is
                  memory-mapped (`numpy.load(file, mmap_mode="r")`) may be larger than memory, and is never copied
    labels        N integers of any type and size, or N strings; with several labels for each sample a multi-hot matrix
                  (N, C) of 0 and 1, or N Python sets: a pair is then positive if it shares a label
    gallery_…     (G, D) and G labels, where queries and gallery are different sets
    metrics       names; default: precision@1, recall@K for `ks`, r_precision, map@r
                  retrieval: `recall@K`, `precision@K`, `map@K`, `ndcg@K`, `r_precision`, `map@r`, `map`, `mrr`,
                  `median_rank`
                  clustering: `nmi`, `ami`, `f1`; verification: `auc`, `eer`, `tar@far=1e-3`
                  few-shot and open-set: `fewshot@5x1`, `open_auroc`, `oscr`, `rank1@fpir=1e-2`, `fnir@fpir=1e-2`
                  consistency of a threshold: `opis`, `opis@10%`, `opis_far`, `opis_frr`, `opis_noise`
                  structure: `pi_ratio`, `spectral_decay`, `alignment`, `uniformity`
                  `macro:` before a name, such as `macro:recall@1`: the mean over classes of the means of each class
    ks            the K of the default's `recall@K`
    geometry      compare by `cosine`, `euclidean` distance, `dot` product, or `hamming` distance of the signs;
                  by a Lp distance `l1`, `l3`, `linf` of the unit vectors, by that of `hyperbolic` space, or by a
                  `Geometry` of your own
    lone          queries without a relevant gallery item: `exclude` them from the means, or count them as `zero`
    query_ids     N and G image ids, integers or strings: a query and a gallery item with the same id are one image
    gallery_ids   and are not compared; without a gallery query_ids alone
    parents       N and G superclasses, integers or strings: a query is compared with the items of its own parent alone,
    gallery_parents  for metrics of rankings and of pairs; without a gallery parents alone
    cohort        other classes by which cosines are normalised (`Cohort`), for metrics of similarities
    neighbours    keep the gallery indices of the n nearest items of each query (all, where there are fewer)
    block_rows    queries compared at a time, by default as many as fit into 64 MB; metrics of all ranks and of
                  identification take block_rows × G
    prefilter     find candidates by `bfloat16` products and compare these again: the same result; `auto` where faster
    jobs          how many processes of one thread each compare; default: this one, with torch's threads, or with Ray
                  one for every CPU of the cluster
    engine        `local` processes on this machine, or tasks of a `ray` cluster (extra `equimetric[ray]`)
    progress      show a progress bar on standard error
    options       options of single metrics, such as the range of thresholds of `opis`, or the `overlap` of `ndcg@K`
    """
    parsed = parse_metrics(default_metrics(ks) if metrics is None else metrics)
    _check_request(lone, block_rows, neighbours)
    run = choose_runner(jobs, engine)
    within_parents = parents is not None or gallery_parents is not None
    if within_parents:
        check_parent_metrics(parsed)
    if cohort is not None:
        check_cohort_metrics(parsed)
    options = {**check_metric_options(options), "lone": lone, "neighbours": neighbours}

    sets = prepare_sets(
        embeddings,
        labels,
        gallery_embeddings,
        gallery_labels,
        geometry=geometry,
        query_ids=query_ids,
        gallery_ids=gallery_ids,
        multi_label=True,
        one_class=True,
        cohort=cohort,
    )
    if len(sets.class_labels) == 1:
        check_one_class_metrics(parsed, sets.class_labels[0])
    if isinstance(sets, MultiLabelSets):
        check_multi_label_metrics(parsed)
    if within_parents:
        sets = replace(sets, parents=number_parents(sets, parents, gallery_parents))
    collectors = _build_collectors(parsed, sets, options)
    matrix = similarity_matrix(sets)
    path = scan(matrix, collectors, block_rows=block_rows, prefilter=prefilter, progress=progress, run=run)
    return _summarize(parsed, Evidence(sets, options, collectors), path)


def default_metrics(ks: Iterable[int] = (1, 2, 4, 8)) -> list[str]:
    """The metrics of `evaluate` where none are named."""
    return ["precision@1", *(f"recall@{k}" for k in ks), "r_precision", "map@r"]


def _check_request(lone: str, block_rows: int | None, neighbours: int) -> None:
    """Raise an error for a value that `evaluate` does not take."""
    if lone not in ("exclude", "zero"):
        raise unknown_name("treatment of lone queries", lone, ["exclude", "zero"])
    if block_rows is not None and block_rows < 1:
        raise EquimetricError(f"block_rows is {block_rows}; give at least 1, or None to let memory decide")
    if neighbours < 0:
        raise EquimetricError(f"neighbours is {neighbours}; give how many nearest items to keep, or 0 for none")


def _summarize(metrics: Sequence[Metric], evidence: Evidence, path: str) -> Evaluation:
    """Score the metrics by the finished collectors; `path` says how the scan was computed."""
    sets = evidence.sets
    scores = {metric.name: _score(metric, evidence) for metric in metrics}
    per_query = {name: score.per_query for name, score in scores.items() if score.per_query is not None}
    per_class = {name: class_averages(score, sets) for name, score in per_query.items()}
    per_class |= {name: score.per_class.cpu() for name, score in scores.items() if score.per_class is not None}
    return Evaluation(
        scores={name: score.value for name, score in scores.items()},
        score_per_query=per_query,
        score_per_class={name: per_class[name] for name in scores if name in per_class},
        labels=sets.labels,
        class_labels=sets.class_labels,
        query_classes=sets.query_classes.cpu(),
        queries=len(sets.queries),
        gallery=None if sets.gallery is None else len(sets.gallery),
        lone=int((sets.num_relevant == 0).sum()),
        geometry=sets.compared_by,
        path=path,
        percent=frozenset(metric.name for metric in metrics if METRICS[metric.family].percent),
        details={name: score.details for name, score in scores.items() if score.details},
        neighbours=evidence[NearestNeighbours].neighbours.cpu() if evidence.options["neighbours"] else None,
    )


def _score(metric: Metric, evidence: Evidence) -> Score:
    """The value of a metric, over all queries or pairs, or over classes."""
    score = METRICS[metric.family].score(metric, evidence)
    return score.average_classes(evidence.sets) if metric.macro else score


def _build_collectors(metrics: Sequence[Metric], sets: LabelledSets, options: Mapping[str, Any]) -> Sequence[Collector]:
    """One collector of each class that a metric reads."""
    readers: dict[type[Collector], list[Metric]] = {NearestNeighbours: []} if options["neighbours"] else {}
    for metric in metrics:
        for kind in METRICS[metric.family].collectors:
            readers.setdefault(kind, []).append(metric)
    return [kind(sets, options, reading) for kind, reading in readers.items()]
