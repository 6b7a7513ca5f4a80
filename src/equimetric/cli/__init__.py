"""The command line: one file per command, no logic of its own; each is one call of the Python API."""

import sys

import typer

from equimetric.cli import (
    backbones,
    calibrate,
    compare,
    datasets,
    datasets_check,
    datasets_shift,
    demo,
    evaluate,
    explain,
    methods,
    report,
    train,
)
from equimetric.errors import EquimetricError

__all__ = ["app", "main"]

app = typer.Typer(
    name="equimetric",
    help="Deep metric learning with fair comparison built in. Start with: equimetric demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# Everything after a configuration file that looks like --optimizer.lr 1e-4 is an override of its key; after a data set,
# --root my_images is an option of it.
WITH_OVERRIDES = {"allow_extra_args": True, "ignore_unknown_options": True}
app.command("demo")(demo.demo)
app.command("methods")(methods.methods)
app.command("backbones")(backbones.backbones)
of_datasets = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})
of_datasets.callback(invoke_without_command=True)(datasets.datasets)
of_datasets.command("check", context_settings=WITH_OVERRIDES)(datasets_check.check)
of_datasets.command("shift", context_settings=WITH_OVERRIDES)(datasets_shift.shift)
app.add_typer(of_datasets, name="datasets")
app.command("train", context_settings=WITH_OVERRIDES)(train.train)
app.command("compare", context_settings=WITH_OVERRIDES)(compare.compare)
app.command("evaluate")(evaluate.evaluate)
app.command("calibrate")(calibrate.calibrate)
app.command("explain")(explain.explain)
app.command("report")(report.report)


def show_version(asked: bool) -> None:
    """Print the version and stop."""
    if asked:
        from importlib.metadata import version

        typer.echo(f"equimetric {version('equimetric')}")
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(False, "--version", help="Show the version.", callback=show_version, is_eager=True),
) -> None:
    """Deep metric learning with fair comparison built in. Start with: equimetric demo."""


def main() -> None:
    """Run the command line; a user's mistake is one sentence on standard error and exit code 2."""
    try:
        app(prog_name="equimetric")
    except EquimetricError as error:
        typer.echo(f"equimetric: {error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        typer.echo("\nequimetric: stopped; run the same command again to go on", err=True)
        sys.exit(130)
