"""Engines that run the jobs of a study: in processes of this machine, or as tasks of a Ray cluster.

An engine starts jobs and reports their events; the scheduler decides what runs next.
"""

from equimetric.studies.engines.engine import Engine, Event, JobEnd, JobLost, JobMessage, JobProgress
from equimetric.studies.engines.open_engine import open_engine

__all__ = ["Engine", "Event", "JobEnd", "JobLost", "JobMessage", "JobProgress", "open_engine"]
