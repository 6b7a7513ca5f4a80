"""Statistics of a comparison, as pure functions over arrays: rows of scores in, intervals and verdicts out.

* a row: `ClassScores`, every seed on every test class; `average_folds` before
* one number: `t_interval` over seeds, `two_way_interval` over seeds × classes
* two rows: `two_way_difference`, tests over seeds (`compare_seeds` or one by one), `effect_size`, `decide`
* a table: `compare_rows` → one family of verdicts, letters and ranks; `verdict_sentence`, `comparison_notes`
* several data sets: `rank_over_datasets`
* where the variance comes from: `variance_components`
"""

from equimetric.intervals import Interval, t_interval
from equimetric.studies.statistics.class_scores import ClassScores, average_folds
from equimetric.studies.statistics.comparisons import RowComparison, RowComparisons, compare_rows, count_comparisons
from equimetric.studies.statistics.datasets import (
    MIN_DATASETS,
    DatasetRanking,
    FriedmanTest,
    friedman_test,
    nemenyi_critical_difference,
    rank_over_datasets,
)
from equimetric.studies.statistics.effects import EffectSize, effect_size
from equimetric.studies.statistics.groups import compact_letters, possible_ranks, tied_groups
from equimetric.studies.statistics.multiplicity import holm
from equimetric.studies.statistics.power import minimum_detectable_difference, project_interval
from equimetric.studies.statistics.row_tests import SeedTests, compare_seeds
from equimetric.studies.statistics.seed_tests import (
    SignFlipTest,
    TTest,
    WilcoxonTest,
    paired_t_test,
    sign_flip_test,
    smallest_p,
    welch_t_test,
    wilcoxon_test,
)
from equimetric.studies.statistics.sentences import (
    ONE_SEED,
    POINTS,
    Unit,
    comparison_notes,
    describe_seeds_needed,
    verdict_sentence,
)
from equimetric.studies.statistics.two_way import (
    NEW_CLASSES,
    THESE_CLASSES,
    Estimand,
    TwoWayInterval,
    two_way_difference,
    two_way_interval,
)
from equimetric.studies.statistics.variance_shares import VarianceComponent, balanced_scores, variance_components
from equimetric.studies.statistics.verdicts import EQUIVALENCE_MARGIN, Verdict, classes_needed, decide, seeds_needed

__all__ = [
    "EQUIVALENCE_MARGIN",
    "MIN_DATASETS",
    "NEW_CLASSES",
    "ONE_SEED",
    "POINTS",
    "THESE_CLASSES",
    "ClassScores",
    "DatasetRanking",
    "EffectSize",
    "Estimand",
    "FriedmanTest",
    "Interval",
    "RowComparison",
    "RowComparisons",
    "SeedTests",
    "SignFlipTest",
    "TTest",
    "TwoWayInterval",
    "Unit",
    "VarianceComponent",
    "Verdict",
    "WilcoxonTest",
    "average_folds",
    "balanced_scores",
    "classes_needed",
    "compact_letters",
    "compare_rows",
    "compare_seeds",
    "comparison_notes",
    "count_comparisons",
    "decide",
    "describe_seeds_needed",
    "effect_size",
    "friedman_test",
    "holm",
    "minimum_detectable_difference",
    "nemenyi_critical_difference",
    "paired_t_test",
    "possible_ranks",
    "project_interval",
    "rank_over_datasets",
    "seeds_needed",
    "sign_flip_test",
    "smallest_p",
    "t_interval",
    "tied_groups",
    "two_way_difference",
    "two_way_interval",
    "variance_components",
    "verdict_sentence",
    "welch_t_test",
    "wilcoxon_test",
]
