"""Moment rules, one decorated function or one line of a table per formula; importing this room registers those of all
its files."""

from importlib import import_module
from pkgutil import iter_modules

for _file in iter_modules(__path__):
    import_module(f"{__name__}.{_file.name}")
