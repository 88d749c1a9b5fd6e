"""The draws of a chain, in memory or in a folder."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from bayesify.posteriors.base import Chunks
from bayesify.posteriors.chain.draw_files import INDEX, DrawFile, DrawFolder, DrawReference, DrawRow
from bayesify.posteriors.chain.draw_store import NONE_YET, DrawKey, DrawStore, Weights
from bayesify.posteriors.chain.prefetch import Arrival, Upload, prefetched
from bayesify.rows import Rows

#: bytes of draws that stay in memory beside their files: small networks need not read them again
MEMORY = 2**25
_listing: ContextVar[bool] = ContextVar("listing", default=False)


class StoredDraws(DrawStore):
    """Draws by their key, in the order they were taken.

    Those that were taken without a folder are in memory. All others stay on disk, in files of their own or in that of
    a model, and memory holds no more than `MEMORY` bytes of them. A file of this run that turns out damaged is named
    in a warning and left out; one that the file of a model names is an error.
    """

    def __init__(self, like: Mapping[str, Tensor], dtype: torch.dtype | None = None) -> None:
        self.like = {name: (w.shape, w.dtype) for name, w in like.items()}
        self.dtype = dtype
        self.folder: DrawFolder | None = None
        self.keys: list[DrawKey] = []
        self.sources: dict[DrawKey, DrawFile | DrawRow] = {}
        self.memory: dict[DrawKey, Weights] = {}

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def num_chains(self) -> int:
        return len({key.chain for key in self.keys})

    def add(self, key: DrawKey, weights: Mapping[str, Tensor]) -> None:
        draw = {name: w.detach().to("cpu", self.dtype, copy=True) for name, w in weights.items()}
        if self.folder is not None:
            if not self.folder.write(key, draw):
                return
            self.sources[key] = DrawFile(self.folder.file(key))
            self.memory.pop(key, None)
        if key not in self.keys:
            self.keys.append(key)
        if self.folder is None or self._has_room(draw):
            self.memory[key] = draw
        self._write_index()

    def draw(self, n: int, generator: Generator | None) -> Weights:
        """Drawn with replacement."""
        while self.keys:
            device = None if generator is None else generator.device
            chosen = torch.randint(len(self), (n,), generator=generator, device=device).tolist()
            draws = list(self._read([self.keys[i] for i in chosen]))
            if len(draws) == n:
                return {name: torch.stack([draw[name] for draw in draws]) for name in self.like}
        raise RuntimeError(NONE_YET)

    def stream(self, num_draws: int, chunk: int, generator: Generator | None, like: Weights) -> Chunks:
        """Every stored draw once, or `num_draws` of them evenly spread over the chain."""
        keys = spread(self.keys, num_draws)
        upload = Upload(like)

        def load(chosen: list[DrawKey]) -> tuple[int, Arrival]:
            return upload.start(len(chosen), self._read(chosen))

        chunks = [keys[start : start + chunk] for start in range(0, len(keys), chunk)]
        at_hand = upload.device.type == "cpu" and all(key in self.memory for key in keys)
        for n, arrive in map(load, chunks) if at_hand else prefetched(load, chunks):
            if n:
                yield n, arrive()

    def mean(self) -> Weights:
        total: Weights = {}
        for count, (_, draw) in enumerate(self.each(), 1):
            for name, w in draw.items():
                total[name] = total[name].lerp_(w.double(), 1 / count) if name in total else w.double()
        if not total:
            raise RuntimeError(NONE_YET)
        return total

    def variance(self) -> Weights:
        mean = self.mean()
        total = {name: torch.zeros_like(m) for name, m in mean.items()}
        for _, draw in self.each():
            for name, w in draw.items():
                total[name] += (w - mean[name]).square() / len(self)
        return total

    def move_to(self, folder: Path) -> None:
        if self.folder is not None and self.folder.path == folder:
            return
        self.folder = DrawFolder(folder)
        for key in list(self.keys):
            file, source = self.folder.file(key), self.sources.get(key)
            if isinstance(source, DrawFile) and source.path.resolve() == file.resolve():
                continue
            draw = self._one(key)
            if draw is not None and self.folder.write(key, draw):
                self.sources[key] = DrawFile(file)
                if not self._has_room(draw):
                    self.memory.pop(key, None)
        if self.keys and not (folder / INDEX).exists():  # else the run there will say where it is
            self._write_index()

    def adopt(self, folder: Path) -> int:
        """Add the draws of another run's folder as further chains; returns how many came."""
        source = DrawFolder(folder)
        index = source.read_index()
        mine = {name: list(shape) for name, (shape, _) in self.like.items()}
        if index["shapes"] != mine:
            names = [n for n in {**mine, **index["shapes"]} if index["shapes"].get(n) != mine.get(n)]
            raise ValueError(
                f"{folder} holds draws of another network: they differ in {', '.join(names[:5])}"
            )
        here = {file.path.resolve() for file in self.sources.values() if isinstance(file, DrawFile)}
        if any(source.file(DrawKey(*key)).resolve() in here for key in index["draws"]):
            raise ValueError(f"the draws in {folder} are in this chain already: add every folder once")
        first = self.next_chain()
        chains = sorted({chain for chain, _ in index["draws"]})
        for chain, step in index["draws"]:
            key = DrawKey(first + chains.index(chain), step)
            self.keys.append(key)
            self.sources[key] = DrawFile(source.file(DrawKey(chain, step)))
        return len(index["draws"])

    def next_chain(self) -> int:
        """The first number that no chain has."""
        return max((key.chain for key in self.keys), default=-1) + 1

    def tensors(self, whole: bool) -> dict[str, Tensor]:
        if not whole and (self.folder is not None or _listing.get()):
            return {"places": torch.tensor(self.keys, dtype=torch.int64).reshape(-1, 2)}
        stacked: Weights = {}
        count = 0
        for _, draw in self.each():  # one at a time: memory holds the result and a single draw
            for name, w in draw.items():
                if name not in stacked:
                    stacked[name] = w.new_empty((len(self.keys), *w.shape))
                wider = torch.promote_types(stacked[name].dtype, w.dtype)  # of a folder added later
                stacked[name] = stacked[name].to(wider)
                stacked[name][count] = w
            count += 1
        for name, (shape, dtype) in self.like.items() if not stacked else ():
            stacked[name] = torch.empty((0, *shape), dtype=dtype)
        keys = torch.tensor(self.keys, dtype=torch.int64).reshape(-1, 2)  # damaged ones are gone
        return {"places": keys, **{f"draws.{name}": stacked[name][:count] for name in self.like}}

    def reference(self, run: Path) -> dict[str, Any] | None:
        """What a file in the folder `run` says of the draws, where all of them lie in there; else None."""
        files = {key: self.sources.get(key) for key in self.keys}
        return DrawReference.made(run, files) if self.keys else None

    def take(self, tensors: Mapping[str, Any]) -> None:
        """With draws, or where they are: these instead of others. Without: go back to when only these keys had been
        taken."""
        keys = [DrawKey(*key) for key in tensors["places"].tolist()]
        draws = {k.removeprefix("draws."): w for k, w in tensors.items() if k.startswith("draws.")}
        shapes = {name: (len(keys), *shape) for name, (shape, _) in self.like.items()}
        if draws and {name: tuple(w.shape) for name, w in draws.items()} != shapes:
            raise ValueError(f"the draws are not {len(keys)} of every weight")
        if "draws" in tensors or draws:
            self.folder, self.keys, self.memory, self.sources = None, keys, {}, {}
        if "draws" in tensors:
            self.sources = dict(tensors["draws"].files(keys))
        elif any(isinstance(w, Rows) for w in draws.values()):
            self.sources = {key: DrawRow(draws, i) for i, key in enumerate(keys)}
        elif draws:
            own = {name: w.to("cpu", copy=True) for name, w in draws.items()}
            self.memory = {key: {name: w[i] for name, w in own.items()} for i, key in enumerate(keys)}
        else:
            self._go_back(keys)

    def _go_back(self, keys: list[DrawKey]) -> None:
        self.memory = {key: draw for key, draw in self.memory.items() if key in keys}
        if self.folder is not None:
            files = {key: self.folder.file(key) for key in keys if key not in self.sources}
            self.sources |= {key: DrawFile(path) for key, path in files.items() if path.is_file()}
        self.keys = [key for key in keys if key in self.memory or key in self.sources]
        for key in keys:
            if key not in self.keys:
                where = f"draw {key.step}" if self.folder is None else self.folder.file(key)
                warnings.warn(f"{where} is missing: this draw is left out")

    def _one(self, key: DrawKey) -> Weights | None:
        if key in self.memory:
            return self.memory[key]
        source = self.sources[key]
        try:
            draw = source.read({name: shape for name, (shape, _) in self.like.items()})
        except (OSError, ValueError) as error:
            if isinstance(source, DrawRow) or source.seal is not None:
                raise
            warnings.warn(f"{error}: this draw is left out", stacklevel=3)
            if key in self.keys:
                self.keys.remove(key)
            return None
        if self._has_room(draw):
            self.memory[key] = {name: w.clone() for name, w in draw.items()}
        return draw

    def _has_room(self, draw: Weights) -> bool:
        """May one more draw stay in memory beside its file?"""
        return len(self.memory) < MEMORY // max(_size(draw), 1)

    def _read(self, keys: list[DrawKey]) -> Iterator[Weights]:
        """These draws, without those that turn out damaged."""
        return (draw for key in keys if (draw := self._one(key)) is not None)

    def each(self) -> Iterator[tuple[DrawKey, Weights]]:
        """Every draw that is not damaged, with its key."""
        for key in list(self.keys):
            draw = self._one(key)
            if draw is not None:
                yield key, draw

    def _write_index(self) -> None:
        if self.folder is not None:
            files = {k: f.path for k, f in self.sources.items() if isinstance(f, DrawFile)}
            mine = [key for key in self.keys if files.get(key) == self.folder.file(key)]
            self.folder.write_index(mine, {name: tuple(shape) for name, (shape, _) in self.like.items()})


@contextmanager
def listing() -> Iterator[None]:
    """Inside, a state dict lists the draws by their keys and holds none, wherever they are."""
    token = _listing.set(True)
    try:
        yield
    finally:
        _listing.reset(token)


def spread(keys: list[DrawKey], count: int) -> list[DrawKey]:
    """`count` of the keys, evenly spread; all of them where there are not more."""
    if count >= len(keys):
        return list(keys)
    return [keys[(2 * i + 1) * len(keys) // (2 * count)] for i in range(count)]


def _size(draw: Weights) -> int:
    return sum(w.numel() * w.element_size() for w in draw.values())
