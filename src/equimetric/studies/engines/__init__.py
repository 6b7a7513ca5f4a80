"""Where the jobs of a study run: in processes of this machine, or as tasks of a Ray cluster.

An engine starts jobs and reports what becomes of them; what comes next, the scheduler decides.
"""

from equimetric.studies.engines.engine import Ended, Engine, Event, Lost, Progressed, Said
from equimetric.studies.engines.open_engine import open_engine

__all__ = ["Ended", "Engine", "Event", "Lost", "Progressed", "Said", "open_engine"]
