"""A process that executes the runs its parent sends: `python -m equimetric.studies.worker`.

It reads jobs as lines of JSON from standard input and writes progress as lines of JSON to standard output. When the
parent dies, even by SIGKILL, the input ends and the worker exits at once, so that no orphan writes to a run folder.
After SIGTERM it stops between two steps, with a checkpoint.
"""

import json
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from equimetric.errors import EquimetricWarning, StorageError
from equimetric.progress import set_progress_output
from equimetric.runs.run_cache import RunCache
from equimetric.stopping import Stopped, stop_on_signals
from equimetric.studies.jobs import Job, build_rows, run_job
from equimetric.workers import listen_to_parent, separate_output

__all__ = ["main"]

STEPS_BETWEEN_REPORTS = 5

Send = Callable[[Mapping[str, Any]], None]


def main() -> None:
    """Execute jobs until the input ends or a signal stops them."""
    protocol = os.fdopen(separate_output(), "w", buffering=1, encoding="utf-8")
    set_progress_output("nothing")  # The parent has a bar of its own.

    def send(message: Mapping[str, Any]) -> None:
        print(json.dumps(message), file=protocol)

    jobs = listen_to_parent(sys.stdin)
    try:
        with stop_on_signals(), warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            warnings.simplefilter("ignore", EquimetricWarning)  # the parent has loaded the same data and said so
            warnings.showwarning = lambda message, *_: send({"notice": str(message)})
            cache = RunCache()
            while True:
                message = json.loads(jobs.get())
                if "check" in message:
                    send({"checked": build_rows(message["check"], cache)})
                else:
                    execute(message, send, cache)
    except (Stopped, BrokenPipeError) as stop:
        # The listening thread holds the input, which would make an ordinary exit crash.
        os._exit(stop.exit_code if isinstance(stop, Stopped) else 0)


def execute(values: Mapping[str, Any], send: Send, cache: RunCache | None = None) -> None:
    """Execute a job and report its progress and its end; `cache` is shared by the jobs of this worker."""
    job = Job.from_json(values)

    def report(step: int, metrics: Mapping[str, float]) -> None:
        if step % STEPS_BETWEEN_REPORTS == 0 or not metrics:
            send({"step": step, "metrics": dict(metrics)})

    try:
        outcome, classes = run_job(job, report, cache)
    except StorageError as error:
        send({"cannot_write": str(error)})
    else:
        send({"outcome": outcome.to_json(), "classes": asdict(classes) if classes else None})


if __name__ == "__main__":
    main()
