"""The commands, one file each."""

import typer

from bayesify.cli.demo import demo

app = typer.Typer(
    name="bayesify",
    help="Make any PyTorch network Bayesian, and know how far to trust its predictions.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(demo)


@app.callback()
def root() -> None:
    """Make any PyTorch network Bayesian, and know how far to trust its predictions."""
