"""Stopping politely: SIGINT and SIGTERM are noted, and the loop stops at the next safe place."""

import signal
import threading
from types import FrameType
from typing import Any


class Signals:
    """While entered, the first SIGINT or SIGTERM only sets `received`; a second SIGINT interrupts at once."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._old: dict[int, Any] = {}

    def __enter__(self) -> "Signals":
        if threading.current_thread() is threading.main_thread():  # Python allows handlers nowhere else
            for number in (signal.SIGINT, signal.SIGTERM):
                self._old[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = number

    def leave(self) -> None:
        """End the run the way the signal asks: KeyboardInterrupt, or exit code 143."""
        if self.received == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + signal.SIGTERM)
