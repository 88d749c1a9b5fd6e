"""The boundary of every command: an expected error becomes one red line and an exit code.

2  what was asked for cannot be done: a wrong name, value, file or folder
1  the run itself failed: a loss that is not finite, a full disk
130 and 143 after SIGINT and SIGTERM
"""

import errno
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from safetensors import SafetensorError
from typer.core import TyperGroup

from bayesify.cli.terminal import note
from bayesify.samplers import SamplingWarning

BAD_INPUT, FAILED = 2, 1
EXPECTED: tuple[type[Exception], ...] = (
    *(ValueError, TypeError, OSError, ImportError, RuntimeError, MemoryError),
    *(SafetensorError, SamplingWarning),
)
LONGEST = 4000  # characters of a message
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class RunFailed(Exception):
    """The run had begun and could not be finished; what is on disk is sound."""


class Commands(TyperGroup):
    """The commands, with this boundary around them."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command that `args` name, and end the process with its exit code."""
        debug = os.environ.get("BAYESIFY_DEBUG", "") not in ("", "0")
        try:
            code = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        except KeyboardInterrupt:
            sys.exit(128 + signal.SIGINT)
        except Exception as error:
            if debug:
                raise
            _leave(error)
        sys.exit(code if isinstance(code, int) else 0)


def _leave(error: Exception) -> NoReturn:
    """Say what is wrong in one line; anything unexpected keeps its traceback."""
    if type(error).__name__ == "NoArgsIsHelpError":  # typer's, which holds the help page
        print(error.format_message(), file=sys.stderr)  # type: ignore[attr-defined]
        sys.exit(BAD_INPUT)
    if hasattr(error, "format_message"):  # a wrong flag, found by typer
        context = getattr(error, "ctx", None)
        where = "" if context is None else f" (see {context.command_path} --help)"
        note(f"error: {error.format_message().rstrip()}{where}", "red")
        sys.exit(BAD_INPUT)
    if type(error).__name__ == "Abort":
        sys.exit(128 + signal.SIGINT)
    if not isinstance(error, (RunFailed, *EXPECTED)):
        raise error
    note(f"error: {describe(error)}", "red")
    sys.exit(FAILED if isinstance(error, RunFailed | MemoryError) or is_disk_error(error) else BAD_INPUT)


def describe(error: BaseException) -> str:
    """The error's own words, in one line that is not longer than a screen: they may quote a file."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} … {text[-LONGEST // 2 :]}"


def is_disk_error(error: BaseException) -> bool:
    """A disk that is full, over its quota or broken, not a wrong path."""
    return isinstance(error, SafetensorError) or (isinstance(error, OSError) and error.errno in _DISK)


def signal_to_exit() -> None:
    """Let SIGTERM end the process like any exception, so that files are closed and locks released."""

    def leave(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)
