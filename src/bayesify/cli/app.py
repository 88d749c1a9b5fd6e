"""The commands, one file each."""

from typing import Annotated

import typer

from bayesify import __version__
from bayesify.cli.demo import demo
from bayesify.cli.errors import Commands
from bayesify.cli.evaluate import evaluate
from bayesify.cli.export import export
from bayesify.cli.predict import predict
from bayesify.cli.report import report
from bayesify.cli.show import show
from bayesify.cli.train import train

app = typer.Typer(
    name="bayesify",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
for command in (demo, train, evaluate, report, predict, export, show):
    app.command()(command)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"bayesify {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Make any PyTorch network Bayesian, and know how far to trust its predictions.

    Start with: bayesify demo. Then: bayesify train --net mlp --data digits --method mc_vi
    """
