"""The command line: one file per command, found by discovery, each one call of the Python API.

Modules here import nothing heavy at the top: help and completion answer without torch.
"""

from equimetric.cli.app import main

__all__ = ["main"]
