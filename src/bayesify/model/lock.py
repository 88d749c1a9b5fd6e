"""The lock of a model, which also a forked process can take."""

import os
import threading
import time
import weakref
from typing import Any

WAIT = 1.0  # seconds that a fork waits for the calls of models in other threads
_locks: dict[int, "weakref.ref[Lock]"] = {}  # of all models; a dict, because its values can be listed at once
_forking = threading.local()  # the locks that a thread which forks has taken


class Lock:
    """A reentrant lock that a copied model gets anew.

    A forked process has no other threads: a lock that one of them held would never be free there, and the model would
    stay as that thread's call had left it, with a draw in the place of its weights. So a fork waits until no model is
    in use, and the child's locks are new. A model whose call takes longer than `WAIT` is refused in the child.
    """

    def __init__(self) -> None:
        self.held = threading.RLock()
        self.torn = False  # another thread had it when this process was forked
        key = id(self)
        _locks[key] = weakref.ref(self, lambda _: _locks.pop(key, None))

    def free(self) -> Any:
        """The lock, to be entered."""
        if self.torn:
            raise RuntimeError(
                "another thread was using this model when the process was forked, so its weights may be those of a "
                "draw here: load or make it again in this process, fork while no thread predicts, or use "
                "multiprocessing's 'spawn'"
            )
        return self.held

    def __deepcopy__(self, memo: Any) -> "Lock":
        return Lock()

    def __reduce__(self) -> Any:
        return Lock, ()


def _all() -> list[Lock]:
    return [lock for ref in list(_locks.values()) if (lock := ref()) is not None]


def _before_fork() -> None:
    end = time.monotonic() + WAIT
    waited = ((lock, max(0.0, end - time.monotonic())) for lock in _all())
    _forking.held = [lock for lock, seconds in waited if lock.held.acquire(timeout=seconds)]


def _in_parent() -> None:
    for lock in _forking.held:
        lock.held.release()
    _forking.held = []


def _in_child() -> None:
    for lock in _all():
        lock.torn = lock.torn or lock not in _forking.held
        lock.held = threading.RLock()
    _forking.held = []


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)
