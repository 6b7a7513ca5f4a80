"""How the tiles of a scan are read: in this process, in several on this machine, or on a Ray cluster."""

from functools import partial
from typing import Literal, get_args

from equimetric.errors import EquimetricError, unknown_name
from equimetric.evaluation.engine.scan import Runner, run_in_process

__all__ = ["EngineName", "choose_runner"]

EngineName = Literal["local", "ray"]


def choose_runner(jobs: int | None, engine: EngineName) -> Runner:
    """What runs a scan as `jobs` processes of an engine; by default this process, or all that a Ray cluster can run."""
    if engine not in get_args(EngineName):
        raise unknown_name("engine", engine, get_args(EngineName))
    if jobs is not None and jobs < 1:
        raise EquimetricError(f"jobs is {jobs}; give the number of processes, at least 1")
    if engine == "ray":
        from equimetric.evaluation.parallel.cluster import run_on_ray

        return partial(run_on_ray, jobs=jobs)
    if jobs is None or jobs == 1:
        return run_in_process
    from equimetric.evaluation.parallel.local import run_local_workers

    return partial(run_local_workers, jobs=jobs)
