"""The folder of one run: one owner at a time."""

import os
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from bayesify.atomic import clear_partial_files, lock
from bayesify.engine.checkpoint import find_checkpoints
from bayesify.engine.history import History

FILES = ("model.safetensors", "best.safetensors", "metrics.csv")
#: stands in the folder from the start to the first checkpoint: what a run left that was killed then may be overwritten
BEGUN = ".begun"
OWN = ("checkpoints", "draws", "tensorboard", "member*", ".lock", BEGUN)  # written into, and cleared


def remains(path: Path) -> list[str]:
    """What a run has left in a folder and another one would overwrite; nothing where none has got far."""
    found = [name for name in FILES if (path / name).exists()]
    for noun, files in (
        ("checkpoint", find_checkpoints(path / "checkpoints")),
        ("draw", [*(path / "draws").glob("draw-*.safetensors")]),
    ):
        found += [f"{len(files)} {noun}{'s'[: len(files) > 1]}"] if files else []
    return found


class RunFolder:
    """Owns a folder while entered: a second run in it is refused. Without a path nothing is written."""

    def __init__(self, path: str | Path | None, resume: bool, owner: bool) -> None:
        self.path = None if path is None else Path(path)
        self.resume = resume
        self.owner = owner  # this process writes (rank 0)
        self._lock: int | None = None
        # before the run puts anything there itself
        self._found = [] if self.path is None else remains(self.path)

    @property
    def checkpoints(self) -> Path:
        """Where the checkpoints are."""
        assert self.path is not None
        return self.path / "checkpoints"

    def __enter__(self) -> "RunFolder":
        if self.path is None:
            return self
        if self.owner:
            inside = self.path.iterdir() if self.path.is_dir() else ()
            for link in (p for p in inside if p.is_symlink() and any(fnmatch(p.name, name) for name in OWN)):
                raise OSError(
                    f"{link} is a link, and the run would write and delete files in {link.resolve()}: remove "
                    f"it, or give the folder that it is in"
                )
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                self._lock = os.open(self.path / ".lock", os.O_CREAT | os.O_RDWR)
            except OSError as error:
                raise OSError(f"cannot write to folder={str(self.path)!r}: {error.strerror}") from None
            if not lock(self._lock):
                os.close(self._lock)
                raise RuntimeError(f"another run is using {self.path}: wait for it, or choose another folder")
            draws = self.path / "draws"
            for place in (self.path, self.checkpoints, draws, *draws.glob("member-*")):
                clear_partial_files(place)
        return self

    def __exit__(self, *error: object) -> None:
        if self._lock is not None:
            os.close(self._lock)

    def check(self) -> None:
        """Raise where the run that is asked for cannot but overwrite what is there."""
        if self.path is None or (self.resume and find_checkpoints(self.checkpoints)):
            return
        if self._found and not self.resume:
            raise FileExistsError(
                f"{self.path} holds a run already ({', '.join(self._found)}): go on with resume=True (--resume), or "
                f"choose another folder"
            )
        self._check_fresh()

    def begin(self) -> None:
        """The run begins: raise where it would overwrite what another has left."""
        self._check_fresh()
        if self.path is not None and self.owner:
            (self.path / BEGUN).touch()

    def reached_a_checkpoint(self) -> None:
        """From here on the run goes on from its checkpoints, or not at all."""
        if self.path is not None and self.owner:
            (self.path / BEGUN).unlink(missing_ok=True)

    def _check_fresh(self) -> None:
        assert self.path is not None
        begun = (self.path / BEGUN).exists() and not find_checkpoints(self.checkpoints)
        if self._found and not begun:
            raise FileExistsError(
                f"{self.path} has no checkpoint that can be read, so there is nothing to go on from, and a run that "
                f"begins there would overwrite what it has: {', '.join(self._found)}. Put a sound checkpoint back "
                f"into {self.checkpoints}, or begin in another folder (folder=, --folder)"
            )

    def write_history(self, history: History) -> None:
        """metrics.csv, anew."""
        if self.path is not None and self.owner:
            history.write_csv(self.path / "metrics.csv")

    def tensorboard(self, wanted: bool) -> Any | None:
        """A writer of TensorBoard event files, where wanted."""
        if not wanted or not self.owner:
            return None
        if self.path is None:
            raise ValueError("tensorboard=True needs a folder to write to")
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ImportError("tensorboard=True needs tensorboard: pip install tensorboard") from None
        return SummaryWriter(self.path / "tensorboard")
