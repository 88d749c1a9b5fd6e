"""Registries of classes, and looking a name up in one, with an error that lists the choices and the nearest one."""

import difflib
import importlib
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


class Registry(dict[str, T]):
    """name -> class. What is entered must be a subclass of `kind`."""

    def __init__(self, kind: type, entries: Mapping[str, T]) -> None:
        super().__init__(entries)
        self.kind = kind

    def __setitem__(self, name: str, entry: T) -> None:
        if not isinstance(entry, type) or not issubclass(entry, self.kind):
            raise TypeError(f"{name!r}: {entry!r} must be a subclass of {self.kind}")
        super().__setitem__(name, entry)


def lookup(registry: Mapping[str, T], name: str, argument: str) -> T:
    """`registry[name]`, or a ValueError that names the argument, the value and the choices."""
    check_choice(registry, name, argument)
    return registry[name]


def check_choice(choices: Collection[str], name: str, argument: str) -> None:
    """Raise where `argument` is none of the choices, with the nearest one; a tuple is listed in its own order."""
    if not isinstance(name, str) or name not in choices:
        near = difflib.get_close_matches(str(name), choices, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        listed = ", ".join(choices if isinstance(choices, tuple) else sorted(choices))
        raise ValueError(f"{argument}={name!r} does not exist; choose from {listed}.{hint}")


def import_factory(path: str, argument: str) -> Callable[..., Any]:
    """The callable at "package.module:factory"."""
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute:
        raise ValueError(
            f"{argument}={path!r} must be 'package.module:factory', with a name on both sides of the colon"
        )
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise ValueError(
            f"{argument}={path!r}: importing module {module_name!r} failed ({describe(error)}); check its "
            f"spelling and that its folder is on PYTHONPATH"
        ) from error
    try:
        factory = getattr(module, attribute)
    except AttributeError:
        public = {k: v for k, v in vars(module).items() if callable(v) and not k.startswith("_")}
        factory = lookup(public, attribute, f"{argument}={path!r}: factory")
    if not callable(factory):
        raise TypeError(
            f"{argument}={path!r} is a {type(factory).__name__}; it must be a function or a class"
        )
    return factory


def describe(error: Exception) -> str:
    """Its kind and its words."""
    return f"{type(error).__name__}: {error}"
