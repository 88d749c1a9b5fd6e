"""What a file may make this process import: nothing, unless the command line says so."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bayesify import data, nets
from bayesify.cli.terminal import note

#: table -> what its name stands for, is it code from outside of bayesify, and how the command line names it
OUTSIDE = {
    "net": ("network", nets.is_outside, "--net package.module:factory"),
    "data": ("data set", data.is_outside, "--data package.module:factory"),
}


def check_trust(
    tables: Mapping[str, Any],
    file: Path,
    given: Mapping[str, Any],
    trust: bool = False,
    modules: str | None = None,
) -> None:
    """Raise where the network or the data that a file asks for are code from outside of bayesify, and nobody vouched
    for it.

    tables:   of the file
    given:    those of the command line, --net, --data or --set net.name=…: who types a name knows it
    trust:    --trust: what will be imported is said, and found from `modules`, the folder that the file names
    """
    for key, (noun, is_outside, flag) in OUTSIDE.items():
        name = tables.get(key, {}).get("name")
        if not isinstance(name, str) or not is_outside(name) or given.get(key, {}).get("name") is not None:
            continue
        if not trust:
            raise ValueError(
                f"{file} asks for the {noun} {name!r}, which is code from outside of bayesify, and opening a file "
                f"runs nothing that it names. If the code is yours, name it yourself: {flag}. If you trust whoever "
                f"wrote the file: --trust, which imports and calls {name!r}"
            )
        known = isinstance(modules, str) and modules not in sys.path
        folder = f", which may come from {modules}" if known else ""
        note(f"--trust: importing and calling {name!r}, as {file} asks{folder}", "yellow")
        if known:
            sys.path.append(str(modules))
