"""Fair comparisons: what to run, running it, keeping the results, and the statistics over them."""

from equimetric.studies.comparison import Comparison, compare
from equimetric.studies.store import load_study

__all__ = ["Comparison", "compare", "load_study"]
