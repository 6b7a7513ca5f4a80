"""How certain a metric is: bootstrap intervals and paired comparisons, whole classes resampled.

Reads evaluations only; how a metric depends on the drawn classes is declared beside the metric.
"""

from equimetric.evaluation.resampling.bootstrap import BootstrapInterval, bootstrap_interval
from equimetric.evaluation.resampling.paired import PairedComparison, PairedDifference, compare_paired

__all__ = ["BootstrapInterval", "PairedComparison", "PairedDifference", "bootstrap_interval", "compare_paired"]
