"""The command line: `bayesify --help`."""


def main() -> None:
    """Entry point; says what to install where the command line's packages are missing."""
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError as error:
        raise SystemExit(f"bayesify's command line needs {error.name}: pip install 'bayesify[all]'") from None
    import warnings

    from bayesify.cli.app import app
    from bayesify.cli.errors import signal_to_exit
    from bayesify.cli.terminal import show_warning

    warnings.showwarning = show_warning
    signal_to_exit()
    app()
