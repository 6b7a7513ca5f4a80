"""Who reads the tiles of a scan: this process, several on this machine, or a Ray cluster."""

from functools import partial
from typing import Literal, get_args

from equimetric.errors import EquimetricError, unknown_name
from equimetric.evaluation.engine.scan import Runner, read_in_this_process

__all__ = ["EngineName", "choose_runner"]

EngineName = Literal["local", "ray"]


def choose_runner(jobs: int | None, engine: EngineName) -> Runner:
    """What runs a scan as `jobs` processes of an engine; by default this process, or all that a Ray cluster can run."""
    if engine not in get_args(EngineName):
        raise unknown_name("engine", engine, get_args(EngineName))
    if jobs is not None and jobs < 1:
        raise EquimetricError(f"jobs is {jobs}; give the number of processes, at least 1")
    if engine == "ray":
        from equimetric.evaluation.parallel.cluster import read_on_cluster

        return partial(read_on_cluster, jobs=jobs)
    if jobs is None or jobs == 1:
        return read_in_this_process
    from equimetric.evaluation.parallel.local import read_in_processes

    return partial(read_in_processes, jobs=jobs)
