"""`equimetric demo`."""

from importlib.resources import as_file, files
from pathlib import Path

from equimetric.cli.command import TRAIN, command
from equimetric.cli.compare import run_study
from equimetric.cli.options import OutputFolder, RetryFailed

__all__ = ["demo_command"]


@command("demo", panel=TRAIN, order=1, examples="equimetric demo --out my_runs")
def demo_command(
    output: OutputFolder = Path("runs"),
    retry_failed: RetryFailed = False,
) -> None:
    """Compare five methods fairly on real images: typeset characters that are not in the training set.

    Trains five methods with five seeds each on built-in data (five to ten minutes on two cores), prints the table with
    intervals and writes an HTML report. If it is stopped, the same command resumes.
    """
    with as_file(files("equimetric.studies") / "demo.toml") as study:
        run_study(study, output, {}, retry_failed=retry_failed)
