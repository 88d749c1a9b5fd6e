"""Fetching public files: checked against a published checksum, and complete or not there at all."""

import hashlib
import os
import shutil
import tarfile
import urllib.error
import urllib.request
import uuid
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO

TIMEOUT_S = 30


@dataclass(frozen=True)
class Remote:
    """A public file: its address and the md5 its publisher states (integrity, not security)."""

    url: str
    md5: str


def fetch(remote: Remote, target: Path) -> Path:
    """Download `remote` to `target`, unless it is there already. A failure leaves nothing behind.

    Raises ConnectionError when the address cannot be read, ValueError when the checksum differs.
    """
    if target.is_file():
        return target
    with _atomic(target) as file:
        digest = hashlib.md5(usedforsecurity=False)
        try:
            with urllib.request.urlopen(remote.url, timeout=TIMEOUT_S) as response:
                while block := response.read(1 << 20):
                    digest.update(block)
                    file.write(block)
        except (OSError, HTTPException) as error:  # URLError and time-outs are OSErrors
            raise ConnectionError(
                f"cannot download {remote.url} ({error}); if this machine has no access to it, fetch it "
                f"elsewhere and put it at {target}"
            ) from None
        if digest.hexdigest() != remote.md5:
            raise ValueError(
                f"{remote.url}: md5 {digest.hexdigest()} where {remote.md5} is published; nothing was kept. "
                "The download was cut or altered: try again"
            )
    return target


def fetch_archive(remote: Remote, members: Sequence[str], root: Path) -> None:
    """Download a tar.gz archive and write the named `members`, and nothing else of it, below `root`."""
    archive = root / remote.url.rsplit("/", 1)[-1]
    own = not archive.exists()  # one that a person put there is kept
    fetch(remote, archive)
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in members:
                source = tar.extractfile(member)
                if source is None:
                    raise KeyError(member)
                with source, _atomic(root / member) as file:
                    shutil.copyfileobj(source, file)
    except (tarfile.TarError, KeyError, EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{archive}: cannot unpack it ({error}); delete it and try again") from None
    if own:
        archive.unlink()


@contextmanager
def _atomic(target: Path) -> Iterator[IO[bytes]]:
    """A temporary file beside `target` that takes its name on success and disappears on failure."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    try:
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
