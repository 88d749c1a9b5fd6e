"""Flags of a command from the options of a table: name, type, range, help and default are declared there."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, TypeVar, Union

import typer

from bayesify.checks import kinds_of
from bayesify.engine.schema import Option, OptionTable

F = TypeVar("F", bound=Callable[..., Any])

# what several commands ask for
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Folder that `bayesify train` wrote.")]
NumDraws = Annotated[int, typer.Option(min=1, help="Draws averaged in each prediction.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")]
Best = Annotated[
    bool, typer.Option("--best/--last", help="The model of the best validation, or of the last epoch.")
]
Net = Annotated[
    str | None,
    typer.Option(
        metavar="package.module:factory",
        help="The factory of a network of your own, found from the current folder, with the options that the run had.",
        show_default="networks of bayesify alone",
    ),
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Import and call the network from outside of bayesify that the files name, and say which. Only for files "
        "whose author you trust.",
    ),
]


def with_flags(table: type[OptionTable]) -> Callable[[F], F]:
    """Give a command a flag for every option of `table`; it gets them as **options."""

    def decorate(command: F) -> F:
        named = [p for p in inspect.signature(command).parameters.values() if p.kind is not p.VAR_KEYWORD]
        flags = [_parameter(each) for each in table.options().values()]
        command.__signature__ = inspect.Signature([*named, *flags])  # type: ignore[attr-defined]
        return command

    return decorate


def _parameter(each: Option) -> inspect.Parameter:
    """The option as a parameter that typer makes a flag of."""
    kinds = kinds_of(each.kind)
    kind = next(k for k in (bool, str, float, int) if k in kinds)  # a text where it takes texts, too
    words = each.name.replace("_", "-")
    names = [f"--{words}" if each.default is False else f"--{words}/--no-{words}"] if kind is bool else []
    absent = each.default is None or (kind is bool and not isinstance(each.default, bool))
    made = typer.Option(
        *names,
        help=each.meaning,
        rich_help_panel=each.heading,
        show_default=each.by_default if absent else True,
        metavar=f"<{kind.__name__}> [{each.bounds}]" if each.bounds else None,
        callback=_checking(each),
        autocompletion=None if each.choices is None else completing(lambda: each.choices or ()),
    )
    default = None if absent else each.default if kind is not str else str(each.default)
    annotation = Annotated[kind | None if absent else kind, made]  # type: ignore[valid-type]
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(each.name, keyword, default=default, annotation=annotation)


def _checking(each: Option) -> Callable[[Any], Any]:
    """Reads the value of a flag, and refuses it by the rule of the option; None is to leave it out."""
    given = replace(each, kind=Union[*(kind for kind in kinds_of(each.kind) if kind is not NoneType)])

    def check(value: Any) -> Any:
        if value is None:
            return None
        try:
            read = given.read(value)
            given.check(read, given.name)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        return read

    return check


def completing(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Shell completion: those of `names()` that begin with what was typed."""
    return lambda incomplete: [name for name in names() if name.startswith(incomplete)]
