"""Fair comparisons: plan the runs, execute them, store the results, and compute statistics over them."""

from equimetric.studies.comparison import Comparison, compare
from equimetric.studies.store import load_study

__all__ = ["Comparison", "compare", "load_study"]
