"""What a file may make this process import: nothing, unless the command line says so."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bayesify.cli.terminal import note
from bayesify.nets import is_outside


def check_trust(
    table: Mapping[str, Any],
    file: Path,
    named: str | None = None,
    trust: bool = False,
    modules: str | None = None,
) -> None:
    """Raise where the network that a file asks for is code from outside of bayesify, and nobody vouched for it.

    table:    [net] of the file
    named:    the network on the command line, --net or --set net.name=…: who types it knows it
    trust:    --trust: what will be imported is said, and found from `modules`, the folder that the file names
    """
    name = str(table.get("name"))
    if not is_outside(name) or named is not None:
        return
    if not trust:
        raise ValueError(
            f"{file} asks for the network {name!r}, which is code from outside of bayesify, and opening a file runs "
            f"nothing that it names. If the code is yours, name it yourself: --net package.module:factory. If you "
            f"trust whoever wrote the file: --trust, which imports and calls {name!r}"
        )
    known = isinstance(modules, str) and modules not in sys.path
    folder = f", which may come from {modules}" if known else ""
    note(f"--trust: importing and calling {name!r}, as {file} asks{folder}", "yellow")
    if known:
        sys.path.append(str(modules))
