"""Downloading, from a server on this machine only."""

import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from data_files import write_cifar10, write_cifar100, write_mnist, write_svhn

from bayesify.data import cifar, idx, load, svhn
from bayesify.data.download import Remote, fetch, fetch_archive


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        if self.path == "/cut":  # promises more than it sends
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"half")
        else:
            super().do_GET()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Path]]:
    """The address of a local server and the folder it serves."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    folder = tmp_path / "site"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", folder
        server.shutdown()
        thread.join()


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def test_fetch_writes_the_file_once(site: tuple[str, Path], tmp_path: Path) -> None:
    url, folder = site
    (folder / "x").write_bytes(b"content")
    target = tmp_path / "new/folder/x"
    fetch(Remote(f"{url}/x", md5(b"content")), target)
    assert target.read_bytes() == b"content"
    assert list(target.parent.iterdir()) == [target]
    (folder / "x").unlink()
    assert fetch(Remote(f"{url}/x", "unused"), target) == target  # already there: nothing is asked for


@pytest.mark.parametrize("path", ["x", "cut"])
def test_a_wrong_checksum_leaves_nothing(path: str, site: tuple[str, Path], tmp_path: Path) -> None:
    url, folder = site
    (folder / "x").write_bytes(b"altered")
    target = tmp_path / "out/x"
    with pytest.raises(
        (ValueError, ConnectionError), match=rf"{url}/{path}.*(is published|cannot download|IncompleteRead)"
    ):
        fetch(Remote(f"{url}/{path}", md5(b"content")), target)
    assert list(target.parent.iterdir()) == []


def test_an_address_that_cannot_be_read_says_what_to_do(site: tuple[str, Path], tmp_path: Path) -> None:
    url, _ = site
    target = tmp_path / "out/x"
    for address in (f"{url}/missing", "http://127.0.0.1:1/x"):
        with pytest.raises(ConnectionError, match=rf"cannot download {address} .*put it at {target}"):
            fetch(Remote(address, ""), target)
        assert list(target.parent.iterdir()) == []


def make_archive(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def test_archive_writes_the_named_members_only(site: tuple[str, Path], tmp_path: Path) -> None:
    url, folder = site
    content = make_archive({"d/a": b"A", "d/b": b"B", "../evil": b"E"})
    (folder / "x.tar.gz").write_bytes(content)
    root = tmp_path / "root"
    fetch_archive(Remote(f"{url}/x.tar.gz", md5(content)), ["d/a"], root)
    assert sorted(p.relative_to(tmp_path).as_posix() for p in root.rglob("*")) == ["root/d", "root/d/a"]
    assert not (tmp_path / "evil").exists()


def test_an_archive_put_there_by_hand_is_used_and_kept(tmp_path: Path) -> None:
    (tmp_path / "x.tar.gz").write_bytes(make_archive({"a": b"A"}))
    fetch_archive(Remote("http://127.0.0.1:1/x.tar.gz", ""), ["a"], tmp_path)
    assert (tmp_path / "a").read_bytes() == b"A"
    assert (tmp_path / "x.tar.gz").exists()


@pytest.mark.parametrize(
    "content", [b"hello", make_archive({"other": b""})], ids=["no archive", "lacks a member"]
)
def test_a_bad_archive_is_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.tar.gz").write_bytes(content)
    with pytest.raises(ValueError, match=r"x.tar.gz: cannot unpack it .*delete it and try again"):
        fetch_archive(Remote("http://127.0.0.1:1/x.tar.gz", ""), ["a"], tmp_path)
    assert not (tmp_path / "a").exists()


def test_mnist(site: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url, folder = site
    write_mnist(folder)
    stems = [stem for stems in idx._FILES.values() for stem in stems]
    sums = tuple(md5((folder / f"{stem}.gz").read_bytes()) for stem in stems)
    for name in ("mnist", "fashion_mnist"):
        monkeypatch.setitem(idx.SETS, name, replace(idx.SETS[name], url=f"{url}/", md5=sums))
        assert len(load(name, tmp_path / "root", download=True).train) == 30
    assert len(list((tmp_path / "root/MNIST/raw").iterdir())) == 4
    assert len(load("mnist", tmp_path / "root").train) == 30  # found without downloading


@pytest.mark.parametrize(("name", "write"), [("cifar10", write_cifar10), ("cifar100", write_cifar100)])
def test_cifar(
    name: str, write: object, site: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, folder = site
    inside = cifar.SETS[name].folders[0]
    write(tmp_path / inside)
    content = make_archive({f"{inside}/{p.name}": p.read_bytes() for p in (tmp_path / inside).iterdir()})
    (folder / "x.tar.gz").write_bytes(content)
    described = replace(cifar.SETS[name], archive=Remote(f"{url}/x.tar.gz", md5(content)))
    monkeypatch.setitem(cifar.SETS, name, described)
    ds = load(name, tmp_path / "root", download=True)
    assert len(ds.train) > 0
    assert [p.name for p in (tmp_path / "root").iterdir()] == [inside]


def test_svhn(site: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url, folder = site
    write_svhn(folder)
    for part in ("train", "test"):
        file = f"{part}_32x32.mat"
        monkeypatch.setitem(svhn.REMOTES, part, Remote(f"{url}/{file}", md5((folder / file).read_bytes())))
    assert len(load("svhn", tmp_path / "root", download=True).train) == 12
    assert len(load("svhn", tmp_path / "root").test) == 12


def test_the_published_addresses_and_checksums_are_well_formed() -> None:
    remotes = [*svhn.REMOTES.values(), *(s.archive for s in cifar.SETS.values())]
    sums = [r.md5 for r in remotes] + [m for s in idx.SETS.values() for m in s.md5]
    assert len(sums) == 12
    assert all(len(bytes.fromhex(m)) == 16 for m in sums)
    assert len(set(sums)) == len(sums)
