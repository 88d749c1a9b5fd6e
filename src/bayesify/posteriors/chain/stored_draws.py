"""The draws of a chain, in memory or in a folder."""

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Generator, Tensor

from bayesify.posteriors.base import Chunks
from bayesify.posteriors.chain.draw_files import DrawFolder, read_draw
from bayesify.posteriors.chain.draw_store import NONE_YET, DrawKey, DrawStore, Weights
from bayesify.posteriors.chain.prefetch import Arrival, Upload, prefetched

MEMORY = 2**28  # bytes of draws that stay in memory beside their files: small networks need not read them


class StoredDraws(DrawStore):
    """Draws by their key, in the order they were taken.

    Without a folder all are in memory. With one each has a file, and memory holds no more than `MEMORY` bytes
    of them. A file that turns out damaged is named in a warning and left out.
    """

    def __init__(self, like: Mapping[str, Tensor], dtype: torch.dtype | None = None) -> None:
        self.like = {name: (w.shape, w.dtype) for name, w in like.items()}
        self.dtype = dtype
        self.folder: DrawFolder | None = None
        self.keys: list[DrawKey] = []
        self.files: dict[DrawKey, Path] = {}
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
            self.files[key] = self.folder.file(key)
        if key not in self.keys:
            self.keys.append(key)
        held = sum(map(_size, self.memory.values()))
        if self.folder is None or held + _size(draw) <= MEMORY:
            self.memory[key] = draw
        self._write_index()

    def draw(self, n: int, generator: Generator | None) -> Weights:
        """Drawn with replacement."""
        while self.keys:
            device = None if generator is None else generator.device
            chosen = torch.randint(len(self), (n,), generator=generator, device=device).tolist()
            draws = self._read([self.keys[i] for i in chosen])
            if len(draws) == n:
                return {name: torch.stack([draw[name] for draw in draws]) for name in self.like}
        raise RuntimeError(NONE_YET)

    def stream(self, num_draws: int, chunk: int, generator: Generator | None, like: Weights) -> Chunks:
        """Every stored draw once, or `num_draws` of them evenly spread over the chain."""
        keys = spread(self.keys, num_draws)
        upload = Upload(like)

        def load(chosen: list[DrawKey]) -> tuple[int, Arrival]:
            draws = self._read(chosen)
            return len(draws), upload.start(draws)

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
        draws = {key: self._one(key) for key in list(self.keys)}
        self.folder = DrawFolder(folder)
        for key, draw in draws.items():
            if draw is not None and self.folder.write(key, draw):
                self.files[key] = self.folder.file(key)
        if draws:
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
        here = {path.resolve() for path in self.files.values()}
        if any(source.file(DrawKey(*key)).resolve() in here for key in index["draws"]):
            raise ValueError(f"the draws in {folder} are in this chain already: add every folder once")
        first = self.next_chain()
        chains = sorted({chain for chain, _ in index["draws"]})
        for chain, step in index["draws"]:
            key = DrawKey(first + chains.index(chain), step)
            self.keys.append(key)
            self.files[key] = source.file(DrawKey(chain, step))
        return len(index["draws"])

    def next_chain(self) -> int:
        """The first number that no chain has."""
        return max((key.chain for key in self.keys), default=-1) + 1

    def tensors(self, whole: bool) -> dict[str, Tensor]:
        keys = torch.tensor(self.keys, dtype=torch.int64).reshape(-1, 2)
        if self.folder is not None and not whole:
            return {"places": keys}
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

    def take(self, tensors: Mapping[str, Tensor]) -> None:
        """With draws: hold them in memory. Without: go back to when only these keys had been taken."""
        keys = [DrawKey(*key) for key in tensors["places"].tolist()]
        draws = {k.removeprefix("draws."): w.cpu() for k, w in tensors.items() if k.startswith("draws.")}
        if draws:
            shapes = {name: (len(keys), *shape) for name, (shape, _) in self.like.items()}
            if {name: w.shape for name, w in draws.items()} != shapes:
                raise ValueError(f"the draws are not {len(keys)} of every weight")
            self.folder, self.files, self.keys = None, {}, keys
            self.memory = {p: {name: w[i].clone() for name, w in draws.items()} for i, p in enumerate(keys)}
            return
        self.memory = {key: draw for key, draw in self.memory.items() if key in keys}
        if self.folder is not None:
            files = {key: self.folder.file(key) for key in keys if key not in self.files}
            self.files |= {key: path for key, path in files.items() if path.is_file()}
        self.keys = [key for key in keys if key in self.memory or key in self.files]
        for key in keys:
            if key not in self.keys:
                warnings.warn(f"the file of draw {key.step} is missing: this draw is left out")

    def _one(self, key: DrawKey) -> Weights | None:
        if key in self.memory:
            return self.memory[key]
        draw = read_draw(self.files[key], {name: shape for name, (shape, _) in self.like.items()})
        if draw is None and key in self.keys:
            self.keys.remove(key)
        return draw

    def _read(self, keys: list[DrawKey]) -> list[Weights]:
        """These draws, without those that turn out damaged."""
        return [draw for key in keys if (draw := self._one(key)) is not None]

    def each(self) -> Iterator[tuple[DrawKey, Weights]]:
        """Every draw that is not damaged, with its key."""
        for key in list(self.keys):
            draw = self._one(key)
            if draw is not None:
                yield key, draw

    def _write_index(self) -> None:
        if self.folder is not None:
            mine = [key for key in self.keys if self.files.get(key) == self.folder.file(key)]
            self.folder.write_index(mine, {name: tuple(shape) for name, (shape, _) in self.like.items()})


def spread(keys: list[DrawKey], count: int) -> list[DrawKey]:
    """`count` of the keys, evenly spread; all of them where there are not more."""
    if count >= len(keys):
        return list(keys)
    return [keys[(2 * i + 1) * len(keys) // (2 * count)] for i in range(count)]


def _size(draw: Weights) -> int:
    return sum(w.numel() * w.element_size() for w in draw.values())
