"""A process that executes the runs its parent sends: `python -m equimetric.studies.worker`.

It reads jobs as lines of JSON from standard input and writes progress as lines of JSON to standard output. When the
parent dies, even by SIGKILL, the input ends and the worker exits at once, so that no orphan writes to a run folder.
"""

import json
import os
import queue
import sys
import threading
import warnings
from collections.abc import Mapping

from equimetric.errors import EquimetricWarning
from equimetric.escaping import show_plain_warnings
from equimetric.progress import report_progress
from equimetric.studies.jobs import Job, run_job

__all__ = ["main"]

STEPS_BETWEEN_REPORTS = 5


def main() -> None:
    """Execute jobs until the input ends."""
    warnings.simplefilter("ignore", EquimetricWarning)  # the parent has loaded the same data and said so
    protocol = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)  # Output of libraries must not mix with the protocol.
    show_plain_warnings()
    report_progress("nothing")  # The parent has a bar of its own.
    jobs: queue.Queue[str] = queue.Queue()

    def listen() -> None:
        for line in sys.stdin:
            jobs.put(line)
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        job = Job.from_json(json.loads(jobs.get()))

        def report(step: int, figures: Mapping[str, float]) -> None:
            if step % STEPS_BETWEEN_REPORTS == 0:
                print(json.dumps({"step": step, "figures": dict(figures)}), file=protocol)

        run_job(job, report)
        print(json.dumps({"done": True}), file=protocol)


if __name__ == "__main__":
    main()
