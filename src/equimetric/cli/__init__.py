"""The command line: one file per command, found by discovery, each one call of the Python API.

Modules here import nothing heavy at the top: help and completion answer without torch.
"""

import sys

from equimetric.stopping import Stopped, end_on_signals

__all__ = ["main"]


def main() -> None:
    """Run the command line; from here on Ctrl-C ends it in one sentence, also while modules are imported."""
    try:
        with end_on_signals():
            from equimetric.cli.app import main as run

            run()
    except Stopped as stop:
        print(f"equimetric: {stop}", file=sys.stderr)
        sys.exit(stop.exit_code)
