"""Fetching public files: checked against a published checksum, and complete or not there at all."""

import hashlib
import shutil
import tarfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import IO

from bayesify.atomic import write_atomically

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

    def download(path: Path) -> None:
        digest = hashlib.md5(usedforsecurity=False)
        try:
            with urllib.request.urlopen(remote.url, timeout=TIMEOUT_S) as response, path.open("wb") as file:
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

    if not target.is_file():
        write_atomically(target, download)
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
                with source:
                    write_atomically(root / member, partial(_copy, source))
    except (tarfile.TarError, KeyError, EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{archive}: cannot unpack it ({error}); delete it and try again") from None
    if own:
        archive.unlink()


def _copy(source: IO[bytes], path: Path) -> None:
    with path.open("wb") as file:
        shutil.copyfileobj(source, file)
