"""Evaluation of embedding spaces, exact and in bounded memory. Knows embeddings and labels only: no training, no runs.

One scan over tiles of the similarity matrix feeds collectors; a metric is a pure function of finished collectors.

* `accumulator` embeddings collected batch by batch, on several ranks; `row_store`
* `evaluate`    the requested metrics from one scan
* `cohort`      similarities normalised by a cohort of other classes; `cohort_choice`, `cohort_effect`, `cohort_plots`
* `result`      `Evaluation`, what `evaluate` returns
* `families`    parsed metric names and the registry of metric families
* `evidence`    what a metric reads and returns
* `engine`      checked inputs, exact products, the scan, neighbours, ranks, pair distances, k-means
* `metrics`     one file per metric family, with its resampling
* `identification`  1:N search with strangers, in a room of its own
* `trials`      verification on the pairs of a trial list; `trial_lists`, `trial_rates`
* `shift_curve` a metric over splits of growing shift, and the area under it
* `forgetting`  what is forgotten where classes arrive in rounds
* `resampling`  bootstrap intervals and paired comparisons
* `plots`       utility curves, ROC, histograms of distances
* `files`       embeddings read from files; `table_files`, `mapped_files`
"""

from equimetric.evaluation.accumulator import Accumulator
from equimetric.evaluation.cohort import Cohort
from equimetric.evaluation.cohort_choice import CohortChoice, choose_cohort
from equimetric.evaluation.cohort_effect import CohortEffect, compare_cohort
from equimetric.evaluation.evaluate import default_metrics, evaluate
from equimetric.evaluation.families import METRICS, Metric, format_score, list_metrics, metric, parse_metrics
from equimetric.evaluation.identification import (
    GallerySizeCurve,
    Identification,
    IdentificationProtocol,
    evaluate_identification,
    gallery_size_curve,
)
from equimetric.evaluation.metrics.class_thresholds import ClassThresholds, class_thresholds
from equimetric.evaluation.metrics.consistency import threshold_consistency
from equimetric.evaluation.metrics.utility_curves import Consistency
from equimetric.evaluation.result import Evaluation
from equimetric.evaluation.trials import TrialEvaluation, evaluate_trials

__all__ = [
    "METRICS",
    "Accumulator",
    "ClassThresholds",
    "Cohort",
    "CohortChoice",
    "CohortEffect",
    "Consistency",
    "Evaluation",
    "GallerySizeCurve",
    "Identification",
    "IdentificationProtocol",
    "Metric",
    "TrialEvaluation",
    "choose_cohort",
    "class_thresholds",
    "compare_cohort",
    "default_metrics",
    "evaluate",
    "evaluate_identification",
    "evaluate_trials",
    "format_score",
    "gallery_size_curve",
    "list_metrics",
    "metric",
    "parse_metrics",
    "threshold_consistency",
]
